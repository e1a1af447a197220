"""The compressor compresses small batches at once and large ones in a thread, which also does other long work."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from penstock.client.producer.accumulator import Batch
from penstock.client.settings import ProducerSettings
from penstock.protocol.compression import Codec

T = TypeVar("T")

# Less than this costs the event loop less than the way to a thread and back.
THREAD_BYTES: Final = 32 * 1024


class Compressor:
    """Works in the event loop that runs when it is made."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._codec = settings.codec
        self._level = settings.compression_level
        self._loop = asyncio.get_running_loop()
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def is_compressed(self, batch: Batch, done: Callable[[Exception | None], None]) -> bool:
        """Whether a closed batch can be sent as it is now. If not, it is being compressed until `done` is called."""
        if batch.is_compressing:
            return False
        if self._codec is Codec.NONE or batch.codec is not Codec.NONE:
            return True
        if batch.size < THREAD_BYTES:
            batch.compress(self._codec, self._level)
            return True
        self.begin(batch, done)
        return False

    def begin(self, batch: Batch, done: Callable[[Exception | None], None]) -> None:
        """Let a thread compress a batch that is large enough for that, before it is its turn."""
        if batch.is_compressing or self._codec is Codec.NONE or batch.codec is not Codec.NONE:
            return
        if batch.size >= THREAD_BYTES:
            batch.is_compressing = True
            work = self._loop.run_in_executor(self._pool(), batch.compress, self._codec, self._level)
            work.add_done_callback(partial(self._finish, batch, done))

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that takes long, without holding up the event loop."""
        return await self._loop.run_in_executor(self._pool(), function, *arguments)

    def close(self) -> None:
        """Ends the thread; what is being compressed is left alone."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown()

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "penstock-producer")
        return self._threads

    def _finish(self, batch: Batch, done: Callable[[Exception | None], None], work: "asyncio.Future[None]") -> None:
        if work.cancelled():
            return
        error = work.exception()
        batch.is_compressing = False
        if not self._is_closed:
            assert error is None or isinstance(error, Exception)
            done(error)
