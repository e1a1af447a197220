"""Keeps files open, those that were used lately up to a limit, and those that are in use in any case."""

import errno
import resource
from collections import OrderedDict
from threading import RLock, get_ident
from types import TracebackType
from typing import Final, Self

from penstock.storage.files.real import Files

# The number of files in use that a look for one to close passes over, so that it costs little however many there are.
_LOOKS: Final = 32
_MOST: Final = 10_000
_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def default_limit() -> int:
    """Half of the files that this process may have open; the other half is left to its connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(_MOST, max(1, soft // 2))


class KeptFile:
    """A file that is opened when it is first used, and closed when other files need its place.

    `fd` is -1 while the file is not open. It stays what it is while there are `readers` or `writers`: its number would
    be given to another file, whose bytes would then be sent to a client. Readers are read calls and ranges under way;
    a writer is anything that waits for a sync, which reports an error only to a descriptor that was open before it.
    Belongs to one thread at a time; another one may use the descriptor meanwhile."""

    __slots__ = ("_descriptors", "fd", "is_dropped", "path", "readers", "was_used", "writers")

    def __init__(self, descriptors: "Descriptors", path: str) -> None:
        self._descriptors = descriptors
        self.is_dropped = False
        self.path = path
        self.fd = -1
        self.readers = 0
        self.writers = 0
        self.was_used = False

    def hold(self) -> Self:
        """Keep it open until `release`, or until the end of a `with` block."""
        if self.fd < 0 or self._descriptors.guest is not None:
            self._descriptors.hold(self)
        else:
            self.was_used = True
            self.readers += 1
        return self

    def open(self) -> int:
        """The descriptor, which may be closed when another file is opened."""
        if self.fd < 0:
            self._descriptors.open(self)
        else:
            self.was_used = True
        return self.fd

    def release(self) -> None:
        assert self.readers > 0, "released twice"
        self.readers -= 1
        if not self.readers and not self.writers and (self.is_dropped or self._descriptors.is_over):
            self._let_go()

    def hold_for_sync(self) -> None:
        """Keep it open until what is written is synced."""
        self._descriptors.hold_for_sync(self)

    def synced(self) -> None:
        assert self.writers > 0, "synced twice"
        self.writers -= 1
        if not self.readers and not self.writers and (self.is_dropped or self._descriptors.is_over):
            self._let_go()

    def drop(self) -> None:
        """Close it for good, once it is not in use any more: before the path comes to mean another file, or none."""
        self.is_dropped = True
        if not self.readers and not self.writers:
            self._descriptors.close(self)

    def _let_go(self) -> None:
        if self.is_dropped:
            self._descriptors.close(self)
        else:
            self._descriptors.shrink(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Descriptors:
    """Opens files and closes others for them: of those that are not in use the one that was opened first, unless it was
    used again since it was last looked at. When more than `limit` are in use there are more than `limit` open, until
    enough of them are released.

    Belongs to one thread, which may have a `guest`, another thread with files of its own. A guest closes no file for
    its own ones, as the owner may be about to use it, and holds every file that it uses."""

    __slots__ = ("_closed", "_files", "_limit", "_mutex", "_open", "guest", "is_over")

    def __init__(self, files: Files, *, limit: int) -> None:
        self._files = files
        self._limit = limit
        self._open: OrderedDict[KeptFile, None] = OrderedDict()
        self._closed = False
        self._mutex = RLock()
        self.guest: int | None = None
        # Whether there are more open than the limit says: then a release closes one.
        self.is_over = False

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def open_files(self) -> tuple[KeptFile, ...]:
        return tuple(self._open)

    def hold(self, file: KeptFile) -> None:
        """Open a file if need be, and give it a reader before another file can take its place."""
        with self._mutex:
            file.open()
            file.readers += 1

    def hold_for_sync(self, file: KeptFile) -> None:
        with self._mutex:
            file.open()
            file.writers += 1

    def open(self, file: KeptFile) -> None:
        assert not self._closed, "opened after close"
        with self._mutex:
            self._make_room(self._limit - 1)
            try:
                file.fd = self._files.open(file.path, write=True)
            except OSError as error:
                if error.errno not in _READ_ONLY:
                    raise
                # A file that may not be written can still be read.
                file.fd = self._files.open(file.path)
            file.was_used = file.is_dropped = False
            self._open[file] = None
            self.is_over = len(self._open) > self._limit

    def close(self, file: KeptFile) -> None:
        """Close a file that is not in use; one that is not open stays so."""
        with self._mutex:
            if file.fd >= 0:
                del self._open[file]
                self.is_over = self._closed or len(self._open) > self._limit
                fd, file.fd = file.fd, -1
                self._files.close(fd)

    def shrink(self, file: KeptFile) -> None:
        """A file is not in use any more, and there are too many."""
        with self._mutex:
            if not self._closed:
                self._make_room(self._limit)
            if self.is_over:
                self.close(file)

    def close_all(self) -> None:
        """Close everything, what is in use when it is released."""
        with self._mutex:
            self._closed = self.is_over = True
            for file in list(self._open):
                if not file.readers and not file.writers:
                    self.close(file)

    def _make_room(self, limit: int) -> None:
        if self.guest == get_ident():
            return
        looks = _LOOKS
        while len(self._open) > limit and looks:
            file = next(iter(self._open))
            if file.readers or file.writers:
                looks -= 1
            elif not file.was_used:
                self.close(file)
                continue
            file.was_used = False
            self._open.move_to_end(file)
