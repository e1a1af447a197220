"""Drives the flusher of a data folder: whenever anything is unflushed and no flush runs, the next one begins.

The disk is waited for in one thread of its own, which gets its work by a queue and answers to the loop: no future and
no task for each round, as there may be thousands a second.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from queue import SimpleQueue
from typing import Final, TypeAlias

from penstock.broker.metrics.flushes import FlushMeter
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import lacks_descriptors
from penstock.storage.flusher import FlushRound

log = logging.getLogger(__name__)

# While nobody waits for it, a flush may gather for this long: a sync costs the processor something too.
REST_SECONDS: Final = 0.002
# Until connections or segments are closed, and descriptors are free again.
PUT_OFF_SECONDS: Final = 0.1

_Work: TypeAlias = Callable[[], None]
_Done: TypeAlias = Callable[[BaseException | None], None]


class _State(Enum):
    IDLE = auto()
    SYNCING = auto()
    """The thread has work."""
    RESTING = auto()


class Flushing:
    """`flushed` gets each round that ended well, `failed` the error of the one that did not: there is none after it."""

    def __init__(
        self,
        directory: DataDirectory,
        *,
        now_ms: Callable[[], int],
        somebody_waits: Callable[[], bool],
        flushed: Callable[[FlushRound], None],
        failed: Callable[[OSError], None],
        meter: FlushMeter,
    ) -> None:
        self._flusher = directory.flusher
        self._now_ms = now_ms
        self._somebody_waits = somebody_waits
        self._flushed = flushed
        self._failed = failed
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._state = _State.IDLE
        self._is_open = False
        self._rest: asyncio.TimerHandle | None = None
        self._work: SimpleQueue[tuple[_Work, _Done] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self.rounds = 0
        self.seconds = 0.0

    def start(self) -> None:
        self._is_open = True
        # A broker that was dropped without being stopped does not keep its process alive.
        self._thread = threading.Thread(target=self._work_off, name="penstock-flushing", daemon=True)
        self._thread.start()
        self.wake(urgent=False)

    def wake(self, *, urgent: bool) -> None:
        """There is something to flush, and perhaps somebody who waits for it."""
        if self._state is _State.IDLE or (urgent and self._state is _State.RESTING):
            self._next_round()

    def save_points_if_due(self) -> None:
        """Nothing is flushed any more, perhaps, and still somebody has to know for good what was."""
        now_ms = self._now_ms()
        if self._is_open and self._state is _State.IDLE and self._flusher.recovery_points_are_due(now_ms):
            self._give(lambda: self._flusher.save_recovery_points(now_ms), self._points_saved)

    @property
    def is_busy(self) -> bool:
        """Whether a round, or the saving of recovery points, is under way."""
        return self._state is _State.SYNCING

    async def close(self) -> None:
        """Waits for the round under way; what comes later is flushed by the folder's close."""
        self._is_open = False
        await self._at_rest.wait()
        self._stop_resting()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None

    # On the loop

    def _next_round(self) -> None:
        self._stop_resting()
        if self._is_open and self._flusher.has_work:
            began = time.perf_counter()
            round = self._flusher.begin()
            self._give(round.sync, lambda error: self._synced(round, error, time.perf_counter() - began))

    def _synced(self, round: FlushRound, error: BaseException | None, seconds: float) -> None:
        if error is None:
            self._flusher.end(round)
            self.rounds += 1
            self.seconds += seconds
            self._meter.flushed(len(round.work), seconds)
            self._flushed(round)
        else:
            failure = error if isinstance(error, OSError) else OSError(f"a flush broke off: {error!r}")
            self._flusher.end(round, failure)
            if lacks_descriptors(failure):
                log.warning("a flush is put off: too many files are open", extra={"error": str(failure)})
                self._rest_for(PUT_OFF_SECONDS)
                return
            self._meter.failed()
            self._failed(failure)
        now_ms = self._now_ms()
        if self._flusher.recovery_points_are_due(now_ms):
            self._give(lambda: self._flusher.save_recovery_points(now_ms), self._points_saved)
        else:
            self._go_on()

    def _points_saved(self, error: BaseException | None) -> None:
        if error is not None:
            # Without them more is scanned after a crash; nothing is lost.
            log.warning("recovery points were not saved", extra={"error": str(error)})
        self._go_on()

    def _go_on(self) -> None:
        if self._is_open and self._flusher.has_work:
            if self._somebody_waits():
                self._next_round()
            else:
                self._rest_for(REST_SECONDS)

    def _rest_for(self, seconds: float) -> None:
        self._state = _State.RESTING
        self._rest = self._loop.call_later(seconds, self._next_round)

    def _stop_resting(self) -> None:
        self._state = _State.IDLE
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    # The thread

    def _give(self, work: _Work, done: _Done) -> None:
        self._state = _State.SYNCING
        self._at_rest.clear()
        self._work.put((work, done))

    def _work_off(self) -> None:
        while (item := self._work.get()) is not None:
            work, done = item
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            self._loop.call_soon_threadsafe(self._worked, done, error)

    def _worked(self, done: _Done, error: BaseException | None) -> None:
        self._state = _State.IDLE
        try:
            done(error)
        finally:
            if self._state is not _State.SYNCING:
                self._at_rest.set()
