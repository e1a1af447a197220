"""A member of a classic group, and a caller that waits for an answer, are values: a change makes another one."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from penstock.machines.groups.records import StoredMember

# Of a member in a group's record, beside its texts and bytes: their lengths and two timeouts.
_FIXED_BYTES: Final = 24


@dataclass(slots=True, frozen=True)
class Waiter:
    """A join or sync that is answered later, in the version that it came in."""

    token: Hashable
    """None once its caller is gone; the member waits all the same."""
    version: int


@dataclass(slots=True, frozen=True)
class Member:
    member_id: str
    instance_id: str | None
    """Set for a static member (KIP-345): a client that comes back under this name takes the member's place."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """What it can do, the best first: assignors and the member's metadata for each. To the coordinator they are
    opaque."""
    assignment: bytes = b""
    is_new: bool = False
    """It has not been through a rebalance yet: if it stays silent in its first join, it goes."""

    def metadata(self, protocol: str | None) -> bytes | None:
        """What it says under a protocol, if it speaks it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return None

    @property
    def log_bytes(self) -> int:
        """What it takes in the log without its assignment, whichever of its protocols is chosen, at the most."""
        texts = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        metadata = max((len(metadata) for _, metadata in self.protocols), default=0)
        return _FIXED_BYTES + sum(len(text.encode()) for text in texts) + metadata

    def stored(self, protocol: str | None) -> StoredMember:
        """The member as the log keeps it."""
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol) or b"",
            self.assignment,
        )

    @classmethod
    def restored(cls, stored: StoredMember, protocol: str | None) -> "Member":
        """The member as the log has it: of its protocols only the chosen one is known."""
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            ((protocol or "", stored.subscription),),
            stored.assignment,
        )
