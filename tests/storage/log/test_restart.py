"""A log that begins again at another offset, and power losses while it does."""

import errno
import random

import pytest

from penstock.protocol.batch import split, stamp
from penstock.storage.errors import LogOfflineError, OffsetOutOfRangeError
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from penstock.storage.log.log import LogConfig
from penstock.storage.log.restart import FILE_NAME
from tests.storage.store import NOW_MS, Store, batches_of, new_batch, values_of

ONE = len(new_batch(b"x"))
CONFIG = LogConfig(segment_bytes=3 * ONE)


def replicate(store: Store, offset: int, *values: bytes, epoch: int) -> None:
    batch = new_batch(*values)
    stamp(batch, offset, epoch)
    store.log.append_replicated(split(batch), now_ms=NOW_MS)


def filled(files: MemoryFiles | None = None) -> Store:
    """A log from 2 to 30, of several segments, with everything that a log may have, flushed."""
    store = Store(files, CONFIG)
    store.memory = files or store.memory
    for number in range(8):
        store.append(b"%d" % number, epoch=number // 3)
    store.flush(save_recovery_points=True)
    store.log.advance_start(2)
    store.log.compaction.finish_round(5, -1, now_ms=NOW_MS, longest_wait_ms=0)
    store.log.compaction.save()
    replicate(store, 20, b"20", epoch=5)
    store.log.save_snapshot(b"producers", version=1)
    replicate(store, 29, b"29", epoch=6)
    store.flush()
    return store


VALUES = [b"2", b"3", b"4", b"5", b"6", b"7", b"20", b"29"]
EPOCHS = ((0, 2), (1, 3), (2, 6), (5, 20), (6, 29))
OFFSETS = [0, 1, 2, 5, 8, 21, 30, 31, 1000]


def check_empty(store: Store, offset: int) -> None:
    log = store.log
    assert (log.start_offset, log.end_offset, log.flushed_offset) == (offset, offset, offset)
    assert (log.epochs.entries, log.last_record_epoch) == ((), -1)
    assert log.latest_snapshot(version=1) is None
    assert (log.compaction.first_dirty_offset, log.compaction.holes_end, log.compaction.marks) == (0, 0, ())
    assert store.names(".log") == []
    assert FILE_NAME not in store.names()


def check_goes_on(store: Store, offset: int) -> None:
    """As any log does, with lower epochs than it once had."""
    replicate(store, offset, b"new", epoch=1)
    replicate(store, offset + 5, b"newer", epoch=2)
    store.flush()
    for clean in (False, True):
        store.reopen(clean=clean)
        assert values_of(store.log) == [b"new", b"newer"]
        assert store.log.start_offset == offset
        assert store.log.epochs.entries == ((1, offset), (2, offset + 5))


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_log_that_starts_anew_is_empty_and_goes_on_there(offset: int) -> None:
    store = filled()
    store.log.start_at(offset)
    check_empty(store, offset)
    for damage in Damage:
        found = Store(store.memory.after_crash(damage, random.Random(0)), CONFIG)
        check_empty(found, offset)
    for clean in (False, True):
        store.reopen(clean=clean)
        check_empty(store, offset)
    check_goes_on(store, offset)


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_power_loss_leaves_the_log_as_it_was_or_empty_at_the_new_start(offset: int) -> None:
    before = filled().memory.steps
    store = filled()
    store.log.start_at(offset)
    outcomes = set()
    for step in range(before + 1, store.memory.steps + 1):
        files = MemoryFiles(seed=step)
        doomed = filled(files)
        files.crash_at(step)
        with pytest.raises(Crashed):
            doomed.log.start_at(offset)
        for damage in Damage:
            found = Store(left := files.after_crash(damage, random.Random(step)), CONFIG)
            found.memory = left
            outcomes.add(found.log.end_offset)
            if found.log.end_offset == 30 and found.log.start_offset == 2:
                assert values_of(found.log) == VALUES
                assert found.log.epochs.entries == EPOCHS
                assert found.log.latest_snapshot(version=1) == (21, b"producers")
            else:
                check_empty(found, offset)
                check_goes_on(found, offset)
    assert outcomes == {30, offset}


@pytest.mark.parametrize("damage", Damage)
def test_a_second_power_loss_while_the_first_is_repaired_changes_nothing(damage: Damage) -> None:
    files = MemoryFiles()
    doomed = filled(files)
    steps = files.steps
    files.crash_at(steps + 8)
    with pytest.raises(Crashed):
        doomed.log.start_at(7)
    left = files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
    assert FILE_NAME in left.list(doomed.path)
    whole = left.copy()
    Store(whole, CONFIG)
    for step in range(left.steps + 1, whole.steps + 1):
        again = left.copy()
        again.crash_at(step)
        with pytest.raises(Crashed):
            Store(again, CONFIG)
        found = Store(final := again.after_crash(damage, random.Random(step)), CONFIG)
        found.memory = final
        check_empty(found, 7)
        check_goes_on(found, 7)


def test_a_log_without_a_folder_starts_where_it_is_told_to_durably() -> None:
    for step in range(1, 30):
        files = MemoryFiles(seed=step)
        store = Store(files, CONFIG)
        store.log.begin_epoch(4)
        files.crash_at(files.steps + step)
        try:
            store.log.start_at(50)
        except Crashed:
            for damage in Damage:
                found = Store(files.after_crash(damage, random.Random(step)), CONFIG)
                assert found.log.start_offset in (0, 50)
                assert found.log.end_offset == found.log.start_offset
        else:
            break
    store = Store()
    store.log.begin_epoch(4)
    store.log.start_at(50)
    for damage in Damage:
        check_empty(Store(store.memory.after_crash(damage, random.Random(0))), 50)


def test_a_flush_that_is_under_way_proves_nothing_about_the_new_log() -> None:
    store = filled()
    store.append(b"30", epoch=7)
    under_way = store.directory.flusher.begin()
    store.log.start_at(10)
    under_way.sync()
    store.directory.flusher.end(under_way)
    assert store.log.flushed_offset == 10
    store.directory.flusher.save_recovery_points(NOW_MS)
    for damage in Damage:
        check_empty(Store(store.memory.after_crash(damage, random.Random(0)), CONFIG), 10)


@pytest.mark.parametrize("call", ["open", "pwritev", "sync", "rename", "unlink", "sync_directory"])
def test_a_restart_that_fails_leaves_the_log_offline_and_one_or_the_other_after_a_start(call: str) -> None:
    for nth in range(1, 30):
        store = filled()
        store.memory.fail(call, nth, OSError(errno.EIO, "broken"))
        try:
            store.log.start_at(12)
        except LogOfflineError:
            with pytest.raises(LogOfflineError):
                store.append(b"x", epoch=9)
            found = Store(store.memory.after_crash(Damage.ZERO_TAIL, random.Random(nth)), CONFIG)
            if found.log.end_offset == 30:
                assert values_of(found.log) == VALUES
            else:
                check_empty(found, 12)
        else:
            assert nth > 1
            return
    raise AssertionError("it never succeeds")


def test_a_log_starts_at_no_negative_offset() -> None:
    store = filled()
    with pytest.raises(OffsetOutOfRangeError):
        store.log.start_at(-1)
    assert values_of(store.log) == VALUES


class TestABatchThatBeginsBeforeTheStart:
    """Where the log of a leader starts within a batch, its followers' do, too."""

    def store(self) -> Store:
        store = filled()
        store.log.start_at(102)
        return store

    def test_is_the_first_of_an_empty_log_and_is_read_from_the_start_on(self) -> None:
        store = self.store()
        replicate(store, 100, b"0", b"1", b"2", b"3", epoch=3)
        replicate(store, 104, b"4", epoch=3)
        store.flush()
        for clean in (True, False, False):
            assert (store.log.start_offset, store.log.end_offset) == (102, 105)
            assert values_of(store.log) == [b"2", b"3", b"4"]
            assert [header.base_offset for header, _ in batches_of(store.log)] == [100, 104]
            assert (store.log.epochs.entries, store.log.last_record_epoch) == (((3, 102),), 3)
            store.reopen(clean=clean)
        store.log.truncate(103)
        assert (store.log.start_offset, store.log.end_offset) == (102, 102)

    def follow(self, store: Store) -> None:
        replicate(store, 100, b"0", b"1", b"2", b"3", epoch=3)
        store.flush(save_recovery_points=True)
        replicate(store, 104, b"4", epoch=3)

    @pytest.mark.parametrize("damage", Damage)
    def test_survives_a_power_loss_once_it_is_flushed(self, damage: Damage) -> None:
        files = MemoryFiles()
        store = filled(files)
        store.log.start_at(102)
        begun = files.steps
        self.follow(store)
        for step in range(begun + 1, files.steps + 1):
            doomed = filled(again := MemoryFiles(seed=step))
            doomed.log.start_at(102)
            again.crash_at(step)
            with pytest.raises(Crashed):
                self.follow(doomed)
            found = Store(again.after_crash(damage, random.Random(step)), CONFIG)
            assert found.log.start_offset == 102
            assert values_of(found.log) in ([], [b"2", b"3"], [b"2", b"3", b"4"])
            assert found.log.end_offset >= doomed.log.flushed_offset

    def test_is_refused_where_it_ends_before_the_start_or_the_log_has_records(self) -> None:
        store = self.store()
        with pytest.raises(OffsetOutOfRangeError):
            replicate(store, 100, b"0", b"1", epoch=3)
        replicate(store, 102, b"2", epoch=3)
        with pytest.raises(OffsetOutOfRangeError):
            replicate(store, 101, b"1", b"2", b"3", epoch=3)

    def test_that_could_not_be_written_leaves_the_log_empty_at_its_start(self) -> None:
        store = self.store()
        store.memory.fail("pwritev", 1, OSError(errno.ENOSPC, "no space"), after_bytes=20)
        with pytest.raises(OSError, match="no space"):
            replicate(store, 100, b"0", b"1", b"2", b"3", epoch=3)
        assert (store.log.start_offset, store.log.end_offset, store.log.failure) == (102, 102, None)
        replicate(store, 102, b"2", epoch=3)
        store.flush()
        store.reopen(clean=False)
        assert values_of(store.log) == [b"2"]

    def test_takes_the_place_of_a_segment_whose_records_are_all_deleted(self) -> None:
        store = Store()
        store.append(b"0", b"1", b"2", epoch=1)
        store.flush()
        # As a crash in `advance_start` leaves it: the start has moved to the end, and the segment is still there.
        store.log._write_start(3)
        store.reopen(clean=False)
        assert store.log.segments[0].exists
        replicate(store, 1, b"1", b"2", b"3", epoch=2)
        store.flush()
        for clean in (False, True):
            store.reopen(clean=clean)
            assert values_of(store.log) == [b"3"]
