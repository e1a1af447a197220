"""The file system in memory fails where it is told to, and a crash takes what was not synced and nothing else."""

import errno
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from penstock.storage.files import FileStat, write_all
from penstock.storage.files.memory import SECTOR, Crashed, Damage, MemoryFiles

SEEDS = range(300)
EVERY_DAMAGE = pytest.mark.parametrize("damage", Damage)


def all_damages_but(excluded: Damage) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("damage", [damage for damage in Damage if damage is not excluded])


def write(files: MemoryFiles, path: str, data: bytes, *, position: int = 0, sync: bool = False) -> None:
    fd = files.open(path, write=True, create=True)
    write_all(files, fd, [data], position)
    if sync:
        files.sync(fd)
    files.close(fd)


def truncate(files: MemoryFiles, path: str, size: int) -> None:
    fd = files.open(path, write=True)
    files.truncate(fd, size)
    files.close(fd)


def read(files: MemoryFiles, path: str) -> bytes:
    fd = files.open(path)
    data = files.pread(fd, files.size(fd), 0)
    files.close(fd)
    return data


def everything(files: MemoryFiles, path: str = "") -> Iterator[tuple[str, bytes | None]]:
    """Paths with their bytes, None for a directory."""
    for name in files.list(path):
        below = f"{path}/{name}"
        status = files.stat(below)
        assert status is not None
        if status.is_directory:
            yield below, None
            yield from everything(files, below)
        else:
            yield below, read(files, below)


def contents(files: MemoryFiles) -> dict[str, bytes | None]:
    return dict(everything(files))


def synced(*names: str, data: bytes = b"") -> MemoryFiles:
    """Files in /d whose names and bytes are durable."""
    files = MemoryFiles()
    files.make_directory("/d")
    for name in names:
        write(files, f"/d/{name}", data, sync=True)
    files.sync_directory("/d")
    files.sync_directory("/")
    return files


def after_crashes(files: MemoryFiles, damage: Damage) -> Iterator[tuple[int, MemoryFiles]]:
    for seed in SEEDS:
        yield seed, files.after_crash(damage, random.Random(seed))


def outcomes(files: MemoryFiles, damage: Damage, path: str = "/d/a") -> set[bytes]:
    return {read(found, path) for _, found in after_crashes(files, damage)}


CALLS: dict[str, Callable[[MemoryFiles, int], object]] = {
    "open": lambda files, fd: files.open("/d/a"),
    "close": lambda files, fd: files.close(files.open("/d/a")),
    "pread": lambda files, fd: files.pread(fd, 1, 0),
    "pwritev": lambda files, fd: files.pwritev(fd, [b"x"], 0),
    "size": lambda files, fd: files.size(fd),
    "truncate": lambda files, fd: files.truncate(fd, 0),
    "sync": lambda files, fd: files.sync(fd),
    "sync_directory": lambda files, fd: files.sync_directory("/d"),
    "sync_filesystem": lambda files, fd: files.sync_filesystem(fd),
    "list": lambda files, fd: files.list("/d"),
    "stat": lambda files, fd: files.stat("/d/a"),
    "make_directory": lambda files, fd: files.make_directory("/d/new"),
    "remove_directory": lambda files, fd: files.remove_directory("/d/empty"),
    "rename": lambda files, fd: files.rename("/d/a", "/d/b"),
    "unlink": lambda files, fd: files.unlink("/d/a"),
    "lock": lambda files, fd: files.close(files.lock("/d/a")),
    "free_bytes": lambda files, fd: files.free_bytes("/d"),
    "total_bytes": lambda files, fd: files.total_bytes("/d"),
    "drop_cached": lambda files, fd: files.drop_cached(fd, 0, 1),
    "start_writeback": lambda files, fd: files.start_writeback(fd, 0, 1),
}
STEPS = frozenset(CALLS) & {
    "pwritev",
    "truncate",
    "sync",
    "sync_directory",
    "sync_filesystem",
    "make_directory",
    "remove_directory",
    "rename",
    "unlink",
}


