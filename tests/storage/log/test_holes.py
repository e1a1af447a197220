"""Holes that a follower takes over from its leader, and what recovery makes of them."""

import errno
import random

import pytest

from penstock.protocol.batch import split, stamp
from penstock.storage.errors import CorruptCheckpointError
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from penstock.storage.log.holes import FILE_NAME, Holes
from penstock.storage.log.log import LogConfig
from tests.storage.store import NOW_MS, Store, batches_of, new_batch

ONE = len(new_batch(b"x"))


def follow(store: Store, *offsets: int, epoch: int = 0) -> None:
    """Append batches of one record at these offsets, one after the other."""
    for offset in offsets:
        batch = new_batch(b"x")
        stamp(batch, offset, epoch)
        store.log.append_replicated(split(batch), now_ms=NOW_MS)


def offsets_of(store: Store) -> list[int]:
    return [header.base_offset for header, _ in batches_of(store.log)]


class TestAFollowerOfACompactedTopic:
    @pytest.mark.parametrize("damage", Damage)
    @pytest.mark.parametrize("segment_bytes", [100 * ONE, 2 * ONE, ONE])
    def test_keeps_what_was_flushed_after_a_power_loss(self, damage: Damage, segment_bytes: int) -> None:
        store = Store(config=LogConfig(segment_bytes=segment_bytes))
        follow(store, 0, 1, 2, 10, 11)
        store.flush()
        assert store.log.flushed_offset == 12
        follow(store, 20, 35)
        store.flush()
        follow(store, 50)
        found = Store(store.memory.after_crash(damage, random.Random(1)), store.config)
        assert offsets_of(found)[:7] == [0, 1, 2, 10, 11, 20, 35]
        assert found.log.end_offset >= 36

    def test_keeps_it_wherever_the_recovery_point_lies(self) -> None:
        offsets = [3, 4, 9, 10, 11, 30, 31, 77]
        for point in range(len(offsets) + 1):
            for second in range(point, len(offsets) + 1):
                store = Store(config=LogConfig(segment_bytes=3 * ONE, index_interval_bytes=ONE))
                follow(store, *offsets[:point])
                store.flush(save_recovery_points=True)
                follow(store, *offsets[point:second])
                store.flush()
                follow(store, *offsets[second:])
                store.flush()
                store.reopen(clean=False)
                assert offsets_of(store) == offsets, f"{point}, {second}"
                assert store.report.cut_bytes == 0

    def test_keeps_it_when_the_log_starts_above_a_hole_and_above_the_recovery_point(self) -> None:
        store = Store()
        follow(store, 3, 10)
        store.flush(save_recovery_points=True)
        follow(store, 20, 21, 30)
        store.flush()
        store.log.advance_start(21)
        store.reopen(clean=False)
        assert offsets_of(store) == [21, 30]

    def test_loses_what_follows_a_hole_that_was_not_flushed_and_says_so(self) -> None:
        store = Store()
        follow(store, 0, 1)
        store.flush()
        follow(store, 5)
        store.reopen(clean=False)
        assert offsets_of(store) == [0, 1]
        assert "offset 5 where 2 should be" in (store.report.cut_reason or "")

    @pytest.mark.parametrize("number", range(5))
    @pytest.mark.parametrize("bit", range(6))
    def test_finds_a_changed_bit_in_an_offset_above_the_recovery_point(self, number: int, bit: int) -> None:
        offsets = [0, 8, 16, 17, 48]
        store = Store()
        follow(store, *offsets)
        store.flush()
        store.memory.flip_bit(f"{store.path}/{0:020}.log", number * ONE + 7, bit)
        store.reopen(clean=False)
        assert offsets_of(store) == offsets[:number]

    def test_finds_a_changed_bit_where_a_hole_was_before_a_truncation(self) -> None:
        store = Store()
        follow(store, 0, 1, 10)
        store.flush()
        store.log.truncate(2)
        follow(store, 2)
        store.flush()
        store.memory.flip_bit(f"{store.path}/{0:020}.log", 2 * ONE + 7, 3)
        store.reopen(clean=False)
        assert offsets_of(store) == [0, 1], "2 has become 10, and that there was a hole once is no excuse"

    def test_cuts_a_hole_away_with_the_batch_after_it(self) -> None:
        store = Store()
        follow(store, 0, 10, 20)
        store.flush()
        store.log.truncate(20)
        assert store.log.end_offset == 11
        follow(store, 40)
        store.flush()
        store.reopen(clean=False)
        assert offsets_of(store) == [0, 10, 40]

    def test_of_batches_that_were_written_in_part_knows_the_holes_and_epochs_of_those_that_are_there(self) -> None:
        store = Store()
        offsets = [5, 2**31 + 5, 2**32 + 5]
        batches = []
        for number, offset in enumerate(offsets):
            batch = new_batch(b"x")
            stamp(batch, offset, number)
            batches += split(batch)
        # Between two batches the index files of the segment before are written.
        store.memory.fail("pwritev", 7, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            store.log.append_replicated(batches, now_ms=NOW_MS)
        assert store.log.epochs.entries == ((0, 5), (1, 2**31 + 5))
        store.flush()
        store.reopen(clean=False)
        assert offsets_of(store) == offsets[:2]


class TestTheFile:
    def test_is_not_there_while_no_offset_is_missing(self) -> None:
        plain, other = Store(), Store()
        for number in range(5):
            plain.append(b"x")
            follow(other, number)
        plain.flush()
        other.flush()
        assert FILE_NAME not in other.names()
        assert other.memory.steps == plain.memory.steps

    def test_has_no_hole_that_lies_below_the_recovery_point(self) -> None:
        store = Store()
        follow(store, 1, 3)
        store.flush(save_recovery_points=True)
        follow(store, 5)
        store.flush()
        assert Holes(store.files, store.path, exists=True).entries == ((4, 5),)
        assert FILE_NAME in store.names()

    def test_is_written_by_flushes_that_have_a_new_hole_and_by_no_other(self) -> None:
        store = Store()
        follow(store, 0, 5)
        store.flush()
        before = store.memory.steps
        follow(store, 6)
        store.flush()
        assert store.memory.steps - before == 2, "a write and a sync"

    def test_that_is_damaged_is_reported_before_anything_is_cut(self) -> None:
        store = Store()
        follow(store, 0, 5)
        store.flush()
        store.memory.flip_bit(f"{store.path}/{FILE_NAME}", 20, 0)
        with pytest.raises(CorruptCheckpointError, match=FILE_NAME):
            store.reopen(clean=False)
        files = store.memory.copy()
        files.flip_bit(f"{store.path}/{FILE_NAME}", 20, 0)
        assert offsets_of(Store(files)) == [0, 5]

    def test_that_finds_no_room_keeps_the_log_from_counting_as_flushed_until_there_is_some(self) -> None:
        store = Store()
        other = store.other_log(1)
        follow(store, 0, 1)
        store.flush()
        follow(store, 5, 6, 9)
        store.memory.fail("open", 1, OSError(errno.ENOSPC, "no space"))
        store.flush()
        assert (store.log.failure, store.log.flushed_offset) == (None, 2)
        assert store.log.is_unflushed
        assert not store.directory.flusher.has_work, "no flush is begun for it alone, again and again"
        found = Store(store.memory.after_crash(Damage.ZERO_TAIL, random.Random(0)))
        assert offsets_of(found) == [0, 1]
        other.append(split(new_batch(b"x")), leader_epoch=0, now_ms=NOW_MS)
        store.flush()
        assert store.log.flushed_offset == 10
        found = Store(store.memory.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert offsets_of(found) == [0, 1, 5, 6, 9]

    def test_is_written_at_the_stop_if_there_was_no_room_before(self) -> None:
        store = Store()
        follow(store, 0)
        store.flush()
        follow(store, 5)
        store.memory.fail("open", 1, OSError(errno.ENOSPC, "no space"))
        store.flush()
        assert store.log.flushed_offset == 1
        store.reopen()
        assert store.directory.was_clean
        assert offsets_of(store) == [0, 5]

    def test_is_not_written_for_a_log_that_is_gone(self) -> None:
        files = MemoryFiles()
        files.make_directory("/log")
        holes = Holes(files, "/log", exists=False)
        holes.add(1, 3)
        holes.close()
        holes.save()
        assert files.list("/log") == []

    def test_that_is_saved_while_a_hole_is_added_is_saved_again(self) -> None:
        files = MemoryFiles()
        files.make_directory("/log")
        holes = Holes(files, "/log", exists=False)
        holes.add(1, 3)
        holes.save()
        assert holes.is_saved
        holes.add(5, 7)
        assert (holes.is_saved, holes.saved_up_to(9), holes.saved_up_to(5)) == (False, 5, 5)
        holes.save()
        assert holes.saved_up_to(9) == 9
        assert Holes(files, "/log", exists=True).entries == ((1, 3), (5, 7))


class TestAHoleThatWasPruned:
    """Below the recovery point any hole is accepted, so it need not be written down, until a cut lowers that point."""

    def prepared(self) -> Store:
        store = Store(config=LogConfig(index_interval_bytes=ONE))
        follow(store, 0, 2, 8, 9)
        store.flush(save_recovery_points=True)
        follow(store, 20)
        store.flush(save_recovery_points=True)
        return store

    @pytest.mark.parametrize("offset", [3, 9])
    def test_is_no_damage_when_a_cut_after_it_is_interrupted(self, offset: int) -> None:
        whole = self.prepared()
        before = whole.memory.steps
        whole.log.truncate(offset)
        for step in range(before + 1, whole.memory.steps + 1):
            for damage in Damage:
                store = self.prepared()
                store.memory.crash_at(step)
                with pytest.raises(Crashed):
                    store.log.truncate(offset)
                found = Store(store.memory.after_crash(damage, random.Random(step)), store.config)
                assert offsets_of(found)[:2] == [0, 2], f"call {step}, {damage}"

    @pytest.mark.parametrize("damage", Damage)
    def test_is_no_damage_when_what_follows_a_cut_is_torn(self, damage: Damage) -> None:
        for seed in range(20):
            store = self.prepared()
            store.log.truncate(9)
            follow(store, 9, 10, epoch=1)
            found = Store(store.memory.after_crash(damage, random.Random(seed)), store.config)
            assert offsets_of(found)[:3] == [0, 2, 8]
