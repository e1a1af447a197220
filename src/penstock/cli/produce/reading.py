"""`ChunkReader` reads input in a thread, so that a silent terminal or pipe holds up nothing else."""

import asyncio
from collections.abc import Sequence
from threading import Semaphore, Thread
from typing import IO

AT_ONCE = 1024 * 1024
# Limits the chunks that are read ahead.
AHEAD = 4


class ChunkReader:
    """Reads chunks of one stream after the other; an empty chunk marks the end of each.

    The thread may be stuck in a read when the program ends, so it is a daemon and reads unbuffered streams only: the
    lock of a buffered one, held by a thread that has ended, would abort the interpreter.
    """

    def __init__(self, streams: Sequence[IO[bytes]]) -> None:
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        self._room = Semaphore(AHEAD)
        self._at_end = False
        Thread(target=self._read, name="input", daemon=True).start()

    async def next(self, *, within: float | None = None) -> bytes | None:
        """The next chunk; None at the end of the last stream. TimeoutError if none comes `within` that many seconds."""
        if self._at_end:
            return None
        async with asyncio.timeout(within):
            chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise chunk
        self._at_end = chunk is None
        return chunk

    def _read(self) -> None:
        try:
            for stream in self._streams:
                chunk: bytes | None = None
                while chunk != b"":
                    self._room.acquire()
                    chunk = stream.read(AT_ONCE)
                    self._tell(chunk)
            end: OSError | None = None
        except OSError as error:
            end = error
        self._tell(end)

    def _tell(self, chunk: bytes | OSError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
        except RuntimeError:
            # The loop is closed, and the chunk is not needed any more.
            pass


def unbuffered(stream: IO[bytes]) -> IO[bytes]:
    """The raw stream below a buffered one, if there is one."""
    raw: IO[bytes] = getattr(stream, "raw", stream)
    return raw
