"""One file of a log: written whole or not at all, found through its index, checked before it is believed."""

import errno

import pytest

from penstock.protocol.batch import BatchHeader, split, stamp
from penstock.storage.errors import CorruptLogError
from penstock.storage.files.descriptors import Descriptors
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.index import OFFSET_INDEX, SegmentIndex
from penstock.storage.log.index_cache import IndexCache
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log import LogConfig
from penstock.storage.log.segment import CutBackError, Segment, SegmentContext
from tests.storage.store import NOW_MS, Store, contents, new_batch, overwrite

ONE = len(new_batch(b"x"))
BASE = 100


class Bench:
    """A segment that begins at offset 100, outside of any log."""

    def __init__(self, interval: int = 4096) -> None:
        self.files = MemoryFiles(now_ms=lambda: 12_345)
        self.files.make_directory("/log")
        self.descriptors = Descriptors(self.files, limit=10)
        self.context = SegmentContext(self.files, self.descriptors, IndexCache(), interval)
        self.segment = self.new_segment()
        self.epochs = LeaderEpochs(self.files, "/log/leader-epochs")

    def new_segment(self) -> Segment:
        return Segment(self.context, "/log", BASE)

    def append(self, *batches: bytearray) -> None:
        pairs: list[tuple[BatchHeader, memoryview]] = []
        offset = self.segment.end_offset
        for batch in batches:
            stamp(batch, offset, 0)
            pairs += split(batch)
            offset = pairs[-1][0].next_offset
        size = sum(len(batch) for batch in batches)
        placed = [(header.base_offset, header) for header, _ in pairs]
        self.segment.append(placed, [view for _, view in pairs], size, pairs[-1][0].next_offset, NOW_MS)

    def reopen(self, *, forget_index: bool = False) -> None:
        """As a closed segment."""
        self.segment.close_index()
        self.segment.drop()
        old, self.segment = self.segment, self.new_segment()
        if forget_index:
            old.remove_index_files()
        self.context.indexes.forget(old.stem)
        self.segment.open_closed(old.size, old.end_offset)


def test_a_segment_is_named_by_its_base_offset_and_has_no_file_before_the_first_append() -> None:
    bench = Bench()
    assert bench.segment.path == "/log/00000000000000000100.log"
    assert (bench.segment.exists, bench.segment.size, bench.segment.end_offset) == (False, 0, 100)
    assert bench.files.list("/log") == []
    bench.append(new_batch(b"x"))
    assert bench.files.list("/log") == ["00000000000000000100.log"]
    assert (bench.segment.exists, bench.segment.size, bench.segment.end_offset) == (True, ONE, 101)


def test_what_a_crash_left_under_its_name_is_not_continued() -> None:
    bench = Bench()
    overwrite(bench.files, bench.segment.path, b"left over" * 100)
    bench.append(new_batch(b"x"))
    assert len(contents(bench.files, bench.segment.path)) == ONE


def test_a_file_that_cannot_be_cut_back_is_told_apart_from_one_that_is_as_it_was() -> None:
    bench = Bench()
    bench.append(new_batch(b"x"))
    bench.files.fail("pwritev", 1, OSError(errno.ENOSPC, "full"), after_bytes=10)
    with pytest.raises(OSError, match="full") as caught:
        bench.append(new_batch(b"y"))
    assert not isinstance(caught.value, CutBackError)
    assert len(contents(bench.files, bench.segment.path)) == bench.segment.size == ONE
    bench.files.fail("pwritev", 1, OSError(errno.EIO, "broken"), after_bytes=10)
    bench.files.fail("truncate", 1, OSError(errno.EIO, "broken too"))
    with pytest.raises(CutBackError, match=f"could not be cut back to byte {ONE} after: .*broken"):
        bench.append(new_batch(b"y"))


def test_an_index_entry_comes_with_every_so_many_bytes() -> None:
    bench = Bench(interval=3 * ONE)
    for _ in range(8):
        bench.append(new_batch(b"x"))
    assert [bench.segment.index.floor(offset) for offset in range(8)] == [
        (0, 0), (0, 0), (0, 0), (3, 3 * ONE), (3, 3 * ONE), (3, 3 * ONE), (6, 6 * ONE), (6, 6 * ONE),
    ]  # fmt: skip


def test_the_index_of_a_closed_segment_ends_where_its_batches_end() -> None:
    bench = Bench()
    for _ in range(5):
        bench.append(new_batch(b"x", b"y"))
    bench.segment.close_index()
    index = SegmentIndex.load(bench.files, bench.segment.stem, BASE)
    assert index is not None
    assert index.ends_at(10, bench.segment.size)
    assert index.created_ms == NOW_MS
    assert index.max_timestamp == NOW_MS


