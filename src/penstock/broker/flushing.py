"""Drives the flusher of a data folder: whenever anything is unflushed and no flush runs, the next one begins."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.storage.data_directory import DataDirectory
from penstock.storage.flusher import FlushRound

log = logging.getLogger(__name__)

# While nobody waits for it, a flush may gather for this long: a sync costs the processor something too.
REST_SECONDS: Final = 0.002


class Flushing:
    """`flushed` gets each round that ended well, `failed` the error of the one that did not."""

    def __init__(
        self,
        directory: DataDirectory,
        *,
        now_ms: Callable[[], int],
        somebody_waits: Callable[[], bool],
        flushed: Callable[[FlushRound], None],
        failed: Callable[[FlushRound, OSError], None],
    ) -> None:
        self._directory = directory
        self._flusher = directory.flusher
        self._now_ms = now_ms
        self._somebody_waits = somebody_waits
        self._flushed = flushed
        self._failed = failed
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0
        self.seconds = 0.0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="penstock-flushing")

    def wake(self) -> None:
        """There is something to flush."""
        self._wake.set()

    async def close(self) -> None:
        """Waits for the round under way; what comes later is flushed by the folder's close."""
        if self._task is not None:
            self._task.cancel()
            try:
                await self._task
            except asyncio.CancelledError:
                pass
            self._task = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._flusher.has_work:
                await self._flush(loop)
                if not self._somebody_waits():
                    await asyncio.sleep(REST_SECONDS)

    async def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        began = time.perf_counter()
        round = self._flusher.begin()
        syncing = loop.run_in_executor(None, round.sync)
        cancelled = await _see_through(syncing)
        error = syncing.exception()
        if isinstance(error, OSError):
            self._flusher.end(round, error)
            self._failed(round, error)
        elif error is not None:
            raise error
        else:
            self._flusher.end(round)
            self.rounds += 1
            self.seconds += time.perf_counter() - began
            self._flushed(round)
        now_ms = self._now_ms()
        if self._flusher.recovery_points_are_due(now_ms):
            saving = loop.run_in_executor(None, self._flusher.save_recovery_points, now_ms)
            cancelled |= await _see_through(saving)
            error = saving.exception()
            if isinstance(error, OSError):
                # Without them more is scanned after a crash; nothing is lost.
                log.warning("recovery points were not saved", extra={"error": str(error)})
            elif error is not None:
                raise error
        if cancelled:
            raise asyncio.CancelledError


async def _see_through(work: "asyncio.Future[None]") -> bool:
    """Wait for work in a thread, which uses the files of the folder until it is done; True if we were cancelled."""
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
