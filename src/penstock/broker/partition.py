"""A partition that this broker leads: its log, the rules for it, and who waits for what it does next."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.broker.topic_settings import TopicSettings
from penstock.machines.partition_leader import PartitionLeader
from penstock.machines.producers import SNAPSHOT_VERSION, Duplicate, Producers, Rejected
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.errors import LogOfflineError, StorageError
from penstock.storage.file_range import FileRange
from penstock.storage.log import Log

log_ = logging.getLogger(__name__)

# Batches below this size are copied and written together at the end of the turn; larger ones at once, uncopied.
GATHER_BELOW_BYTES = 64 * 1024
# At a stop producers are saved if more than this would have to be walked at the next start.
SNAPSHOT_BYTES = 16 * 1024 * 1024


class AppendWaiter(Protocol):
    """Whoever produced: told once how it ended."""

    def appended(self, base_offset: int, log_start: int) -> None: ...

    def refused(self, code: ErrorCode, message: str) -> None: ...


class FetchWaiter(Protocol):
    def more_to_read(self) -> None: ...


@dataclass(slots=True)
class Staged:
    """A batch with its place in the log fixed, to be written in this turn."""

    header: BatchHeader
    view: memoryview
    base_offset: int
    wait_for_all: bool
    waiter: AppendWaiter


class Partition:
    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        settings: TopicSettings,
        *,
        leader_epoch: int,
        now_ms: int,
        write_later: Callable[["Partition"], None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.settings = settings
        self.producers = self._load_producers(now_ms)
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self._write_later = write_later
        self._staged: list[Staged] = []
        self._staged_end = log.end_offset
        log.begin_epoch(leader_epoch)
        # What this log has is committed: there is no other replica that could know better.
        self.leader = PartitionLeader(leader_epoch, log.end_offset, log.flushed_offset)
        self._segments = len(log.segments)
        self.is_open = True

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    # Producing: `append` fixes the order, `write_staged` writes, `flushed` commits

    def append(
        self, header: BatchHeader, view: memoryview, *, wait_for_all: bool, waiter: AppendWaiter, now_ms: int
    ) -> None:
        """Take a checked batch. The waiter is told when it is written, or committed if it waits for all."""
        match self.producers.check(header):
            case Rejected(code, message):
                waiter.refused(code, message)
                return
            case Duplicate(base_offset) if base_offset >= self.log.end_offset:
                # The original is of this turn: only once it is written is there anything to be a duplicate of.
                self.write_staged(now_ms)
                self.append(header, view, wait_for_all=wait_for_all, waiter=waiter, now_ms=now_ms)
                return
            case Duplicate(base_offset):
                end = base_offset + header.last_offset_delta + 1
                self._answer(end, base_offset, waiter, wait_for_all=wait_for_all)
                return
        gather = len(view) < GATHER_BELOW_BYTES
        offset = self._staged_end
        # A copy, since the receive buffer is used again before the end of the turn.
        self._staged.append(
            Staged(header, memoryview(bytearray(view)) if gather else view, offset, wait_for_all, waiter)
        )
        self._staged_end = offset + header.last_offset_delta + 1
        self.producers.appended(header, offset, now_ms)
        if not gather:
            self.write_staged(now_ms)
        if len(self._staged) <= 1:
            # Once for the batches of a turn, and for a large one too: then the flusher is told.
            self._write_later(self)

    def write_staged(self, now_ms: int) -> None:
        """Write the batches of this turn with one call, and answer those who wait for no more than that."""
        staged, self._staged = self._staged, []
        if not staged:
            return
        batches = [(item.header, item.view) for item in staged]
        try:
            base_offset = self.log.append(batches, leader_epoch=self.leader.leader_epoch, now_ms=now_ms)
        except (OSError, StorageError) as error:
            self._write_failed(staged, error, now_ms)
            return
        assert base_offset == staged[0].base_offset
        self._bytes_since_snapshot += sum(len(item.view) for item in staged)
        if not self.settings.flush_before_commit:
            self._advance(self.log.end_offset)
        for item in staged:
            end = item.base_offset + item.header.last_offset_delta + 1
            self._answer(end, item.base_offset, item.waiter, wait_for_all=item.wait_for_all)
        if len(self.log.segments) != self._segments:
            self._rolled()

    def flushed(self) -> None:
        """The flusher has been here: records up to the log's flushed end are durable, and so committed."""
        # Also of a topic that does not wait for it: it may have been another setting that somebody waits by.
        self._advance(self.log.flushed_offset)

    def went_offline(self, message: str) -> None:
        """The disk failed: nobody is told that anything is safe."""
        for waiter, _ in self.leader.resigned():
            waiter.refused(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def close(self) -> None:
        """The topic was deleted: whoever waits for anything here is told so."""
        self.is_open = False
        staged, self._staged = self._staged, []
        for waiter in [item.waiter for item in staged] + [waiter for waiter, _ in self.leader.resigned()]:
            waiter.refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        self._wake_fetches()

    def _answer(self, end: int, base_offset: int, waiter: AppendWaiter, *, wait_for_all: bool) -> None:
        if not wait_for_all or self.leader.wait_for(end, (waiter, base_offset)):
            waiter.appended(base_offset, self.log.start_offset)

    def _advance(self, offset: int) -> None:
        before = self.leader.high_watermark
        for waiter, base_offset in self.leader.log_advanced(offset):
            waiter.appended(base_offset, self.log.start_offset)
        if self.leader.high_watermark > before:
            self._wake_fetches()

    def _wake_fetches(self) -> None:
        waiting, self.fetch_waiters = self.fetch_waiters, {}
        for waiter in waiting:
            waiter.more_to_read()

    def _write_failed(self, staged: list[Staged], error: Exception, now_ms: int) -> None:
        log_.error("append failed", extra={"partition": self.name, "error": str(error)})
        self._staged_end = self.log.end_offset
        # They were counted when their order was fixed; the log knows what is really there.
        if any(item.header.producer_id >= 0 for item in staged):
            try:
                self.producers = self._load_producers(now_ms)
            except (OSError, StorageError) as unreadable:
                # A gap in what we know would pass a lost batch for a duplicate: nothing more is taken.
                self.log.fail(unreadable)
        for item in staged:
            item.waiter.refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the batch could not be written: {error}")

    # Reading

    def locate(self, offset: int, max_bytes: int, *, at_least_one: bool) -> FileRange | None:
        """Committed batches from an offset on; OffsetOutOfRangeError outside the log."""
        return self.log.locate(
            offset, max_bytes=max_bytes, upper_bound=self.leader.high_watermark, at_least_one=at_least_one
        )

    # History

    def delete_before(self, offset: int) -> None:
        self.log.advance_start(offset)

    def apply_retention(self, now_ms: int) -> int:
        if self.log.failure is not None:
            return 0
        self.log.config = self.settings.log
        self.log.roll_if_due(now_ms)
        if not self.settings.deletes_old:
            return 0
        return self.log.apply_retention(now_ms, upper_bound=self.leader.high_watermark)

    # Producer state

    def save_producers(self) -> None:
        """So that the next start need not read the whole log for them, whether there are any or not."""
        self.log.save_snapshot(self.producers.snapshot(), version=SNAPSHOT_VERSION)
        self._bytes_since_snapshot = 0

    def prepare_stop(self) -> None:
        if self._bytes_since_snapshot > SNAPSHOT_BYTES and self.log.failure is None:
            self._save_producers_if_possible()

    def _rolled(self) -> None:
        self._segments = len(self.log.segments)
        self._save_producers_if_possible()

    def _save_producers_if_possible(self) -> None:
        try:
            self.save_producers()
        except (OSError, LogOfflineError) as error:
            # Without it more of the log is read at the next start; nothing is lost.
            log_.warning("no producer snapshot", extra={"partition": self.name, "error": str(error)})

    def _load_producers(self, now_ms: int) -> Producers:
        snapshot = self.log.latest_snapshot(version=SNAPSHOT_VERSION)
        producers = Producers.restore(snapshot[1]) if snapshot else Producers()
        self._bytes_since_snapshot = 0
        for header in self.log.headers(snapshot[0] if snapshot else 0):
            producers.appended(header, header.base_offset, now_ms)
            self._bytes_since_snapshot += header.size
        return producers