def test_an_index_that_cannot_be_saved_is_no_harm() -> None:
    for call in ("open", "pwritev", "truncate"):
        bench = Bench()
        bench.append(new_batch(b"x"))
        bench.files.fail(call, 1, OSError(errno.ENOSPC, "full"))
        bench.segment.close_index()
        bench.reopen()
        assert bench.segment.find(BASE).header.base_offset == BASE
        assert bench.segment.max_timestamp == NOW_MS


def test_an_index_grows_on_disk_with_the_log_so_that_a_crash_costs_little() -> None:
    store = Store()
    value = bytes(1024 * 1024)
    # Every few megabytes, but at most once a second.
    for number in range(40):
        store.append(value, now_ms=NOW_MS + 500 * number)
    store.flush(save_recovery_points=True)
    store.reopen(clean=False)
    assert store.report.scanned_bytes < 18 * 1024 * 1024 < store.log.size
    assert store.log.end_offset == 40


class TestFinding:
    @pytest.mark.parametrize("interval", [1, 2 * ONE, 100_000])
    @pytest.mark.parametrize("reopened", [False, True])
    def test_the_batch_that_holds_an_offset_is_found(self, interval: int, reopened: bool) -> None:
        bench = Bench(interval)
        for count in (1, 3, 1, 2, 5, 1):
            bench.append(new_batch(*[b"x"] * count))
        if reopened:
            bench.reopen()
        found = [bench.segment.find(BASE + offset).header.base_offset - BASE for offset in range(13)]
        assert found == [0, 1, 1, 1, 4, 5, 5, 7, 7, 7, 7, 7, 12]

    def test_an_index_with_a_wrong_entry_is_made_anew(self) -> None:
        bench = Bench(interval=2 * ONE)
        for _ in range(10):
            bench.append(new_batch(b"x"))
        bench.reopen()
        wrong = SegmentIndex(NOW_MS)
        for relative, position in [(0, 0), (3, 4 * ONE), (7, 7 * ONE - 5), (10, 10 * ONE)]:
            wrong.add(relative, position, NOW_MS)
        bench.segment.remove_index_files()
        wrong.save(bench.files, bench.segment.stem, BASE)
        for offset in range(10):
            assert bench.segment.find(BASE + offset).position == offset * ONE
        index = SegmentIndex.load(bench.files, bench.segment.stem, BASE)
        assert index is not None
        assert index.floor(3) == (2, 2 * ONE)

    def test_an_index_that_is_gone_is_made_anew_when_it_is_needed(self) -> None:
        bench = Bench()
        for number in range(10):
            bench.append(new_batch(b"x", timestamp=1000 + number))
        bench.reopen(forget_index=True)
        assert bench.segment.max_timestamp == 1009
        assert [batch.header.base_offset for batch in bench.segment.batches_since(1007)] == [107, 108, 109]
        assert bench.segment.stem + OFFSET_INDEX in [f"/log/{name}" for name in bench.files.list("/log")]

    def test_the_age_of_a_file_without_an_index_is_that_of_its_last_write(self) -> None:
        bench = Bench()
        bench.append(new_batch(b"x", timestamp=-1))
        bench.reopen(forget_index=True)
        bench.segment.reopen_index()
        assert bench.segment.created_ms == 12_345
        assert (bench.segment.max_timestamp, bench.segment.newest_ms) == (-1, 12_345)

    def test_an_offset_that_no_batch_holds_is_corruption(self) -> None:
        bench = Bench()
        bench.append(new_batch(b"x"), new_batch(b"y"))
        data = contents(bench.files, bench.segment.path)
        bench.reopen()
        overwrite(bench.files, bench.segment.path, data[:ONE])
        bench.segment.open_closed(ONE, BASE + 2)
        bench.segment.remove_index_files()
        assert bench.segment.find(BASE).position == 0
        with pytest.raises(CorruptLogError, match="no batch holds offset 101"):
            bench.segment.find(BASE + 1)


