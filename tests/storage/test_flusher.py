"""Group commit: what one flush covers, and what a failed one means."""

import errno

import pytest

from penstock.protocol.batch import split
from penstock.storage.errors import LogOfflineError
from penstock.storage.flusher import SIDE_BY_SIDE
from penstock.storage.log import LogConfig
from tests.storage.store import NOW_MS, Store, new_batch


def write_to(store: Store, partition: int, value: bytes = b"x") -> None:
    store.other_log(partition).append(split(new_batch(value)), leader_epoch=0, now_ms=NOW_MS)


def test_nothing_counts_as_flushed_before_a_flush() -> None:
    store = Store()
    store.append(b"a")
    assert store.log.flushed_offset == 0
    store.flush()
    assert store.log.flushed_offset == 1
    assert not store.directory.flusher.has_work


def test_one_flush_covers_every_log_that_is_dirty() -> None:
    store = Store()
    for partition in range(5):
        write_to(store, partition)
    store.flush()
    assert [store.other_log(partition).flushed_offset for partition in range(5)] == [1] * 5


@pytest.mark.parametrize("can_sync_filesystem", [True, False])
@pytest.mark.parametrize("logs", [SIDE_BY_SIDE, SIDE_BY_SIDE + 1])
def test_many_logs_are_synced_with_their_file_system_where_that_can_be_done(
    logs: int, can_sync_filesystem: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    store.memory.can_sync_filesystem = can_sync_filesystem
    synced: list[int] = []
    sync = store.memory.sync

    def noting_sync(fd: int) -> None:
        synced.append(fd)
        sync(fd)

    monkeypatch.setattr(store.memory, "sync", noting_sync)
    for partition in range(logs):
        write_to(store, partition)
    round = store.directory.flusher.begin()
    data = {pin.fd for _, work in round.work for pin in work.pins}
    round.sync()
    store.directory.flusher.end(round)
    as_one = can_sync_filesystem and logs > SIDE_BY_SIDE
    assert data.isdisjoint(synced) if as_one else data <= set(synced)
    assert all(store.other_log(partition).flushed_offset == 1 for partition in range(logs))


def test_what_is_appended_during_a_round_waits_for_the_next() -> None:
    store = Store()
    store.append(b"a")
    round = store.directory.flusher.begin()
    store.append(b"b")
    round.sync()
    store.directory.flusher.end(round)
    assert store.log.flushed_offset == 1
    assert store.directory.flusher.has_work
    store.flush()
    assert store.log.flushed_offset == 2


def test_a_round_that_was_under_way_proves_nothing_about_what_came_after_a_truncation() -> None:
    store = Store()
    store.append(b"a")
    store.append(b"b")
    round = store.directory.flusher.begin()
    store.log.truncate(1)
    store.append(b"c", epoch=1)
    round.sync()
    store.directory.flusher.end(round)
    assert store.log.flushed_offset < 2
    store.flush()
    assert store.log.flushed_offset == 2
    assert store.values() == [b"a", b"c"]


def test_a_failed_sync_takes_its_logs_offline_and_is_never_tried_again() -> None:
    store = Store()
    write_to(store, 1)
    store.flush()
    store.append(b"a")
    write_to(store, 1)
    store.memory.fail("sync", 1, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        store.flush()
    assert store.log.flushed_offset == 0
    assert store.other_log(1).flushed_offset == 1
    for partition in (0, 1):
        with pytest.raises(LogOfflineError, match="broken"):
            write_to(store, partition)
    assert not store.directory.flusher.has_work
    store.stop()
    store.open()
    assert not store.log.failure, "a restart recovers it"


def test_logs_outside_a_failed_round_go_on() -> None:
    store = Store()
    store.append(b"a")
    store.memory.fail("sync", 1, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        store.flush()
    write_to(store, 1)
    store.flush()
    assert store.other_log(1).flushed_offset == 1


def test_recovery_points_are_due_each_second_while_anything_is_flushed() -> None:
    store = Store()
    flusher = store.directory.flusher
    assert not flusher.recovery_points_are_due(NOW_MS)
    store.append(b"a")
    store.flush()
    assert flusher.recovery_points_are_due(NOW_MS)
    flusher.save_recovery_points(NOW_MS)
    store.append(b"b")
    store.flush()
    assert not flusher.recovery_points_are_due(NOW_MS + 999)
    assert flusher.recovery_points_are_due(NOW_MS + 1000)
    assert flusher.recovery_points_are_due(NOW_MS - 1), "a clock that went back does not put it off"


def test_recovery_points_are_due_after_a_roll() -> None:
    store = Store(config=LogConfig(segment_bytes=100))
    flusher = store.directory.flusher
    store.append(b"a")
    store.flush()
    flusher.save_recovery_points(NOW_MS)
    store.append(b"b")
    store.append(b"c")
    store.flush()
    assert flusher.recovery_points_are_due(NOW_MS + 1)


def test_after_a_flush_nothing_below_the_recovery_point_is_scanned() -> None:
    store = Store()
    for _ in range(60):
        store.append(b"x" * 100_000)
    store.flush(save_recovery_points=True)
    store.append(b"y" * 100_000)
    store.reopen(clean=False)
    # The index is saved every 4 MB; what it does not reach is walked as well.
    assert 100_000 < store.report.scanned_bytes < 3_000_000
    assert store.log.end_offset == 61