class TestFaults:
    @staticmethod
    def files() -> tuple[MemoryFiles, int]:
        files = synced("a", data=b"abc")
        files.make_directory("/d/empty")
        return files, files.open("/d/a", write=True)

    @pytest.mark.parametrize("call", CALLS)
    def test_every_call_can_fail_once_and_then_has_done_nothing(self, call: str) -> None:
        files, fd = self.files()
        before, still_open = contents(files), files.open_descriptors
        files.fail(call, 1, OSError(errno.EIO, "injected"))
        with pytest.raises(OSError, match="injected"):
            CALLS[call](files, fd)
        assert contents(files) == before
        assert files.open_descriptors == still_open
        CALLS[call](files, fd)

    @pytest.mark.parametrize("call", CALLS)
    def test_every_call_raises_after_a_crash(self, call: str) -> None:
        files, fd = self.files()
        files.crash_at(files.steps + 1)
        with pytest.raises(Crashed):
            files.truncate(fd, 0)
        for _ in range(2):
            with pytest.raises(Crashed):
                CALLS[call](files, fd)

    @pytest.mark.parametrize("call", CALLS)
    def test_steps_are_the_calls_that_change_or_sync_something(self, call: str) -> None:
        files, fd = self.files()
        before = files.steps
        CALLS[call](files, fd)
        assert files.steps - before == (call in STEPS)

    def test_opening_and_locking_are_steps_when_they_create(self) -> None:
        files = MemoryFiles()
        files.open("/a", create=True)
        files.lock("/b")
        assert files.steps == 2
        files.open("/a", create=True)
        with pytest.raises(BlockingIOError):
            files.lock("/b")
        assert files.steps == 2

    def test_the_nth_call_of_a_name_fails_counted_from_now(self) -> None:
        files = synced("a", data=b"abc")
        fd = files.open("/d/a")
        files.pread(fd, 1, 0)
        files.fail("pread", 2, OSError(errno.EIO, "second"))
        files.fail("pread", 3, OSError(errno.EIO, "third"))
        files.size(fd)
        assert files.pread(fd, 1, 0) == b"a"
        with pytest.raises(OSError, match="second"):
            files.pread(fd, 1, 0)
        with pytest.raises(OSError, match="third"):
            files.pread(fd, 1, 0)
        assert files.pread(fd, 1, 0) == b"a"

    def test_without_a_name_the_nth_step_fails(self) -> None:
        files = synced("a", data=b"abc")
        files.fail(None, 3, OSError(errno.ENOSPC, "third step"))
        fd = files.open("/d/b", write=True, create=True)
        files.pread(fd, 1, 0)
        files.pwritev(fd, [b"x"], 0)
        with pytest.raises(OSError, match="third step"):
            files.rename("/d/b", "/d/c")
        assert files.list("/d") == ["a", "b"]

    def test_a_short_write_writes_its_part_and_says_so(self) -> None:
        files = synced("a")
        fd = files.open("/d/a", write=True)
        files.short_write(2, 3)
        assert files.pwritev(fd, [b"ab"], 0) == 2
        assert files.pwritev(fd, [b"cd", b"ef"], 2) == 3
        assert read(files, "/d/a") == b"abcde"
        assert files.pwritev(fd, [b"f"], 5) == 1

    def test_a_failing_write_may_have_written_a_part(self) -> None:
        files = synced("a")
        fd = files.open("/d/a", write=True)
        files.fail("pwritev", 1, OSError(errno.ENOSPC, "full"), after_bytes=3)
        with pytest.raises(OSError, match="full"):
            files.pwritev(fd, [b"ab", b"cd"], 0)
        assert read(files, "/d/a") == b"abc"

    def test_a_full_disk_takes_what_fits_and_then_nothing_until_there_is_room(self) -> None:
        files = synced("a", "b", data=b"12345")
        files.capacity = 14
        assert files.free_bytes("/d") == 4
        fd = files.open("/d/a", write=True)
        assert files.pwritev(fd, [b"abcdef"], 5) == 4
        with pytest.raises(OSError, match="space") as error:
            files.pwritev(fd, [b"ef"], 9)
        assert error.value.errno == errno.ENOSPC
        assert files.pwritev(fd, [b"overwriting"], 0) == 9, "what is there can be overwritten"
        assert files.free_bytes("/d") == 0
        files.unlink("/d/b")
        assert files.pwritev(fd, [b"ef"], 9) == 2
        assert files.free_bytes("/d") == 3

    def test_an_open_file_without_a_name_keeps_its_room(self) -> None:
        files = synced("a", data=b"12345")
        files.capacity = 5
        fd = files.open("/d/a")
        files.unlink("/d/a")
        assert files.free_bytes("/d") == 0
        files.close(fd)
        assert files.free_bytes("/d") == 5

    @EVERY_DAMAGE
    def test_a_failed_sync_loses_the_bytes_for_good(self, damage: Damage) -> None:
        for sync in ("sync", "sync_filesystem"):
            files = synced("a", data=b"old")
            fd = files.open("/d/a", write=True)
            files.pwritev(fd, [b"lost"], 3)
            files.fail(sync, 1, OSError(errno.EIO, "injected"))
            with pytest.raises(OSError, match="injected"):
                CALLS[sync](files, fd)
            assert read(files, "/d/a") == b"oldlost", "the page cache still has them"
            files.sync(fd)
            files.pwritev(fd, [b"new"], 7)
            files.sync(fd)
            assert outcomes(files, damage) == {b"old\0\0\0\0new"}

    def test_a_crash_is_no_exception_that_a_handler_would_catch(self) -> None:
        assert not issubclass(Crashed, Exception)

    def test_a_crash_in_the_past_is_refused(self) -> None:
        files = synced("a")
        with pytest.raises(AssertionError, match="in the past"):
            files.crash_at(files.steps)

    def test_any_part_of_the_write_that_crashes_may_have_happened(self) -> None:
        found = set()
        for seed in range(30):
            files = MemoryFiles(seed=seed)
            fd = files.open("/a", write=True, create=True)
            files.sync_directory("/")
            files.crash_at(files.steps + 1)
            with pytest.raises(Crashed):
                files.pwritev(fd, [b"ab", b"cd"], 0)
            found |= outcomes(files, Damage.TEAR_LAST_WRITE, "/a")
        assert found == {b"", b"a", b"ab", b"abc", b"abcd"}

    @pytest.mark.parametrize("call", sorted(STEPS - {"pwritev"}))
    def test_the_step_that_crashes_has_happened_or_not(self, call: str) -> None:
        found = set()
        for seed in range(20):
            files = MemoryFiles(seed=seed)
            files.make_directory("/d")
            files.make_directory("/d/empty")
            write(files, "/d/a", b"abc", sync=call in ("sync_directory", "truncate"))
            if call != "sync_directory":
                files.sync_directory("/d")
            files.sync_directory("/")
            fd = files.open("/d/a", write=True)
            files.crash_at(files.steps + 1)
            with pytest.raises(Crashed):
                CALLS[call](files, fd)
            damage = Damage.LOSE_UNSYNCED if "sync" in call else Damage.ZERO_TAIL
            found.add(str(contents(files.after_crash(damage, random.Random(1)))))
        assert len(found) == 2

    def test_the_same_seed_crashes_in_the_same_way(self) -> None:
        def crash(seed: int) -> str:
            files = MemoryFiles(seed=seed)
            fd = files.open("/a", write=True, create=True)
            files.crash_at(3)
            files.pwritev(fd, [b"0123456789"], 0)
            with pytest.raises(Crashed):
                files.pwritev(fd, [b"0123456789"], 10)
            return str([contents(files.after_crash(damage, random.Random(seed))) for damage in Damage])

        assert [crash(seed) for seed in range(30)] == [crash(seed) for seed in range(30)]
        assert len({crash(seed) for seed in range(30)}) > 5


