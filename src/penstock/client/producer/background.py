"""`Background` runs tasks and timers for a client, and ends all of them with it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Works in the event loop that runs when it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def later(self, delay: float, callback: Callable[[], object]) -> None:
        """Have a function called after a delay in seconds."""

        def fire() -> None:
            self._timers.discard(timer)
            callback()

        timer = self.loop.call_later(delay, fire)
        self._timers.add(timer)

    async def end(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
