"""Defines what the broker asks of a metadata store: an ordered log with snapshots, who is alive, and who is the
controller."""

import asyncio
import base64
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

MAX_SLICE_BYTES = 256 * 1024
MAX_SLICE_ENTRIES = 1000
SECRET_BYTES = 32


class Contact(Enum):
    """How a session stands with its store, by the clock of this process and not by what the store says."""

    GOOD = "good"
    # No word from the store for two thirds of the session: others may soon think that this broker is gone.
    DOUBTFUL = "doubtful"
    # No word for the whole session, or the store has ended it: others may have taken over.
    LOST = "lost"


class MetadataStore(Protocol):
    """The session of one broker with the store. What it holds there, its membership and the lease, ends with the
    session.

    Entries are numbered from 1. Any call outside `open` and `close` raises StoreClosedError. A call that needs the
    store waits while it is out of reach, but not beyond the session: then it raises SessionLostError. All of them may
    be cancelled.
    """

    @property
    def max_entry_bytes(self) -> int:
        """The largest entry that `append` takes."""

    @property
    def contact(self) -> Contact: ...

    @property
    def session(self) -> int:
        """The number of the session, from 1. It grows when the store has ended one and begun another, without members
        or lease: the broker registers again."""

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        """Returns when contact or session are no longer these."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Ends the session and wakes all waiting calls with StoreClosedError."""

    async def cluster_id(self) -> str:
        """Returns the name that the cluster got when the store was first opened."""

    async def secret(self) -> bytes:
        """Returns what only the brokers of the cluster know: 32 random bytes, made when the store was first opened."""

    async def register(self, broker_id: int, details: bytes, *, folder: str) -> int:
        """Makes the broker a member and returns its epoch, which is above those of all registrations ever.

        `folder` is the random id of its data folder. A member with the same id and the same folder is replaced: its
        process is gone, since it held the lock of that folder. One with another folder may be about to go: the call
        waits for one session, and then raises StoreRefusedError.
        """

    async def members(self) -> dict[int, "Member"]:
        """Returns the brokers that are alive."""

    async def wait_for_members(self, known: Mapping[int, int]) -> None:
        """Returns when the members, by their epochs, are no longer these."""

    async def take_controller_lease(self, broker_id: int) -> int | None:
        """Returns a controller epoch above all before it, the same again to the holder, None while another holds it."""

    async def release_controller_lease(self) -> None:
        """Lets another broker take the lease; nothing happens if this session does not hold it."""

    async def controller(self) -> tuple[int, int] | None:
        """Returns the broker that holds the lease and its epoch."""

    async def wait_for_lease(self) -> None:
        """Returns when no broker holds the lease. Another may take it first."""

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        """Makes the entry durable. It is there when this returns, and is not when it raises anything but
        OutcomeUnknownError: FencedError if a newer controller was there, ConflictError if the index is not the one
        after the last, EntryTooLargeError before anything is sent. After cancellation the outcome is unknown."""

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        """Returns what follows an index, in order: at most 1,000 entries and, unless a single one is larger, 256 KB.

        Raises EntriesDroppedError when the next entry is gone: then load the snapshot.
        """

    async def wait_for_entries(self, after: int) -> None:
        """Returns when there is an entry after this index."""

    async def save_snapshot(self, controller_epoch: int, index: int, data: bytes) -> None:
        """Stores the state as of an entry, unless a newer one is there, and drops what the previous one covers. Raises
        FencedError if a newer controller was there."""

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        """Returns the newest snapshot and the index of the last entry in it."""


class FoundableStore(Protocol):
    """A store in which a cluster can begin with what another store had. It is not open meanwhile."""

    async def check_foundable(self, cluster_id: str) -> bool:
        """Whether nothing is there; False if this cluster is. Raises StoreRefusedError if the store is out of reach, or
        has another cluster."""

    async def found(self, founding: "Founding") -> None:
        """Makes the cluster, all or nothing. Does nothing if this cluster is there already, and raises
        StoreRefusedError if another one is."""


@dataclass(frozen=True, slots=True)
class Founding:
    """What a cluster begins with: who it is, the first entry of its log, and a snapshot as of that entry."""

    cluster_id: str
    secret: bytes
    entry: bytes
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class Member:
    """`details` are what the broker said about itself, `folder` is the id of its data folder."""

    broker_epoch: int
    details: bytes
    folder: str = ""


class StoreError(Exception):
    """The store cannot do what it was asked to; the message says why."""


class StoreClosedError(StoreError):
    """The session is over, or has not begun."""

    def __init__(self) -> None:
        super().__init__("the metadata store is closed")


class StoreRefusedError(StoreError):
    """The store cannot be opened, because it is in use, from a newer Penstock or damaged; or another broker has the id
    of the one that registers."""


class SessionLostError(StoreError):
    """The store was out of reach for longer than the session lasts. Contact may come back, with a new session."""

    def __init__(self) -> None:
        super().__init__("the metadata store was out of reach for a whole session")


class OutcomeUnknownError(StoreError):
    """Nobody can tell whether the entry was appended: its writer stops being the controller, and reads on."""

    def __init__(self, index: int) -> None:
        super().__init__(f"contact with the metadata store was lost while entry {index} was appended")


class EntryTooLargeError(StoreError):
    """The entry is larger than the store takes; nothing was sent."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(f"an entry of {size} bytes for the metadata log, which takes up to {largest}")


class FencedError(StoreError):
    """Another controller has taken over: the broker that sees this is no longer the controller."""

    def __init__(self, epoch: int, newest: int) -> None:
        super().__init__(f"controller epoch {epoch} may not append: the controller has epoch {newest}")
        self.newest = newest


class ConflictError(StoreError):
    """The log did not end where the writer thought: read on, decide again."""

    def __init__(self, index: int, last: int) -> None:
        super().__init__(f"entry {index} cannot be appended to a metadata log whose last entry is {last}")
        self.last = last


class EntriesDroppedError(StoreError):
    """A snapshot has replaced the entries asked for."""

    def __init__(self, index: int) -> None:
        super().__init__(f"entry {index} of the metadata log is gone; load the snapshot and go on behind it")


class Arrivals:
    """Waits for the log to grow; for implementations. Belongs to one event loop and one session."""

    def __init__(self) -> None:
        self._last = 0
        self._closed = False
        self._changed = asyncio.Event()

    def announce(self, last: int) -> None:
        """The log has grown to this index."""
        self._last = max(last, self._last)
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def wait(self, after: int) -> None:
        while not self._closed and self._last <= after:
            await self._changed.wait()
        if self._closed:
            raise StoreClosedError

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def new_cluster_id() -> str:
    """A random id as Kafka writes them: 22 characters of base64 that do not look like an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)
