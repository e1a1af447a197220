"""Snapshots: opaque bytes at an offset, of which the newest two are kept."""

import random

import pytest

from penstock.storage.errors import CorruptCheckpointError, UnsupportedFormatError
from penstock.storage.files.memory import Damage, MemoryFiles
from penstock.storage.log.producer_snapshots import ProducerSnapshots
from tests.storage.store import Store, overwrite

FOLDER = "/folder"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(FOLDER)
    files.sync_directory("/")
    return files


def snapshots_in(files: MemoryFiles) -> ProducerSnapshots:
    return ProducerSnapshots(files, FOLDER, files.list(FOLDER))


def test_a_snapshot_is_a_file_named_by_its_offset(files: MemoryFiles) -> None:
    snapshots_in(files).save(42, b"state", version=1)
    assert files.list(FOLDER) == ["00000000000000000042.snapshot"]


def test_the_newest_one_answers(files: MemoryFiles) -> None:
    snapshots = snapshots_in(files)
    assert snapshots.latest(version=1) is None
    for offset in (5, 9, 12):
        snapshots.save(offset, b"at %d" % offset, version=1)
    assert snapshots.latest(version=1) == (12, b"at 12")
    assert snapshots_in(files).latest(version=1) == (12, b"at 12")


def test_two_are_kept(files: MemoryFiles) -> None:
    snapshots = snapshots_in(files)
    for offset in (5, 9, 12, 30):
        snapshots.save(offset, b"", version=1)
    assert snapshots.offsets == (12, 30)
    assert snapshots_in(files).offsets == (12, 30)


def test_one_at_the_same_offset_replaces_the_other(files: MemoryFiles) -> None:
    snapshots = snapshots_in(files)
    snapshots.save(5, b"first", version=1)
    snapshots.save(5, b"second", version=1)
    assert snapshots.latest(version=1) == (5, b"second")
    assert snapshots.offsets == (5,)


def test_what_was_taken_beyond_a_new_end_is_removed(files: MemoryFiles) -> None:
    snapshots = snapshots_in(files)
    snapshots.save(5, b"five", version=1)
    snapshots.save(9, b"nine", version=1)
    assert not snapshots.truncate(9)
    assert snapshots.truncate(8)
    assert snapshots.latest(version=1) == (5, b"five")
    assert snapshots_in(files).offsets == (5,)
    assert snapshots.truncate(0)
    assert snapshots.latest(version=1) is None


def test_other_files_are_no_snapshots(files: MemoryFiles) -> None:
    for name in ("5.snapshot", "00000000000000000005.snapshot.tmp", "00000000000000000005.log", "x.snapshot"):
        overwrite(files, f"{FOLDER}/{name}", b"")
    assert snapshots_in(files).offsets == ()


@pytest.mark.parametrize("damage", Damage)
def test_a_saved_one_survives_a_crash(files: MemoryFiles, damage: Damage) -> None:
    snapshots = snapshots_in(files)
    for offset in (5, 9, 12):
        snapshots.save(offset, b"at %d" % offset, version=1)
    for seed in range(10):
        found = files.after_crash(damage, random.Random(seed))
        assert snapshots_in(found).latest(version=1) == (12, b"at 12"), f"seed {seed}"


def test_a_newer_version_is_refused_and_damage_reported(files: MemoryFiles) -> None:
    snapshots = snapshots_in(files)
    snapshots.save(5, b"state", version=3)
    with pytest.raises(UnsupportedFormatError, match=r"00000000000000000005.snapshot has format 3.*upgrade"):
        snapshots.latest(version=2)
    files.flip_bit(f"{FOLDER}/00000000000000000005.snapshot", 20, 1)
    with pytest.raises(CorruptCheckpointError, match=r"00000000000000000005.snapshot"):
        snapshots.latest(version=3)


class TestInALog:
    """As the owner of producer state uses them."""

    def test_headers_tell_what_came_after_the_snapshot(self) -> None:
        store = Store()
        store.append(b"a", b"b")
        store.log.save_snapshot(b"two", version=1)
        store.append(b"c")
        store.append(b"d", b"e")
        store.reopen()
        latest = store.log.latest_snapshot(version=1)
        assert latest == (2, b"two")
        assert [header.base_offset for header in store.log.headers(2)] == [2, 3]

    def test_a_truncation_falls_back_on_the_one_before(self) -> None:
        store = Store()
        for number in range(3):
            store.append(b"%d" % number)
            store.log.save_snapshot(b"at %d" % (number + 1), version=1)
        store.log.truncate(2)
        assert store.log.latest_snapshot(version=1) == (2, b"at 2")

    def test_one_beyond_what_was_recovered_is_forgotten(self) -> None:
        store = Store()
        store.append(b"flushed")
        store.flush()
        store.log.save_snapshot(b"one", version=1)
        store.append(b"lost")
        store.log.save_snapshot(b"two", version=1)
        store.files = store.memory.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        store.open()
        assert store.log.end_offset == 1
        assert store.log.latest_snapshot(version=1) == (1, b"one")

    def test_a_log_without_a_folder_takes_none(self) -> None:
        store = Store()
        store.log.save_snapshot(b"nothing", version=1)
        assert store.log.latest_snapshot(version=1) is None
        assert store.names() == []
