"""`Callbacks` calls the functions given to `push` in threads, so that they may block, too."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.pusher import PushOptions
from penstock.client.loop_thread import LoopThread


class Callbacks:
    """The threads that the functions are called in."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self._local = threading.local()

    @property
    def are_calling(self) -> bool:
        """Whether one of these threads asks."""
        return getattr(self._local, "is_calling", False)

    def push(self, consumer: Consumer[Any, Any], callback: Callable[..., object], options: PushOptions) -> None:
        """Push until that ends; no thread is left then."""
        with ThreadPoolExecutor(options.concurrency, "penstock-push") as pool:

            async def call(function: Callable[..., object], *arguments: Any) -> None:
                await asyncio.get_running_loop().run_in_executor(pool, self._call, function, *arguments)

            async def relay(given: Any, acknowledge: Callable[[], None] | None = None) -> None:
                if acknowledge is None:
                    await call(callback, given)
                else:
                    await call(callback, given, lambda: self._thread.call_soon(acknowledge))

            async def relay_error(given: Any, error: Exception) -> None:
                assert options.on_error is not None
                await call(options.on_error, given, error)

            self._thread.run(
                consumer.push(
                    relay,
                    credits=options.credits,
                    lists=options.lists,
                    concurrency=options.concurrency,
                    ordered_by=options.ordered_by,
                    ack=options.ack,  # type: ignore[arg-type]
                    on_error=None if options.on_error is None else relay_error,
                )
            )

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        self._local.is_calling = True
        function(*arguments)
