"""The log against a list, and the promises that no list can show."""

import errno
import random
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.protocol.batch import split, stamp
from penstock.storage.errors import CorruptLogError, LogOfflineError, OffsetOutOfRangeError
from penstock.storage.files.memory import Damage, MemoryFiles
from penstock.storage.log.log import MAX_SEGMENT_BYTES, LogConfig
from penstock.storage.log.retention import DAY_MS
from penstock.storage.log.scan import Batch
from penstock.storage.log.segment import Segment
from tests.storage.programs import Program, check_reads
from tests.storage.store import (
    FOLDER,
    NOW_MS,
    Store,
    batches_of,
    claiming,
    contents,
    delete_expired,
    new_batch,
    read_one,
)

PROGRAMS = 2000
AT_ONCE = 50
ONE = len(new_batch(b"x"))
"""Bytes of a batch with one record of one byte."""


@pytest.mark.parametrize("first_seed", range(0, PROGRAMS, AT_ONCE))
def test_a_log_is_a_list_of_batches(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + AT_ONCE):
        program = Program(seed, MemoryFiles(seed=seed))
        try:
            program.open()
            for _ in range(30):
                program.step()
                check_reads(program.log, program.expected, random.Random(seed), rounds=2)
        except Exception as error:
            raise AssertionError(f"seed {seed}\n" + "\n".join(program.transcript)) from error


