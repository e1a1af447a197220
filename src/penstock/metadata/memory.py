"""The metadata store in memory: for tests, and for several brokers in one process."""

from dataclasses import dataclass, field

from penstock.metadata.store import (
    MAX_SLICE_BYTES,
    MAX_SLICE_ENTRIES,
    Arrivals,
    ConflictError,
    EntriesDroppedError,
    FencedError,
    Member,
    StoreClosedError,
    new_cluster_id,
)


@dataclass(slots=True)
class SharedMetadata:
    """What all sessions see: it survives them, as a file or a server would."""

    cluster_id: str = field(default_factory=new_cluster_id)
    broker_epoch: int = 0
    controller_epoch: int = 0
    dropped: int = 0
    entries: list[bytes] = field(default_factory=list)
    snapshot: tuple[int, bytes] | None = None
    sessions: "list[MemoryStore]" = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.dropped + len(self.entries)


class MemoryStore:
    """A session; brokers of one cluster are given the same `SharedMetadata`."""

    def __init__(self, shared: SharedMetadata | None = None) -> None:
        self._shared = shared or SharedMetadata()
        self._members: dict[int, Member] = {}
        self._lease: tuple[int, int] | None = None
        self._arrivals: Arrivals | None = None

    async def open(self) -> None:
        self._arrivals = Arrivals()
        self._arrivals.announce(self._shared.last)
        self._shared.sessions.append(self)

    async def close(self) -> None:
        if self._arrivals is not None:
            self._shared.sessions.remove(self)
            self._arrivals.close()
            self._arrivals = None
            self._members = {}
            self._lease = None

    async def cluster_id(self) -> str:
        return self._open_shared().cluster_id

    async def register(self, broker_id: int, details: bytes) -> int:
        shared = self._open_shared()
        shared.broker_epoch += 1
        for session in shared.sessions:
            session._members.pop(broker_id, None)
        self._members[broker_id] = Member(shared.broker_epoch, details)
        return shared.broker_epoch

    async def members(self) -> dict[int, Member]:
        return {
            broker_id: member
            for session in self._open_shared().sessions
            for broker_id, member in session._members.items()
        }

    async def take_controller_lease(self, broker_id: int) -> int | None:
        shared = self._open_shared()
        for session in shared.sessions:
            if session._lease is not None:
                holder, epoch = session._lease
                return epoch if holder == broker_id else None
        shared.controller_epoch += 1
        self._lease = (broker_id, shared.controller_epoch)
        return shared.controller_epoch

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        shared = self._open_shared()
        if controller_epoch != shared.controller_epoch or controller_epoch == 0:
            raise FencedError(controller_epoch, shared.controller_epoch)
        if index != shared.last + 1:
            raise ConflictError(index, shared.last)
        shared.entries.append(bytes(entry))
        for session in shared.sessions:
            if session._arrivals is not None:
                session._arrivals.announce(index)

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        shared = self._open_shared()
        if after < shared.dropped:
            raise EntriesDroppedError(after + 1)
        found: list[tuple[int, bytes]] = []
        room = MAX_SLICE_BYTES
        for index in range(after + 1, min(after + MAX_SLICE_ENTRIES, shared.last) + 1):
            entry = shared.entries[index - shared.dropped - 1]
            room -= len(entry)
            if found and room < 0:
                break
            found.append((index, entry))
        return found

    async def wait_for_entries(self, after: int) -> None:
        if self._arrivals is None:
            raise StoreClosedError
        await self._arrivals.wait(after)

    async def save_snapshot(self, index: int, data: bytes) -> None:
        shared = self._open_shared()
        assert 0 < index <= shared.last, f"a snapshot as of entry {index}, and the last is {shared.last}"
        previous = shared.snapshot[0] if shared.snapshot else 0
        if index > previous:
            del shared.entries[: previous - shared.dropped]
            shared.dropped = previous
            shared.snapshot = (index, bytes(data))

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        return self._open_shared().snapshot

    def _open_shared(self) -> SharedMetadata:
        if self._arrivals is None:
            raise StoreClosedError
        return self._shared