class TestVerifying:
    def bench(self) -> Bench:
        bench = Bench()
        for _ in range(6):
            bench.append(new_batch(b"x"))
        return bench

    def test_what_this_process_wrote_needs_no_check(self) -> None:
        bench = self.bench()
        assert bench.segment.is_verified(0, 6 * ONE)

    def test_what_was_there_before_is_checked_once(self) -> None:
        bench = self.bench()
        bench.reopen()
        assert not bench.segment.is_verified(0, ONE)
        bench.segment.verify(0, 2 * ONE, bench.epochs)
        assert bench.segment.is_verified(0, 2 * ONE)
        assert bench.segment.is_verified(ONE, 2 * ONE)
        assert not bench.segment.is_verified(ONE, 3 * ONE)
        bench.segment.verify(2 * ONE, 6 * ONE, bench.epochs)
        assert bench.segment.is_verified(0, 6 * ONE)

    def test_a_range_that_was_not_looked_at_is_not_checked(self) -> None:
        bench = self.bench()
        bench.reopen()
        bench.segment.verify(0, ONE, bench.epochs)
        bench.segment.verify(4 * ONE, 5 * ONE, bench.epochs)
        assert bench.segment.is_verified(4 * ONE, 5 * ONE)
        assert not bench.segment.is_verified(2 * ONE, 5 * ONE)

    def test_what_has_a_changed_bit_stays_unchecked(self) -> None:
        bench = self.bench()
        bench.reopen()
        bench.files.flip_bit(bench.segment.path, 3 * ONE - 1, 0)
        with pytest.raises(CorruptLogError, match=f"byte {2 * ONE}: .*CRC32C"):
            bench.segment.verify(0, 6 * ONE, bench.epochs)
        assert not bench.segment.is_verified(0, 6 * ONE)

    def test_an_epoch_that_is_not_the_one_of_the_log_is_corruption(self) -> None:
        bench = self.bench()
        bench.reopen()
        bench.epochs.begin(0, BASE + 3)
        bench.segment.verify(0, 6 * ONE, bench.epochs)
        bench.epochs.begin(1, BASE + 4)
        with pytest.raises(CorruptLogError, match="leader epoch 0 where 1 should be"):
            bench.segment.verify(0, 6 * ONE, bench.epochs)


class TestTruncating:
    def test_what_follows_can_be_appended_and_found(self) -> None:
        bench = Bench(interval=2 * ONE)
        for number in range(8):
            bench.append(new_batch(b"x", timestamp=1000 + number))
        bench.segment.truncate(bench.segment.find(BASE + 5))
        assert (bench.segment.size, bench.segment.end_offset, bench.segment.max_timestamp) == (5 * ONE, BASE + 5, 1004)
        bench.append(new_batch(b"y", b"z", timestamp=7))
        assert bench.segment.find(BASE + 6).position == 5 * ONE
        assert bench.segment.max_timestamp == 1004

    def test_index_files_that_say_more_are_gone(self) -> None:
        bench = Bench(interval=2 * ONE)
        for _ in range(8):
            bench.append(new_batch(b"x"))
        bench.reopen()
        bench.segment.truncate(bench.segment.find(BASE + 5))
        assert bench.files.list("/log") == ["00000000000000000100.log"]
        bench.segment.close_index()
        index = SegmentIndex.load(bench.files, bench.segment.stem, BASE)
        assert index is not None
        assert index.ends_at(5, 5 * ONE)


def test_removing_a_segment_removes_its_files_and_leaves_no_descriptor() -> None:
    bench = Bench()
    bench.append(new_batch(b"x"))
    bench.segment.close_index()
    assert len(bench.files.list("/log")) == 3
    left = bench.segment.remove()
    assert left == "/log/00000000000000000100.deleted"
    assert bench.files.list("/log") == ["00000000000000000100.deleted"]
    assert bench.descriptors.open_count == 0
    assert bench.files.open_descriptors == 0
    assert bench.segment.remove() is None


def test_indexes_of_closed_segments_take_no_memory_of_their_own() -> None:
    store = Store(config=LogConfig(segment_bytes=2 * ONE))
    for _ in range(20):
        store.append(b"x")
    assert all(segment._index is None for segment in store.log.segments[:-1])


def test_what_is_found_without_the_disk_needs_an_index_and_bytes_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(interval=1)
    bench.append(*[new_batch(b"x") for _ in range(3)])
    assert bench.segment.find_cached(BASE + 1) == bench.segment.find(BASE + 1)
    bench.reopen()
    assert bench.segment.find_cached(BASE + 1) is None, "its index is on the disk"
    found = bench.segment.find(BASE + 1)
    assert bench.segment.find_cached(BASE + 1) == found
    monkeypatch.setattr(bench.files, "is_cached", lambda *_: False)
    assert bench.segment.find_cached(BASE + 1) is None
    assert not any(file.readers for file in bench.descriptors.open_files)
