"""Asks the operating system whether a stretch of a file is in memory, page by page: maps it, and does not touch it."""

import ctypes
import mmap
import sys
from typing import Any, Final

_PROT_READ: Final = 1
_MAP_SHARED: Final = 1
_FAILED: Final = ctypes.c_void_p(-1).value


def is_resident(fd: int, position: int, size: int) -> bool:
    """Whether all of it is in the page cache. False where that is not known."""
    if _libc is None or size <= 0:
        return False
    begin = position - position % mmap.PAGESIZE
    length = position + size - begin
    address = _libc.mmap(None, length, _PROT_READ, _MAP_SHARED, fd, begin)
    if address == _FAILED:
        return False
    try:
        pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        return _libc.mincore(address, length, pages) == 0 and all(page & 1 for page in bytes(pages))
    finally:
        _libc.munmap(address, length)


def _load() -> Any:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    integer = ctypes.c_int
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, integer, integer, integer, ctypes.c_int64)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return libc


_libc = _load()
