"""The sender writes bytes and file ranges to a socket in order: small ones by the transport, large ranges by sendfile.

sendfile gets its own duplicate of the socket's descriptor, which the event loop watches apart from the transport's, and
is used only while the transport has nothing left to write.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.storage.errors import StorageError
from penstock.storage.log.file_range import FileRange

# Below this a read and a copy are cheaper than what sendfile costs.
SENDFILE_FROM_BYTES = 64 * 1024
_SENDFILE_AT_ONCE = 4 * 1024 * 1024
# What the operating system says of files that it cannot send: on some file systems, and in memory alone.
_UNSENDABLE = (errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
# Little enough that a slow reader is seen to make progress.
_WRITE_AT_ONCE = 256 * 1024


class Sender:
    """One for a connection. `broken` is called when the other side has gone or a file ended too early, `moved` when
    there is less to send and the transport does not report it."""

    __slots__ = (
        "__weakref__",
        "_broken",
        "_dup",
        "_loop",
        "_moved",
        "_queue",
        "_reads_all",
        "_sending",
        "_transport",
        "_writable",
        "progressed_at",
        "queued_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        broken: Callable[[str], None],
        moved: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._broken = broken
        self._moved = moved
        self._queue: deque[Any] = deque()
        self._sending: FileRange | None = None
        self._dup = -1
        self._reads_all = False
        self._writable = True
        self.queued_bytes = 0
        self.progressed_at = loop.time()
        # With this limit the transport reports each time whether its own buffer is empty.
        transport.set_write_buffer_limits(high=0)

    @property
    def is_idle(self) -> bool:
        return not self._queue and self._writable

    @property
    def memory_bytes(self) -> int:
        """What is queued, but for ranges of files, which are no memory."""
        queued = sum([len(chunk) for chunk in self._queue if not isinstance(chunk, FileRange)])
        return queued + self._transport.get_write_buffer_size()

    def send(self, chunks: list[Any]) -> None:
        if not self._queue and self._writable and self._sending is None:
            data = chunks[0]
            if len(chunks) == 1 and type(data) is bytes and len(data) <= _WRITE_AT_ONCE:
                # Nearly all replies are one small chunk. If it does not go at once the transport calls `pause`.
                self._transport.write(data)
                return
            self.progressed_at = self._loop.time()
        self._queue.extend(chunks)
        self.queued_bytes += sum(map(len, chunks))
        if self._sending is None and self._writable:
            self._pump()

    def pause(self) -> None:
        self._writable = False
        self.progressed_at = self._loop.time()

    def resume(self) -> None:
        self._writable = True
        self.progressed_at = self._loop.time()
        if self._sending is None:
            self._pump()

    def close(self) -> None:
        release(self._queue)
        self._queue.clear()
        self.queued_bytes = 0
        self._end_sendfile()
        if self._dup >= 0:
            os.close(self._dup)
            self._dup = -1

    def _pump(self) -> None:
        """Hand on as much as can go now."""
        while self._queue and self._writable and self._sending is None:
            plain: list[Any] = []
            size = 0
            while self._queue and size < _WRITE_AT_ONCE:
                chunk = self._queue[0]
                if isinstance(chunk, FileRange) and len(chunk) >= SENDFILE_FROM_BYTES and not self._reads_all:
                    break
                self._queue.popleft()
                if isinstance(chunk, FileRange):
                    try:
                        with chunk:
                            chunk = chunk.read()
                    except (OSError, StorageError) as error:
                        self._break(str(error))
                        return
                plain.append(chunk)
                size += len(chunk)
            if plain:
                data = plain[0] if len(plain) == 1 else b"".join(plain)
                self.queued_bytes -= size
                self._transport.write(data)
            elif self._queue:
                self._begin_sendfile(self._queue.popleft())

    def _begin_sendfile(self, chunk: FileRange) -> None:
        if self._dup < 0:
            self._dup = os.dup(self._transport.get_extra_info("socket").fileno())
        self._sending = chunk
        self._continue_sendfile(watching=False)

    def _continue_sendfile(self, watching: bool = True) -> None:
        chunk = self._sending
        assert chunk is not None
        try:
            while chunk.length:
                sent = os.sendfile(self._dup, chunk.fd, chunk.position, min(chunk.length, _SENDFILE_AT_ONCE))
                if sent == 0:
                    raise OSError("the file ended before the length that was promised")
                chunk.position += sent
                chunk.length -= sent
                self.queued_bytes -= sent
            self.progressed_at = self._loop.time()
        except BlockingIOError:
            self.progressed_at = self._loop.time()
            if not watching:
                self._loop.add_writer(self._dup, self._continue_sendfile)
            return
        except OSError as error:
            if error.errno not in _UNSENDABLE:
                self._break(str(error))
                return
            # The range can still be read, or reading reports what is wrong with it.
            self._reads_all = True
            self._loop.remove_writer(self._dup)
            self._queue.appendleft(chunk)
            self._sending = None
        else:
            self._end_sendfile()
        if watching:
            self._pump()
            self._moved()

    def _break(self, reason: str) -> None:
        # Nothing may follow: the client would take it for the bytes that were promised and did not come.
        self.close()
        self._broken(reason)

    def _end_sendfile(self) -> None:
        if self._sending is not None:
            self._loop.remove_writer(self._dup)
            self._sending.release()
            self._sending = None


def release(chunks: Iterable[Any]) -> None:
    """Let go of the files among chunks that will not be sent."""
    for chunk in chunks:
        if isinstance(chunk, FileRange):
            chunk.release()
