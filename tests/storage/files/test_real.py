"""What `Files` promises, shown by the real implementation and the one in memory alike."""

import errno
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.storage.files import (
    Buffer,
    Files,
    FileStat,
    RealFiles,
    lacks_descriptors,
    lacks_space,
    rewrite,
    rewrite_file,
    sync_file,
    write_all,
)
from penstock.storage.files import real as files_module
from penstock.storage.files.memory import Damage, MemoryFiles


@dataclass
class Disk:
    """One implementation and an empty directory in it."""

    files: Files
    base: str

    def path(self, name: str) -> str:
        return f"{self.base}/{name}"

    def write(self, name: str, data: bytes) -> str:
        path = self.path(name)
        fd = self.files.open(path, write=True, create=True)
        self.files.truncate(fd, 0)
        write_all(self.files, fd, [data], 0)
        self.files.close(fd)
        return path

    def read(self, name: str) -> bytes:
        fd = self.files.open(self.path(name))
        try:
            return self.files.pread(fd, self.files.size(fd) + 1, 0)
        finally:
            self.files.close(fd)


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return Disk(RealFiles(), str(tmp_path))
    files = MemoryFiles()
    files.make_directory("/data")
    return Disk(files, "/data")


@pytest.fixture
def real(tmp_path: Path) -> Disk:
    return Disk(RealFiles(), str(tmp_path))


