"""The sparse index: what it finds, and that damage makes it shorter but never wrong."""

import random

import pytest

from penstock.storage.errors import UnsupportedFormatError
from penstock.storage.files import Files
from penstock.storage.files.memory import Damage, MemoryFiles
from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX, SegmentIndex, read_created_ms
from tests.storage.store import Store, contents, overwrite

BASE = 1000
STEM = "/00000000000000001000"
HEADER_BYTES = 24
ENTRIES = [(0, 0, -1), (10, 4096, 50), (25, 8200, 50), (40, 12_345, 90)]
KINDS = [OFFSET_INDEX, TIME_INDEX]


def index_of(entries: list[tuple[int, int, int]]) -> SegmentIndex:
    index = SegmentIndex(created_ms=77)
    for entry in entries:
        index.add(*entry)
    return index


def entries_of(index: SegmentIndex) -> list[tuple[int, int, int]]:
    offsets = [(entry >> 32, entry & 0xFFFF_FFFF) for entry in index.offsets]
    assert [relative for relative, _ in offsets] == list(index.time_offsets)
    return [(*entry, time) for entry, time in zip(offsets, index.times, strict=True)]


def saved(*parts: list[tuple[int, int, int]]) -> MemoryFiles:
    """Files of an index that was saved after each part."""
    files, index = MemoryFiles(), index_of([])
    for part in parts:
        for entry in part:
            index.add(*entry)
        index.save(files, STEM, BASE)
    return files


def load(files: Files) -> SegmentIndex:
    index = SegmentIndex.load(files, STEM, BASE)
    assert index is not None
    return index


def test_when_a_segment_was_begun_can_be_read_without_its_entries() -> None:
    files = saved(ENTRIES)
    assert read_created_ms(files, STEM) == 77
    assert read_created_ms(files, "/other") is None
    overwrite(files, STEM + OFFSET_INDEX, b"short")
    assert read_created_ms(files, STEM) is None
    overwrite(files, STEM + OFFSET_INDEX, bytes(24))
    assert read_created_ms(files, STEM) is None


class TestLookups:
    def test_an_offset_is_found_from_the_last_entry_at_or_below_it(self) -> None:
        index = index_of(ENTRIES)
        assert [index.floor(offset) for offset in (0, 9, 10, 24, 25, 39, 40, 10**6)] == [
            (0, 0), (0, 0), (10, 4096), (10, 4096), (25, 8200), (25, 8200), (40, 12_345), (40, 12_345),
        ]  # fmt: skip

    def test_a_position_is_found_from_the_last_entry_at_or_below_it(self) -> None:
        index = index_of(ENTRIES)
        assert [index.floor_of_position(position) for position in (0, 4095, 4096, 8199, 2**32 - 1)] == [
            (0, 0), (0, 0), (10, 4096), (10, 4096), (40, 12_345),
        ]  # fmt: skip

    def test_before_a_time_everything_is_older(self) -> None:
        index = index_of(ENTRIES)
        # Before relative offset 25 nothing is newer than 50, before 40 nothing newer than 90.
        assert [index.floor_of_time(time) for time in (-1, 0, 50, 51, 90, 91)] == [0, 0, 0, 25, 25, 40]

    def test_without_entries_everything_is_found_from_the_start(self) -> None:
        index = index_of([])
        assert index.floor(5) == (0, 0)
        assert index.floor_of_position(5) == (0, 0)
        assert index.floor_of_time(5) == 0
        assert index.max_timestamp == -1

    def test_the_largest_offset_and_position_have_room(self) -> None:
        index = index_of([(0x7FFF_FFFF, 0xFFFF_FFFF, 2**62)])
        assert index.floor(0x7FFF_FFFF) == (0x7FFF_FFFF, 0xFFFF_FFFF)

    def test_it_is_complete_only_with_an_entry_for_the_end(self) -> None:
        index = index_of(ENTRIES)
        assert index.ends_at(40, 12_345)
        assert not index.ends_at(40, 12_346)
        assert not index.ends_at(41, 12_345)
        assert not index_of([]).ends_at(0, 0)


