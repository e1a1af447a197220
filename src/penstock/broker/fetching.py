"""A fetch: what it wants, what there is, and the wait for more. The handler turns messages into this and back."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.broker.partition import Partition
from penstock.machines.fetch_sessions import Key, Wanted
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.errors import CorruptLogError, OffsetOutOfRangeError, StorageError
from penstock.storage.file_range import FileRange

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """What a partition has for the reader."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start: int = -1
    leader_epoch: int = -1
    records: FileRange | None = None
    diverging: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        return len(self.records) if self.records is not None else 0


@dataclass(slots=True, eq=False)
class Fetch:
    """One fetch call. `finish` gets what was found, once: at once, when there is enough, or when the time is up."""

    broker: "Broker"
    wanted: list[tuple[Key, Wanted]]
    partitions: list[Partition | ErrorCode]
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    finish: Callable[[list[Found]], None]
    is_open: Callable[[], bool]
    waited_seconds: float = 0.0
    _waits_since: float = 0.0
    _bucket: int | None = None
    _is_done: bool = False
    _retry_scheduled: bool = field(default=False)

    def start(self) -> None:
        found = self._attempt()
        if self._is_enough(found):
            self._finish(found)
        else:
            self._release(found)
            self._wait()

    # Waking up

    def more_to_read(self) -> None:
        """A partition has committed more. Several of them in one turn are looked at together."""
        if not self._retry_scheduled and not self._is_done:
            self._retry_scheduled = True
            self.broker.loop.call_soon(self._retry)

    def timed_out(self) -> None:
        if not self._is_done:
            self._bucket = None
            self._stop_waiting()
            self._finish(self._attempt())

    def _retry(self) -> None:
        self._retry_scheduled = False
        if self._is_done:
            return
        if not self.is_open():
            self._is_done = True
            self._stop_waiting()
            return
        found = self._attempt()
        if self._is_enough(found):
            self._stop_waiting()
            self._finish(found)
            self.broker.cork.release()
        else:
            self._release(found)
            self._watch()

    def _wait(self) -> None:
        self._waits_since = self.broker.loop.time()
        self._bucket = self.broker.deadlines.add(self, self.max_wait_ms / 1000)
        self._watch()

    def _watch(self) -> None:
        for partition in self.partitions:
            if isinstance(partition, Partition):
                partition.fetch_waiters[self] = None

    def _stop_waiting(self) -> None:
        self.waited_seconds = self.broker.loop.time() - self._waits_since
        if self._bucket is not None:
            self.broker.deadlines.cancel(self, self._bucket)
            self._bucket = None
        for partition in self.partitions:
            if isinstance(partition, Partition):
                partition.fetch_waiters.pop(self, None)

    # Looking

    def _attempt(self) -> list[Found]:
        found: list[Found] = []
        remaining, at_least_one = self.max_bytes, True
        for (_, wanted), partition in zip(self.wanted, self.partitions, strict=True):
            if isinstance(partition, ErrorCode):
                found.append(Found(error=partition))
                continue
            # The first batch of a fetch comes however large it is, or the reader would never get past it.
            item = look(partition, wanted, max_bytes=remaining, at_least_one=at_least_one)
            remaining = max(0, remaining - item.size)
            at_least_one = at_least_one and item.size == 0
            found.append(item)
        return found

    def _is_enough(self, found: list[Found]) -> bool:
        return (
            self.max_wait_ms <= 0
            or sum(item.size for item in found) >= self.min_bytes
            or any(item.error or item.diverging for item in found)
            or not found
        )

    def _finish(self, found: list[Found]) -> None:
        self._is_done = True
        if not self.is_open():
            self._release(found)
            return
        for item, partition in zip(found, self.partitions, strict=True):
            if item.records is not None and isinstance(partition, Partition):
                partition.fetched_bytes += len(item.records)
        cold = [item.records for item in found if item.records is not None and not item.records.is_ready]
        if cold:
            # Bytes that are not in memory, or not checked yet, are read in a thread: the loop waits for no disk.
            task = asyncio.ensure_future(self._warm(found))
            self.broker.keep(task)
        else:
            self.finish(found)

    async def _warm(self, found: list[Found]) -> None:
        loop = asyncio.get_running_loop()
        for item, partition in zip(found, self.partitions, strict=True):
            if item.records is not None and not item.records.is_ready:
                try:
                    await loop.run_in_executor(None, item.records.warm)
                except (OSError, StorageError) as error:
                    assert isinstance(partition, Partition), "an error has no records"
                    read_failed(partition, error)
                    item.records.release()
                    item.records, item.error = None, ErrorCode.KAFKA_STORAGE_ERROR
        if self.is_open():
            self.finish(found)
            self.broker.cork.release()
        else:
            self._release(found)

    @staticmethod
    def _release(found: Iterable[Found]) -> None:
        for item in found:
            if item.records is not None:
                item.records.release()


def look(partition: Partition, wanted: Wanted, *, max_bytes: int, at_least_one: bool) -> Found:
    """What a partition has from an offset on, and the epoch rules for who asks (KIP-320, KIP-595)."""
    if not partition.is_open:
        return Found(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = partition.leader
    found = Found(
        high_watermark=leader.high_watermark,
        last_stable_offset=leader.last_stable_offset,
        log_start=partition.log.start_offset,
        leader_epoch=leader.leader_epoch,
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
    log.error("a read failed", extra={"partition": partition.name, **place, "error": str(error)})
