"""The Python processes that run tasks, one task after the other: what makes the second one cheaper than the first."""

import ctypes
import gc
import sys
from dataclasses import dataclass
from functools import cache
from typing import Final


@cache
def keep_memory() -> None:
    """Buffers of megabytes come and go all the time, so their memory is kept, and not fetched from the kernel again,
    page by page."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        # Other C libraries than GNU's have no such knobs.
        if hasattr(library, "mallopt"):
            for knob, value in _MALLOC.items():
                library.mallopt(knob, value)


def pass_over_imports() -> None:
    """What was imported stays, so the collector need not look at it again. Spark has it look at everything after each
    task, which takes 40 ms once Numba is there: call this at the end of one."""
    if len(sys.modules) != _frozen.modules:
        gc.freeze()
        _frozen.modules = len(sys.modules)


# M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_ARENA_MAX of malloc.h: reading is a quarter cheaper with them.
_MALLOC: Final = {-3: 32 << 20, -1: 256 << 20, -8: 1}


@dataclass(slots=True)
class _Frozen:
    modules: int = 0
    """How many there were when the collector was told last."""


_frozen: Final = _Frozen()
