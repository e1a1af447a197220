"""Saves the high watermarks of partitions with several replicas every few seconds, and at a stop: a leader that finds
itself with too few replicas after a crash of all brokers lets clients read up to there."""

import asyncio
import logging
from typing import Final

from penstock.broker.partitions.registry import Partitions
from penstock.storage.data_directory import DataDirectory

log = logging.getLogger(__name__)

# Kafka's replica.high.watermark.checkpoint.interval.ms.
SAVE_SECONDS: Final = 5.0


class HighWatermarkSaving:
    """`start`, then `close` for a last save."""

    def __init__(self, partitions: Partitions, directory: DataDirectory) -> None:
        self._partitions = partitions
        self._directory = directory
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="penstock-high-watermarks")

    async def close(self, *, saves: bool = True) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if saves:
            self.note()
            self._save()

    def note(self) -> None:
        """Tell the data folder what to save."""
        high_watermarks = self._directory.high_watermarks
        for partition in self._partitions.replicas():
            if partition.is_replicated:
                high_watermarks.set(partition.topic, partition.index, partition.high_watermark)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            self.note()
            await loop.run_in_executor(None, self._save)

    def _save(self) -> None:
        try:
            self._directory.high_watermarks.save()
        except OSError as error:
            # It is a hint: the next save may do better.
            log.warning("high watermarks could not be saved", extra={"error": str(error)})
