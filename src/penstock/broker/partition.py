"""A partition that this broker leads: its log, the rules for it, and who waits for what it does next."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.broker.disk_space import DiskSpace
from penstock.broker.topic_settings import TopicSettings
from penstock.machines.partition_leader import PartitionLeader
from penstock.machines.producers import SNAPSHOT_VERSION, Producers, Rejected
from penstock.machines.topic_names import INTERNAL
from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.compaction import Dirtiness, dirtiness
from penstock.storage.errors import LogOfflineError, StorageError
from penstock.storage.file_range import FileRange
from penstock.storage.files import lacks_space
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
        disk: DiskSpace | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.settings = settings
        self.producers = self._load_producers(now_ms)
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self._write_later = write_later
        self._disk = disk
        self._offline_because: str | None = None
        self._staged: list[Staged] = []
        self._staged_end = log.end_offset
        log.begin_epoch(leader_epoch)
        # What this log has is committed: there is no other replica that could know better.
        self.leader = PartitionLeader(leader_epoch, log.end_offset, log.flushed_offset)
        self._active_base = log.segments[-1].base_offset
        self.is_open = True
        # Since the start; the metrics of a topic are the sums of its partitions'.
        self.appended_records = 0
        self.appended_batches = 0
        self.appended_bytes = 0
        self.fetched_bytes = 0

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_internal(self) -> bool:
        """Whether it is the broker's own: such a topic may use what is left of a disk that is full for others."""
        return self.topic in INTERNAL

    def may_append(self) -> tuple[ErrorCode, str] | None:
        """Why a batch would be refused now, whatever is in it; None if it would not be."""
        if self.log.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline after: {self.log.failure}"
        if self._disk is not None and self._disk.is_low and not self.is_internal:
            return self._disk.refusal
        return None

    # Producing: `append` fixes the order, `write_staged` writes, `flushed` commits

    def append(
        self, header: BatchHeader, view: memoryview, *, wait_for_all: bool, waiter: AppendWaiter, now_ms: int
    ) -> None:
        """Take a checked batch. The waiter is told when it is written, or committed if it waits for all."""
        is_idempotent = header.producer_id >= 0
        if is_idempotent and (seen := self.producers.check(header)) is not None:
            if isinstance(seen, Rejected):
                waiter.refused(seen.code, seen.message)
            elif seen.base_offset >= self.log.end_offset:
                # The original is of this turn: only once it is written is there anything to be a duplicate of.
                self.write_staged(now_ms)
                if self.log.failure is not None:
                    # It never will be.
                    waiter.refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline: {self.log.failure}")
                    return
                self.append(header, view, wait_for_all=wait_for_all, waiter=waiter, now_ms=now_ms)
            else:
                end = seen.base_offset + header.last_offset_delta + 1
                self._answer(end, seen.base_offset, waiter, wait_for_all=wait_for_all)
            return
        if self._disk is not None and self._disk.is_low and (refusal := self.may_append()) is not None:
            waiter.refused(*refusal)
            return
        gather = len(view) < GATHER_BELOW_BYTES
        offset = self._staged_end
        # A copy, since the receive buffer is used again before the end of the turn.
        self._staged.append(
            Staged(header, memoryview(bytearray(view)) if gather else view, offset, wait_for_all, waiter)
        )
        self._staged_end = offset + header.last_offset_delta + 1
        if is_idempotent:
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
        size = sum([len(item.view) for item in staged])
        self._bytes_since_snapshot += size
        self.appended_bytes += size
        self.appended_batches += len(staged)
        self.appended_records += self.log.end_offset - base_offset
        if not self.settings.flush_before_commit:
            self._advance(self.log.end_offset)
        for item in staged:
            end = item.base_offset + item.header.last_offset_delta + 1
            self._answer(end, item.base_offset, item.waiter, wait_for_all=item.wait_for_all)
        if self.log.segments[-1].base_offset != self._active_base:
            self._rolled()

    def flushed(self) -> None:
        """The flusher has been here: records up to the log's flushed end are durable, and so committed."""
        # Also of a topic that does not wait for it: it may have been another setting that somebody waits by.
        self._advance(self.log.flushed_offset)

    def went_offline(self, message: str) -> None:
        """The disk failed: nobody is told that anything is safe, and nothing of it is read any more."""
        self._offline_because = message
        self._refuse_waiting(message)
        self._wake_fetches()

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
        elif self.log.failure is not None:
            # No flush will ever get there.
            self._refuse_waiting(f"{self.name} is offline after: {self.log.failure}")

    def _refuse_waiting(self, message: str) -> None:
        for waiter, _ in self.leader.resigned():
            waiter.refused(ErrorCode.KAFKA_STORAGE_ERROR, message)

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
        message = f"the batch could not be written: {error}"
        if self._disk is not None and lacks_space(error):
            self._disk.ran_out()
            message += f". {self._disk.refusal[1]}"
        for item in staged:
            item.waiter.refused(ErrorCode.KAFKA_STORAGE_ERROR, message)
        if self.log.failure is not None:
            self._refuse_waiting(message)

    # Reading

    def locate(self, offset: int, max_bytes: int, *, at_least_one: bool) -> FileRange | None:
        """Committed batches from an offset on; OffsetOutOfRangeError outside the log."""
        if self._offline_because is not None:
            raise LogOfflineError(self._offline_because)
        return self.log.locate(
            offset, max_bytes=max_bytes, upper_bound=self.leader.high_watermark, at_least_one=at_least_one
        )

    # History

    def delete_before(self, offset: int) -> None:
        if len(self.producers) and max(self._snapshot_offset, self.log.start_offset) < offset <= self.log.end_offset:
            # A snapshot has to tell of their producers what these batches will not any more.
            self._save_producers_if_possible(offset)
        self.log.advance_start(offset)

    def apply_retention(self, now_ms: int, *, held_from: int | None = None) -> int:
        """Delete old segments; none with anything at or above `held_from`, if somebody needs that."""
        if self.log.failure is not None:
            return 0
        self.log.config = self.settings.log
        self.log.roll_if_due(now_ms)
        if not self.settings.deletes_old:
            return 0
        bound = self.leader.high_watermark if held_from is None else min(self.leader.high_watermark, held_from)
        gone = self.log.find_expired(now_ms, upper_bound=bound)
        if gone:
            self.delete_before(gone[-1].end_offset)
        return len(gone)

    # Compaction

    @property
    def is_compacted(self) -> bool:
        """Whether it is now: the topic may be gone, its policy another, its log offline."""
        return self.is_open and self.log.failure is None and self.log.config.compaction is not None

    def dirtiness(self, now_ms: int) -> Dirtiness | None:
        """How much of it waits for compaction; None if it is not compacted."""
        return dirtiness(self.log, upper_bound=self.high_watermark, now_ms=now_ms) if self.is_compacted else None

    # Producer state

    def save_producers(self, at_least: int = 0) -> None:
        """So that the next start need not read the whole log for them, whether there are any or not. They are saved as
        of what is flushed, since a snapshot beyond the end that a crash leaves is lost, or of an offset beyond that."""
        offset = max(self.log.flushed_offset, self.log.start_offset, at_least)
        self.log.save_snapshot(self.producers.snapshot(offset), version=SNAPSHOT_VERSION, offset=offset)
        self._snapshot_offset = offset
        self._bytes_since_snapshot = 0

    def prepare_stop(self) -> None:
        if self._bytes_since_snapshot > SNAPSHOT_BYTES and self.log.failure is None:
            self._save_producers_if_possible(self.log.end_offset)

    def _rolled(self) -> None:
        self._active_base = self.log.segments[-1].base_offset
        self._save_producers_if_possible()

    def _save_producers_if_possible(self, at_least: int = 0) -> None:
        try:
            self.save_producers(at_least)
        except (OSError, LogOfflineError) as error:
            # Without it more of the log is read at the next start; nothing is lost.
            log_.warning("no producer snapshot", extra={"partition": self.name, "error": str(error)})

    def _load_producers(self, now_ms: int) -> Producers:
        snapshot = self.log.latest_snapshot(version=SNAPSHOT_VERSION)
        self._snapshot_offset, producers = 0, Producers()
        # From one that is older than the log's beginning producers would seem to have stopped where it ends.
        if snapshot is not None and snapshot[0] >= self.log.start_offset:
            self._snapshot_offset, producers = snapshot[0], Producers.restore(snapshot[1])
        self._bytes_since_snapshot = 0
        for header in self.log.headers(self._snapshot_offset):
            if header.base_offset >= self._snapshot_offset:
                producers.appended(header, header.base_offset, now_ms)
                self._bytes_since_snapshot += header.size
        return producers
