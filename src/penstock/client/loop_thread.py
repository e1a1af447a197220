"""An event loop in a thread of its own, for callers that block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, from `start` to `close`. Whoever waits and is interrupted (Ctrl-C) cancels
    what it waited for."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, waited for; what it raises is raised here."""
        try:
            future = self._submit(coroutine)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError("closed by another thread while this call was waiting") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The same for what does not wait itself, but belongs to the loop."""

        async def called() -> T:
            return function()

        return self.run(called())

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have a function called on the loop, and go on."""
        self._loop.call_soon_threadsafe(function)

    def keep(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """On the loop: run a coroutine that nobody waits for, to its end or to `close`."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End the loop and its thread; whatever still runs on it is cancelled."""
        if not self.is_open:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        if not self.is_open:
            raise RuntimeError("it is closed: make a new one")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking client cannot be used in its own callbacks: use penstock.client there")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