class TestFiles:
    def test_a_missing_file_is_opened_only_to_create_it(self, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            disk.files.open(disk.path("a"), write=True)
        assert disk.files.list(disk.base) == []
        disk.files.close(disk.files.open(disk.path("a"), write=True, create=True))
        assert disk.files.list(disk.base) == ["a"]

    def test_create_keeps_what_is_in_an_existing_file(self, disk: Disk) -> None:
        disk.write("a", b"kept")
        disk.files.close(disk.files.open(disk.path("a"), write=True, create=True))
        assert disk.read("a") == b"kept"

    def test_a_file_is_not_created_in_a_missing_directory_or_below_a_file(self, disk: Disk) -> None:
        disk.write("file", b"")
        with pytest.raises(FileNotFoundError):
            disk.files.open(disk.path("missing/a"), write=True, create=True)
        with pytest.raises(NotADirectoryError):
            disk.files.open(disk.path("file/a"), write=True, create=True)

    def test_a_directory_is_not_opened_for_writing(self, disk: Disk) -> None:
        with pytest.raises(IsADirectoryError):
            disk.files.open(disk.base, write=True)
        fd = disk.files.open(disk.base)
        with pytest.raises(IsADirectoryError):
            disk.files.pread(fd, 1, 0)
        disk.files.close(fd)

    def test_a_descriptor_for_reading_does_not_write(self, disk: Disk) -> None:
        fd = disk.files.open(disk.write("a", b"abc"))
        with pytest.raises(OSError, match="descriptor") as error:
            disk.files.pwritev(fd, [b"x"], 0)
        assert error.value.errno == errno.EBADF
        with pytest.raises(OSError, match=r"argument|descriptor"):
            disk.files.truncate(fd, 0)
        disk.files.close(fd)
        assert disk.read("a") == b"abc"

    def test_a_closed_descriptor_is_refused(self, disk: Disk) -> None:
        fd = disk.files.open(disk.write("a", b"abc"), write=True)
        disk.files.close(fd)
        for use in (
            lambda: disk.files.close(fd),
            lambda: disk.files.pread(fd, 1, 0),
            lambda: disk.files.pwritev(fd, [b"x"], 0),
            lambda: disk.files.size(fd),
            lambda: disk.files.truncate(fd, 0),
            lambda: disk.files.sync(fd),
            lambda: disk.files.sync_filesystem(fd),
        ):
            with pytest.raises(OSError, match="descriptor") as error:
                use()
            assert error.value.errno == errno.EBADF

    def test_reading_is_short_only_where_the_file_ends(self, disk: Disk) -> None:
        fd = disk.files.open(disk.write("a", b"0123456789"))
        assert disk.files.pread(fd, 4, 0) == b"0123"
        assert disk.files.pread(fd, 4, 8) == b"89"
        assert disk.files.pread(fd, 4, 10) == b""
        assert disk.files.pread(fd, 4, 100) == b""
        assert disk.files.pread(fd, 0, 0) == b""
        disk.files.close(fd)

    def test_buffers_are_written_one_after_the_other(self, disk: Disk) -> None:
        fd = disk.files.open(disk.path("a"), write=True, create=True)
        assert disk.files.pwritev(fd, [b"ab", bytearray(b"cd"), b"", memoryview(b"xefx")[1:3]], 0) == 6
        assert disk.files.pwritev(fd, [b"CD"], 2) == 2
        assert disk.files.pread(fd, 10, 0) == b"abCDef"
        assert disk.files.size(fd) == 6
        disk.files.close(fd)

    def test_nothing_to_write_changes_nothing(self, disk: Disk) -> None:
        fd = disk.files.open(disk.path("a"), write=True, create=True)
        assert disk.files.pwritev(fd, [], 0) == 0
        assert disk.files.pwritev(fd, [b""], 10) == 0
        assert disk.files.size(fd) == 0
        disk.files.close(fd)

    def test_a_hole_reads_as_zeros(self, disk: Disk) -> None:
        fd = disk.files.open(disk.path("a"), write=True, create=True)
        disk.files.pwritev(fd, [b"end"], 5)
        assert disk.files.pread(fd, 10, 0) == bytes(5) + b"end"
        disk.files.close(fd)

    def test_truncate_cuts_and_extends_with_zeros(self, disk: Disk) -> None:
        fd = disk.files.open(disk.write("a", b"abcdef"), write=True)
        disk.files.truncate(fd, 3)
        assert disk.files.size(fd) == 3
        disk.files.truncate(fd, 5)
        assert disk.files.pread(fd, 10, 0) == b"abc\0\0"
        with pytest.raises(OSError, match="argument"):
            disk.files.truncate(fd, -1)
        disk.files.close(fd)

    def test_syncs_leave_bytes_and_names_as_they_are(self, disk: Disk) -> None:
        fd = disk.files.open(disk.write("a", b"abc"), write=True)
        disk.files.start_writeback(fd, 0, 3)
        disk.files.sync(fd)
        disk.files.sync_directory(disk.base)
        assert disk.files.sync_filesystem(fd) in (True, False)
        disk.files.close(fd)
        assert disk.files.list(disk.base) == ["a"]
        assert disk.read("a") == b"abc"

    def test_only_a_directory_is_synced_as_one(self, disk: Disk) -> None:
        with pytest.raises(FileNotFoundError):
            disk.files.sync_directory(disk.path("missing"))
        with pytest.raises(NotADirectoryError):
            disk.files.sync_directory(disk.write("a", b""))

    def test_names_are_listed_in_order(self, disk: Disk) -> None:
        for name in ("b", "c", "a"):
            disk.write(name, b"")
        disk.files.make_directory(disk.path("B"))
        assert disk.files.list(disk.base) == ["B", "a", "b", "c"]
        with pytest.raises(FileNotFoundError):
            disk.files.list(disk.path("missing"))
        with pytest.raises(NotADirectoryError):
            disk.files.list(disk.path("a"))

    def test_stat_tells_size_and_kind_and_that_nothing_is_there(self, disk: Disk) -> None:
        status = disk.files.stat(disk.write("a", b"abc"))
        assert status is not None
        assert (status.size, status.is_directory) == (3, False)
        directory = disk.files.stat(disk.base)
        assert directory is not None
        assert directory.is_directory
        assert disk.files.stat(disk.path("missing")) is None
        assert disk.files.stat(disk.path("missing/b")) is None
        assert disk.files.stat(disk.path("a/b")) is None

    def test_a_directory_is_made_once_and_removed_when_empty(self, disk: Disk) -> None:
        directory = disk.path("d")
        disk.files.make_directory(directory)
        with pytest.raises(FileExistsError):
            disk.files.make_directory(directory)
        with pytest.raises(FileExistsError):
            disk.files.make_directory(disk.write("a", b""))
        with pytest.raises(FileNotFoundError):
            disk.files.make_directory(disk.path("missing/d"))
        disk.write("d/a", b"")
        with pytest.raises(OSError, match="not empty") as error:
            disk.files.remove_directory(directory)
        assert error.value.errno == errno.ENOTEMPTY
        disk.files.unlink(disk.path("d/a"))
        disk.files.remove_directory(directory)
        assert disk.files.list(disk.base) == ["a"]
        with pytest.raises(FileNotFoundError):
            disk.files.remove_directory(directory)
        with pytest.raises(NotADirectoryError):
            disk.files.remove_directory(disk.path("a"))

    def test_rename_replaces_a_file(self, disk: Disk) -> None:
        old, new = disk.write("old", b"of old"), disk.write("new", b"of new")
        disk.files.rename(old, new)
        assert disk.files.list(disk.base) == ["new"]
        assert disk.read("new") == b"of old"
        disk.files.rename(new, new)
        assert disk.read("new") == b"of old"

    def test_rename_moves_files_and_whole_directories(self, disk: Disk) -> None:
        disk.files.make_directory(disk.path("d"))
        disk.files.make_directory(disk.path("e"))
        disk.files.rename(disk.write("a", b"moved"), disk.path("d/b"))
        disk.files.rename(disk.path("d"), disk.path("e/f"))
        assert disk.files.list(disk.base) == ["e"]
        assert disk.read("e/f/b") == b"moved"

    def test_rename_refuses_what_makes_no_sense(self, disk: Disk) -> None:
        file = disk.write("a", b"kept")
        for name in ("d", "e", "empty"):
            disk.files.make_directory(disk.path(name))
        disk.write("e/b", b"")
        with pytest.raises(FileNotFoundError):
            disk.files.rename(disk.path("missing"), file)
        with pytest.raises(FileNotFoundError):
            disk.files.rename(file, disk.path("missing/a"))
        with pytest.raises(IsADirectoryError):
            disk.files.rename(file, disk.path("d"))
        with pytest.raises(NotADirectoryError):
            disk.files.rename(disk.path("d"), file)
        with pytest.raises(OSError, match="not empty"):
            disk.files.rename(disk.path("d"), disk.path("e"))
        with pytest.raises(OSError, match="argument"):
            disk.files.rename(disk.path("d"), disk.path("d/d"))
        disk.files.rename(disk.path("e"), disk.path("empty"))
        assert disk.files.list(disk.base) == ["a", "d", "empty"]
        assert disk.files.list(disk.path("empty")) == ["b"]
        assert disk.read("a") == b"kept"

    def test_unlink_removes_a_file_and_nothing_else(self, disk: Disk) -> None:
        disk.files.unlink(disk.write("a", b""))
        assert disk.files.list(disk.base) == []
        with pytest.raises(FileNotFoundError):
            disk.files.unlink(disk.path("a"))
        disk.files.make_directory(disk.path("d"))
        with pytest.raises((IsADirectoryError, PermissionError)):
            disk.files.unlink(disk.path("d"))

    def test_an_open_file_outlives_its_name(self, disk: Disk) -> None:
        path = disk.write("a", b"old")
        fd = disk.files.open(path, write=True)
        disk.files.unlink(path)
        disk.write("a", b"new")
        assert disk.files.pread(fd, 10, 0) == b"old"
        disk.files.pwritev(fd, [b"OLD"], 0)
        disk.files.sync(fd)
        assert disk.files.pread(fd, 10, 0) == b"OLD"
        disk.files.close(fd)
        assert disk.read("a") == b"new"

    def test_an_open_file_follows_a_rename(self, disk: Disk) -> None:
        path = disk.write("a", b"")
        fd = disk.files.open(path, write=True)
        disk.files.rename(path, disk.path("b"))
        disk.files.pwritev(fd, [b"late"], 0)
        disk.files.close(fd)
        assert disk.read("b") == b"late"

    def test_a_lock_has_one_holder_until_it_is_closed(self, disk: Disk) -> None:
        path = disk.path("lock")
        fd = disk.files.lock(path)
        for _ in range(2):
            with pytest.raises(BlockingIOError) as error:
                disk.files.lock(path)
            assert error.value.filename == path
        disk.files.close(fd)
        disk.files.close(disk.files.lock(path))
        assert disk.files.list(disk.base) == ["lock"]

    def test_a_run_of_the_machine_has_a_name_that_stays(self, disk: Disk) -> None:
        assert disk.files.boot_id()
        assert disk.files.boot_id() == disk.files.boot_id()

    def test_free_bytes_are_those_of_an_existing_path(self, disk: Disk) -> None:
        assert disk.files.free_bytes(disk.base) > 0
        with pytest.raises(FileNotFoundError):
            disk.files.free_bytes(disk.path("missing"))

    def test_a_disk_is_at_least_as_large_as_what_is_free_on_it(self, disk: Disk) -> None:
        assert disk.files.total_bytes(disk.base) >= disk.files.free_bytes(disk.base)
        with pytest.raises(FileNotFoundError):
            disk.files.total_bytes(disk.path("missing"))

    def test_what_is_dropped_from_memory_is_still_in_the_file(self, disk: Disk) -> None:
        fd = disk.files.open(disk.write("a", b"abc"))
        disk.files.drop_cached(fd, 0, 3)
        assert disk.files.pread(fd, 3, 0) == b"abc"
        disk.files.close(fd)

    def test_a_rewritten_range_reads_as_before(self, disk: Disk) -> None:
        data = bytes(range(256)) * 10_000
        fd = disk.files.open(disk.write("a", data), write=True)
        rewrite(disk.files, fd, 7, len(data))
        rewrite(disk.files, fd, len(data), len(data) + 10)
        disk.files.close(fd)
        assert disk.read("a") == data

    def test_write_all_takes_any_number_of_buffers(self, disk: Disk) -> None:
        fd = disk.files.open(disk.path("a"), write=True, create=True)
        pieces = [b"%d," % number for number in range(3_000)]
        assert write_all(disk.files, fd, pieces, 2) == len(b"".join(pieces))
        assert disk.files.pread(fd, 100_000, 2) == b"".join(pieces)
        assert write_all(disk.files, fd, [], 0) == 0
        disk.files.close(fd)


class TestAfterAFailedSync:
    """As on Linux: what was to be synced can be read, is not on the disk, and counts as written."""

    @pytest.fixture
    def files(self) -> MemoryFiles:
        files = MemoryFiles()
        fd = files.open("/a", write=True, create=True)
        files.sync_directory("/")
        files.pwritev(fd, [b"kept"], 0)
        files.sync(fd)
        files.pwritev(fd, [b"lost"], 4)
        files.fail("sync", 1, OSError(errno.EIO, "injected"))
        with pytest.raises(OSError, match="injected"):
            files.sync(fd)
        files.close(fd)
        return files

    @staticmethod
    def after_power_loss(files: MemoryFiles) -> bytes:
        left = files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        return left.pread(left.open("/a"), 100, 0)

    def test_a_second_sync_succeeds_and_brings_nothing(self, files: MemoryFiles) -> None:
        sync_file(files, "/a")
        assert files.pread(files.open("/a"), 100, 0) == b"keptlost"
        assert self.after_power_loss(files) == b"kept"

    def test_what_is_rewritten_is_durable_with_the_next_sync(self, files: MemoryFiles) -> None:
        fd = files.open("/a", write=True)
        rewrite(files, fd, 4, 8)
        assert self.after_power_loss(files) == b"kept"
        files.sync(fd)
        assert self.after_power_loss(files) == b"keptlost"

    def test_a_small_file_is_rewritten_as_a_whole(self, files: MemoryFiles) -> None:
        rewrite_file(files, "/a")
        assert self.after_power_loss(files) == b"keptlost"
        assert files.open_descriptors == 0


@pytest.mark.parametrize(
    ("error", "space", "descriptors"),
    [
        (OSError(errno.ENOSPC, ""), True, False),
        (OSError(errno.EDQUOT, ""), True, False),
        (OSError(errno.EMFILE, ""), False, True),
        (OSError(errno.ENFILE, ""), False, True),
        (OSError(errno.EIO, ""), False, False),
        (ValueError(), False, False),
    ],
)
def test_what_an_error_says_there_is_too_little_of(error: Exception, space: bool, descriptors: bool) -> None:
    assert (lacks_space(error), lacks_descriptors(error)) == (space, descriptors)


class Reluctant(MemoryFiles):
    """Writes no more bytes in a call than the next of `sizes` says."""

    def __init__(self, sizes: Iterator[int]) -> None:
        super().__init__()
        self.sizes = sizes

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return super().pwritev(fd, [b"".join(buffers)[: next(self.sizes)]], position)


@pytest.mark.parametrize("size", range(1, 12))
def test_write_all_goes_on_after_short_writes(size: int) -> None:
    files = Reluctant(iter([size] * 100))
    fd = files.open("/a", write=True, create=True)
    buffers: list[Buffer] = [b"abc", b"", bytearray(b"de"), memoryview(b"fghij"), b""]
    assert write_all(files, fd, buffers, 7) == 10
    assert files.pread(fd, 100, 7) == b"abcdefghij"


def test_write_all_gives_up_when_nothing_is_written() -> None:
    files = Reluctant(iter([2, 0]))
    fd = files.open("/a", write=True, create=True)
    with pytest.raises(OSError, match="took none of 4 bytes"):
        write_all(files, fd, [b"abcdef"], 0)


def test_a_real_write_is_short_at_the_limit_and_then_fails(real: Disk) -> None:
    fd = real.files.open(real.path("a"), write=True, create=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        assert real.files.pwritev(fd, [bytes(6_000), bytes(6_000)], 0) == 10_000
        with pytest.raises(OSError, match="large") as error:
            write_all(real.files, fd, [b"abc" * 2_000], 8_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.EFBIG
    assert real.files.pread(fd, 10, 8_000) == b"abcabcabca"
    assert real.files.size(fd) == 10_000
    real.files.close(fd)


def test_a_real_lock_is_held_against_other_processes_and_ends_with_its_process(real: Disk) -> None:
    path = real.path("lock")
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held'); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = len(os.listdir("/dev/fd"))
        with pytest.raises(BlockingIOError):
            real.files.lock(path)
        assert len(os.listdir("/dev/fd")) == before, "the refused lock left its descriptor open"
        holder.kill()
        holder.wait()
        real.files.close(real.files.lock(path))


def test_a_real_descriptor_is_not_inherited(real: Disk) -> None:
    fd = real.files.open(real.write("a", b""))
    lock = real.files.lock(real.path("lock"))
    assert not os.get_inheritable(fd)
    assert not os.get_inheritable(lock)
    real.files.close(fd)
    real.files.close(lock)


def test_real_files_and_directories_are_for_their_owner_whatever_the_umask(real: Disk) -> None:
    before = os.umask(0)
    try:
        real.files.make_directory(real.path("d"))
        real.write("d/a", b"")
        real.files.close(real.files.lock(real.path("d/lock")))
    finally:
        os.umask(before)
    modes = {name: os.stat(real.path(name)).st_mode & 0o777 for name in ("d", "d/a", "d/lock")}
    assert modes == {"d": 0o700, "d/a": 0o600, "d/lock": 0o600}


def test_a_real_file_has_the_time_of_its_last_change_in_milliseconds(real: Disk) -> None:
    path = real.write("a", b"abc")
    os.utime(path, ns=(0, 1_234_567_891_234))
    assert real.files.stat(path) == FileStat(3, 1_234_567, is_directory=False)


def test_the_whole_file_system_is_synced_where_the_kernel_reports_errors(
    real: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = real.files.open(real.write("a", b"abc"))
    offered = sys.platform == "linux" and files_module._kernel_version() >= (5, 8)
    assert real.files.sync_filesystem(fd) == offered
    monkeypatch.setattr(files_module, "_syncfs", None)
    assert not real.files.sync_filesystem(fd)
    real.files.close(fd)
