"""Checkpoints: the old content or the new, and nothing that was damaged."""

import errno
import random

import pytest

from penstock.storage.errors import CorruptCheckpointError, UnsupportedFormatError
from penstock.storage.files.checkpoint import TEMPORARY, read_checkpoint, remove_checkpoint, write_checkpoint
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from tests.storage.store import contents, overwrite

PATH = "/folder/point"
KIND = b"TEST"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/folder")
    files.sync_directory("/")
    return files


def write(files: MemoryFiles, payload: bytes, version: int = 1) -> None:
    write_checkpoint(files, PATH, KIND, version, payload)


def read(files: MemoryFiles, version: int = 1) -> bytes | None:
    return read_checkpoint(files, PATH, KIND, version)


@pytest.mark.parametrize("payload", [b"", b"x", bytes(10_000)])
def test_the_payload_comes_back(files: MemoryFiles, payload: bytes) -> None:
    write(files, payload)
    assert read(files) == payload
    assert files.list("/folder") == ["point"]
    assert files.open_descriptors == 0


def test_a_missing_checkpoint_is_none(files: MemoryFiles) -> None:
    assert read(files) is None


def test_an_older_version_is_read_and_a_newer_one_refused_with_the_advice_to_upgrade(files: MemoryFiles) -> None:
    write(files, b"new", version=2)
    assert read(files, version=2) == b"new"
    assert read(files, version=3) == b"new"
    with pytest.raises(UnsupportedFormatError, match=r"/folder/point has format 2.*up to 1; upgrade Penstock"):
        read(files, version=1)


def test_a_checkpoint_of_another_kind_is_not_taken_for_ours(files: MemoryFiles) -> None:
    write_checkpoint(files, PATH, b"ELSE", 1, b"payload")
    with pytest.raises(CorruptCheckpointError):
        read(files)


def test_every_changed_bit_is_noticed(files: MemoryFiles) -> None:
    write(files, b"some payload")
    for position in range(len(contents(files, PATH))):
        for bit in range(8):
            damaged = files.copy()
            damaged.flip_bit(PATH, position, bit)
            with pytest.raises(CorruptCheckpointError, match="/folder/point is damaged"):
                read(damaged)


def test_every_shortened_or_lengthened_checkpoint_is_noticed(files: MemoryFiles) -> None:
    write(files, b"some payload")
    data = contents(files, PATH)
    for wrong in [*(data[:length] for length in range(len(data))), data + b"\0"]:
        overwrite(files, PATH, wrong)
        with pytest.raises(CorruptCheckpointError):
            read(files)


@pytest.mark.parametrize("damage", Damage)
def test_a_crash_at_any_step_leaves_the_old_content_or_the_new(files: MemoryFiles, damage: Damage) -> None:
    write(files, b"old")
    before = files.steps
    dry_run = files.copy()
    write(dry_run, b"the new one")
    for step in range(before + 1, dry_run.steps + 1):
        crashing = files.copy()
        crashing.crash_at(step)
        with pytest.raises(Crashed):
            write(crashing, b"the new one")
        for seed in range(20):
            found = crashing.after_crash(damage, random.Random(seed))
            assert read(found) in (b"old", b"the new one"), f"step {step}, seed {seed}"


@pytest.mark.parametrize("damage", Damage)
def test_it_is_durable_when_write_returns(files: MemoryFiles, damage: Damage) -> None:
    write(files, b"old")
    write(files, b"new")
    for seed in range(20):
        assert read(files.after_crash(damage, random.Random(seed))) == b"new", f"seed {seed}"


@pytest.mark.parametrize("damage", Damage)
def test_it_is_durably_gone_when_remove_returns(files: MemoryFiles, damage: Damage) -> None:
    write(files, b"old")
    remove_checkpoint(files, PATH)
    remove_checkpoint(files, PATH)
    for seed in range(20):
        assert read(files.after_crash(damage, random.Random(seed))) is None, f"seed {seed}"


@pytest.mark.parametrize("call", ["open", "truncate", "pwritev", "sync", "rename"])
def test_a_write_that_fails_leaves_the_old_content_and_the_next_one_works(files: MemoryFiles, call: str) -> None:
    write(files, b"the old and longer content")
    files.fail(call, 1, OSError(errno.EIO, "broken"), after_bytes=7)
    with pytest.raises(OSError, match="broken"):
        write(files, b"new")
    assert read(files) == b"the old and longer content"
    assert files.open_descriptors == 0
    write(files, b"new")
    assert read(files) == b"new"


def test_a_longer_leftover_of_an_earlier_write_does_not_get_in(files: MemoryFiles) -> None:
    overwrite(files, PATH + TEMPORARY, bytes(1000))
    write(files, b"new")
    assert read(files) == b"new"


def test_short_writes_are_completed(files: MemoryFiles) -> None:
    files.short_write(1, 5)
    files.short_write(2, 1)
    write(files, b"payload")
    assert read(files) == b"payload"
