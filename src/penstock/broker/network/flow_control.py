"""The budget decides which connections are read from: requests without a reply may take so much memory."""

from collections.abc import Callable
from typing import Final, Protocol

# The sizes from which on a request that has not come to its end is large, and among the largest.
LARGE_BYTES: Final = 64 * 1024
LARGEST_BYTES: Final = 1024 * 1024


class Resumable(Protocol):
    def resume_reading(self) -> None: ...

    def stop_reading(self) -> None: ...


class Budget:
    """Bytes of requests that have no reply yet, and of those that have not come to their end. Above the limit no
    connection is read that adds to them.

    Large requests that have not come to their end may fill a part of it alone, the largest of them a smaller part, so
    that there is always room for the small ones of others. When their part is full, only the first of them is read on:
    it comes to its end, or is closed when its time is up, and the next one is the first.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.unfinished_bytes = 0
        # Is called when the limit is reached, to stop reading everywhere.
        self.used_up: Callable[[], None] = lambda: None
        self._is_used_up = False
        self._waiting: dict[Resumable, None] = {}
        self._unfinished: dict[Resumable, int] = {}
        self._in_line: dict[Resumable, None] = {}

    def add(self, size: int) -> None:
        self.used_bytes += size

    def remove(self, size: int) -> None:
        self.used_bytes -= size
        if self._is_used_up and self.used_bytes < self.limit_bytes:
            self._is_used_up = False
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.resume_reading()

    def has_room(self, connection: Resumable) -> bool:
        """Whether the connection may be read. If not, its `resume_reading` is called when it may."""
        if self.used_bytes < self.limit_bytes:
            return True
        self._waiting[connection] = None
        if not self._is_used_up:
            self._is_used_up = True
            self.used_up()
        return False

    # Large requests that have not come to their end

    @property
    def is_tight(self) -> bool:
        """Whether connections should be read in small pieces, as each of them may be the beginning of a large one."""
        return self.unfinished_bytes >= self.limit_bytes // 4 or self.used_bytes >= self.limit_bytes // 2

    def gathered(self, connection: Resumable, size: int) -> None:
        """Note how many bytes of a large request a connection has; 0 when it has none any more."""
        held = self._unfinished.get(connection, 0)
        before = self._shared_bytes
        self.unfinished_bytes += size - held
        if size < held:
            # That one has come to its end. If there is another one already, it comes after those of others.
            del self._unfinished[connection]
            self._in_line.pop(connection, None)
        if size:
            self._unfinished[connection] = size
        if any(before < share <= self._shared_bytes for share in self._shares):
            for other in list(self._unfinished):
                other.stop_reading()
        elif size < held and self._in_line:
            line, self._in_line = self._in_line, {}
            for other in line:
                other.resume_reading()

    def may_gather(self, connection: Resumable) -> bool:
        """Whether a large request may be read on. If not, its `resume_reading` is called when it may."""
        if next(iter(self._unfinished)) is connection:
            return True
        largest, large = self._shares
        if self._shared_bytes < (largest if self._unfinished[connection] > LARGEST_BYTES else large):
            return self.has_room(connection)
        self._in_line[connection] = None
        return False

    def forget(self, connection: Resumable) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
        self.gathered(connection, 0)

    @property
    def _shared_bytes(self) -> int:
        """The bytes of all but the first, which does not count against the part of the others."""
        return self.unfinished_bytes - next(iter(self._unfinished.values()), 0)

    @property
    def _shares(self) -> tuple[int, int]:
        return self.limit_bytes // 4, self.limit_bytes // 2
