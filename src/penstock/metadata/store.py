"""What the broker asks of a metadata store: an ordered log with snapshots, who is alive, and who is the controller."""

import asyncio
import base64
import uuid
from dataclasses import dataclass
from typing import Protocol

MAX_SLICE_BYTES = 256 * 1024
MAX_SLICE_ENTRIES = 1000


class MetadataStore(Protocol):
    """One broker's session with the store: what it holds there, its membership and the lease, ends with the session.

    Entries are numbered from 1. Any call outside `open` and `close` raises StoreClosedError.
    """

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Ends the session and wakes whoever waits with StoreClosedError."""

    async def cluster_id(self) -> str:
        """Returns the name that the cluster got when the store was first opened."""

    async def register(self, broker_id: int, details: bytes) -> int:
        """Makes the broker a member and returns its epoch, which is above those of all registrations ever."""

    async def members(self) -> dict[int, "Member"]:
        """Returns who is alive."""

    async def take_controller_lease(self, broker_id: int) -> int | None:
        """Returns a controller epoch above all before it, the same again to the holder, None while another holds it."""

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        """Makes the entry durable. Raises FencedError if a newer controller was there, ConflictError if the index is
        not the one behind the last. After any other error, and after cancellation, the outcome is unknown."""

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        """Returns what follows an index, in order: at most 1,000 entries and, unless a single one is larger, 256 KB.

        Raises EntriesDroppedError when the next entry is gone: then load the snapshot.
        """

    async def wait_for_entries(self, after: int) -> None:
        """Returns when there is an entry behind this index."""

    async def save_snapshot(self, index: int, data: bytes) -> None:
        """Stores the state as of an entry, unless a newer one is there, and drops what the previous one covers."""

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        """Returns the newest snapshot and the index of the last entry in it."""


@dataclass(frozen=True, slots=True)
class Member:
    """`details` are what the broker said about itself."""

    broker_epoch: int
    details: bytes


class StoreError(Exception):
    """The store cannot do what it was asked to; the message says why."""


class StoreClosedError(StoreError):
    """The session is over, or has not begun."""

    def __init__(self) -> None:
        super().__init__("the metadata store is closed")


class StoreRefusedError(StoreError):
    """The store cannot be opened: in use, from a newer Penstock, or damaged."""


class FencedError(StoreError):
    """Another controller has taken over: whoever sees this is no longer the controller."""

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
    """Waiting for the log to grow; for implementations. Belongs to one event loop and one session."""

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
