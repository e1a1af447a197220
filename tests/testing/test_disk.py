"""The disk that is thrown away: as its files are, and failing or full on demand."""

import errno
from pathlib import Path

import pytest

from penstock.storage.files import FileStat, RealFiles, write_all
from penstock.storage.files.memory import MemoryFiles
from penstock.testing.disk import ScratchDisk


@pytest.fixture(params=["folder", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ScratchDisk, str]:
    if request.param == "folder":
        return ScratchDisk(RealFiles(), syncs=False), str(tmp_path)
    files = MemoryFiles()
    files.make_directory("/data")
    return ScratchDisk(files, syncs=True), "/data"


def test_what_is_written_is_there(disk: tuple[ScratchDisk, str]) -> None:
    files, folder = disk
    files.make_directory(f"{folder}/logs")
    fd = files.open(f"{folder}/logs/a", write=True, create=True)
    assert write_all(files, fd, [b"abc", b"def"], 0) == 6
    files.start_writeback(fd, 0, 6)
    files.sync(fd)
    assert files.sync_filesystem(fd)
    files.truncate(fd, 4)
    files.drop_cached(fd, 0, 4)
    assert (files.size(fd), files.pread(fd, 10, 1), files.is_cached(fd, 0, 4)) == (4, b"bcd", True)
    files.close(fd)
    files.rename(f"{folder}/logs/a", f"{folder}/logs/b")
    files.sync_directory(f"{folder}/logs")
    assert files.list(f"{folder}/logs") == ["b"]
    status = files.stat(f"{folder}/logs/b")
    assert isinstance(status, FileStat)
    assert status.size == 4
    files.unlink(f"{folder}/logs/b")
    files.remove_directory(f"{folder}/logs")
    assert files.stat(f"{folder}/logs") is None
    assert 0 < files.free_bytes(folder) <= files.total_bytes(folder)
    held = files.lock(f"{folder}/lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{folder}/lock")
    files.close(held)


def test_while_it_fails_nothing_is_written_or_synced_and_reading_goes_on(disk: tuple[ScratchDisk, str]) -> None:
    files, folder = disk
    fd = files.open(f"{folder}/a", write=True, create=True)
    files.pwritev(fd, [b"abc"], 0)
    files.is_failing = True
    for change in (
        lambda: files.pwritev(fd, [b"x"], 0),
        lambda: files.truncate(fd, 0),
        lambda: files.sync(fd),
        lambda: files.sync_filesystem(fd),
        lambda: files.sync_directory(folder),
        lambda: files.make_directory(f"{folder}/b"),
        lambda: files.rename(f"{folder}/a", f"{folder}/b"),
        lambda: files.unlink(f"{folder}/a"),
        lambda: files.remove_directory(folder),
    ):
        with pytest.raises(OSError, match="error") as raised:
            change()
        assert raised.value.errno == errno.EIO
    assert files.pread(fd, 3, 0) == b"abc"
    files.is_failing = False
    assert files.pwritev(fd, [b"x"], 0) == 1
    files.close(fd)


def test_a_full_disk_takes_what_it_has_room_for_and_no_more(disk: tuple[ScratchDisk, str]) -> None:
    files, folder = disk
    fd = files.open(f"{folder}/a", write=True, create=True)
    files.room = 5
    assert files.pwritev(fd, [b"ab", b"c"], 0) == 3
    assert files.free_bytes(folder) == 2
    with pytest.raises(OSError, match="space") as raised:
        files.pwritev(fd, [b"abc"], 3)
    assert raised.value.errno == errno.ENOSPC
    files.room = None
    assert files.pwritev(fd, [b"abc"], 3) == 3
    files.close(fd)