class TestWhatSurvives:
    @EVERY_DAMAGE
    def test_what_was_synced_is_always_there(self, damage: Damage) -> None:
        files = synced("a", "b", data=b"settled" * 200)
        before = contents(files)
        write(files, "/d/c", b"unsynced")
        write(files, "/d/b", b"appended" * 100, position=1_400)
        files.rename("/d/c", "/d/e")
        for seed, found in after_crashes(files, damage):
            after = contents(found)
            assert after["/d/a"] == before["/d/a"], f"seed {seed}"
            b = after["/d/b"]
            assert b is not None, f"seed {seed}"
            assert b[:1_400] == before["/d/b"], f"seed {seed}"

    @EVERY_DAMAGE
    def test_everything_is_durable_after_all_the_syncs(self, damage: Damage) -> None:
        files = synced("a", "b")
        files.make_directory("/d/e")
        write(files, "/d/e/f", b"new", sync=True)
        write(files, "/d/a", b"rewritten", sync=True)
        files.rename("/d/b", "/d/e/b")
        for directory in ("/d/e", "/d", "/"):
            files.sync_directory(directory)
        for seed, found in after_crashes(files, damage):
            assert contents(found) == contents(files), f"seed {seed}"

    @EVERY_DAMAGE
    def test_sync_filesystem_makes_the_bytes_of_all_files_durable(self, damage: Damage) -> None:
        files = synced("a", "b")
        write(files, "/d/a", b"one")
        write(files, "/d/b", b"two")
        files.sync_filesystem(files.open("/d"))
        assert outcomes(files, damage) == {b"one"}
        assert outcomes(files, damage, "/d/b") == {b"two"}

    @EVERY_DAMAGE
    def test_sync_filesystem_makes_all_names_durable(self, damage: Damage) -> None:
        files = synced("a", "b", data=b"old")
        files.unlink("/d/a")
        files.rename("/d/b", "/d/c")
        files.make_directory("/d/e")
        write(files, "/d/e/f", b"new")
        files.sync_filesystem(files.open("/d"))
        for seed, found in after_crashes(files, damage):
            assert contents(found) == contents(files), f"seed {seed}"

    def test_sync_filesystem_reaches_an_open_file_that_has_lost_its_name(self) -> None:
        files = synced("a", data=b"old")
        fd = files.open("/d/a", write=True)
        files.unlink("/d/a")
        files.pwritev(fd, [b"new"], 0)
        files.fail("sync_filesystem", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            files.sync_filesystem(fd)
        # Its bytes are lost with those of all others, and no later sync makes them durable.
        files.sync(fd)
        assert outcomes(files, Damage.LOSE_UNSYNCED) == {b"old"}

    @all_damages_but(Damage.ZERO_TAIL)
    def test_syncing_the_bytes_of_a_file_does_not_keep_its_name(self, damage: Damage) -> None:
        files = synced()
        write(files, "/d/a", b"bytes", sync=True)
        found = {str(contents(found)) for _, found in after_crashes(files, damage)}
        assert str({"/d": None}) in found
        assert found <= {str({"/d": None}), str({"/d": None, "/d/a": b"bytes"})}

    @all_damages_but(Damage.ZERO_TAIL)
    def test_a_synced_directory_vanishes_if_its_own_name_was_not_synced(self, damage: Damage) -> None:
        files = synced()
        files.make_directory("/d/e")
        write(files, "/d/e/a.tmp", b"bytes", sync=True)
        files.rename("/d/e/a.tmp", "/d/e/a")
        files.sync_directory("/d/e")
        found = [contents(found) for _, found in after_crashes(files, damage)]
        assert {"/d": None} in found
        assert all(len(names) == 1 or names["/d/e/a"] == b"bytes" for names in found)

    @EVERY_DAMAGE
    def test_a_synced_name_does_not_keep_unsynced_bytes(self, damage: Damage) -> None:
        files = synced()
        write(files, "/d/a", b"bytes")
        files.sync_directory("/d")
        found = outcomes(files, damage)
        assert found & {b"", bytes(5)}
        assert all(len(data) <= 5 for data in found)

    def test_lose_unsynced_goes_back_to_the_last_syncs(self) -> None:
        files = synced("a", "b", data=b"settled")
        before = contents(files)
        write(files, "/d/a", b"SETTLED, and more")
        truncate(files, "/d/b", 2)
        files.unlink("/d/b")
        write(files, "/d/c", b"new", sync=True)
        files.make_directory("/e")
        for seed, found in after_crashes(files, Damage.LOSE_UNSYNCED):
            assert contents(found) == before, f"seed {seed}"


class TestBytes:
    def test_a_torn_write_leaves_the_writes_before_it_and_its_own_beginning(self) -> None:
        files = synced("a", data=b"0")
        write(files, "/d/a", b"123", position=1)
        write(files, "/d/a", b"456", position=4)
        assert outcomes(files, Damage.TEAR_LAST_WRITE) == {b"0123456"[:size] for size in range(1, 8)}

    def test_a_torn_truncate_has_happened_or_not(self) -> None:
        files = synced("a", data=b"0123")
        truncate(files, "/d/a", 2)
        write(files, "/d/a", b"xy", position=2)
        assert outcomes(files, Damage.TEAR_LAST_WRITE) == {b"0123", b"01", b"01x", b"01xy"}

    def test_a_zeroed_tail_has_its_size_and_zeros_to_the_end(self) -> None:
        files = synced("a", data=b"x" * 700)
        write(files, "/d/a", b"y" * 1_000, position=700)
        write(files, "/d/a", b"z" * 1_000, position=1_700)
        whole = read(files, "/d/a")
        starts = set()
        for seed, found in after_crashes(files, Damage.ZERO_TAIL):
            data = read(found, "/d/a")
            start = len(data.rstrip(b"\0"))
            assert data == whole[:start] + bytes(2_700 - start), f"seed {seed}"
            assert start >= 700, f"seed {seed}"
            starts.add(start)
        assert min(starts) == 700
        assert any(start > 1_700 for start in starts)
        assert any(start % SECTOR == 0 for start in starts)
        assert any(start > 700 and start % SECTOR for start in starts)

    def test_a_zeroed_tail_spares_rewritten_bytes_and_takes_those_after_a_truncate(self) -> None:
        files = synced("a", data=b"0123456789")
        write(files, "/d/a", b"ab", position=1)
        truncate(files, "/d/a", 4)
        write(files, "/d/a", b"xy", position=4)
        assert outcomes(files, Damage.ZERO_TAIL) == {b"0ab3xy", b"0ab3x\0", b"0ab3\0\0"}

    def test_reordered_writes_leave_holes_of_zeros(self) -> None:
        files = synced("a", data=b"0")
        write(files, "/d/a", b"12", position=1)
        write(files, "/d/a", b"34", position=3)
        assert outcomes(files, Damage.REORDER_ENTRIES) == {b"0", b"012", b"0\0\x0034", b"01234"}

    def test_reordered_sectors_of_one_write_are_there_or_not(self) -> None:
        files = synced("a", data=b"0" * 100)
        write(files, "/d/a", b"x" * 2_000, position=100)
        found = outcomes(files, Damage.REORDER_ENTRIES)
        late = [data for data in found if len(data) == 2_100 and data[100:SECTOR] == bytes(SECTOR - 100)]
        assert late, "the end of a write without its beginning"
        for data in found:
            assert data[:100] == b"0" * 100
            for start in range(0, len(data), SECTOR):
                assert len(set(data[max(100, start) : start + SECTOR])) <= 1, "a sector is written whole"

    def test_reordered_changes_may_undo_a_truncate_but_not_what_was_written_after_it(self) -> None:
        files = synced("a", data=b"0123")
        truncate(files, "/d/a", 1)
        write(files, "/d/a", b"x", position=1)
        assert outcomes(files, Damage.REORDER_ENTRIES) == {b"0123", b"0", b"0x23", b"0x"}

    @EVERY_DAMAGE
    def test_bytes_rewritten_without_a_sync_are_old_or_new(self, damage: Damage) -> None:
        files = synced("a", data=b"o" * 3_000)
        write(files, "/d/a", b"n" * 1_000, position=1_000)
        for seed, found in after_crashes(files, damage):
            data = read(found, "/d/a")
            assert data[:1_000] == data[2_000:] == b"o" * 1_000, f"seed {seed}"
            assert set(data[1_000:2_000]) <= set(b"on"), f"seed {seed}"

    @EVERY_DAMAGE
    def test_bytes_written_through_a_renamed_or_forgotten_descriptor_belong_to_their_file(self, damage: Damage) -> None:
        files = synced("a", "b", data=b"old")
        fd = files.open("/d/a", write=True)
        files.rename("/d/a", "/d/c")
        files.pwritev(fd, [b"new"], 0)
        files.sync(fd)
        for seed, found in after_crashes(files, damage):
            after = contents(found)
            assert [after.get("/d/a"), after.get("/d/c")].count(b"new") == 1, f"seed {seed}"
            assert after["/d/b"] == b"old", f"seed {seed}"


class TestNames:
    def test_torn_names_are_kept_in_order(self) -> None:
        files = synced("a")
        for name in ("b", "c"):
            write(files, f"/d/{name}", b"")
        files.unlink("/d/a")
        write(files, "/d/e", b"")
        found = {tuple(found.list("/d")) for _, found in after_crashes(files, Damage.TEAR_LAST_WRITE)}
        assert found == {("a",), ("a", "b"), ("a", "b", "c"), ("b", "c"), ("b", "c", "e")}

    def test_a_zeroed_tail_keeps_all_names(self) -> None:
        files = synced("a", "b")
        files.unlink("/d/a")
        files.rename("/d/b", "/d/c")
        write(files, "/d/e", b"")
        assert {tuple(found.list("/d")) for _, found in after_crashes(files, Damage.ZERO_TAIL)} == {("c", "e")}

    def test_reordered_unlinks_leave_any_of_the_files(self) -> None:
        files = synced("a", "b", "c")
        for name in ("a", "b", "c"):
            files.unlink(f"/d/{name}")
        found = {"".join(found.list("/d")) for _, found in after_crashes(files, Damage.REORDER_ENTRIES)}
        assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}

    def test_reordered_creates_leave_any_of_the_files(self) -> None:
        files = synced()
        for name in ("a", "b", "c"):
            write(files, f"/d/{name}", b"")
        found = {"".join(found.list("/d")) for _, found in after_crashes(files, Damage.REORDER_ENTRIES)}
        assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}

    def test_changes_of_one_name_keep_their_order(self) -> None:
        files = synced("a", data=b"1")
        files.unlink("/d/a")
        write(files, "/d/a", b"2", sync=True)
        files.rename("/d/a", "/d/b")
        write(files, "/d/a", b"3", sync=True)
        histories = [
            {"/d/a": b"1"},
            {},
            {"/d/a": b"2"},
            {"/d/b": b"2"},
            {"/d/b": b"2", "/d/a": b"3"},
        ]
        found = [contents(found) for _, found in after_crashes(files, Damage.REORDER_ENTRIES)]
        for history in histories:
            assert {"/d": None, **history} in found
        assert all({name: data for name, data in names.items() if data is not None} in histories for names in found)

    @EVERY_DAMAGE
    def test_a_rename_over_a_durable_name_leaves_the_old_file_or_the_new_one(self, damage: Damage) -> None:
        files = synced("a", data=b"old")
        write(files, "/d/a.tmp", b"new", sync=True)
        files.rename("/d/a.tmp", "/d/a")
        found = outcomes(files, damage)
        assert found <= {b"old", b"new"}
        assert len(found) == (1 if damage in (Damage.LOSE_UNSYNCED, Damage.ZERO_TAIL) else 2)

    @EVERY_DAMAGE
    @pytest.mark.parametrize("directory", ["/d", "/e"])
    def test_a_rename_between_directories_is_durable_when_either_is_synced(
        self, damage: Damage, directory: str
    ) -> None:
        files = synced("a", data=b"moved")
        files.make_directory("/e")
        files.sync_directory("/")
        files.rename("/d/a", "/e/a")
        for seed, found in after_crashes(files, damage):
            assert [data for _, data in everything(found) if data is not None] == [b"moved"], f"seed {seed}"
        files.sync_directory(directory)
        for seed, found in after_crashes(files, damage):
            assert contents(found) == {"/d": None, "/e": None, "/e/a": b"moved"}, f"seed {seed}"

    @EVERY_DAMAGE
    def test_a_file_that_moved_into_a_new_directory_or_out_of_a_removed_one_is_not_lost(self, damage: Damage) -> None:
        files = synced("a", data=b"moved")
        files.make_directory("/e")
        files.make_directory("/e/f")
        files.rename("/d/a", "/e/f/a")
        files.remove_directory("/d")
        files.make_directory("/d")
        files.rename("/e/f/a", "/d/b")
        files.remove_directory("/e/f")
        files.remove_directory("/e")
        for seed, found in after_crashes(files, damage):
            assert [data for _, data in everything(found) if data is not None] == [b"moved"], f"seed {seed}"

    @EVERY_DAMAGE
    def test_a_renamed_directory_keeps_its_files(self, damage: Damage) -> None:
        files = synced("a", data=b"kept")
        files.rename("/d", "/e")
        write(files, "/e/b", b"", sync=True)
        for seed, found in after_crashes(files, damage):
            assert [data for _, data in everything(found) if data] == [b"kept"], f"seed {seed}"
        files.sync_directory("/")
        for seed, found in after_crashes(files, damage):
            assert read(found, "/e/a") == b"kept", f"seed {seed}"

    @EVERY_DAMAGE
    def test_an_unsynced_unlink_may_bring_the_file_back_with_what_was_synced(self, damage: Damage) -> None:
        files = synced("a", data=b"back")
        files.unlink("/d/a")
        for seed, found in after_crashes(files, damage):
            assert contents(found).get("/d/a", b"back") == b"back", f"seed {seed}"
        files.sync_directory("/d")
        for seed, found in after_crashes(files, damage):
            assert found.list("/d") == [], f"seed {seed}"


