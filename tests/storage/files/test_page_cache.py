"""What is in memory of a real file, and what is not."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.storage.files.page_cache import is_resident

SIZE = 300_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says so")


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(opened, os.urandom(SIZE), 0)
    yield opened
    os.close(opened)


@pytest.mark.parametrize(("position", "size"), [(0, SIZE), (0, 1), (4095, 2), (123_456, 100_000), (SIZE - 1, 1)])
def test_what_was_just_written_is_in_memory(fd: int, position: int, size: int) -> None:
    assert is_resident(fd, position, size)


def test_what_the_system_was_told_to_drop_is_not_in_memory_until_it_is_read(fd: int) -> None:
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if is_resident(fd, 0, SIZE):
        pytest.skip("this file system keeps everything in memory")
    assert not is_resident(fd, 100_000, 1)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, 10, 200_000)
    assert is_resident(fd, 200_000, 10)
    assert not is_resident(fd, 0, SIZE)
    os.pread(fd, SIZE, 0)
    assert is_resident(fd, 0, SIZE)


def test_nothing_and_what_is_no_file_are_not_in_memory(fd: int) -> None:
    assert not is_resident(fd, 0, 0)
    assert not is_resident(-1, 0, 10)
    reading, writing = os.pipe()
    assert not is_resident(reading, 0, 10)
    os.close(reading)
    os.close(writing)
