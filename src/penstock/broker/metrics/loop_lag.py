"""This meter measures how late the event loop is, by a timer that compares when it was due and when it was called."""

import asyncio
from time import process_time
from typing import Final

from penstock.broker.metrics.histogram import SECONDS, Histogram, RecentMax

# A turn of the loop that takes longer than this is seen in any case, a shorter one sometimes. To wake an idle process
# costs much more than one more timer of a busy one.
BUSY_INTERVAL_SECONDS: Final = 0.02
IDLE_INTERVAL_SECONDS: Final = 0.1
BUSY_SHARE: Final = 0.1
# Timers are set to the millisecond.
BOUNDS: Final = tuple(bound for bound in SECONDS if bound >= 0.001)


class LoopLag:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began = self._due = 0.0
        self._used = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.seconds = Histogram(BOUNDS)
        self.recent = RecentMax()

    def start(self) -> None:
        self._wait(BUSY_INTERVAL_SECONDS)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        self._used = process_time()
        self._began = self._loop.time()
        self._due = self._began + seconds
        self._timer = self._loop.call_at(self._due, self._called)

    def _called(self) -> None:
        now = self._loop.time()
        # A loop may be early by the resolution of its clock.
        late = max(0.0, now - self._due)
        self.seconds.observe(late)
        self.recent.observe(late)
        is_busy = process_time() - self._used > BUSY_SHARE * (now - self._began)
        self._wait(BUSY_INTERVAL_SECONDS if is_busy else IDLE_INTERVAL_SECONDS)