def replace_atomically(files: MemoryFiles, path: str, data: bytes) -> None:
    fd = files.open(path + ".tmp", write=True, create=True)
    files.truncate(fd, 0)
    write_all(files, fd, [data[:5], data[5:]], 0)
    files.sync(fd)
    files.close(fd)
    files.rename(path + ".tmp", path)
    files.sync_directory(path.rpartition("/")[0])


class TestPrograms:
    def crash_everywhere(
        self, program: Callable[[MemoryFiles], None], damage: Damage, *, seeds: int = 20
    ) -> Iterator[tuple[str, MemoryFiles]]:
        start = synced("a", data=b"old content")
        dry_run = start.copy()
        program(dry_run)
        for step in range(start.steps + 1, dry_run.steps + 1):
            for seed in range(seeds):
                files = MemoryFiles(seed=seed)
                files.make_directory("/d")
                write(files, "/d/a", b"old content", sync=True)
                files.sync_directory("/d")
                files.sync_directory("/")
                assert files.steps == start.steps
                files.crash_at(step)
                with pytest.raises(Crashed):
                    program(files)
                yield f"step {step}, seed {seed}", files.after_crash(damage, random.Random(seed))

    @EVERY_DAMAGE
    def test_an_atomic_replacement_leaves_the_old_or_the_new_content(self, damage: Damage) -> None:
        found = set()
        for where, files in self.crash_everywhere(lambda f: replace_atomically(f, "/d/a", b"new content"), damage):
            data = read(files, "/d/a")
            assert data in (b"old content", b"new content"), where
            found.add(data)
            replace_atomically(files, "/d/a", b"newer")
            assert contents(files) == {"/d": None, "/d/a": b"newer"}, where
        assert len(found) == 2

    @all_damages_but(Damage.LOSE_UNSYNCED)
    def test_a_replacement_without_the_sync_is_caught(self, damage: Damage) -> None:
        def careless(files: MemoryFiles) -> None:
            write(files, "/d/a.tmp", b"new content")
            files.rename("/d/a.tmp", "/d/a")
            files.sync_directory("/d")

        found = {read(files, "/d/a") for _, files in self.crash_everywhere(careless, damage)}
        assert not found <= {b"old content", b"new content"}

    def test_a_replacement_without_the_sync_of_its_directory_is_caught(self) -> None:
        files = synced("a", data=b"old content")
        write(files, "/d/a.tmp", b"new content", sync=True)
        files.rename("/d/a.tmp", "/d/a")
        assert outcomes(files, Damage.LOSE_UNSYNCED) == {b"old content"}

    @EVERY_DAMAGE
    @pytest.mark.parametrize("seed", range(60))
    def test_a_durable_file_is_found_once_whatever_moved_around_it(self, damage: Damage, seed: int) -> None:
        rng = random.Random(seed)
        files = MemoryFiles()
        durable: set[bytes] = set()
        for number in range(60):
            directories = ["", *(path for path, data in everything(files) if data is None)]
            paths = [path for path, data in everything(files) if data is not None]
            target = f"{rng.choice(directories)}/{rng.choice('abc')}"
            action = rng.choice(
                ["create", "create", "move", "move", "unlink", "mkdir", "rmdir", "move directory", "sync"]
            )
            try:
                match action:
                    case "create" if files.stat(target) is None:
                        identity = b"file %d" % number
                        write(files, target, identity, sync=True)
                        if rng.random() < 0.5:
                            parts = target.split("/")
                            for depth in range(len(parts) - 1, 0, -1):
                                files.sync_directory("/".join(parts[:depth]))
                            durable.add(identity)
                    case "move" if paths:
                        status = files.stat(target)
                        replaced = read(files, target) if status and not status.is_directory else b""
                        path = rng.choice(paths)
                        files.rename(path, target)
                        if path != target:
                            durable.discard(replaced)
                    case "unlink" if paths and rng.random() < 0.3:
                        path = rng.choice(paths)
                        durable.discard(read(files, path))
                        files.unlink(path)
                    case "mkdir":
                        files.make_directory(target)
                    case "rmdir":
                        files.remove_directory(rng.choice(directories))
                    case "move directory":
                        files.rename(rng.choice(directories), target)
                    case "sync" if rng.random() < 0.3:
                        files.sync_directory(rng.choice(directories))
            except OSError:
                pass  # A move that makes no sense is refused and changes nothing.
            for _ in range(3):
                found = [data for _, data in everything(files.after_crash(damage, rng)) if data]
                assert len(found) == len(set(found)), f"twice after {number} actions"
                assert durable <= set(found), f"lost after {number} actions"


