"""High watermarks as a hint that survives restarts, and goes with the records it is about."""

import random

import pytest

from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import UnsupportedFormatError
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from penstock.storage.high_watermarks import FILE_NAME, HighWatermarks
from tests.storage.store import FOLDER, Store, contents, make_newer, overwrite


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(FOLDER)
    files.sync_directory("/")
    return files


def saved(files: MemoryFiles, **offsets: int) -> HighWatermarks:
    hints = HighWatermarks(files, FOLDER)
    for topic, offset in offsets.items():
        hints.set(topic, 3, offset)
    hints.save()
    return hints


def test_a_saved_high_watermark_is_found_again(files: MemoryFiles) -> None:
    saved(files, orders=7, payments=2**40)
    found = HighWatermarks(files, FOLDER)
    assert (found.get("orders", 3), found.get("payments", 3), found.damage) == (7, 2**40, None)
    assert (found.get("orders", 4), found.get("others", 3)) == (None, None)


def test_a_power_loss_leaves_the_old_ones_or_the_new_ones(files: MemoryFiles) -> None:
    saved(files, orders=7)
    for step in range(1, 20):
        copy = files.copy()
        copy.crash_at(copy.steps + step)
        try:
            saved(copy, orders=9)
        except Crashed:
            for damage in Damage:
                found = HighWatermarks(copy.after_crash(damage, random.Random(step)), FOLDER)
                assert found.get("orders", 3) in (7, 9)
        else:
            assert step > 3
            assert (
                HighWatermarks(copy.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)), FOLDER).get("orders", 3) == 9
            )
            return


@pytest.mark.parametrize("damage", ["a bit", "empty", "short"])
def test_damaged_ones_count_as_none_and_that_is_told(files: MemoryFiles, damage: str) -> None:
    saved(files, orders=7)
    path = f"{FOLDER}/{FILE_NAME}"
    data = contents(files, path)
    changed = {"a bit": data[:-1] + bytes([data[-1] ^ 1]), "empty": b"", "short": data[:-3]}[damage]
    overwrite(files, path, changed)
    found = HighWatermarks(files, FOLDER)
    assert found.get("orders", 3) is None
    assert f"{path} is damaged" in (found.damage or "")
    found.set("orders", 3, 8)
    found.save()
    assert HighWatermarks(files, FOLDER).get("orders", 3) == 8


def test_those_of_a_newer_format_are_refused(files: MemoryFiles) -> None:
    saved(files, orders=7)
    make_newer(files, f"{FOLDER}/{FILE_NAME}")
    with pytest.raises(UnsupportedFormatError, match=FILE_NAME):
        HighWatermarks(files, FOLDER)


def test_saving_what_is_saved_costs_no_write(files: MemoryFiles) -> None:
    hints = saved(files, orders=7)
    steps = files.steps
    hints.save()
    assert files.steps == steps


def with_hint(offset: int) -> Store:
    """A log from 0 to 5, and a hint."""
    store = Store()
    for number in range(5):
        store.append(b"%d" % number)
    store.flush()
    store.directory.high_watermarks.set("orders", 0, offset)
    store.directory.high_watermarks.save()
    return store


@pytest.mark.parametrize("damage", Damage)
def test_a_hint_goes_with_the_records_that_are_cut_off(damage: Damage) -> None:
    store = with_hint(4)
    store.log.truncate(2)
    for number in range(5):
        store.append(b"other %d" % number)
    store.flush()
    found = DataDirectory(FOLDER, store.memory.after_crash(damage, random.Random(0)))
    assert found.high_watermarks.get("orders", 0) == 2


def test_a_hint_goes_with_a_log_that_starts_anew() -> None:
    store = with_hint(4)
    store.log.start_at(3)
    assert (
        DataDirectory(FOLDER, store.memory.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))).high_watermarks.get(
            "orders", 0
        )
        == 3
    )


def test_a_hint_goes_with_a_log_that_is_deleted_or_set_aside() -> None:
    for is_deleted in (True, False):
        store = with_hint(4)
        if is_deleted:
            store.directory.delete("orders", 0)
        else:
            store.directory.set_aside("orders", 0)
        left = store.memory.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        assert DataDirectory(FOLDER, left).high_watermarks.get("orders", 0) is None
