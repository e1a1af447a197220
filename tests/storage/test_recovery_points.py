"""Recovery points: what was saved is there after a crash, for every log of the folder."""

import random

import pytest

from penstock.storage.errors import CorruptCheckpointError, UnsupportedFormatError
from penstock.storage.files.checkpoint import write_checkpoint
from penstock.storage.files.memory import Damage, MemoryFiles
from penstock.storage.recovery_points import FILE_NAME, RecoveryPoints, pack_offsets, unpack_offsets


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data")
    files.sync_directory("/")
    return files


def test_offsets_come_back_as_they_were_packed() -> None:
    offsets = {"orders-0": 0, "a" * 249 + "-12345": 2**62, "ümläut-1": 7}
    assert unpack_offsets(pack_offsets(offsets)) == offsets
    assert unpack_offsets(pack_offsets({})) == {}


def test_a_log_that_is_not_known_has_nothing_flushed(files: MemoryFiles) -> None:
    assert RecoveryPoints(files, "/data").get("orders-0") == 0


@pytest.mark.parametrize("damage", Damage)
def test_saved_points_survive_a_crash_and_others_do_not_count(files: MemoryFiles, damage: Damage) -> None:
    points = RecoveryPoints(files, "/data")
    points.set("orders-0", 5)
    points.set("orders-1", 50)
    points.save()
    points.set("orders-0", 8)
    found = RecoveryPoints(files.after_crash(damage, random.Random(1)), "/data")
    assert (found.get("orders-0"), found.get("orders-1")) == (5, 50)
    assert points.get("orders-0") == 8


def test_what_is_saved_is_told_and_what_was_lowered_meanwhile_does_not_count(files: MemoryFiles) -> None:
    points = RecoveryPoints(files, "/data")
    assert points.get_saved("orders-0") == 0
    points.set("orders-0", 5)
    assert points.get_saved("orders-0") == 0
    points.save()
    points.set("orders-0", 8)
    assert points.get_saved("orders-0") == 5
    points.set("orders-0", 3)
    assert points.get_saved("orders-0") == 3
    assert RecoveryPoints(files, "/data").get_saved("orders-0") == 5
    points.remove("orders-0")
    assert points.get_saved("orders-0") == 0


def test_a_point_can_go_back_and_go_away(files: MemoryFiles) -> None:
    points = RecoveryPoints(files, "/data")
    points.set("orders-0", 8)
    points.set("orders-1", 9)
    points.set("orders-0", 3)
    points.remove("orders-1")
    points.remove("never there")
    points.save()
    found = RecoveryPoints(files, "/data")
    assert (found.get("orders-0"), found.get("orders-1")) == (3, 0)


def test_damage_is_reported_and_a_newer_format_refused(files: MemoryFiles) -> None:
    points = RecoveryPoints(files, "/data")
    points.set("orders-0", 8)
    points.save()
    files.flip_bit(f"/data/{FILE_NAME}", 25, 0)
    with pytest.raises(CorruptCheckpointError, match=f"/data/{FILE_NAME}"):
        RecoveryPoints(files, "/data")
    write_checkpoint(files, f"/data/{FILE_NAME}", b"RCVP", 2, b"")
    with pytest.raises(UnsupportedFormatError, match=f"/data/{FILE_NAME} has format 2.*upgrade"):
        RecoveryPoints(files, "/data")
