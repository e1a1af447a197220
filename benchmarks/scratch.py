"""Gives the benchmarks their folders: a warmed scratch folder that is removed afterwards, and that of the results."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

CACHE: Final = Path(__file__).parent.parent / ".cache" / "bench"
RESULTS: Final = Path(__file__).parent / "results"
# A folder in memory, where there is one.
MEMORY: Final = Path("/dev/shm")
_AT_ONCE = 1024 * 1024


@contextmanager
def scratch_folder(warm_bytes: int, within: Path = CACHE) -> Iterator[str]:
    """A folder that is gone afterwards, on a machine whose page cache has been as full as it will be: the first touch
    of fresh memory costs a virtual machine several times what the copy into it does."""
    within.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="data-", dir=within) as folder:
        warm(f"{folder}/warm", warm_bytes)
        yield folder


def warm(path: str, size: int) -> None:
    """Write and delete a file of this size."""
    zeros = bytes(_AT_ONCE)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for _ in range(size // _AT_ONCE + 1):
            os.write(fd, zeros)
    finally:
        os.close(fd)
        os.unlink(path)