def test_after_crash_changes_nothing_and_gives_the_same_for_the_same_seed() -> None:
    files = synced("a", data=b"old")
    write(files, "/d/a", b"newer")
    write(files, "/d/b", b"created")
    before = contents(files)
    for damage in Damage:
        first = [contents(files.after_crash(damage, random.Random(seed))) for seed in range(20)]
        again = [contents(files.after_crash(damage, random.Random(seed))) for seed in range(20)]
        assert first == again
    assert contents(files) == before


def test_what_is_found_after_a_crash_is_durable_and_goes_its_own_way() -> None:
    files = synced("a", data=b"old")
    write(files, "/d/a", b"new")
    files.lock("/d/a")
    found = files.after_crash(Damage.TEAR_LAST_WRITE, random.Random(3))
    state = contents(found)
    assert contents(found.after_crash(Damage.LOSE_UNSYNCED, random.Random(1))) == state
    assert found.open_descriptors == found.steps == 0
    found.close(found.lock("/d/a"))
    write(found, "/d/a", b"changed", sync=True)
    found.unlink("/d/a")
    assert read(files, "/d/a") == b"new"


def test_a_copy_has_the_same_past_and_its_own_future() -> None:
    files = synced("a", "b", data=b"old")
    files.make_directory("/d/e")
    files.rename("/d/b", "/d/e/b")
    write(files, "/d/a", b"newer")
    files.unlink("/d/a")
    write(files, "/d/a", b"replacement")
    copy = files.copy()
    assert contents(copy) == contents(files)
    assert copy.steps == files.steps
    for damage in Damage:
        for seed in range(50):
            expected = contents(files.after_crash(damage, random.Random(seed)))
            assert contents(copy.after_crash(damage, random.Random(seed))) == expected, f"{damage}, seed {seed}"
    before = contents(files)
    write(copy, "/d/a", b"changed", sync=True)
    copy.unlink("/d/e/b")
    copy.sync_directory("/d/e")
    assert contents(files) == before
    files.sync_directory("/d")
    assert outcomes(files, Damage.LOSE_UNSYNCED) == {b""}
    assert outcomes(copy, Damage.LOSE_UNSYNCED) == {b"old"}