class TestAppending:
    def test_a_log_that_was_never_written_has_no_file_and_no_folder(self) -> None:
        store = Store()
        assert (store.log.start_offset, store.log.end_offset, store.log.size) == (0, 0, 0)
        assert store.log.read(0, max_bytes=100) is None
        assert store.log.find_timestamp(0) is None
        assert list(store.log.headers(0)) == []
        store.log.begin_epoch(3)
        store.log.truncate(0)
        store.log.advance_start(0)
        assert delete_expired(store.log, NOW_MS) == 0
        assert not store.log.roll_if_due(NOW_MS)
        store.reopen()
        assert not any(name.startswith("orders") for name in store.files.list(FOLDER))

    def test_the_first_append_makes_the_folder_and_the_file(self) -> None:
        store = Store()
        assert store.append(b"a") == 0
        assert store.names(".log") == ["00000000000000000000.log"]

    def test_an_epoch_that_began_before_the_first_append_is_there_after_it(self) -> None:
        store = Store()
        store.log.begin_epoch(3)
        store.append(b"a", epoch=3)
        store.reopen()
        assert store.log.epochs.entries == ((3, 0),)

    def test_batches_are_stamped_with_offset_and_epoch_and_written_as_they_came(self) -> None:
        store = Store()
        store.append(b"before")
        first, second = new_batch(b"a", b"b"), new_batch(b"c")
        arrived = bytes(first)
        assert store.log.append(split(first) + split(second), leader_epoch=7, now_ms=NOW_MS) == 1
        header, data = read_one(store.log, 2)
        assert (header.base_offset, header.leader_epoch) == (1, 7)
        assert data[16:] == arrived[16:]
        assert data == bytes(first)
        assert read_one(store.log, 3)[0].base_offset == 3
        assert store.log.end_offset == 4

    def test_several_batches_are_one_write(self) -> None:
        store = Store()
        store.append(b"first")
        writes = store.memory.steps
        store.log.append(split(new_batch(b"a") + new_batch(b"b") + new_batch(b"c")), leader_epoch=0, now_ms=NOW_MS)
        assert store.memory.steps == writes + 1

    def test_nothing_appended_changes_nothing(self) -> None:
        store = Store()
        assert store.log.append([], leader_epoch=0, now_ms=NOW_MS) == 0
        assert not store.directory.flusher.has_work
        assert store.names() == []

    def test_a_short_write_is_completed(self) -> None:
        store = Store()
        store.append(b"a")
        for size in (1, ONE // 2, ONE + 5):
            store.memory.short_write(1, size)
            store.log.append(split(new_batch(b"b") + new_batch(b"c")), leader_epoch=0, now_ms=NOW_MS)
        assert store.values() == [b"a"] + 3 * [b"b", b"c"]
        store.reopen(clean=False)
        assert store.values() == [b"a"] + 3 * [b"b", b"c"]
        assert store.report.cut_bytes == 0

    @pytest.mark.parametrize("written", [0, 1, ONE - 1, ONE, ONE + 1, 2 * ONE])
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_an_append_that_fails_in_the_middle_leaves_the_log_as_it_was(self, number: int, written: int) -> None:
        store = Store()
        store.append(b"a")
        before = contents(store.files, store.log.segments[0].path)
        store.memory.fail("pwritev", 1, OSError(number, "no"), after_bytes=written)
        with pytest.raises(OSError, match="no"):
            store.log.append(split(new_batch(b"b") + new_batch(b"c")), leader_epoch=5, now_ms=NOW_MS)
        assert contents(store.files, store.log.segments[0].path) == before
        assert (store.log.end_offset, store.log.size, store.log.epochs.latest) == (1, ONE, 0)
        assert store.append(b"d") == 1
        assert store.values() == [b"a", b"d"]
        store.reopen(clean=False)
        assert store.values() == [b"a", b"d"]

    def test_a_full_disk_leaves_the_log_as_it_was_and_room_lets_it_go_on(self) -> None:
        store = Store()
        store.append(b"a")
        used = (1 << 40) - store.files.free_bytes(FOLDER)
        store.memory.capacity = used + 50
        with pytest.raises(OSError, match="No space left"):
            store.append(b"b")
        assert store.log.failure is None
        assert store.values() == [b"a"]
        store.memory.capacity = None
        assert store.append(b"c") == 1
        assert store.values() == [b"a", b"c"]

    @pytest.mark.parametrize("call", ["make_directory", "open", "pwritev"])
    def test_a_first_append_that_fails_can_be_made_again(self, call: str) -> None:
        store = Store()
        store.memory.fail(call, 1, OSError(errno.ENOSPC, "full"))
        with pytest.raises(OSError, match="full"):
            store.append(b"a")
        assert store.values() == []
        assert store.append(b"b") == 0
        store.flush()
        store.files = store.memory.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        store.open()
        assert store.values() == [b"b"]

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("call", ["make_directory", "open", "pwritev"])
    def test_what_a_failed_first_append_left_is_durable_when_it_is_used_after_a_restart(
        self, call: str, clean: bool
    ) -> None:
        store = Store()
        store.memory.fail(call, 1, OSError(errno.ENOSPC, "full"))
        with pytest.raises(OSError, match="full"):
            store.append(b"a")
        store.reopen(clean=clean)
        store.append(b"b")
        store.flush()
        store.files = store.memory.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        store.open()
        assert store.values() == [b"b"]

    def test_a_write_that_cannot_be_cut_back_takes_the_log_offline_and_says_why(self) -> None:
        store = Store()
        store.append(b"a")
        store.flush()
        store.memory.fail("pwritev", 1, OSError(errno.EIO, "a broken disk"), after_bytes=30)
        store.memory.fail("truncate", 1, OSError(errno.EIO, "worse"))
        with pytest.raises(LogOfflineError, match=r"/data/orders-0 is offline after: .*a broken disk.*restart"):
            store.append(b"b")
        assert "could not be cut back" in str(store.log.failure)
        with pytest.raises(LogOfflineError):
            store.append(b"c")
        for change in (
            lambda: store.log.truncate(0),
            lambda: store.log.advance_start(1),
            lambda: store.log.begin_epoch(2),
            lambda: delete_expired(store.log, NOW_MS),
            lambda: store.log.save_snapshot(b"", version=1),
        ):
            with pytest.raises(LogOfflineError):
                change()
        assert store.values() == [b"a"], "what was there can be read"
        store.reopen()
        assert store.report.cut_bytes == 30
        assert store.append(b"d") == 1
        assert store.values() == [b"a", b"d"]

    @pytest.mark.parametrize("flushed", [True, False])
    @pytest.mark.parametrize("damage", Damage)
    def test_a_torn_write_that_was_cut_back_does_not_come_back_with_a_crash(
        self, damage: Damage, flushed: bool
    ) -> None:
        store = Store(config=LogConfig(segment_ms=1000))
        store.append(b"a")
        store.flush(save_recovery_points=True)
        store.memory.fail("pwritev", 1, OSError(errno.EIO, "broken"), after_bytes=30)
        with pytest.raises(OSError, match="broken"):
            store.append(b"b")
        store.append(b"c", now_ms=NOW_MS + 1000)
        assert len(store.log.segments) == 2
        if flushed:
            store.flush(save_recovery_points=True)
        for seed in range(10):
            found = Store(store.memory.after_crash(damage, random.Random(seed)), store.config)
            assert found.values() in ([[b"a", b"c"]] if flushed else [[b"a"], [b"a", b"c"]]), f"seed {seed}"

    def test_a_follower_keeps_the_offsets_and_epochs_of_its_leader(self) -> None:
        store = Store()
        batch = new_batch(b"a", b"b")
        stamp(batch, 100, 4)
        store.log.append_replicated(split(batch), now_ms=NOW_MS)
        header, _ = read_one(store.log, 101)
        assert (header.base_offset, header.leader_epoch) == (100, 4)
        assert (store.log.end_offset, store.log.epochs.entries) == (102, ((4, 100),))

    def test_a_follower_refuses_offsets_that_it_has_already_and_writes_none_of_them(self) -> None:
        store = Store()
        store.append(b"a", b"b")
        good, bad = new_batch(b"c"), new_batch(b"d")
        stamp(good, 2, 0)
        stamp(bad, 2, 0)
        with pytest.raises(OffsetOutOfRangeError):
            store.log.append_replicated(split(good + bad), now_ms=NOW_MS)
        assert store.values() == [b"a", b"b"]

    def test_a_configuration_that_no_segment_can_have_is_refused(self) -> None:
        for wrong in (0, -1, MAX_SEGMENT_BYTES + 1):
            with pytest.raises(ValueError, match=f"segment_bytes must be from 1 to {MAX_SEGMENT_BYTES}, not {wrong}"):
                LogConfig(segment_bytes=wrong)


class TestReading:
    def store(self) -> Store:
        """Batches at offsets 0, 1 to 3, 4, 5, all in one segment."""
        store = Store()
        for values in ([b"a"], [b"b", b"c", b"d"], [b"e"], [b"f"]):
            store.append(*values)
        return store

    def read(
        self, store: Store, offset: int, max_bytes: int = 10_000, bound: int | None = None, *, at_least_one: bool = True
    ) -> list[int] | None:
        """Base offsets of the batches."""
        found = store.log.read(offset, max_bytes=max_bytes, upper_bound=bound, at_least_one=at_least_one)
        if found is None:
            return None
        with found:
            batches = split(found.read())
            assert found.base_offset == batches[0][0].base_offset
            assert len(found) == sum(len(view) for _, view in batches)
            return [header.base_offset for header, _ in batches]

    @pytest.mark.parametrize("clean", [None, True, False])
    def test_a_read_begins_with_the_batch_that_holds_the_offset(self, clean: bool | None) -> None:
        store = self.store()
        if clean is not None:
            store.reopen(clean=clean)
        assert [self.read(store, offset) for offset in range(6)] == [
            [0, 1, 4, 5], [1, 4, 5], [1, 4, 5], [1, 4, 5], [4, 5], [5],
        ]  # fmt: skip

    def test_at_the_end_there_is_nothing(self) -> None:
        assert self.read(self.store(), 6) is None

    def test_only_whole_batches_are_read(self) -> None:
        store = self.store()
        three = len(new_batch(b"b", b"c", b"d"))
        assert self.read(store, 0, ONE) == [0]
        assert self.read(store, 0, ONE + three - 1) == [0]
        assert self.read(store, 0, ONE + three) == [0, 1]
        assert self.read(store, 0, ONE + three + ONE - 1) == [0, 1]

    def test_a_first_batch_that_is_too_large_comes_alone_or_not_at_all(self) -> None:
        store = self.store()
        for max_bytes in (0, 1, ONE - 1):
            assert self.read(store, 0, max_bytes) == [0]
            assert self.read(store, 0, max_bytes, at_least_one=False) is None
        assert self.read(store, 0, ONE, at_least_one=False) == [0]

    def test_nothing_is_read_at_or_above_the_upper_bound(self) -> None:
        store = self.store()
        assert [self.read(store, 0, bound=bound) for bound in range(8)] == [
            None, [0], [0], [0], [0, 1], [0, 1, 4], [0, 1, 4, 5], [0, 1, 4, 5],
        ]  # fmt: skip
        assert self.read(store, 1, bound=3) is None
        assert self.read(store, 4, bound=2) is None

    def test_a_read_stays_within_a_segment(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE))
        for _ in range(5):
            store.append(b"x")
        assert self.read(store, 0) == [0, 1]
        assert self.read(store, 3) == [3]
        assert self.read(store, 2, bound=5) == [2, 3]

    @pytest.mark.parametrize("offset", [-1, 1, 7, 2**40])
    def test_an_offset_out_of_range_tells_the_range(self, offset: int) -> None:
        store = self.store()
        store.log.advance_start(2)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            store.log.read(offset, max_bytes=100)
        assert (caught.value.offset, caught.value.start, caught.value.end) == (offset, 2, 6)

    def test_from_a_start_within_a_batch_the_whole_batch_is_read(self) -> None:
        store = self.store()
        store.log.advance_start(2)
        assert self.read(store, 2) == [1, 4, 5]

    def test_holes_are_passed_over(self) -> None:
        store = Store()
        for offset in (10, 11, 50, 90):
            batch = new_batch(b"x", b"y") if offset == 50 else new_batch(b"x")
            stamp(batch, offset, 0)
            store.log.append_replicated(split(batch), now_ms=NOW_MS)
        for _ in range(2):
            assert [self.read(store, offset, 1) for offset in (0, 10, 11, 12, 49, 50, 51, 52, 90)] == [
                [10], [10], [11], [50], [50], [50], [50], [90], [90],
            ]  # fmt: skip
            assert self.read(store, 12, bound=52) == [50]
            assert self.read(store, 12, bound=60) == [50]
            store.reopen()

    def test_a_timestamp_is_found_in_the_first_batch_that_reaches_it(self) -> None:
        store = Store(config=LogConfig(segment_bytes=3 * ONE, index_interval_bytes=ONE))
        times = [100, 300, 200, 200, 500, 400, 600, 600]
        for time in times:
            store.append(b"x", timestamp=time)
        for _ in range(2):
            for time in range(50, 650, 50):
                found = store.log.find_timestamp(time)
                want = next((number for number, other in enumerate(times) if other >= time), None)
                assert (found and found.base_offset) == want, f"time {time}"
            assert store.log.max_timestamp == 600
            store.reopen()

    def test_a_timestamp_is_looked_for_from_the_start_of_the_log_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = Store(config=LogConfig(index_interval_bytes=10 * ONE))
        for _ in range(500):
            store.append(b"x", timestamp=100)
        store.log.advance_start(480)
        walked: list[int] = []
        batches = Segment.batches

        def counting(*args: Any, **options: Any) -> Iterator[Batch]:
            for batch in batches(*args, **options):
                walked.append(batch.header.base_offset)
                yield batch

        monkeypatch.setattr(Segment, "batches", counting)
        found = store.log.find_timestamp(50)
        assert found is not None
        assert found.base_offset == 480
        assert len(walked) <= 11

    def test_a_timestamp_is_not_found_before_the_start_or_above_the_bound(self) -> None:
        store = Store()
        for time in (100, 200, 300):
            store.append(b"x", timestamp=time)
        store.log.advance_start(1)
        found = store.log.find_timestamp(50)
        assert found is not None
        assert found.base_offset == 1
        assert store.log.find_timestamp(250, upper_bound=2) is None
        assert store.log.find_timestamp(250, upper_bound=3) is not None

    def test_a_header_is_found_where_there_is_no_disk_to_wait_for(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE))
        for _ in range(5):
            store.append(b"x")
        last = store.log.find_cached(4)
        assert last is not None
        assert last.base_offset == 4
        assert store.log.find_cached(5) is None, "that is the end"
        store.log.advance_start(2)
        assert store.log.find_cached(1) is None, "that is gone"
        store.reopen()
        assert store.log.find_cached(2) is None, "the index of a closed segment is not loaded for it"
        read_one(store.log, 2)
        header = store.log.find_cached(2)
        assert header is not None
        assert header.base_offset == 2


