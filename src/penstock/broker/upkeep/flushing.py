"""Flushing drives the flusher of a data folder: what is unflushed is flushed at once if a client waits for it, and
after a rest if none does.

One worker makes all rounds, and rings a bell after each: there may be thousands a second, and none has a future or a
task.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, TypeAlias

from penstock.broker.engine.bell import Bell
from penstock.broker.engine.turn import Turn
from penstock.broker.metrics.flushes import FlushMeter
from penstock.broker.upkeep.worker import ThreadWorker, Worker
from penstock.machines.flush_urgency import Urgency
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import lacks_descriptors
from penstock.storage.flusher import FlushRound

log = logging.getLogger(__name__)

# Flushes that no client waits for take this share of a core, as long as the rests between them are neither shorter nor
# longer than these: a power loss takes what acks=1 has acknowledged since the last flush.
SHARE_OF_A_CORE: Final = 0.02
MIN_REST_SECONDS: Final = 0.002
MAX_REST_SECONDS: Final = 0.05
# While readers wait, there are a thousand flushes a second at most.
READER_REST_SECONDS: Final = 0.001
# The pause until connections or segments are closed, and descriptors are free again.
PUT_OFF_SECONDS: Final = 0.1
# Logs whose leader epochs are saved in one round. More than a few share two syncs of the file system, so that it is
# the files that take time: some 5 ms for as many as this.
SAVES: Final = 100

_Synced: TypeAlias = float | BaseException
"""The CPU seconds of a sync, or what it raised."""


class _State(Enum):
    IDLE = auto()
    SYNCING = auto()
    """The worker has a round."""
    RESTING = auto()
    """There is something to flush, which can wait."""
    PUT_OFF = auto()
    """There is something to flush, and no descriptor for it."""


def rest_seconds(urgency: Urgency, cpu_seconds: float) -> float:
    """How long to rest after a round that took so much CPU time, before one that is so urgent."""
    if urgency is Urgency.PRODUCER:
        return 0.0
    if urgency is Urgency.READER:
        return READER_REST_SECONDS
    return min(MAX_REST_SECONDS, max(MIN_REST_SECONDS, cpu_seconds / SHARE_OF_A_CORE))


class Flushing:
    """`flushed` gets each round that ended well, `failed` the error of the one that did not: there is none after it.
    `make_worker` makes what waits for the disk, by a name."""

    def __init__(
        self,
        directory: DataDirectory,
        turn: Turn,
        *,
        now_ms: Callable[[], int],
        urgency: Callable[[], Urgency],
        flushed: Callable[[FlushRound], None],
        failed: Callable[[OSError], None],
        meter: FlushMeter,
        make_worker: Callable[[str], Worker] = ThreadWorker,
    ) -> None:
        self._flusher = directory.flusher
        self._now_ms = now_ms
        self._urgency = urgency
        self._flushed = flushed
        self._failed = failed
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._state = _State.IDLE
        self._is_open = False
        self._rest: asyncio.TimerHandle | None = None
        self._rests_for = Urgency.NONE
        # The end of the last round by the loop's clock, and the CPU time that it took.
        self._ended = -MAX_REST_SECONDS
        self._cpu_seconds = 0.0
        self._round: FlushRound | None = None
        self._outcome: _Synced = 0.0
        self._turn = turn
        self._began = 0.0
        self._worker = make_worker("penstock-flushing")
        # Not the worker of the rounds: a save takes several syncs, and a client may wait for a round.
        self._saver = make_worker("penstock-recovery-points")
        self._is_saving = False
        self._is_done = asyncio.Event()
        self._is_done.set()
        self.rounds = 0
        self.seconds = 0.0

    def start(self) -> None:
        self._is_open = True
        self._bell = Bell(self._loop, self._turn, self._synced)
        self.wake(Urgency.NONE)

    def wake(self, urgency: Urgency) -> None:
        """There is something to flush. If it is more urgent than what was there before, the rest ends sooner."""
        state = self._state
        if state is _State.IDLE or (state is _State.RESTING and urgency > self._rests_for):
            rest = rest_seconds(urgency, self._cpu_seconds)
            if rest and (rest := self._ended + rest - self._loop.time()) > 0:
                self._stop_pause()
                self._rests_for = urgency
                self._pause(_State.RESTING, rest)
            else:
                self._next_round()

    def save_points_if_due(self) -> None:
        """Save recovery points that are due, which an idle log would never do otherwise."""
        now_ms = self._now_ms()
        if self._is_open and not self._is_saving and self._flusher.recovery_points_are_due(now_ms):
            self._is_saving = True
            self._is_done.clear()
            self._saver.put(partial(self._save_points, now_ms))

    @property
    def is_busy(self) -> bool:
        """Whether a round, or the saving of recovery points, is under way."""
        return self._state is _State.SYNCING or self._is_saving

    async def close(self) -> None:
        """Wait for the round under way; the folder's own close flushes what comes later."""
        self._is_open = False
        await self._is_done.wait()
        self._stop_pause()
        self._saver.close()
        self._worker.close()
        self._bell.close()

    # On the loop

    def _next_round(self) -> None:
        self._stop_pause()
        if self._is_open and self._flusher.has_work:
            self._began, cpu = self._loop.time(), time.thread_time()
            self._round = self._flusher.begin(saves=SAVES)
            self._cpu_seconds = time.thread_time() - cpu
            self._state = _State.SYNCING
            self._is_done.clear()
            self._worker.put(self._sync_round)

    def _synced(self) -> None:
        outcome, round, self._round = self._outcome, self._round, None
        assert round is not None
        self._state = _State.IDLE
        try:
            if isinstance(outcome, BaseException):
                self._round_failed(round, outcome)
            else:
                self._round_ended(round, outcome)
        finally:
            self._done_if_idle()

    def _round_ended(self, round: FlushRound, cpu_seconds: float) -> None:
        self._ended, cpu = self._loop.time(), time.thread_time()
        self._flusher.end(round)
        self._cpu_seconds += cpu_seconds + time.thread_time() - cpu
        seconds = self._ended - self._began
        self.rounds += 1
        self.seconds += seconds
        self._meter.flushed(len(round.work), seconds)
        self._flushed(round)
        self._go_on()

    def _round_failed(self, round: FlushRound, error: BaseException) -> None:
        failure = error if isinstance(error, OSError) else OSError(f"a flush broke off: {error!r}")
        self._flusher.end(round, failure)
        if lacks_descriptors(failure):
            log.warning("a flush is put off: too many files are open", extra={"error": str(failure)})
            self._pause(_State.PUT_OFF, PUT_OFF_SECONDS)
            return
        self._meter.failed()
        self._failed(failure)
        self._go_on()

    def _go_on(self) -> None:
        self.save_points_if_due()
        if self._is_open and self._flusher.has_work:
            self.wake(self._urgency())

    def _points_saved(self, error: BaseException | None) -> None:
        self._is_saving = False
        if error is not None:
            # Without recovery points more is scanned after a crash; nothing is lost.
            log.warning("recovery points were not saved", extra={"error": str(error)})
        self._done_if_idle()

    def _done_if_idle(self) -> None:
        if not self.is_busy:
            self._is_done.set()

    def _pause(self, state: _State, seconds: float) -> None:
        self._state = state
        self._rest = self._loop.call_later(seconds, self._next_round)

    def _stop_pause(self) -> None:
        self._state = _State.IDLE
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    # In the workers

    def _sync_round(self) -> None:
        # The loop reads the outcome when the bell has rung, and begins no other round before that.
        assert self._round is not None
        try:
            self._outcome = self._round.sync()
        except BaseException as error:
            self._outcome = error
        self._bell.ring()

    def _save_points(self, now_ms: int) -> None:
        error: BaseException | None = None
        try:
            self._flusher.save_recovery_points(now_ms)
        except BaseException as raised:
            error = raised
        self._loop.call_soon_threadsafe(self._points_saved, error)