class TestFiles:
    def test_what_is_saved_is_loaded(self) -> None:
        index = load(saved(ENTRIES))
        assert entries_of(index) == ENTRIES
        assert index.created_ms == 77
        assert index.is_saved

    def test_saves_append(self) -> None:
        files = saved(ENTRIES[:1])
        first = contents(files, STEM + OFFSET_INDEX)
        files = saved(ENTRIES[:1], ENTRIES[1:3], [], ENTRIES[3:])
        assert contents(files, STEM + OFFSET_INDEX).startswith(first)
        assert entries_of(load(files)) == ENTRIES

    def test_a_loaded_index_goes_on(self) -> None:
        files = saved(ENTRIES[:2])
        index = load(files)
        for entry in ENTRIES[2:]:
            index.add(*entry)
        assert not index.is_saved
        index.save(files, STEM, BASE)
        assert entries_of(load(files)) == ENTRIES

    @pytest.mark.parametrize("kind", KINDS)
    def test_without_one_of_the_files_there_is_no_index(self, kind: str) -> None:
        files = saved(ENTRIES)
        files.unlink(STEM + kind)
        assert SegmentIndex.load(files, STEM, BASE) is None

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_index_of_another_segment_is_none(self, kind: str) -> None:
        files = saved(ENTRIES)
        index_of(ENTRIES).save(files, "/other", BASE + 1)
        overwrite(files, STEM + kind, contents(files, "/other" + kind))
        assert SegmentIndex.load(files, STEM, BASE) is None

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_empty_or_torn_header_is_no_index(self, kind: str) -> None:
        for length in range(HEADER_BYTES):
            files = saved(ENTRIES)
            overwrite(files, STEM + kind, contents(files, STEM + kind)[:length])
            assert SegmentIndex.load(files, STEM, BASE) is None, f"{length} bytes"

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_follows_a_torn_block_is_not_used_and_the_next_save_repairs_it(self, kind: str) -> None:
        files = saved(ENTRIES[:2], ENTRIES[2:])
        data = contents(files, STEM + kind)
        whole = len(contents(saved(ENTRIES[:2]), STEM + kind))
        for length in range(whole + 1, len(data)):
            overwrite(files, STEM + kind, data[:length])
            index = load(files)
            assert entries_of(index) == ENTRIES[:2], f"{length} bytes"
            for entry in ENTRIES[2:]:
                index.add(*entry)
            index.save(files, STEM, BASE)
            assert entries_of(load(files)) == ENTRIES, f"{length} bytes"

    @pytest.mark.parametrize("kind", KINDS)
    def test_one_file_that_is_ahead_of_the_other_is_written_anew(self, kind: str) -> None:
        files = saved(ENTRIES)
        overwrite(files, STEM + kind, contents(saved(ENTRIES[:2]), STEM + kind))
        index = load(files)
        assert entries_of(index) == ENTRIES[:2]
        for entry in ENTRIES[2:]:
            index.add(*entry)
        index.save(files, STEM, BASE)
        assert entries_of(load(files)) == ENTRIES

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_changed_bit_never_makes_a_wrong_entry(self, kind: str) -> None:
        files = saved(ENTRIES[:2], ENTRIES[2:])
        for position in range(len(contents(files, STEM + kind))):
            for bit in range(8):
                damaged = files.copy()
                damaged.flip_bit(STEM + kind, position, bit)
                try:
                    index = SegmentIndex.load(damaged, STEM, BASE)
                except UnsupportedFormatError:
                    assert position in (4, 5), "only the version can be from the future"
                    continue
                found = [] if index is None else entries_of(index)
                assert found == ENTRIES[: len(found)], f"byte {position}, bit {bit}"

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_newer_format_is_refused_with_the_advice_to_upgrade(self, kind: str) -> None:
        files = saved(ENTRIES)
        data = bytearray(contents(files, STEM + kind))
        data[4:6] = (2).to_bytes(2, "little")
        overwrite(files, STEM + kind, data)
        with pytest.raises(UnsupportedFormatError, match=rf"{STEM}{kind} has format 2.*upgrade Penstock"):
            load(files)

    @pytest.mark.parametrize("damage", Damage)
    def test_what_a_crash_leaves_of_it_is_right_as_far_as_it_goes(self, damage: Damage) -> None:
        for seed in range(50):
            found = SegmentIndex.load(
                saved(*([e] for e in ENTRIES)).after_crash(damage, random.Random(seed)), STEM, BASE
            )
            entries = [] if found is None else entries_of(found)
            assert entries == ENTRIES[: len(entries)], f"seed {seed}"


