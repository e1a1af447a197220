"""The scrubber checks closed segments for changed bits in the background, at a bounded rate."""

import asyncio
import logging
import os.path
from collections.abc import Callable, Iterable
from typing import Final

from penstock.storage.files import Files
from penstock.storage.log.log import Log
from penstock.storage.scrub import Scrubber

log = logging.getLogger(__name__)

SLICE_BYTES: Final = 256 * 1024
# The pause keeps the scrubber in the background with the smallest batches, too.
SHORTEST_PAUSE_SECONDS: Final = 0.05
# The pause between two rounds, and while the scrubber is switched off.
IDLE_SECONDS: Final = 10.0


class Scrubbing:
    """`bytes_scrubbed` and `corrupt_batches` count from the start: what is still damaged in the next round counts
    again."""

    def __init__(
        self,
        files: Files,
        logs: Callable[[], Iterable[Log]],
        *,
        bytes_per_second: Callable[[], int],
        when_damaged: Callable[[str], None],
    ) -> None:
        """`when_damaged` is told the name of a log for each batch that is damaged there."""
        self._files = files
        self._when_damaged = when_damaged
        self._bytes_per_second = bytes_per_second
        self._scrubber = Scrubber(logs)
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.Future[None] | None = None
        self.bytes_scrubbed = 0
        self.corrupt_batches = 0

    @property
    def rounds(self) -> int:
        """How often all closed segments have been checked."""
        return self._scrubber.rounds

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="penstock-scrubbing")

    async def close(self) -> None:
        """Wait for the slice that is under way in its thread, which is short."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._checking is not None:
            await asyncio.wait([self._checking])

    async def _run(self) -> None:
        while True:
            rate = self._bytes_per_second()
            size = await self.scrub(max(SLICE_BYTES, int(rate * SHORTEST_PAUSE_SECONDS))) if rate > 0 else None
            await asyncio.sleep(IDLE_SECONDS if size is None else max(SHORTEST_PAUSE_SECONDS, size / rate))

    async def scrub(self, max_bytes: int = SLICE_BYTES) -> int | None:
        """Check the next slice; returns how many bytes that was, None at the end of a round."""
        piece = self._scrubber.next_slice(max_bytes)
        if piece is None:
            return None
        self._checking = asyncio.get_running_loop().run_in_executor(None, piece.check, self._files)
        await asyncio.shield(self._checking)
        self.bytes_scrubbed += piece.size
        for damage in self._scrubber.checked(piece):
            self.corrupt_batches += 1
            name = os.path.basename(os.path.dirname(damage.path))
            log.error(
                "a batch is damaged on the disk, and will not be served: "
                "without replicas on other brokers, restore its partition from a backup",
                extra={
                    "partition": name,
                    "file": damage.path,
                    "offset": damage.offset,
                    "position": damage.position,
                    "reason": damage.reason,
                },
            )
            self._when_damaged(name)
        return piece.size
