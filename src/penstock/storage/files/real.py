"""Defines the disk as storage sees it, `Files`, and implements it by the operating system, `RealFiles`.

What differs between Linux and macOS lives here. `memory` has the implementation that can fail and crash.
"""

import ctypes
import errno
import fcntl
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.storage.files.page_cache import is_resident

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to write; a memoryview must be one of single bytes."""

Names: TypeAlias = list[str]


class FileStat(NamedTuple):
    """What `Files.stat` knows of a path; the size of a directory means nothing."""

    size: int
    modified_ms: int
    is_directory: bool


class Files(Protocol):
    """Files and directories by path, open files by descriptor; errors are the `OSError` of the operating system."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        """Opens for reading, with `write` for both; `create` makes a missing file and never empties an existing one."""

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Returns fewer than `size` bytes only where the file ends."""

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        """Tries once and returns how many bytes were written, which may be too few: see `write_all`."""

    def size(self, fd: int) -> int: ...

    def truncate(self, fd: int, size: int) -> None:
        """Cuts the file, or extends it with zeros."""

    def sync(self, fd: int) -> None:
        """Makes bytes and size of the file durable, but not its name. After an error the unsynced bytes are lost."""

    def sync_directory(self, path: str) -> None:
        """Makes the names in this directory durable, but not the directory's own name."""

    def sync_filesystem(self, fd: int) -> bool:
        """Makes the bytes and names of every file on the file system of `fd` durable, as syncfs of Linux does; False if
        that can only be done one by one."""

    def list(self, path: str) -> Names:
        """Returns the names in a directory, sorted."""

    def stat(self, path: str) -> FileStat | None:
        """Returns None when there is nothing at the path."""

    def make_directory(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""

    def rename(self, old: str, new: str) -> None:
        """Replaces what is at `new`, atomically."""

    def unlink(self, path: str) -> None: ...

    def lock(self, path: str) -> int:
        """Returns a descriptor that holds the file, made if missing, alone until it is closed or the process ends.

        Raises BlockingIOError, without waiting, when another descriptor of this or any process holds it.
        """

    def free_bytes(self, path: str) -> int:
        """Returns what is left for us on the file system of the path."""

    def total_bytes(self, path: str) -> int:
        """Returns the size of the file system of the path."""

    def boot_id(self) -> str:
        """Returns what tells this run of the machine from all others; empty if the system does not say. What was not
        synced in an earlier one may be gone."""

    def start_writeback(self, fd: int, position: int, size: int) -> None:
        """Hints that this range will be synced soon, so that the sync finds less to do."""

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        """Guesses, by a few samples, whether the range can be read without waiting for the disk."""

    def read_cached(self, fd: int, size: int, position: int) -> Buffer | None:
        """Returns the bytes if they can be read without waiting for the disk, else None; None too where the file ends
        before them."""

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        """Whether all of the range is in memory though a read that may not wait was declined, as kernels do now and
        then. Dearer than `is_cached`."""

    def drop_cached(self, fd: int, position: int, size: int) -> None:
        """Hints that this range will not be read again soon, so that memory is left to others."""


def write_all(files: Files, fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Writes all bytes of the buffers one after the other at `position` and returns how many that were.

    After an error any part of them may have been written.
    """
    total = remaining = sum(map(len, buffers))
    while True:
        written = files.pwritev(fd, buffers, position)
        remaining -= written
        if remaining == 0:
            return total
        if written == 0:
            raise OSError(errno.EIO, f"the file system took none of {remaining} bytes to write and gave no reason")
        position += written
        buffers = _after(buffers, written)


def lacks_space(error: BaseException) -> bool:
    """Whether something could not be written because the disk, or our share of it, is full. From a sync it means more
    than that: bytes that were taken are lost."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def lacks_descriptors(error: BaseException) -> bool:
    """Whether a file could not even be opened because too many are."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def sync_file(files: Files, path: str) -> None:
    """Makes the bytes of the file at a path durable."""
    fd = files.open(path)
    try:
        files.sync(fd)
    finally:
        files.close(fd)


def rewrite(files: Files, fd: int, position: int, end: int) -> None:
    """Writes a range of a file again as it reads, so that the next sync makes it durable whatever happened before.

    After a failed sync Linux has pages in memory that are not on the disk and count as written: a sync leaves them
    out, and says nothing.
    """
    while position < end and (data := files.pread(fd, min(_REWRITE_AT_ONCE, end - position), position)):
        position += write_all(files, fd, [data], position)


def rewrite_file(files: Files, path: str) -> None:
    """Makes a small file durable whatever happened before."""
    fd = files.open(path, write=True)
    try:
        rewrite(files, fd, 0, files.size(fd))
        files.sync(fd)
    finally:
        files.close(fd)


def _after(buffers: Sequence[Buffer], count: int) -> Sequence[Buffer]:
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []


# For their owner alone: messages are the business of those whom the broker serves, not of all users of its machine.
_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_REWRITE_AT_ONCE: Final = 1024 * 1024
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
# The kernel reads ahead at least this much, so that a sample speaks for its neighbours.
_PROBE_EVERY: Final = 128 * 1024
# Where probes go; any number of threads may write to it, and none reads it.
_PROBE: Final = (bytearray(1),)


class RealFiles:
    """The files of the operating system."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return os.open(path, flags, _FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = os.pread(fd, size, position)
        while len(data) < size and (more := os.pread(fd, size - len(data), position + len(data))):
            data += more
        return data

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, buffers if len(buffers) <= _IOV_MAX else buffers[:_IOV_MAX], position)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        _sync_data(fd)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync_data_and_metadata(fd)
        finally:
            os.close(fd)

    def sync_filesystem(self, fd: int) -> bool:
        if _syncfs is None:
            return False
        if _syncfs(fd) == 0:
            return True
        error = ctypes.get_errno()
        if error == errno.ENOSYS:
            return False
        raise OSError(error, os.strerror(error))

    def list(self, path: str) -> Names:
        return sorted(os.listdir(path))

    def stat(self, path: str) -> FileStat | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(status.st_size, status.st_mtime_ns // 1_000_000, stat.S_ISDIR(status.st_mode))

    def make_directory(self, path: str) -> None:
        os.mkdir(path, _DIRECTORY_MODE)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def lock(self, path: str) -> int:
        fd = self.open(path, write=True, create=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise OSError(error.errno, error.strerror, path) from None
        return fd

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def boot_id(self) -> str:
        try:
            if sys.platform == "linux":
                with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                    return file.read().strip()
            told = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
        except OSError:
            return ""
        return told.stdout.strip()

    def is_cached(self, fd: int, position: int, size: int) -> bool:
        if _NO_WAIT is None:
            return False
        try:
            os.preadv(fd, _PROBE, position, _NO_WAIT)
            if size > _PROBE_EVERY:
                for place in range(position + _PROBE_EVERY, position + size, _PROBE_EVERY):
                    os.preadv(fd, _PROBE, place, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            # Some file systems cannot tell; theirs is then read in a thread.
            if error.errno != errno.EOPNOTSUPP:
                raise
            return False
        return True

    def read_cached(self, fd: int, size: int, position: int) -> Buffer | None:
        if _NO_WAIT is None:
            return None
        data = bytearray(size)
        try:
            # Where only the first part is there, that is all it reads.
            return data if os.preadv(fd, (data,), position, _NO_WAIT) == size else None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return None

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        return is_resident(fd, position, size)

    def drop_cached(self, fd: int, position: int, size: int) -> None:
        if sys.platform == "linux":
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)

    def start_writeback(self, fd: int, position: int, size: int) -> None:
        # Whatever goes wrong with a hint goes wrong again, and is reported, at the sync.
        if _sync_file_range is not None:
            _sync_file_range(fd, position, size, _SYNC_FILE_RANGE_WRITE)


_IOV_MAX: Final = os.sysconf("SC_IOV_MAX")
_SYNC_FILE_RANGE_WRITE: Final = 2

if sys.platform == "darwin":

    def _sync_data_and_metadata(fd: int) -> None:
        # On macOS fsync leaves the bytes in the cache of the drive. Network file systems know fsync alone.
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
            os.fsync(fd)

    _sync_data = _sync_data_and_metadata
else:
    _sync_data = os.fdatasync
    _sync_data_and_metadata = os.fsync


def _kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _linux_function(name: str, *argument_types: type) -> Callable[..., int] | None:
    """Finds a function of the C library that Python does not offer; a call releases the GIL."""
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is not None:
        function.argtypes = argument_types
    return function


# Older kernels return success from syncfs when writing has failed.
_syncfs = _linux_function("syncfs", ctypes.c_int) if _kernel_version() >= (5, 8) else None
_sync_file_range = _linux_function("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
