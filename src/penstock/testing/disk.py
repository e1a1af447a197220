"""The disk of a broker in a test forgets in the end, so it never waits for a sync; it fails and fills on demand."""

import errno
import os
from collections.abc import Sequence

from penstock.storage.files import Buffer, Files, FileStat, Names


class ScratchDisk:
    """`Files` that are thrown away. While it `is_failing` nothing is written or synced. `room` is how many bytes are
    free, if not as many as the real disk has."""

    def __init__(self, files: Files, *, syncs: bool) -> None:
        self._files = files
        self._syncs = syncs
        self.is_failing = False
        self.room: int | None = None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        return self._files.open(path, write=write, create=create)

    def close(self, fd: int) -> None:
        self._files.close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return self._files.pread(fd, size, position)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        self._check()
        if self.room is not None:
            size = sum(map(len, buffers))
            if size > self.room:
                raise _error(errno.ENOSPC)
            self.room -= size
        return self._files.pwritev(fd, buffers, position)

    def size(self, fd: int) -> int:
        return self._files.size(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._check()
        self._files.truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._check()
        if self._syncs:
            self._files.sync(fd)

    def sync_directory(self, path: str) -> None:
        self._check()
        if self._syncs:
            self._files.sync_directory(path)

    def sync_filesystem(self, fd: int) -> bool:
        self._check()
        return self._files.sync_filesystem(fd) if self._syncs else True

    def list(self, path: str) -> Names:
        return self._files.list(path)

    def stat(self, path: str) -> FileStat | None:
        return self._files.stat(path)

    def make_directory(self, path: str) -> None:
        self._check()
        self._files.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._check()
        self._files.remove_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._check()
        self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        self._check()
        self._files.unlink(path)

    def lock(self, path: str) -> int:
        return self._files.lock(path)

    def free_bytes(self, path: str) -> int:
        return self._files.free_bytes(path) if self.room is None else self.room

    def total_bytes(self, path: str) -> int:
        return self._files.total_bytes(path)

    def boot_id(self) -> str:
        return self._files.boot_id()

    def start_writeback(self, fd: int, position: int, size: int) -> None:
        if self._syncs:
            self._files.start_writeback(fd, position, size)

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        return self._files.is_cached(fd, position, size)

    def read_cached(self, fd: int, size: int, position: int) -> Buffer | None:
        return self._files.read_cached(fd, size, position)

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        return self._files.is_resident(fd, position, size)

    def drop_cached(self, fd: int, position: int, size: int) -> None:
        self._files.drop_cached(fd, position, size)

    def _check(self) -> None:
        if self.is_failing:
            raise _error(errno.EIO)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
