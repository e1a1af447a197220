"""Files that are synced side by side."""

import errno
import gc
import threading
from collections import Counter

import pytest

from penstock.storage.files.memory import MemoryFiles
from penstock.storage.files.sync_threads import SIDE_BY_SIDE, SyncThreads


class MeetingFiles(MemoryFiles):
    """Syncs end when as many as are expected have begun."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(expected)
        self.synced: Counter[int] = Counter()
        self.threads: set[threading.Thread] = set()
        self.errors: dict[int, OSError] = {}

    def sync(self, fd: int) -> None:
        self.barrier.wait(timeout=30)
        self.threads.add(threading.current_thread())
        self.synced[fd] += 1
        if fd in self.errors:
            raise self.errors[fd]


@pytest.mark.parametrize("count", [1, 2, 3, SIDE_BY_SIDE])
def test_files_are_synced_at_the_same_time_one_of_them_by_the_caller(count: int) -> None:
    files = MeetingFiles(count)
    threads = SyncThreads(files)
    assert threads.sync(range(count)) >= 0
    assert files.synced == dict.fromkeys(range(count), 1)
    assert threading.current_thread() in files.threads
    assert len(files.threads) == count
    threads.close()


def test_threads_are_used_again() -> None:
    files = MeetingFiles(3)
    threads = SyncThreads(files)
    for _ in range(10):
        threads.sync([4, 5, 6])
    assert len(files.threads) == 3
    assert files.synced == {4: 10, 5: 10, 6: 10}
    threads.close()


def test_more_files_than_threads_are_synced_by_those_that_are_there() -> None:
    files = MeetingFiles(1)
    threads = SyncThreads(files)
    threads.sync(range(1_000))
    assert files.synced == dict.fromkeys(range(1_000), 1)
    assert len(files.threads) <= SIDE_BY_SIDE
    threads.close()


@pytest.mark.parametrize("broken", [0, 2])
def test_an_error_is_raised_when_all_syncs_have_ended(broken: int) -> None:
    files = MeetingFiles(4)
    files.errors[broken] = OSError(errno.EIO, "broken")
    threads = SyncThreads(files)
    with pytest.raises(OSError, match="broken"):
        threads.sync(range(4))
    assert files.synced.total() == 4
    files.errors.clear()
    threads.sync(range(4))
    assert files.synced.total() == 8
    threads.close()


def test_a_close_ends_the_threads() -> None:
    files = MeetingFiles(3)
    threads = SyncThreads(files)
    threads.sync(range(3))
    threads.close()
    assert [thread for thread in files.threads if thread.is_alive()] == [threading.current_thread()]


def test_threads_of_an_owner_that_was_dropped_without_a_close_end_too() -> None:
    files = MeetingFiles(3)
    threads = SyncThreads(files)
    threads.sync(range(3))
    del threads
    gc.collect()
    for thread in files.threads - {threading.current_thread()}:
        thread.join(timeout=30)
        assert not thread.is_alive()
