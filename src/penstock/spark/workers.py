"""Makes later tasks of a Python worker cheaper than its first: memory is kept, and the collector skips imports."""

import ctypes
import gc
import sys
from dataclasses import dataclass
from functools import cache
from typing import Final


@cache
def keep_memory() -> None:
    """Have malloc keep the memory of large buffers, which come and go all the time, instead of fetching it from the
    kernel again, page by page."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        # Only GNU's C library has these parameters.
        if hasattr(library, "mallopt"):
            for knob, value in _MALLOC.items():
                library.mallopt(knob, value)


def pass_over_imports() -> None:
    """Exempt imported modules from garbage collection; call this at the end of a task. Spark collects everything after
    each task, which takes 40 ms once Numba is imported."""
    if len(sys.modules) != _frozen.modules:
        gc.freeze()
        _frozen.modules = len(sys.modules)


# M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_ARENA_MAX of malloc.h: reading is a quarter cheaper with them.
_MALLOC: Final = {-3: 32 << 20, -1: 256 << 20, -8: 1}


@dataclass(slots=True)
class _Frozen:
    modules: int = 0
    """How many modules there were when they were last exempted."""


_frozen: Final = _Frozen()