def test_a_flipped_bit_is_on_the_disk() -> None:
    files = synced("a", data=b"aaa")
    write(files, "/d/a", b"b", position=3)
    files.flip_bit("/d/a", 1, 1)
    assert read(files, "/d/a") == b"acab"
    assert outcomes(files, Damage.LOSE_UNSYNCED) == {b"acab"}
    files.flip_bit("/d/a", 1, 1)
    assert read(files, "/d/a") == b"aaab"


def test_the_time_of_a_file_is_that_of_its_last_change() -> None:
    clock = iter(range(1_000, 2_000, 100))
    files = MemoryFiles(now_ms=lambda: next(clock))
    files.make_directory("/d")
    write(files, "/d/a", b"abc")
    fd = files.open("/d/a", write=True)
    first = files.stat("/d/a")
    files.rename("/d/a", "/d/b")
    files.sync(fd)
    assert files.stat("/d/b") == first, "neither a rename nor a sync is a change"
    files.truncate(fd, 1)
    second = files.stat("/d/b")
    assert first is not None
    assert second is not None
    assert second.modified_ms > first.modified_ms >= 1_000


def test_without_a_clock_the_time_is_the_number_of_steps() -> None:
    files = MemoryFiles()
    write(files, "/a", b"abc")
    assert files.stat("/a") == FileStat(3, 2, is_directory=False)


