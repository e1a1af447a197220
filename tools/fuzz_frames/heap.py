"""Measures how much memory something took at its highest: by a library that counts every malloc of the process, which a
program has to be started with, or else by tracemalloc, which is slower by far and counts Python's own memory alone."""

import ctypes
import hashlib
import os
import resource
import shutil
import subprocess
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

SOURCE: Final = Path(__file__).with_name("heap.c")


class Heap(Protocol):
    def begin(self) -> None:
        """From now on."""

    def taken(self) -> int:
        """The most bytes that there were beyond those at the beginning."""


class CountedHeap:
    def __init__(self, library: ctypes.CDLL) -> None:
        library.heap_now.restype = library.heap_most.restype = ctypes.c_long
        self._reset, self._now, self._most = library.heap_reset, library.heap_now, library.heap_most
        self._before = 0

    def begin(self) -> None:
        self._reset()
        self._before = self._now()

    def taken(self) -> int:
        most: int = self._most()
        return most - self._before


class TracedHeap:
    def __init__(self) -> None:
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        self._before = 0

    def begin(self) -> None:
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]

    def taken(self) -> int:
        return tracemalloc.get_traced_memory()[1] - self._before


def resident_bytes() -> int:
    """What the process has in memory now, where the operating system says so; address space that was never touched is
    no part of it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def most_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class NoHeap:
    """Of which nothing is ever taken."""

    def begin(self) -> None:
        pass

    def taken(self) -> int:
        return 0


def open_heap() -> Heap:
    """Of this process."""
    library = ctypes.CDLL(None)
    return CountedHeap(library) if hasattr(library, "heap_reset") else TracedHeap()


def counting_environment(folder: Path) -> Mapping[str, str]:
    """What a program has to be started with so that its heap is counted; nothing where that cannot be built."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return {}
    source = SOURCE.read_bytes()
    library = folder.absolute() / f"heap-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(unfinished), str(SOURCE)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return {}
        unfinished.rename(library)
    return {"LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc"}