class TestRolling:
    def test_a_segment_that_would_grow_too_large_is_closed(self) -> None:
        store = Store(config=LogConfig(segment_bytes=3 * ONE))
        for _ in range(7):
            store.append(b"x")
        assert [(segment.base_offset, segment.size) for segment in store.log.segments] == [
            (0, 3 * ONE), (3, 3 * ONE), (6, ONE),
        ]  # fmt: skip
        assert store.names(".log") == [f"{base:020}.log" for base in (0, 3, 6)]

    def test_an_append_of_several_batches_is_not_torn_apart(self) -> None:
        store = Store(config=LogConfig(segment_bytes=3 * ONE))
        store.append(b"x")
        store.log.append(split(new_batch(b"x") * 3), leader_epoch=0, now_ms=NOW_MS)
        assert [segment.base_offset for segment in store.log.segments] == [0, 1]

    def test_an_append_larger_than_a_segment_has_one_to_itself(self) -> None:
        store = Store(config=LogConfig(segment_bytes=ONE // 2))
        for _ in range(3):
            store.append(b"x")
        assert [segment.base_offset for segment in store.log.segments] == [0, 1, 2]

    def test_a_segment_that_is_too_old_is_closed_by_the_next_append(self) -> None:
        store = Store(config=LogConfig(segment_ms=1000))
        store.append(b"a", now_ms=NOW_MS)
        store.append(b"b", now_ms=NOW_MS + 999)
        assert len(store.log.segments) == 1
        store.append(b"c", now_ms=NOW_MS + 1000)
        assert [segment.base_offset for segment in store.log.segments] == [0, 2]

    def test_an_idle_segment_is_closed_by_the_clock(self) -> None:
        store = Store(config=LogConfig(segment_ms=1000))
        assert not store.log.roll_if_due(NOW_MS + 10**9), "there is nothing to close"
        store.append(b"a", now_ms=NOW_MS)
        assert not store.log.roll_if_due(NOW_MS + 999)
        assert store.log.roll_if_due(NOW_MS + 1000)
        assert not store.log.roll_if_due(NOW_MS + 10**9)
        assert [segment.base_offset for segment in store.log.segments] == [0, 1]
        assert store.names(".log") == ["00000000000000000000.log"], "the next file comes with the next append"
        assert store.append(b"b") == 1

    def test_the_age_of_a_segment_survives_a_clean_stop(self) -> None:
        store = Store(config=LogConfig(segment_ms=1000))
        store.append(b"a", now_ms=NOW_MS)
        store.reopen()
        assert not store.log.roll_if_due(NOW_MS + 999)
        assert store.log.roll_if_due(NOW_MS + 1000)

    def test_offsets_that_an_index_cannot_hold_begin_a_segment(self) -> None:
        store = Store()
        store.append(b"a")
        batch = new_batch(b"b")
        stamp(batch, 2**31 - 1, 0)
        store.log.append_replicated(split(batch), now_ms=NOW_MS)
        assert [segment.base_offset for segment in store.log.segments] == [0, 1]

    def test_batches_that_together_claim_more_offsets_than_a_segment_has_go_into_several(self) -> None:
        store = Store()
        store.append(b"a")
        large = 2**30
        batches = [split(claiming(new_batch(b"x"), large))[0] for _ in range(5)]
        assert store.log.append(batches, leader_epoch=0, now_ms=NOW_MS) == 1
        assert [segment.base_offset for segment in store.log.segments] == [0, *(1 + n * large for n in range(1, 5))]
        store.append(b"z")
        store.flush(save_recovery_points=True)
        for clean in (True, False):
            store.reopen(clean=clean)
            assert store.log.end_offset == 5 * large + 2
            assert [read_one(store.log, 1 + number * large)[0].record_count for number in range(5)] == [large] * 5

    def test_of_batches_that_go_into_several_segments_those_before_an_error_are_there(self) -> None:
        store = Store()
        store.append(b"a")
        large = 2**31 - 1
        batches = [split(claiming(new_batch(b"x" * 10_000), large))[0] for _ in range(3)]
        store.memory.capacity = (1 << 40) - store.files.free_bytes(FOLDER) + 25_000
        with pytest.raises(OSError, match="No space left"):
            store.log.append(batches, leader_epoch=0, now_ms=NOW_MS)
        assert store.log.end_offset == 1 + 2 * large
        store.memory.capacity = None
        assert store.append(b"a") == 1 + 2 * large


class TestTruncation:
    def store(self) -> Store:
        """Batches at 0, 1 to 2 | 3, 4 to 5 | 6; one epoch for each segment."""
        store = Store(config=LogConfig(segment_bytes=2 * ONE + 10))
        for epoch, values in [(0, [b"a"]), (0, [b"b", b"c"]), (1, [b"d"]), (1, [b"e", b"f"]), (2, [b"g"])]:
            store.append(*values, epoch=epoch)
        assert [segment.base_offset for segment in store.log.segments] == [0, 3, 6]
        return store

    @pytest.mark.parametrize(
        ("offset", "end", "epochs"),
        [
            (7, 7, ((0, 0), (1, 3), (2, 6))),
            (6, 6, ((0, 0), (1, 3))),
            (5, 4, ((0, 0), (1, 3))),
            (4, 4, ((0, 0), (1, 3))),
            (3, 3, ((0, 0),)),
            (2, 1, ((0, 0),)),
            (1, 1, ((0, 0),)),
            (0, 0, ()),
        ],
    )
    @pytest.mark.parametrize("flushed", [True, False])
    @pytest.mark.parametrize("damage", [None, *Damage])
    def test_the_log_ends_before_the_batch_that_holds_the_offset_whatever_happens_then(
        self, offset: int, end: int, epochs: tuple[tuple[int, int], ...], flushed: bool, damage: Damage | None
    ) -> None:
        store = self.store()
        if flushed:
            store.flush(save_recovery_points=True)
        store.log.truncate(offset)
        assert (store.log.end_offset, store.log.epochs.entries) == (end, epochs)
        if damage is not None:
            store.files = store.memory.after_crash(damage, random.Random(1))
            store.open()
            assert store.log.end_offset == end if flushed else store.log.end_offset <= end
        values = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"][: store.log.end_offset]
        assert store.values() == values
        store.append(b"new", epoch=5)
        assert store.values() == [*values, b"new"]
        assert store.log.epochs.latest == 5

    def test_beyond_the_end_nothing_is_cut_and_below_the_start_nothing_can_be(self) -> None:
        store = self.store()
        store.log.truncate(100)
        assert store.log.end_offset == 7
        store.log.advance_start(2)
        with pytest.raises(OffsetOutOfRangeError):
            store.log.truncate(1)

    def test_what_lies_before_the_start_is_no_end(self) -> None:
        store = self.store()
        store.log.advance_start(2)
        store.log.truncate(2)
        assert (store.log.start_offset, store.log.end_offset) == (2, 2)
        assert store.append(b"new") == 2
        assert store.values() == [b"new"]

    def test_a_truncation_that_fails_takes_the_log_offline(self) -> None:
        for call in ("truncate", "sync", "unlink", "sync_directory", "rename"):
            store = self.store()
            store.flush(save_recovery_points=True)
            store.memory.fail(call, 1, OSError(errno.EIO, "broken"))
            with pytest.raises(LogOfflineError, match="broken"):
                store.log.truncate(1)
            with pytest.raises(LogOfflineError):
                store.append(b"x")
            store.reopen()
            assert store.values() == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"][: store.log.end_offset]
            assert store.log.end_offset >= 1

    def test_a_truncation_that_finds_corruption_takes_the_log_offline_and_keeps_what_lies_before(self) -> None:
        store = Store(config=LogConfig(index_interval_bytes=3 * ONE))
        for _ in range(8):
            store.append(b"x")
        store.flush(save_recovery_points=True)
        path = store.log.segments[0].path
        # The cut is found from the index entry at 3, but the index is made anew from the one before.
        store.memory.flip_bit(path, ONE + 16, 0)
        with pytest.raises(LogOfflineError, match="there is no batch here"):
            store.log.truncate(3)
        with pytest.raises(LogOfflineError):
            store.append(b"y")
        assert len(contents(store.files, path)) >= 3 * ONE
        store.stop()
        with pytest.raises(CorruptLogError):
            store.open()

    def test_an_offline_log_still_tells_where_it_ends(self) -> None:
        store = self.store()
        store.memory.fail("unlink", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(LogOfflineError, match="broken"):
            store.log.truncate(0)
        assert store.log.end_offset == 0
        with pytest.raises(LogOfflineError):
            store.append(b"x")

    def test_a_batch_read_before_a_truncation_is_not_taken_for_what_came_after(self) -> None:
        store = self.store()
        store.reopen()
        store.values()
        store.log.truncate(1)
        store.append(b"new")
        assert store.values() == [b"a", b"new"]


class TestHistory:
    def test_whole_files_are_dropped_and_the_rest_is_out_of_reach(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE))
        for number in range(7):
            store.append(b"%d" % number)
        store.log.advance_start(3)
        assert store.names(".log") == [f"{base:020}.log" for base in (2, 4, 6)]
        assert store.log.start_offset == 3
        assert store.values() == [b"3", b"4", b"5", b"6"]
        with pytest.raises(OffsetOutOfRangeError):
            store.log.read(2, max_bytes=100)

    def test_everything_can_be_deleted_and_offsets_go_on(self) -> None:
        store = Store()
        store.append(b"a", b"b")
        store.log.advance_start(2)
        assert store.names(".log") == []
        assert store.values() == []
        store.reopen()
        assert (store.log.start_offset, store.log.end_offset) == (2, 2)
        assert store.append(b"c") == 2
        store.reopen(clean=False)
        assert store.values() == [b"c"]

    def test_the_start_does_not_go_beyond_the_end(self) -> None:
        store = Store()
        store.append(b"a")
        with pytest.raises(OffsetOutOfRangeError):
            store.log.advance_start(2)
        assert store.log.start_offset == 0

    def test_the_start_never_goes_back(self) -> None:
        store = Store()
        for _ in range(5):
            store.append(b"x")
        store.log.advance_start(3)
        store.log.advance_start(1)
        assert store.log.start_offset == 3
        for clean in (True, False):
            store.reopen(clean=clean)
            assert store.log.start_offset == 3

    @pytest.mark.parametrize("damage", Damage)
    @pytest.mark.parametrize("start", [1, 2, 4, 5])
    def test_a_start_that_was_told_survives_a_crash(self, start: int, damage: Damage) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE))
        for number in range(5):
            store.append(b"%d" % number)
        store.flush()
        store.log.advance_start(start)
        for seed in range(10):
            found = Store(store.memory.after_crash(damage, random.Random(seed)), store.config)
            assert (found.log.start_offset, found.log.end_offset) == (start, 5), f"seed {seed}"
            assert found.append(b"5") == 5
            assert found.values() == [b"%d" % number for number in range(start, 6)], f"seed {seed}"

    @pytest.mark.parametrize("call", ["open", "pwritev", "sync", "rename", "sync_directory"])
    def test_a_start_that_could_not_be_saved_does_no_harm(self, call: str) -> None:
        store = Store()
        for number in range(10):
            store.append(b"%d" % number)
        store.flush(save_recovery_points=True)
        store.memory.fail(call, 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            store.log.advance_start(8)
        assert store.log.start_offset == 0
        store.log.truncate(4)
        store.append(b"new")
        store.flush()
        store.files = store.memory.after_crash(Damage.ZERO_TAIL, random.Random(0))
        store.open()
        assert store.values() == [b"0", b"1", b"2", b"3", b"new"]

    def test_old_segments_go_when_they_are_seven_days_old(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE))
        for day in range(10):
            store.append(b"%d" % day, now_ms=NOW_MS + day * DAY_MS)
        store.flush()
        assert delete_expired(store.log, NOW_MS + 8 * DAY_MS) == 0
        assert delete_expired(store.log, NOW_MS + 8 * DAY_MS + 1) == 1
        assert store.log.start_offset == 2
        assert delete_expired(store.log, NOW_MS + 12 * DAY_MS + 1) == 2
        assert store.values() == [b"6", b"7", b"8", b"9"]

    def test_an_idle_log_is_emptied(self) -> None:
        store = Store()
        store.append(b"a")
        store.flush()
        assert delete_expired(store.log, NOW_MS + 7 * DAY_MS) == 0
        assert delete_expired(store.log, NOW_MS + 7 * DAY_MS + 1) == 1
        assert (store.log.start_offset, store.log.end_offset) == (1, 1)
        assert store.names(".log") == []

    def test_by_size_the_log_is_a_ring(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE, retention_bytes=5 * ONE))
        for number in range(50):
            store.append(b"%d" % (number % 10))
            store.flush()
            delete_expired(store.log, NOW_MS)
            assert store.log.size <= 7 * ONE
            assert store.log.size >= min(number + 1, 5) * ONE
        assert store.log.end_offset == 50
        assert len(store.names(".log")) <= 4

    def test_retention_takes_only_what_lies_below_the_bound_and_is_flushed(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE, retention_ms=0))
        for _ in range(6):
            store.append(b"x")
        later = NOW_MS + 1
        assert delete_expired(store.log, later) == 0, "nothing is flushed"
        store.flush()
        assert delete_expired(store.log, later, upper_bound=1) == 0
        assert delete_expired(store.log, later, upper_bound=3) == 1
        assert store.log.start_offset == 2
        assert delete_expired(store.log, later, upper_bound=6) == 2
        assert (store.log.start_offset, store.log.end_offset) == (6, 6)

    def test_records_without_timestamps_are_as_old_as_their_file(self) -> None:
        now = [NOW_MS]
        store = Store(MemoryFiles(now_ms=lambda: now[0]))
        store.append(b"x", timestamp=-1)
        store.flush()
        assert delete_expired(store.log, NOW_MS + 7 * DAY_MS) == 0
        assert delete_expired(store.log, NOW_MS + 7 * DAY_MS + 1) == 1

    def test_a_damaged_segment_without_an_index_goes_when_its_file_is_old_enough(self) -> None:
        now = [NOW_MS]
        files = MemoryFiles(now_ms=lambda: now[0])
        store = Store(files, LogConfig(segment_bytes=2 * ONE, retention_ms=1000))
        for _ in range(5):
            store.append(b"x", timestamp=NOW_MS - 500)
        store.stop()
        files.flip_bit(f"{store.path}/00000000000000000000.log", ONE + 16, 2)
        for name in store.names("index"):
            files.unlink(f"{store.path}/{name}")
        store.open()
        with pytest.raises(CorruptLogError):
            store.log.read(0, max_bytes=2 * ONE)
        assert delete_expired(store.log, NOW_MS + 501) == 0, "the damaged one comes first, and was written just now"
        assert delete_expired(store.log, NOW_MS + 1001) == 3
        assert (store.log.start_offset, store.log.end_offset) == (5, 5)

    def test_on_a_full_disk_indexes_make_room_for_the_new_start(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE))
        for number in range(5):
            store.append(b"%d" % number)
        store.flush()
        assert store.names("index")
        store.memory.capacity = (1 << 40) - store.memory.free_bytes(FOLDER)
        store.log.advance_start(2)
        assert not store.names("index")
        assert store.values() == [b"2", b"3", b"4"]
        store.files = store.memory.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        store.open()
        assert store.values() == [b"2", b"3", b"4"]

    def test_on_a_full_disk_without_an_index_the_start_stays(self) -> None:
        store = Store()
        for number in range(5):
            store.append(b"%d" % number)
        store.flush()
        store.memory.capacity = (1 << 40) - store.memory.free_bytes(FOLDER)
        with pytest.raises(OSError, match="No space left"):
            store.log.advance_start(2)
        assert store.log.failure is None
        store.memory.capacity = None
        store.log.advance_start(2)
        assert store.values() == [b"2", b"3", b"4"]

    def test_epochs_of_what_was_deleted_are_forgotten(self) -> None:
        store = Store(config=LogConfig(segment_bytes=2 * ONE))
        for epoch in range(6):
            store.append(b"x", epoch=epoch)
        store.log.advance_start(4)
        store.reopen()
        assert store.log.epochs.entries == ((4, 4), (5, 5))


