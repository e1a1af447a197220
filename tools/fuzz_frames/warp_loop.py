"""The warp loop is an event loop whose time stands still while there is something to do and leaps to the next timer
when there is not: what waits for an hour is over at once, and in the same order every time."""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from tests.broker.harness import NOW_MS

# To look again at what a thread does; the thread itself wakes the loop before that.
_THREAD_SECONDS: Final = 0.05


class _WarpSelector(selectors.DefaultSelector):
    """`leap` gets the seconds that the loop would have waited for, and says whether they have passed."""

    leap: Callable[[float | None], bool]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0) or self.leap(timeout):
            return events
        return super().select(_THREAD_SECONDS)


class WarpLoop(asyncio.SelectorEventLoop):
    """`is_busy` has to say whether a thread will wake the loop that was not started by `run_in_executor`."""

    def __init__(self) -> None:
        selector = _WarpSelector()
        self._seconds = 1000.0
        self._in_threads = 0
        self.is_busy: Callable[[], bool] = lambda: False
        selector.leap = self._leap
        super().__init__(selector)

    def time(self) -> float:
        return self._seconds

    def pass_time(self, seconds: float) -> None:
        self._seconds += seconds

    def _leap(self, seconds: float | None) -> bool:
        if seconds is None or self._in_threads or self.is_busy():
            return False
        self._seconds += seconds
        return True

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        working = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        working.add_done_callback(self._worked)
        return working

    def _worked(self, _: object) -> None:
        self._in_threads -= 1


class WarpClock:
    """The broker's clocks, by the loop's time."""

    def __init__(self, loop: WarpLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return NOW_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)
