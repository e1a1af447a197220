"""`LoopThread` runs an event loop in a thread of its own, for callers that block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, from its construction to `close`. A caller that is interrupted while it waits
    (Ctrl-C) cancels the coroutine. The thread is a daemon: it does not keep a process from ending."""

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
            future = self.submit(coroutine)
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

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine, and return at once."""
        if not self.is_open:
            raise RuntimeError("it is closed: make a new one")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking client cannot be used in its own callbacks: use penstock.client there")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function, which does not wait, on the loop, and return its result."""

        async def called() -> T:
            return function()

        return self.run(called())

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have a function called on the loop, and return at once."""
        self._loop.call_soon_threadsafe(function)

    def keep(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine whose result is not needed, to its end or to `close`. To be called on the loop."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End the loop and its thread; tasks that still run on it are cancelled."""
        if not self.is_open:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

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