class TestTruncation:
    def test_entries_behind_the_end_go_and_one_at_the_end_stays(self) -> None:
        index = index_of(ENTRIES)
        assert not index.truncate(25)
        assert entries_of(index) == ENTRIES[:3]
        assert index.max_timestamp == 50

    def test_files_that_have_more_have_to_be_removed(self) -> None:
        index = load(saved(ENTRIES))
        assert not index.truncate(10**6)
        assert index.truncate(10)

    def test_after_the_files_are_gone_everything_is_saved(self) -> None:
        files = saved(ENTRIES)
        index = load(files)
        index.truncate(10)
        for kind in KINDS:
            files.unlink(STEM + kind)
        index.forget_files()
        index.add(11, 5000, 60)
        index.save(files, STEM, BASE)
        assert entries_of(load(files)) == [*ENTRIES[:2], (11, 5000, 60)]


class TestInALog:
    """However the files of an index fare, the log gives the same answers."""

    def store(self) -> Store:
        store = Store()
        store.config = type(store.config)(segment_bytes=2000, index_interval_bytes=200)
        store.reopen()
        for number in range(100):
            store.append(b"value %d" % number, timestamp=1000 + number * 10)
        assert len(store.names(".log")) > 3
        return store

    def check(self, store: Store) -> None:
        assert store.values() == [b"value %d" % number for number in range(100)]
        for number in range(100):
            found = store.log.find_timestamp(995 + number * 10)
            assert found is not None
            assert found.base_offset == number
        assert store.log.find_timestamp(2000) is None

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("damage", ["missing", "empty", "torn", "garbage", "of a neighbour"])
    def test_answers_stay_right_and_the_index_is_rebuilt(self, kind: str, damage: str, clean: bool) -> None:
        store = self.store()
        store.stop()
        before = {name: contents(store.files, f"{store.path}/{name}") for name in store.names(kind)}
        for number, name in enumerate(before):
            path = f"{store.path}/{name}"
            match damage:
                case "missing":
                    store.files.unlink(path)
                case "empty":
                    overwrite(store.files, path, b"")
                case "torn":
                    overwrite(store.files, path, before[name][: HEADER_BYTES + 11 + number])
                case "garbage":
                    overwrite(store.files, path, random.Random(number).randbytes(200))
                case "of a neighbour":
                    overwrite(store.files, path, before[list(before)[number - 1]])
        if not clean:
            store.files.unlink(f"{store.folder}/clean-shutdown")
        store.open()
        self.check(store)
        store.reopen()
        self.check(store)
        after = {name: contents(store.files, f"{store.path}/{name}") for name in store.names(kind)}
        assert {name: data[HEADER_BYTES:] for name, data in after.items()} == {
            name: data[HEADER_BYTES:] for name, data in before.items()
        }

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_index_of_a_log_that_went_on_without_it_is_stale_and_not_believed(self, kind: str) -> None:
        store = Store()
        store.append(b"value 0", timestamp=1000)
        store.stop()
        path = f"{store.path}/{store.names(kind)[0]}"
        stale = contents(store.files, path)
        store.open()
        for number in range(1, 100):
            store.append(b"value %d" % number, timestamp=1000 + number * 10)
        store.stop()
        overwrite(store.files, path, stale)
        store.open()
        self.check(store)

    def test_an_index_of_a_log_that_lost_its_tail_points_nowhere_and_is_not_believed(self) -> None:
        store = Store(config=Store().config)
        for number in range(200):
            store.append(b"value %d" % number, timestamp=1000 + number * 10)
        store.stop()
        indexes = {kind: contents(store.files, f"{store.path}/{store.names(kind)[0]}") for kind in KINDS}
        store.open()
        store.log.truncate(100)
        store.stop()
        for kind, data in indexes.items():
            overwrite(store.files, f"{store.path}/{store.names(kind)[0]}", data)
        store.open()
        self.check(store)
        store.append(b"more", timestamp=5000)
        found = store.log.find_timestamp(2000)
        assert found is not None
        assert found.base_offset == 100
