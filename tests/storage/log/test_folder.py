"""The folder of a log: when it is made, what goes into it first, and when its name can be relied on."""

import errno
import random

import pytest

from penstock.storage.errors import CorruptCheckpointError
from penstock.storage.files.memory import Damage, MemoryFiles
from penstock.storage.log.folder import LogDirectory, read_identity, read_log_start, write_log_start
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.unflushed import Unflushed

PATH = "/data/orders-0"


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data")
    files.sync_directory("/")
    return files


def epochs_of(files: MemoryFiles, *epochs: int) -> LeaderEpochs:
    found = LeaderEpochs(files, f"{PATH}/leader-epochs")
    for epoch in epochs:
        found.begin(epoch, epoch)
    return found


def test_it_is_made_once_with_identity_and_epochs_and_tells_what_has_to_be_synced(files: MemoryFiles) -> None:
    directory, unflushed = LogDirectory(files, PATH, b"mine"), Unflushed()
    assert not directory.exists
    directory.make(epochs_of(files, 3), unflushed)
    assert directory.exists
    assert files.list(PATH) == ["identity", "leader-epochs"]
    assert unflushed.directories == {"/data", PATH}
    assert unflushed.files == [f"{PATH}/identity", f"{PATH}/leader-epochs"]
    again = Unflushed()
    directory.make(epochs_of(files), again)
    assert (again.directories, again.files) == ({PATH}, []), "only the name of another file in it"


def test_without_an_identity_and_epochs_it_is_empty(files: MemoryFiles) -> None:
    directory = LogDirectory(files, PATH, b"")
    directory.make(epochs_of(files), Unflushed())
    assert files.list(PATH) == []
    assert not LogDirectory(files, PATH, b"").exists, "an empty one may be what a killed process left"


def test_what_could_not_be_made_is_made_by_the_next_try_and_told_both_times(files: MemoryFiles) -> None:
    directory, unflushed = LogDirectory(files, PATH, b"mine"), Unflushed()
    files.fail("pwritev", 1, OSError(errno.ENOSPC, "no space"))
    with pytest.raises(OSError, match="no space"):
        directory.make(epochs_of(files), unflushed)
    assert not directory.exists
    assert unflushed.directories == {"/data", PATH}, "something is there, and the next process will rely on its name"
    directory.make(epochs_of(files), unflushed)
    assert read_identity(files, PATH, was_flushed=True) == b"mine"


@pytest.mark.parametrize("by_a_flush", [True, False])
def test_its_name_is_made_durable_once_by_a_flush_or_by_who_cannot_wait_for_one(
    files: MemoryFiles, by_a_flush: bool
) -> None:
    directory, unflushed = LogDirectory(files, PATH, b"mine"), Unflushed()
    directory.make(epochs_of(files), unflushed)
    if by_a_flush:
        directory.flushed(unflushed.begin_flush(0, saves_epochs=False))
        steps = files.steps
        directory.make_name_durable()
        assert files.steps == steps
    else:
        directory.make_name_durable()
        files.sync_directory(PATH)
        left = files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        assert read_identity(left, PATH, was_flushed=True) == b"mine"
        steps = files.steps
        directory.make_name_durable()
        assert files.steps == steps


def test_the_start_is_0_until_one_is_written(files: MemoryFiles) -> None:
    files.make_directory(PATH)
    assert read_log_start(files, PATH) == 0
    write_log_start(files, PATH, 17)
    assert read_log_start(files, PATH) == 17


def test_a_torn_identity_counts_as_none_unless_something_was_flushed(files: MemoryFiles) -> None:
    LogDirectory(files, PATH, b"mine").make(epochs_of(files), Unflushed())
    files.flip_bit(f"{PATH}/identity", 19, 1)
    assert read_identity(files, PATH, was_flushed=False) is None
    with pytest.raises(CorruptCheckpointError, match="identity is damaged"):
        read_identity(files, PATH, was_flushed=True)
