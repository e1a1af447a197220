"""The compactor has the helper clean logs beside the traffic: one after the other, the dirtiest that is due first."""

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from penstock.broker.clock import Clock
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.helper.task import Helper, HelperError, JobFailedError
from penstock.broker.helper.tasks import CLEAN
from penstock.broker.partitions.disk_space import DiskSpace
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.registry import Partitions
from penstock.broker.upkeep.flushing import Flushing
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, CleaningJob, SourceChangedError
from penstock.storage.compaction.plan import Dirtiness, plan
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import StorageError

log = logging.getLogger(__name__)

# Logs that are looked at in one turn of the loop.
LOGS_AT_ONCE: Final = 50
# A log whose round failed rests for a while, each time twice as long.
FIRST_REST_MS: Final = 1_000
LONGEST_REST_MS: Final = 1_800_000
# The memory that the map of keys takes for each key.
BYTES_PER_KEY: Final = 150
SHORTEST_PAUSE_SECONDS: Final = 0.01


@dataclass(slots=True)
class _Rest:
    until_ms: int
    rest_ms: int


class Compacting:
    """Cleans one log at a time. The counters count from the start of the broker."""

    def __init__(
        self,
        partitions: Partitions,
        directory: DataDirectory,
        flushing: Flushing,
        helper: Helper,
        *,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        disk: DiskSpace,
        disk_failed: Callable[[OSError], None],
    ) -> None:
        self._partitions = partitions
        self._directory = directory
        self._flushing = flushing
        self._helper = helper
        self._config = config
        self._clock = clock
        self._disk = disk
        self._disk_failed = disk_failed
        self._task: asyncio.Task[None] | None = None
        self._current: Partition | None = None
        self._round: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._resting: dict[Partition, _Rest] = {}
        self._last_round_ms: int | None = None
        self.rounds = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_dropped = 0
        self.cpu_seconds = 0.0
        # The ratio of the log that needed compaction most at the last look.
        self.dirtiest_ratio = 0.0

    @property
    def helper_restarts(self) -> int:
        return self._helper.restarts

    @property
    def seconds_since_last_round(self) -> float | None:
        """Time since the last round; None if there was none."""
        if self._last_round_ms is None:
            return None
        return (self._clock.monotonic_ms() - self._last_round_ms) / 1000

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="penstock-compacting")

    async def close(self) -> None:
        """Give up the round under way; a swap that has begun comes to its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def image_changed(self) -> None:
        """Give up the round if its topic was deleted, or is not compacted any longer."""
        if self._round is not None and self._current is not None and not self._current.is_compacted:
            self._round.cancel()

    async def _run(self) -> None:
        while True:
            backoff_ms = self._config().integer("log.cleaner.backoff.ms")
            await asyncio.sleep(max(SHORTEST_PAUSE_SECONDS, backoff_ms / 1000))
            try:
                while self._config().boolean("log.cleaner.enable") and await self.compact_next():
                    pass
            except Exception:
                # A bug of ours; the next look may find other logs.
                log.exception("compaction failed")

    async def compact_next(self) -> bool:
        """Do a round on the log that needs it most; False if none does."""
        async with self._one_at_a_time:
            return await self._compact_dirtiest()

    async def _compact_dirtiest(self) -> bool:
        partition = await self._dirtiest()
        if partition is None:
            return False
        self._current = partition
        self._round = asyncio.create_task(self._compact(partition), name=f"penstock-compacting-{partition.name}")
        try:
            await asyncio.wait([self._round])
        finally:
            # If this task is cancelled, so is the round, and its end is awaited.
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)
            self._round = self._current = None
        return True

    # Which log

    async def _dirtiest(self) -> Partition | None:
        partitions = self._partitions.replicas()
        self._resting = {partition: rest for partition, rest in self._resting.items() if partition.is_compacted}
        best: Partition | None = None
        best_ratio = highest_ratio = 0.0
        for number, partition in enumerate(partitions, 1):
            if number % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            found = self._look(partition) if partition.is_compacted else None
            if found is None:
                continue
            highest_ratio = max(highest_ratio, found.ratio)
            if found.is_due and not self._rests(partition) and (best is None or found.ratio > best_ratio):
                best, best_ratio = partition, found.ratio
        self.dirtiest_ratio = highest_ratio
        # Flushed records may be compacted once recovery points say so; on an idle broker nothing else saves these.
        self._flushing.save_points_if_due()
        return best

    def _look(self, partition: Partition) -> Dirtiness | None:
        now_ms = self._clock.now_ms()
        try:
            partition.log.roll_if_due(now_ms)
            return partition.dirtiness(now_ms)
        except (OSError, StorageError) as error:
            if not self._rests(partition):
                self._failed(partition, error)
            return None

    def _rests(self, partition: Partition) -> bool:
        rest = self._resting.get(partition)
        return rest is not None and self._clock.monotonic_ms() < rest.until_ms

    # A round

    async def _compact(self, partition: Partition) -> None:
        failure: Exception | None = None
        try:
            if await self._clean(partition):
                self._resting.pop(partition, None)
                return
        except Exception as error:
            has_changed = isinstance(error, JobFailedError) and error.kind == SourceChangedError.__name__
            failure = None if has_changed else error
        is_offline = partition.is_led and partition.log.failure is not None
        if (broken := self._directory.failure) is not None:
            # A swap has met the failure; whether it was made durable is unknown.
            self._disk_failed(broken)
        elif failure is not None and (partition.is_compacted or is_offline):
            self._failed(partition, failure)
        elif partition.is_compacted:
            self._rest(partition)
        # In the last case the log's files went while they were being read, which is no failure.

    async def _clean(self, partition: Partition) -> bool:
        """Whether the round came to its end, and was of any use."""
        config, now_ms = self._config(), self._clock.now_ms()
        rate = config.double("log.cleaner.io.max.bytes.per.second")
        job = plan(
            partition.log,
            upper_bound=partition.high_watermark,
            now_ms=now_ms,
            max_keys=max(1, config.integer("log.cleaner.dedupe.buffer.size") // BYTES_PER_KEY),
            max_bytes_per_second=int(rate) if 1 <= rate < 2**62 and self._helper.sleeps_alone else None,
        )
        if job is None:
            return False
        self._check_room(job)
        loop = asyncio.get_running_loop()
        began, saved, done = loop.time(), 0, None
        try:
            async with aclosing(self._helper.run(CLEAN, job)) as results:
                async for result in results:
                    if isinstance(result, CleaningDone):
                        done = result
                    elif await self._swap_in(partition, result):
                        saved += sum(source.size for source in result.sources) - result.size
                    else:
                        break
            if done is not None:
                # What is clean has been so from now on: tombstones stay for their time from the end of the round.
                partition.log.finish_round(done, self._clock.now_ms())
                await _in_thread(partition.log.compaction.save)
        finally:
            if done is None:
                await self._discard(partition)
        if done is None:
            return False
        self._count(partition, job, done, saved=saved, seconds=loop.time() - began)
        # Without progress, as before a transaction that stays open, the next round would repeat this one.
        return done.cleaned_to > job.dirty_from or saved > 0

    def _check_room(self, job: CleaningJob) -> None:
        """Check that the disk has room for a new segment beside those that it is made from."""
        needed = max(sum(source.size for source in group) for group in job.groups)
        free, _ = self._disk.measure()
        if needed > free:
            raise OSError(errno.ENOSPC, f"a round may take {needed} bytes of the disk for a while, and {free} are free")

    async def _swap_in(self, partition: Partition, cleaned: CleanedSegment) -> bool:
        """Put a cleaned segment in its place; False if what it was made from has changed."""
        swap = partition.log.begin_swap(cleaned) if partition.is_compacted else None
        if swap is None:
            return False
        is_in = False
        try:
            await _in_thread(swap.perform)
        finally:
            is_in = partition.log.end_swap(swap)
        return is_in

    async def _discard(self, partition: Partition) -> None:
        """Remove what an unfinished round has written. The helper may have written into a new log in the place of a
        deleted one."""
        found = self._partitions.replica(partition.topic, partition.index)
        if found is not None and found.log.failure is None:
            try:
                await _in_thread(found.log.discard_cleaned)
            except OSError as error:
                log.warning("files of a round are left", extra={"partition": partition.name, "error": str(error)})

    def _failed(self, partition: Partition, error: Exception) -> None:
        self.failures += 1
        rest_ms = self._rest(partition)
        log.error(
            "compaction failed, and is tried again later",
            extra={"partition": partition.name, "error": str(error), "rest_seconds": rest_ms / 1000},
            exc_info=None if isinstance(error, OSError | StorageError | HelperError) else error,
        )

    def _rest(self, partition: Partition) -> int:
        """Leave a log alone for a while; returns for how many milliseconds."""
        before = self._resting.get(partition)
        rest_ms = FIRST_REST_MS if before is None else min(before.rest_ms * 2, LONGEST_REST_MS)
        self._resting[partition] = _Rest(self._clock.monotonic_ms() + rest_ms, rest_ms)
        return rest_ms

    def _count(self, partition: Partition, job: CleaningJob, done: CleaningDone, *, saved: int, seconds: float) -> None:
        self._last_round_ms = self._clock.monotonic_ms()
        self.rounds += 1
        self.bytes_read += done.bytes_read
        self.bytes_written += done.bytes_written
        self.records_dropped += done.records_read - done.records_kept
        self.cpu_seconds += done.cpu_seconds
        before = sum(source.size for group in job.groups for source in group)
        log.info(
            "compacted",
            extra={
                "partition": partition.name,
                "before_bytes": before,
                "after_bytes": before - saved,
                "clean_to": done.cleaned_to,
                "records": done.records_read,
                "kept": done.records_kept,
                "keys": done.keys,
                "seconds": round(seconds, 3),
                "cpu_seconds": round(done.cpu_seconds, 3),
                "mb_per_cpu_second": round(before / 1e6 / max(done.cpu_seconds, 1e-6), 1),
            },
        )


async def _in_thread(work: Callable[[], None]) -> None:
    """Do work in a thread, and wait for its end even if this task is cancelled."""
    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
