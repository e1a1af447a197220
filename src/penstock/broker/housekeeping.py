"""What is done from time to time: old segments deleted, idle ones rolled, silent producers forgotten."""

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.storage.errors import StorageError
from penstock.storage.retention import ClockGuard

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)


class Housekeeping:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._guard = ClockGuard()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="penstock-housekeeping")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.integer("log.retention.check.interval.ms") / 1000)
            await self.sweep()

    async def sweep(self) -> int:
        """Once over all partitions; returns how many segments went."""
        clock = self._broker.clock
        now_ms = clock.now_ms()
        if not self._guard.allows(now_ms, clock.monotonic_ms()):
            log.warning("the clock has jumped: retention waits for a day, or until it has jumped back")
            return 0
        deleted = 0
        expiration_ms = self._broker.config.integer("producer.id.expiration.ms")
        for partition in self._broker.partitions.all():
            try:
                deleted += partition.apply_retention(now_ms)
            except (OSError, StorageError) as error:
                log.error("retention failed", extra={"partition": partition.name, "error": str(error)})
            partition.producers.expire(now_ms, expiration_ms)
            # Others get their turn between two partitions.
            await asyncio.sleep(0)
        return deleted
