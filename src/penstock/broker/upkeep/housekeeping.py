"""Housekeeping sweeps now and then: it deletes old segments, rolls idle ones, and forgets silent producers.

Of a log that another broker leads it deletes nothing: that log begins where its leader says.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.broker.clock import Clock
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.partitions.registry import Partitions
from penstock.broker.upkeep.held_offsets import EVERYTHING, HeldOffsets
from penstock.storage.errors import StorageError
from penstock.storage.log.retention import DAY_MS

log = logging.getLogger(__name__)


# The pause between two sweeps while the disk is full: old segments are what can go.
FULL_DISK_SECONDS: Final = 10.0


class Housekeeping:
    def __init__(
        self,
        partitions: Partitions,
        *,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        held_offsets: HeldOffsets,
    ) -> None:
        self._partitions = partitions
        self._config = config
        self._clock = clock
        self._held_offsets = held_offsets
        self._guard = ClockGuard()
        self._early = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.deleted_segments = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="penstock-housekeeping")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._until_due()
            await self.sweep()

    def come_early(self) -> None:
        """The disk is full: sweep soon."""
        self._early.set()

    async def _until_due(self) -> None:
        interval = self._config().integer("log.retention.check.interval.ms") / 1000
        shortest = min(interval, FULL_DISK_SECONDS) if self._early.is_set() else 0
        self._early.clear()
        await asyncio.sleep(shortest)
        try:
            async with asyncio.timeout(interval - shortest):
                await self._early.wait()
        except TimeoutError:
            pass

    async def sweep(self) -> int:
        """Sweep once over all partitions; returns how many segments went."""
        clock = self._clock
        now_ms = clock.now_ms()
        if not self._guard.allows(now_ms, clock.monotonic_ms()):
            log.warning("the clock has jumped: retention waits for a day, or until it has jumped back")
            return 0
        deleted = 0
        expiration_ms = self._config().integer("producer.id.expiration.ms")
        held = await self._held_offsets.find(self._partitions.all())
        for partition in self._partitions.replicas():
            # A topic that waits for a group only since then, or a partition that is led only since then, keeps all.
            held_from = held.get(partition, EVERYTHING if partition.settings.hold_group else None)
            try:
                if partition.is_led:
                    deleted += partition.apply_retention(now_ms, held_from=held_from)
                elif partition.log.failure is None:
                    # A closed segment goes as soon as the leader's log begins after it.
                    partition.log.roll_if_due(now_ms)
            except (OSError, StorageError) as error:
                log.error("retention failed", extra={"partition": partition.name, "error": str(error)})
            partition.producers.expire(now_ms, expiration_ms)
            # Requests get their turn between two partitions.
            await asyncio.sleep(0)
        self.deleted_segments += deleted
        return deleted


class ClockGuard:
    """Compares the wall clock with one that only runs forward. A wall clock that jumps by more than a day would let
    retention delete everything: sweeps wait until it has jumped back, or has stood by its new time for a day."""

    def __init__(self) -> None:
        self._lead_ms: int | None = None
        self._jumped_at_ms: int | None = None

    def allows(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Whether a sweep may run now. Each sweep has to ask."""
        lead_ms = wall_ms - monotonic_ms
        if self._lead_ms is None or abs(lead_ms - self._lead_ms) <= DAY_MS:
            # Small steps add up over the years, so the clock is compared with its last state.
            self._lead_ms, self._jumped_at_ms = lead_ms, None
            return True
        if self._jumped_at_ms is None:
            self._jumped_at_ms = monotonic_ms
        if monotonic_ms - self._jumped_at_ms < DAY_MS:
            return False
        self._lead_ms, self._jumped_at_ms = lead_ms, None
        return True