def test_an_operating_system_without_syncfs_can_be_played() -> None:
    files = synced("a")
    write(files, "/d/a", b"abc")
    files.can_sync_filesystem = False
    steps = files.steps
    assert not files.sync_filesystem(files.open("/d/a"))
    assert files.steps == steps
    assert outcomes(files, Damage.LOSE_UNSYNCED) == {b""}


def test_several_threads_may_write_and_sync_at_once() -> None:
    files = synced("a", "b")

    def work(path: str, position: int) -> None:
        fd = files.open(path, write=True)
        for number in range(200):
            files.pwritev(fd, [b"x"], position + number)
            files.sync(fd)
            files.sync_filesystem(fd)
        files.close(fd)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, ("/d/a", "/d/a", "/d/b", "/d/b"), (0, 200, 0, 200)))
    for path in ("/d/a", "/d/b"):
        assert outcomes(files, Damage.LOSE_UNSYNCED, path) == {b"x" * 400}


def test_a_sync_in_one_thread_waits_for_a_write_in_another() -> None:
    syncs: list[Future[None]] = []

    def in_the_middle_of_a_write() -> int:
        if files.steps == 2:
            syncs.append(threads.submit(files.sync, fd))
            assert not wait(syncs, timeout=0.02).done
        return 0

    files = MemoryFiles(now_ms=in_the_middle_of_a_write)
    with ThreadPoolExecutor(1) as threads:
        fd = files.open("/a", write=True, create=True)
        files.pwritev(fd, [b"x"], 0)
        syncs[0].result()
    files.sync_directory("/")
    assert outcomes(files, Damage.LOSE_UNSYNCED, "/a") == {b"x"}


def test_a_killed_process_leaves_its_files_as_they_are_and_no_lock() -> None:
    files = MemoryFiles()
    fd = files.open("/a", write=True, create=True)
    write_all(files, fd, [b"written"], 0)
    files.lock("/lock")
    files.kill_process()
    assert files.open_descriptors == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.pread(fd, 7, 0)
    assert read(files, "/a") == b"written"
    files.close(files.lock("/lock"))


def test_a_machine_that_lost_its_power_has_another_run_and_a_process_that_died_has_not() -> None:
    files = MemoryFiles()
    before = files.boot_id()
    files.kill_process()
    assert (files.boot_id(), files.copy().boot_id()) == (before, before)
    after = files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
    assert before != after.boot_id() != after.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)).boot_id()
