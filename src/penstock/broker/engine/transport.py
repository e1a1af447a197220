"""The transport of a client's connection: a socket in the engine's epoll, with the part of asyncio's transports that
connections and senders use."""

import asyncio
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker.engine.plain import Engine, Receiver


class SocketTransport(asyncio.Transport):
    __slots__ = (
        "_buffer",
        "_engine",
        "_events",
        "_is_closing",
        "_is_lost",
        "_loop",
        "_reads",
        "_send",
        "_sock",
        "fd",
        "receive_into",
        "receiver",
    )

    def __init__(
        self, engine: "Engine", loop: asyncio.AbstractEventLoop, sock: socket.socket, receiver: "Receiver"
    ) -> None:
        super().__init__()
        self._engine = engine
        self._loop = loop
        self._sock = sock
        self._send = sock.send
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.fd = sock.fileno()
        self.receiver = receiver
        self._buffer = bytearray()
        self._events = 0
        self._reads = False
        self._is_closing = False
        self._is_lost = False
        receiver.connection_made(self)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self._sock
        if name == "peername":
            try:
                return self._sock.getpeername()
            except OSError:
                return default
        return default

    # Reading

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False
        self._watch()

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._reads = True
            self._watch()

    def ended(self) -> None:
        """The client sends no more. What it is owed is sent, if it takes that."""
        self.close()

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is one limit: the receiver is paused while anything is left in the buffer."""

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_lost or not data:
            return
        if self._buffer:
            self._buffer += data
            return
        try:
            sent = self._send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.lost(error)
            return
        if sent < len(data):
            self._buffer += memoryview(data)[sent:]
            self._watch()
            self.receiver.pause_writing()

    def writable(self) -> None:
        """There is room for more of the buffer."""
        try:
            sent = self._send(self._buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.lost(error)
            return
        del self._buffer[:sent]
        if not self._buffer:
            self._watch()
            self.receiver.resume_writing()
            if self._is_closing and not self._buffer:
                self.lost(None)

    # The end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Close when all that was written has been sent."""
        if self._is_closing:
            return
        self._is_closing = True
        self._reads = False
        self._watch()
        if not self._buffer:
            self.lost(None)

    def abort(self) -> None:
        self.lost(None)

    def lost(self, error: Exception | None) -> None:
        """Close at once; the receiver is told in one of the next turns."""
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._reads = False
            self._buffer = bytearray()
            self._watch()
            self._loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        try:
            self.receiver.connection_lost(error)
        finally:
            self._sock.close()
            del self.receiver

    def _watch(self) -> None:
        events = (select.EPOLLIN if self._reads else 0) | (select.EPOLLOUT if self._buffer else 0)
        if events != self._events:
            self._engine.watch(self, self._events, events)
            self._events = events
