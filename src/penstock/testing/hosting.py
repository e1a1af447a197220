"""Runs an event loop in a thread of its own, whose time is that of a clock which leaps.

The broker lives there also for tests that have a loop: they may then call what blocks, as many clients do, and the
broker answers all the same. Timers, sleeps and timeouts of a loop go by its `time`, so all of them leap together.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.broker.engine import EngineLoop
from penstock.testing.clock import Clock

R = TypeVar("R")


class Host:
    """The thread with its loop, from construction to `close`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_ready = threading.Event()
        # A broker that was never closed does not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._serve, name="penstock-broker", daemon=True)
        self._thread.start()
        self._is_ready.wait()

    def start(self, coroutine: Coroutine[Any, Any, R]) -> "Future[R]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Wait for it, in the thread of the caller."""
        return self.start(coroutine).result()

    def call(self, function: Callable[[], R]) -> R:
        """Make a call that is over at once, between two turns of the loop."""

        async def called() -> R:
            return function()

        return self.run(called())

    def close(self) -> None:
        """End what is left in the loop, and the thread."""
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: _Loop(self._clock)) as runner:
            runner.run(self._until_over())

    async def _until_over(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over = asyncio.Event()
        self._is_ready.set()
        await self._is_over.wait()


class _Loop(EngineLoop):
    def __init__(self, clock: Clock) -> None:
        self._leaping = clock
        super().__init__()

    def time(self) -> float:
        return super().time() + self._leaping.lead_ms / 1000
