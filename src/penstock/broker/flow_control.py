"""When connections send, and when they are read from."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Corked(Protocol):
    def send_outbox(self) -> None: ...


class Resumable(Protocol):
    def resume_reading(self) -> None: ...


class Cork:
    """Holds replies back until the end of a turn, so that all replies of a connection go out with one call. Before
    what a read has brought is answered, `end_of_read` is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end_of_read: Callable[[], None] = lambda: None) -> None:
        self._loop = loop
        self._corked: dict[Corked, None] = {}
        self._end_of_read = end_of_read
        self.is_held = False

    def hold(self) -> None:
        """A connection says so when it has read something, and will release it."""
        self.is_held = True

    def add(self, connection: Corked) -> None:
        if not self._corked and not self.is_held:
            # For replies that come from elsewhere.
            self._loop.call_soon(self.release)
        self._corked[connection] = None

    def release(self) -> None:
        if self.is_held:
            self.is_held = False
            self._end_of_read()
        if self._corked:
            corked, self._corked = self._corked, {}
            for connection in corked:
                connection.send_outbox()


class Budget:
    """Bytes of requests that have no reply yet. Above the limit no connection is read that adds to them."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[Resumable, None] = {}

    def add(self, size: int) -> None:
        self.used_bytes += size

    def remove(self, size: int) -> None:
        self.used_bytes -= size
        if self._waiting and self.used_bytes < self.limit_bytes:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.resume_reading()

    def has_room(self, connection: Resumable) -> bool:
        """If not, the connection is told when there is."""
        if self.used_bytes < self.limit_bytes:
            return True
        self._waiting[connection] = None
        return False
