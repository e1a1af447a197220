"""Connects to a broker without sockets."""

import asyncio
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.network.connection import Connection

# How long a request may wait for others by the clock of the loop; then its client goes away.
PATIENCE_SECONDS: Final = 0.6
# Turns of the loop in which whatever needs no thread and no timer has happened.
TURNS: Final = 30


class MemoryTransport(asyncio.Transport):
    """The broker's side of a connection without a socket: bytes go in by `deliver`, and what comes out is counted, and
    kept if a test reads it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keeps: bool) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self._loop = loop
        self._is_closed = False
        self.keeps = keeps
        self.received: list[bytes] = []
        self.reply_bytes = 0
        self.changed = asyncio.Event()

    def open(self, broker: Broker) -> "MemoryTransport":
        self.connection = Connection(broker.listener, "PLAINTEXT")
        self.connection.connection_made(self)
        return self

    def deliver(self, data: bytes) -> bool:
        """Whether all of it was taken; if not, the broker has hung up."""
        position = 0
        while position < len(data) and not self._is_closed:
            place = self.connection.get_buffer(-1)
            size = min(len(place), len(data) - position)
            place[:size] = data[position : position + size]
            self.connection.buffer_updated(size)
            position += size
        return not self._is_closed

    @property
    def is_settled(self) -> bool:
        """Whether every request that has come has its answer, or will never have one."""
        return self._is_closed or not self.connection.unanswered

    async def settled(self) -> bool:
        """Let the broker do what it can, for as long as a client is patient; whether everything was answered."""
        for _ in range(TURNS):
            if self.is_settled:
                break
            await asyncio.sleep(0)
        else:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not self.is_settled:
                        self.changed.clear()
                        await self.changed.wait()
            except TimeoutError:
                return False
        # Replies that did not come in the turn of their request leave in the next.
        await asyncio.sleep(0)
        return True

    # What the broker calls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _NO_SOCKET if name == "socket" else super().get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.reply_bytes += len(data)
        if self.keeps:
            self.received.append(bytes(data))
        self.changed.set()

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.changed.set()
            self._loop.call_soon(self.connection.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return self._is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_reading(self) -> bool:
        return not self._is_closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class _NoSocket:
    def setsockopt(self, *_: object) -> None:
        pass

    def fileno(self) -> int:
        raise OSError("there is no socket")


_NO_SOCKET: Final = _NoSocket()