class TestEpochs:
    def test_an_election_is_durable_with_the_next_flush_though_nobody_appends(self) -> None:
        store = Store()
        store.append(b"a", epoch=1)
        store.flush()
        assert not store.directory.flusher.has_work
        store.log.begin_epoch(6)
        store.flush()
        for damage in Damage:
            found = Store(store.memory.after_crash(damage, random.Random(0)))
            assert found.log.epochs.entries == ((1, 0), (6, 1))

    def test_an_epoch_that_has_begun_already_is_nothing_to_flush(self) -> None:
        store = Store()
        store.append(b"a", epoch=1)
        store.flush()
        store.log.begin_epoch(1)
        assert not store.directory.flusher.has_work

    def test_replicas_find_where_their_logs_part(self) -> None:
        store = Store()
        store.append(b"a", b"b", epoch=1)
        store.append(b"c", epoch=3)
        store.reopen(clean=False)
        assert store.log.epochs.end_offset(1, store.log.end_offset) == (1, 2)
        assert store.log.epochs.end_offset(2, store.log.end_offset) == (1, 2)
        assert store.log.epochs.end_offset(3, store.log.end_offset) == (3, 3)

    def test_the_epoch_of_the_last_record_is_not_that_of_an_election_after_it(self) -> None:
        store = Store()
        assert store.log.last_record_epoch == -1
        store.log.begin_epoch(2)
        assert store.log.last_record_epoch == -1, "an election is no record"
        store.append(b"a", b"b", epoch=2)
        store.append(b"c", epoch=4)
        store.log.begin_epoch(9)
        for clean in (True, False):
            assert (store.log.last_record_epoch, store.log.epochs.latest) == (4, 9)
            store.flush()
            store.reopen(clean=clean)
        store.log.truncate(2)
        assert store.log.last_record_epoch == 2
        store.log.advance_start(2)
        assert store.log.last_record_epoch == -1, "the records are deleted"

    @pytest.mark.parametrize("offset", [2, 50])
    @pytest.mark.parametrize("is_saved", [True, False])
    def test_truncation_to_the_end_forgets_elections_without_a_record_durably(
        self, offset: int, is_saved: bool
    ) -> None:
        store = Store()
        store.append(b"a", epoch=0)
        store.append(b"b", epoch=1)
        store.flush()
        store.log.begin_epoch(7)
        if is_saved:
            store.flush()
        store.log.truncate(offset)
        assert store.log.epochs.entries == ((0, 0), (1, 1))
        for damage in Damage:
            found = Store(store.memory.after_crash(damage, random.Random(0)))
            assert found.log.epochs.entries == ((0, 0), (1, 1))
            assert found.values() == [b"a", b"b"]

    def test_a_flush_that_is_under_way_does_not_save_an_election_that_a_truncation_has_forgotten(self) -> None:
        store = Store()
        store.append(b"a", epoch=1)
        store.flush()
        store.log.begin_epoch(7)
        under_way = store.directory.flusher.begin()
        store.log.truncate(1)
        under_way.sync()
        store.directory.flusher.end(under_way)
        found = Store(store.memory.after_crash(Damage.ZERO_TAIL, random.Random(0)))
        assert found.log.epochs.entries == ((1, 0),)

    def test_truncation_to_the_end_writes_nothing_if_it_forgets_nothing(self) -> None:
        store = Store()
        store.log.begin_epoch(1)
        store.log.truncate(0)
        assert store.log.epochs.entries == ()
        assert store.names() == [], "there is no folder yet, and none is made"
        store.append(b"a", epoch=3)
        store.flush()
        steps = store.memory.steps
        store.log.truncate(1)
        assert store.memory.steps == steps

    def test_a_log_whose_elections_could_not_be_forgotten_is_offline(self) -> None:
        store = Store()
        store.append(b"a", epoch=1)
        store.log.begin_epoch(7)
        store.flush()
        store.memory.fail("rename", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(LogOfflineError):
            store.log.truncate(1)
        with pytest.raises(LogOfflineError):
            store.append(b"b", epoch=8)

    def test_after_a_cut_no_epoch_begins_at_the_new_end_or_after_it(self) -> None:
        for offset in range(7):
            store = Store(config=LogConfig(segment_bytes=3 * ONE))
            for number in range(6):
                store.append(b"%d" % number, epoch=number)
            store.log.begin_epoch(9)
            store.log.truncate(offset)
            assert store.log.epochs.entries == tuple((number, number) for number in range(offset))
            store.reopen(clean=False)
            assert store.log.epochs.entries == tuple((number, number) for number in range(offset))


class CountedReads(MemoryFiles):
    """Counts how often bytes are read."""

    reads = 0

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.reads += 1
        return super().pread(fd, size, position)


class TestAReaderThatGoesOn:
    """From where its last read ended; no header is looked at where a remembered position and the index say enough."""

    def store(self, count: int, *, value: bytes = b"x", interval: int = 4096) -> tuple[Store, CountedReads, int]:
        files = CountedReads()
        store = Store(files, LogConfig(index_interval_bytes=interval))
        for _ in range(count):
            store.append(value)
        return store, files, store.log.size // max(1, count)

    def read(self, store: Store, offset: int, max_bytes: int = 100_000, bound: int | None = None) -> bytes:
        found = store.log.locate(offset, max_bytes=max_bytes, upper_bound=bound)
        assert found is not None
        with found:
            assert found.base_offset == offset
            return found.segment.read(found.position, found.length)

    def test_finds_the_newest_batch_without_a_look_at_its_header(self) -> None:
        store, files, _ = self.store(3)
        self.read(store, 0)
        for number in range(100):
            offset = store.append(b"%d" % number)
            files.reads = 0
            data = self.read(store, offset)
            assert (files.reads, len(split(data)), split(data)[0][0].base_offset) == (1, 1, offset)

    def test_ends_at_what_is_flushed_without_a_look_at_a_header(self) -> None:
        store, files, one = self.store(3)
        store.flush()
        self.read(store, 0, bound=3)
        for _ in range(5):
            offset = store.append(b"y")
            store.flush()
            store.append(b"not flushed")
            files.reads = 0
            assert len(self.read(store, offset, bound=store.log.flushed_offset)) == one
            assert files.reads == 1
            self.read(store, store.log.flushed_offset)

    def test_ends_where_the_index_says_that_a_batch_begins(self) -> None:
        store, files, one = self.store(40, value=bytes(1000), interval=1)
        self.read(store, 0, max_bytes=4 * one)
        for offset in range(4, 40, 4):
            files.reads = 0
            data = self.read(store, offset, max_bytes=4 * one + one // 3)
            assert (files.reads, [header.base_offset for header, _ in split(data)]) == (
                1,
                list(range(offset, offset + 4)),
            )

    def test_reads_headers_where_the_index_would_leave_out_much(self) -> None:
        store, files, one = self.store(400, interval=8 * 1024)
        self.read(store, 0, max_bytes=10 * one)
        for offset in range(10, 390, 10):
            files.reads = 0
            data = self.read(store, offset, max_bytes=10 * one + one // 3)
            assert (files.reads, [header.base_offset for header, _ in split(data)]) == (
                2,
                list(range(offset, offset + 10)),
            )

    @pytest.mark.parametrize("interval", [1, 200, 4096])
    @pytest.mark.parametrize("max_bytes", [1, 150, 1000, 3333])
    def test_reads_every_batch_once_whatever_it_asks_for(self, interval: int, max_bytes: int) -> None:
        store, _, _ = self.store(0, interval=interval)
        for number in range(200):
            store.append(bytes(number * 7 % 90))
        headers = [header.base_offset for header, _ in batches_of(store.log, max_bytes=max_bytes)]
        assert headers == list(range(200))
        store.reopen()
        assert [header.base_offset for header, _ in batches_of(store.log, max_bytes=max_bytes)] == list(range(200))

    def test_finds_no_position_from_before_a_truncation(self) -> None:
        store, _, _ = self.store(10)
        self.read(store, 0)
        self.read(store, 0, max_bytes=300)
        store.log.truncate(5)
        store.append(b"longer than before")
        assert split(self.read(store, 5))[0][0].base_offset == 5
        for _ in range(5):
            store.append(b"a", b"b")
        assert split(self.read(store, 10))[0][0].base_offset == 10

    def test_finds_the_batch_after_a_hole_that_the_leader_has(self) -> None:
        store, _, _ = self.store(3)
        self.read(store, 0)
        batch = new_batch(b"after a hole")
        stamp(batch, 7, 0)
        store.log.append_replicated(split(batch), now_ms=NOW_MS)
        found = store.log.locate(3, max_bytes=1000)
        assert found is not None
        with found:
            assert found.base_offset == 7

    def test_looks_at_headers_of_what_another_process_has_written(self) -> None:
        store, _, one = self.store(40)
        store.reopen()
        for offset in (0, 4):
            self.read(store, offset, max_bytes=4 * one)
        (segment,) = store.log.segments
        with segment.hold():
            assert segment.stretch(8, 4 * one, 40) is None
            assert segment.find(8, is_held=True).position == 8 * one
