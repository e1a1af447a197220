"""Implements the metadata store in memory, for tests and for several brokers in one event loop."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.metadata.sessions import Session, SessionTable
from penstock.metadata.store import (
    MAX_SLICE_BYTES,
    MAX_SLICE_ENTRIES,
    ConflictError,
    Contact,
    EntriesDroppedError,
    EntryTooLargeError,
    FencedError,
    Founding,
    Member,
    OutcomeUnknownError,
    SessionLostError,
    StoreClosedError,
    StoreRefusedError,
    new_cluster_id,
    new_secret,
)


@dataclass(slots=True)
class SharedMetadata:
    """What all sessions see: it survives them, as a file or a server would."""

    max_entry_bytes: int = 256 * 1024
    cluster_id: str = field(default_factory=new_cluster_id)
    secret: bytes = field(default_factory=new_secret)
    broker_epoch: int = 0
    controller_epoch: int = 0
    dropped: int = 0
    entries: list[bytes] = field(default_factory=list)
    snapshot: tuple[int, bytes] | None = None
    table: SessionTable = field(default_factory=SessionTable)
    sessions: "list[MemoryStore]" = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.dropped + len(self.entries)

    def expire(self, store: "MemoryStore") -> None:
        """End the session of a store now, as if its time had passed without a word."""
        store._expire()


class MemoryStore:
    """A session; brokers of one cluster are given the same `SharedMetadata`, and share an event loop.

    Faults: `abandon` is the death of the process without a word, `cut` and `mend` take and give back contact.
    """

    def __init__(self, shared: SharedMetadata | None = None, session_seconds: float = 6.0) -> None:
        self._shared = shared or SharedMetadata()
        self._table = self._shared.table
        self._session_seconds = session_seconds
        self._session_number = 0
        self._held = Session()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_cut = False
        self._cut_at_append: str | None = None
        self._contact = Contact.LOST
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def max_entry_bytes(self) -> int:
        return self._shared.max_entry_bytes

    @property
    def contact(self) -> Contact:
        return self._contact

    @property
    def session(self) -> int:
        return self._session_number

    async def wait_for_contact(self, known: Contact, session: int) -> None:
        self._check_open()
        while self._contact is known and self._session_number == session:
            await self._table.changes.wait()
            self._check_open()

    async def open(self) -> None:
        assert self._loop is None, "the metadata store is open already"
        self._loop = asyncio.get_running_loop()
        for store in [store for store in self._shared.sessions if store._loop is None or store._loop.is_closed()]:
            # It ended with its event loop, whose clock would have ended its session.
            store._end()
        self._shared.sessions.append(self)
        self._session_number, self._held = 1, Session()
        self._is_cut, self._contact = False, Contact.GOOD

    async def check_foundable(self, cluster_id: str) -> bool:
        if self._shared.cluster_id != cluster_id and self._shared.last:
            raise StoreRefusedError(f"cluster {self._shared.cluster_id} is there already, and not {cluster_id}")
        return self._shared.cluster_id != cluster_id

    async def found(self, founding: Founding) -> None:
        await self.check_foundable(founding.cluster_id)
        shared = self._shared
        if shared.cluster_id != founding.cluster_id:
            shared.cluster_id, shared.secret = founding.cluster_id, founding.secret
            shared.entries.append(founding.entry)
            shared.snapshot = shared.last, founding.snapshot

    async def close(self) -> None:
        if self._is_open:
            self._end()

    def abandon(self) -> None:
        """The process of this store has died: its calls end, and what it held stays until its session has passed."""
        if self._is_open:
            self._cancel_timers()
            self._held.ended = StoreClosedError
            self._is_cut, self._contact = False, Contact.LOST
            self._set_timer(self._session_seconds, self._end)
            self._table.changes.wake()

    def cut(self) -> None:
        """Take contact away: calls wait, and the session passes."""
        self._check_open()
        if not self._is_cut:
            self._is_cut = True
            self._set_timer(self._session_seconds * 2 / 3, self._doubt)
            self._set_timer(self._session_seconds, self._expire)

    def cut_at_append(self, *, arrives: bool) -> None:
        """Take contact away in the middle of the next append: before it has arrived, or before its answer has."""
        self._cut_at_append = "answer" if arrives else "request"

    def mend(self) -> None:
        """Give contact back, with a new session if the old one has passed."""
        self._check_open()
        if self._is_cut:
            self._is_cut = False
            self._cancel_timers()
            if self._contact is Contact.LOST:
                self._begin_session()
            self._contact = Contact.GOOD
            self._table.changes.wake()

    async def cluster_id(self) -> str:
        await self._reach()
        return self._shared.cluster_id

    async def secret(self) -> bytes:
        await self._reach()
        return self._shared.secret

    async def register(self, broker_id: int, details: bytes, *, folder: str) -> int:
        await self._reach()
        return await self._table.register(
            self._held,
            broker_id,
            details,
            folder=folder,
            patience_seconds=self._session_seconds,
            new_epoch=self._new_broker_epoch,
        )

    async def members(self) -> dict[int, Member]:
        await self._reach()
        return self._table.members()

    async def wait_for_members(self, known: Mapping[int, int]) -> None:
        before = dict(known)
        await self._wait_until(lambda: self._table.epochs() != before)

    async def take_controller_lease(self, broker_id: int) -> int | None:
        await self._reach()
        return await self._table.take_lease(self._held, broker_id, new_epoch=self._new_controller_epoch)

    async def release_controller_lease(self) -> None:
        await self._reach()
        self._table.release_lease(self._held)

    async def controller(self) -> tuple[int, int] | None:
        await self._reach()
        return self._table.controller()

    async def wait_for_lease(self) -> None:
        await self._wait_until(lambda: self._table.controller() is None)

    async def append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        self._check_open()
        if len(entry) > self.max_entry_bytes:
            raise EntryTooLargeError(len(entry), self.max_entry_bytes)
        await self._reach()
        if self._is_cut_at("request"):
            # No answer came. When there is contact again in this session the entry is not there, and is sent again.
            await self._reach_or_doubt(index)
        self._append(controller_epoch, index, entry)
        if self._is_cut_at("answer"):
            await self._reach_or_doubt(index)

    async def entries(self, after: int) -> list[tuple[int, bytes]]:
        await self._reach()
        shared = self._shared
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
        await self._wait_until(lambda: self._shared.last > after)

    async def save_snapshot(self, controller_epoch: int, index: int, data: bytes) -> None:
        await self._reach()
        shared = self._shared
        self._check_controller(controller_epoch)
        assert 0 < index <= shared.last, f"a snapshot as of entry {index}, and the last is {shared.last}"
        previous = shared.snapshot[0] if shared.snapshot else 0
        if index > previous:
            del shared.entries[: previous - shared.dropped]
            shared.dropped = previous
            shared.snapshot = (index, bytes(data))

    async def load_snapshot(self) -> tuple[int, bytes] | None:
        await self._reach()
        return self._shared.snapshot

    @property
    def _is_open(self) -> bool:
        return self._loop is not None and self._held.ended is not StoreClosedError

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreClosedError

    async def _reach(self) -> None:
        """Return when there is contact, if that is in this session."""
        session = self._session_number
        while True:
            self._check_open()
            if self._contact is Contact.LOST or self._session_number != session:
                raise SessionLostError
            if not self._is_cut:
                return
            await self._table.changes.wait()

    async def _reach_or_doubt(self, index: int) -> None:
        try:
            await self._reach()
        except (SessionLostError, StoreClosedError):
            raise OutcomeUnknownError(index) from None

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while True:
            await self._reach()
            if condition():
                return
            await self._table.changes.wait()

    def _append(self, controller_epoch: int, index: int, entry: bytes) -> None:
        self._check_controller(controller_epoch)
        if index != self._shared.last + 1:
            raise ConflictError(index, self._shared.last)
        self._shared.entries.append(bytes(entry))
        self._table.changes.wake()

    def _check_controller(self, controller_epoch: int) -> None:
        newest = self._shared.controller_epoch
        if controller_epoch != newest or controller_epoch == 0:
            raise FencedError(controller_epoch, newest)

    async def _new_broker_epoch(self) -> int:
        await self._reach()
        self._shared.broker_epoch += 1
        return self._shared.broker_epoch

    async def _new_controller_epoch(self) -> int:
        self._shared.controller_epoch += 1
        return self._shared.controller_epoch

    def _is_cut_at(self, step: str) -> bool:
        """Whether contact is lost at this step of an append, because a test has asked for it."""
        if self._cut_at_append == step:
            self._cut_at_append = None
            self.cut()
        return self._is_cut

    def _doubt(self) -> None:
        self._contact = Contact.DOUBTFUL
        self._table.changes.wake()

    def _expire(self) -> None:
        self._cancel_timers()
        if not self._is_open:
            self._end()
            return
        self._table.end(self._held, SessionLostError)
        if self._is_cut:
            self._contact = Contact.LOST
        else:
            self._begin_session()
        self._table.changes.wake()

    def _end(self) -> None:
        """The store is closed, or was abandoned long ago."""
        if self in self._shared.sessions:
            self._cancel_timers()
            self._shared.sessions.remove(self)
            self._is_cut, self._contact, self._loop = False, Contact.LOST, None
            self._table.end(self._held, StoreClosedError)

    def _begin_session(self) -> None:
        self._held = Session()
        self._session_number += 1

    def _set_timer(self, seconds: float, callback: Callable[[], None]) -> None:
        assert self._loop is not None
        self._timers.append(self._loop.call_later(seconds, callback))

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
