"""What is done from time to time: old segments deleted, idle ones rolled, silent producers forgotten."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from penstock.broker.partition import Partition
from penstock.protocol.schema import ZERO_UUID
from penstock.storage.errors import StorageError
from penstock.storage.retention import ClockGuard

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)


# On a full disk, old segments are what can go: they are looked for this often.
FULL_DISK_SECONDS: Final = 10.0


class Housekeeping:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
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
        interval = self._broker.config.integer("log.retention.check.interval.ms") / 1000
        shortest = min(interval, FULL_DISK_SECONDS) if self._early.is_set() else 0
        self._early.clear()
        await asyncio.sleep(shortest)
        try:
            async with asyncio.timeout(interval - shortest):
                await self._early.wait()
        except TimeoutError:
            pass

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
                deleted += partition.apply_retention(now_ms, held_from=self._held_from(partition))
            except (OSError, StorageError) as error:
                log.error("retention failed", extra={"partition": partition.name, "error": str(error)})
            partition.producers.expire(now_ms, expiration_ms)
            # Others get their turn between two partitions.
            await asyncio.sleep(0)
        self.deleted_segments += deleted
        return deleted

    def _held_from(self, partition: Partition) -> int | None:
        """The offset from which on a group still needs the records; None if retention waits for no group."""
        group = partition.settings.hold_group
        if not group:
            return None
        committed = self._broker.groups.committed_offset(group, partition.topic, partition.index)
        # Who knows nothing deletes nothing; and a commit for a topic of the same name that is gone says nothing.
        if committed is None or committed.topic_id not in (ZERO_UUID, partition.topic_id):
            return 0
        return committed.offset
