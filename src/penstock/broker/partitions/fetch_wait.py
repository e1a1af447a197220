"""A fetch knows what it wants, looks what there is, and waits for more; the handler makes it of messages, and back.

A wait costs what changes: a partition that has committed more says so, and it alone is looked at. A fetch of many
partitions is wide: it is looked at in several turns of the loop, and one such fetch at a time.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from penstock.broker.engine.turn import Turn
from penstock.broker.log_rates import RatedLog
from penstock.broker.network.call import Call
from penstock.broker.partitions.deadlines import Deadlines
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.registry import Partitions
from penstock.machines.fetch_sessions import Key, Wanted
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.storage.errors import CorruptLogError, OffsetOutOfRangeError, StorageError
from penstock.storage.log.file_range import FileRange

log = RatedLog(logging.getLogger(__name__))

# Partitions that are looked at in one turn of the loop, which takes a millisecond or two.
AT_ONCE: Final = 500
# Partitions that all waiting fetches together may name, each fetch counted as a few more. One takes about 400 bytes.
MAX_WAITING: Final = 250_000
_EACH_FETCH: Final = 4


class FetchRoom:
    """What the fetches of all clients share: partitions, deadlines, and what they may take together. A fetch for which
    there is no room to wait is answered at once."""

    def __init__(self, partitions: Partitions, deadlines: Deadlines, turn: Turn) -> None:
        self.loop = asyncio.get_running_loop()
        self.partitions = partitions
        self.deadlines = deadlines
        self.turn = turn
        self.max_waiting = MAX_WAITING
        self.waiting = 0
        # Its holder is the one wide fetch that is being looked at.
        self.wide = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, task: "asyncio.Task[None]") -> None:
        """Hold on to a task until it is done, as the loop does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(slots=True)
class Found:
    """What a partition has for the reader."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    records: FileRange | None = None
    diverging: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        return len(self.records) if self.records is not None else 0


class Answer(Protocol):
    """Makes a reply of what was found, partition by partition."""

    def add(self, fetch: "Fetch", place: int, found: Found) -> None: ...

    def reply(self, call: Call) -> None:
        """Reply with what was added."""

    def response(self, call: Call) -> Message:
        """The reply as a message, if it is too long to be written on the loop."""


@dataclass(slots=True, eq=False)
class Fetch:
    """One fetch call. `answer` gets what was found, once: at once, when there is enough, or when the time is up. With
    `only_news` it may do without partitions of which the reader knows everything."""

    room: FetchRoom
    call: Call
    wanted: list[tuple[Key, Wanted]]
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    only_news: bool
    answer: Answer
    partitions: list[Partition | ErrorCode] = field(default_factory=list)
    # The bytes found when a place was last looked at, if there were any.
    _sizes: dict[int, int] = field(default_factory=dict)
    _total: int = 0
    _is_urgent: bool = False
    # Places that the reader does not know everything of.
    _news: set[int] = field(default_factory=set)
    # Places that have committed more since they were looked at.
    _changed: list[int] = field(default_factory=list)
    _is_waiting: bool = False
    _waited_seconds: float = 0.0
    _waits_since: float = 0.0
    _bucket: int | None = None
    _is_done: bool = False

    @property
    def is_wide(self) -> bool:
        return len(self.wanted) > AT_ONCE

    def start(self) -> None:
        """Start a fetch that is not wide."""
        found = [item for place in range(len(self.wanted)) if (item := self._look_first(place)) is not None]
        if self._is_enough() or not self._may_wait():
            self._is_done = True
            self._finish(found)
        else:
            self._release(found)
            for place in range(len(self.partitions)):
                self._watch(place)
            self._wait()

    async def start_in_turns(self) -> None:
        """Start a wide fetch; the caller holds the room's lock. Returns when it is answered, or waits for more."""
        may_wait = self.max_wait_ms > 0
        self.call.when_gone(self._reader_left)
        found: list[tuple[int, Found]] = []
        for begin in range(0, len(self.wanted), AT_ONCE):
            await asyncio.sleep(0)
            if self._is_done:
                self._release(found)
                return
            for place in range(begin, min(begin + AT_ONCE, len(self.wanted))):
                if (item := self._look_first(place)) is not None:
                    found.append(item)
                if may_wait:
                    # It is watched from here on, as it may change while the others are looked at.
                    self._watch(place)
        if self._is_enough() or not self._may_wait():
            self._is_done = True
            self._unwatch()
            await self._finish_in_turns(found)
        else:
            self._release(found)
            self._wait()
            if self._changed:
                self._look_again()

    # Waiting

    def more_to_read(self, place: int) -> None:
        """A partition has committed more. Several of them in one turn are looked at together."""
        if not self._changed and self._is_waiting:
            self.room.turn.look_later(self._look_again)
        self._changed.append(place)

    def timed_out(self) -> None:
        if not self._is_done:
            self._bucket = None
            self._conclude()

    def _reader_left(self, call: Call) -> None:
        if not self._is_done:
            self._is_done = True
            self._stop_waiting()

    def _look_again(self) -> None:
        changed, self._changed = self._changed, []
        if self._is_done:
            return
        for place in changed:
            self._total -= self._sizes.pop(place, 0)
            item = self._look_at(place)
            if len(self.wanted) == 1 and self._is_enough():
                # This is the usual case: there is nothing else to look at.
                self._is_done = True
                self._stop_waiting()
                self._finish([(place, item)])
                return
            self._news.add(place)
            if item.records is not None:
                item.records.release()
            self._watch(place)
        if self._is_enough():
            self._conclude()

    def _may_wait(self) -> bool:
        """Whether there is room to wait. A fetch that is not wide, and alone on its connection, always may."""
        room = self.room
        return room.waiting + len(self.wanted) + _EACH_FETCH <= room.max_waiting or not (
            self.is_wide or self.call.connection.unanswered > 1
        )

    def _wait(self) -> None:
        self._is_waiting = True
        self.room.waiting += len(self.wanted) + _EACH_FETCH
        self._waits_since = self.room.loop.time()
        self._bucket = self.room.deadlines.add(self, self.max_wait_ms / 1000)
        self.call.when_gone(self._reader_left)

    def _watch(self, place: int) -> None:
        partition = self.partitions[place]
        if isinstance(partition, Partition):
            partition.fetch_waiters[self] = place

    def _unwatch(self) -> None:
        for partition in self.partitions:
            if isinstance(partition, Partition):
                partition.fetch_waiters.pop(self, None)

    def _stop_waiting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self.room.waiting -= len(self.wanted) + _EACH_FETCH
            self._waited_seconds = self.room.loop.time() - self._waits_since
        if self._bucket is not None:
            self.room.deadlines.cancel(self, self._bucket)
            self._bucket = None
        self._unwatch()

    # Looking

    def _look_first(self, place: int) -> tuple[int, Found] | None:
        """What there is at a place; None if the reader knows it."""
        (topic, index), wanted = self.wanted[place]
        partitions = self.room.partitions
        self.partitions.append(
            partitions.find_by_id(topic, index) if isinstance(topic, bytes) else partitions.get(topic, index)
        )
        item = self._look_at(place)
        if self.only_news:
            if (
                item.records is None
                and item.diverging is None
                and not wanted.is_news(high_watermark=item.high_watermark, log_start=item.log_start, error=item.error)
            ):
                return None
            self._news.add(place)
        return place, item

    def _look_at(self, place: int) -> Found:
        partition = self.partitions[place]
        if isinstance(partition, ErrorCode):
            self._is_urgent = True
            return Found(error=partition)
        # The first batch of a fetch comes however large it is, or the reader would never get past it.
        total = self._total
        item = look(partition, self.wanted[place][1], max_bytes=max(0, self.max_bytes - total), at_least_one=total == 0)
        if item.records is not None:
            self._sizes[place] = size = len(item.records)
            self._total = total + size
        elif item.error or item.diverging:
            self._is_urgent = True
        elif self.wanted[place][1].fetch_offset >= item.high_watermark:
            self.room.partitions.read_to_end(partition)
        return item

    def _is_enough(self) -> bool:
        return self.max_wait_ms <= 0 or self._total >= self.min_bytes or self._is_urgent or not self.wanted

    # The end

    def _conclude(self) -> None:
        """Answer after a wait. In a session, which reports only news, no other partition is looked at again."""
        self._is_done = True
        self._stop_waiting()
        self._sizes.clear()
        self._total = 0
        places = sorted(self._news) if self.only_news else range(len(self.wanted))
        if len(places) <= AT_ONCE:
            self._finish([(place, self._look_at(place)) for place in places])
        else:
            self._keep(self._conclude_in_turns(places))

    async def _conclude_in_turns(self, places: Sequence[int]) -> None:
        async with self.room.wide:
            found: list[tuple[int, Found]] = []
            for begin in range(0, len(places), AT_ONCE):
                await asyncio.sleep(0)
                if not self.call.connection.is_open:
                    self._release(found)
                    return
                found += [(place, self._look_at(place)) for place in places[begin : begin + AT_ONCE]]
            await self._finish_in_turns(found)

    def _finish(self, found: list[tuple[int, Found]]) -> None:
        if not self.call.connection.is_open:
            self._release(found)
        elif any(item.records is not None and not item.records.is_ready for _, item in found):
            # Bytes that are not in memory, or not checked yet, are read in a thread: the loop waits for no disk.
            self._keep(self._finish_in_turns(found))
        else:
            for place, item in found:
                self._add(place, item)
            self._count_wait()
            self.answer.reply(self.call)

    async def _finish_in_turns(self, found: list[tuple[int, Found]]) -> None:
        loop = asyncio.get_running_loop()
        for place, item in found:
            if item.records is not None and not item.records.is_ready:
                try:
                    await loop.run_in_executor(None, item.records.warm)
                except (OSError, StorageError) as error:
                    partition = self.partitions[place]
                    assert isinstance(partition, Partition), "an error has no records"
                    read_failed(partition, error)
                    item.records.release()
                    item.records, item.error = None, ErrorCode.KAFKA_STORAGE_ERROR
        for begin in range(0, len(found), AT_ONCE):
            if begin:
                await asyncio.sleep(0)
            if not self.call.connection.is_open:
                self._release(found)
                return
            for place, item in found[begin : begin + AT_ONCE]:
                self._add(place, item)
        self._count_wait()
        if len(found) > AT_ONCE:
            await self.call.reply_from_thread(self.answer.response(self.call))
        else:
            self.answer.reply(self.call)

    def _count_wait(self) -> None:
        if self._waited_seconds:
            self.call.waited(self._waited_seconds)

    def _add(self, place: int, item: Found) -> None:
        if item.records is not None:
            partition = self.partitions[place]
            assert isinstance(partition, Partition), "an error has no records"
            partition.fetched_bytes += len(item.records)
        self.answer.add(self, place, item)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the rest in a task of its own."""
        self.room.keep(asyncio.ensure_future(self._guarded(work)))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            # A bug of ours; the client starts over.
            log.error("a fetch failed", owner=self.room, extra={"version": self.call.version}, exc_info=error)
            self.call.give_up("internal error")

    @staticmethod
    def _release(found: Iterable[tuple[int, Found]]) -> None:
        for _, item in found:
            if item.records is not None:
                item.records.release()


def look(partition: Partition, wanted: Wanted, *, max_bytes: int, at_least_one: bool) -> Found:
    """What a partition has from an offset on, by the rules for epochs (KIP-320, KIP-595)."""
    if not partition.is_led:
        return Found(error=partition.absence)
    leader = partition.leader
    found = Found(
        ErrorCode.NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.start_offset,
    )
    if wanted.current_leader_epoch >= 0 and wanted.current_leader_epoch != leader.leader_epoch:
        is_old = wanted.current_leader_epoch < leader.leader_epoch
        found.error = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        return found
    if wanted.last_fetched_epoch >= 0:
        epoch, end = partition.log.epochs.end_offset(wanted.last_fetched_epoch, partition.log.end_offset)
        if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
            found.diverging = (epoch, end)
            return found
    try:
        limit = min(max_bytes, wanted.max_bytes)
        if limit > 0 or at_least_one:
            found.records = partition.locate(wanted.fetch_offset, limit, at_least_one=at_least_one)
    except OffsetOutOfRangeError:
        found.error = ErrorCode.OFFSET_OUT_OF_RANGE
    except (OSError, StorageError) as error:
        read_failed(partition, error)
        found.error = ErrorCode.KAFKA_STORAGE_ERROR
    return found


def read_failed(partition: Partition, error: Exception) -> None:
    place = error.place if isinstance(error, CorruptLogError) else {}
    facts = {"partition": partition.name, **place, "error": str(error)}
    log.error("a read failed", owner=partition, extra=facts)
    if isinstance(error, CorruptLogError) and partition.when_damaged is not None:
        partition.when_damaged(partition)
