"""Group commit: one round for all logs, after which a crash leaves them untouched, and none after a failed sync."""

import errno
import random
from collections import Counter

import pytest

from penstock.protocol.batch import split
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import LogOfflineError, SyncFailedError
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from penstock.storage.files.sync_threads import SIDE_BY_SIDE
from penstock.storage.log.log import Log, LogConfig
from tests.storage.store import FOLDER, NOW_MS, Store, new_batch, values_of

MANY = SIDE_BY_SIDE + 4
ONE = len(new_batch(b"x"))


class CountingFiles(MemoryFiles):
    """Counts syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def sync(self, fd: int) -> None:
        self.calls["sync"] += 1
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self.calls["sync_directory"] += 1
        super().sync_directory(path)

    def sync_filesystem(self, fd: int) -> bool:
        self.calls["sync_filesystem"] += 1
        return super().sync_filesystem(fd)


class Broker:
    """A folder with several logs."""

    def __init__(self, count: int, files: MemoryFiles | None = None) -> None:
        self.files = files or CountingFiles()
        self.directory = DataDirectory(FOLDER, self.files)
        self.logs = [self.directory.log("orders", number, LogConfig(segment_bytes=3 * ONE)) for number in range(count)]
        self.flusher = self.directory.flusher

    @property
    def calls(self) -> Counter[str]:
        assert isinstance(self.files, CountingFiles)
        return self.files.calls

    def append(self, *numbers: int, value: bytes = b"x", epoch: int = 0) -> None:
        for number in numbers or range(len(self.logs)):
            append(self.logs[number], value, epoch)

    def make_old(self) -> None:
        """Appended and flushed once, so that no log has a new name to sync, and nothing counted."""
        self.append()
        self.flusher.flush()
        self.calls.clear()

    @property
    def flushed(self) -> list[int]:
        return [log.flushed_offset for log in self.logs]


def append(log: Log, value: bytes = b"x", epoch: int = 0) -> None:
    log.append(split(new_batch(value)), leader_epoch=epoch, now_ms=NOW_MS)


class TestARound:
    def test_is_what_makes_an_append_count_as_flushed(self) -> None:
        broker = Broker(1)
        broker.append()
        assert broker.flushed == [0]
        broker.flusher.flush()
        assert broker.flushed == [1]

    def test_covers_all_logs_that_are_dirty(self) -> None:
        broker = Broker(5)
        broker.make_old()
        assert not broker.flusher.has_work
        broker.append(0, 2, 2, 4)
        assert broker.flusher.has_work
        assert list(broker.flusher.unflushed_logs) == [broker.logs[number] for number in (0, 2, 4)]
        broker.flusher.flush()
        assert not broker.flusher.has_work
        assert broker.flushed == [2, 1, 3, 1, 2]
        assert broker.calls == {"sync": 3}

    def test_of_few_logs_syncs_each_and_of_many_the_file_system(self) -> None:
        broker = Broker(MANY)
        broker.make_old()
        broker.append(*range(SIDE_BY_SIDE))
        broker.flusher.flush()
        assert broker.calls == {"sync": SIDE_BY_SIDE}
        broker.calls.clear()
        broker.append()
        broker.flusher.flush()
        assert broker.calls == {"sync_filesystem": 1}
        assert broker.flushed == [log.end_offset for log in broker.logs]

    def test_of_many_new_logs_syncs_none_of_their_files_and_folders_one_by_one(self) -> None:
        broker = Broker(MANY)
        broker.logs = [broker.directory.log("new", number, identity=b"me") for number in range(MANY)]
        for log in broker.logs:
            log.begin_epoch(3)
        broker.calls.clear()
        broker.append(epoch=3)
        broker.flusher.flush()
        assert broker.calls == {"sync_filesystem": 1}
        assert broker.flushed == [1] * MANY
        again = DataDirectory(FOLDER, broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(1)))
        for number in range(MANY):
            log = again.log("new", number, identity=b"me")
            assert (log.end_offset, log.epochs.entries) == (1, ((3, 0),))

    def test_of_many_logs_syncs_each_where_the_file_system_cannot_be(self) -> None:
        broker = Broker(MANY)
        broker.make_old()
        broker.files.can_sync_filesystem = False
        broker.append()
        broker.flusher.flush()
        assert broker.calls["sync"] == MANY
        assert broker.flushed == [2] * MANY

    def test_saves_the_epochs_of_some_logs_and_flushes_the_records_of_all(self) -> None:
        broker = Broker(5)
        broker.make_old()
        for log in broker.logs:
            log.begin_epoch(7)
        broker.append(3, 4, epoch=7)
        for unsaved in ([2, 3, 4], [4], []):
            assert broker.flusher.has_work
            round = broker.flusher.begin(saves=2)
            round.sync()
            broker.flusher.end(round)
            assert [number for number, log in enumerate(broker.logs) if not log.epochs.is_saved] == unsaved
            assert broker.flushed == [log.end_offset for log in broker.logs]
            # What lies above the recovery point is scanned after a crash, and tells the epochs.
            points = [broker.directory.recovery_point(log) for log in broker.logs]
            assert all(log.epochs.is_saved_up_to(point) for log, point in zip(broker.logs, points, strict=True))
        assert not broker.flusher.has_work

    def test_saves_the_epochs_of_many_logs_with_two_syncs_of_the_file_system(self) -> None:
        broker = Broker(3 * SIDE_BY_SIDE)
        broker.make_old()
        for log in broker.logs:
            log.begin_epoch(7)
        broker.append(0, epoch=7)
        broker.flusher.flush()
        assert broker.calls == {"sync_filesystem": 2}
        assert broker.flushed[0] == 2
        for damage in Damage:
            again = Broker(len(broker.logs), broker.files.after_crash(damage, random.Random(0)))
            assert [log.epochs.latest for log in again.logs] == [7] * len(broker.logs)
        assert broker.files.list(broker.logs[0].directory).count("leader-epochs") == 1
        assert not [name for name in broker.files.list(broker.logs[0].directory) if name.endswith(".tmp")]

    def test_saves_the_epochs_of_many_logs_one_by_one_where_the_file_system_cannot_be_synced(self) -> None:
        broker = Broker(2 * SIDE_BY_SIDE)
        broker.make_old()
        broker.files.can_sync_filesystem = False
        for log in broker.logs:
            log.begin_epoch(7)
        broker.flusher.flush()
        again = Broker(len(broker.logs), broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert [log.epochs.latest for log in again.logs] == [7] * len(broker.logs)
        assert not [name for name in broker.files.list(broker.logs[0].directory) if name.endswith(".tmp")]

    @pytest.mark.parametrize("damage", Damage)
    def test_that_saves_the_epochs_of_many_logs_may_be_cut_short_by_a_power_loss_anywhere(self, damage: Damage) -> None:
        count = SIDE_BY_SIDE + 2
        steps = self.elect_many(count, None).files.steps
        for step in range(self.elect_many(count, 0).files.steps + 1, steps + 1):
            broker = self.elect_many(count, step)
            again = Broker(count, broker.files.after_crash(damage, random.Random(step)))
            for log in again.logs:
                assert values_of(log)[:1] == [b"x"]
                assert log.epochs.entries in (((0, 0),), ((0, 0), (7, 1)))

    def elect_many(self, count: int, crash_at: int | None) -> Broker:
        """All logs get a leader, and a flush that crashes at a step, or is not made at 0."""
        broker = Broker(count)
        broker.make_old()
        for log in broker.logs:
            log.begin_epoch(7)
        broker.append(epoch=7)
        if crash_at is None:
            broker.flusher.flush()
        elif crash_at:
            broker.files.crash_at(crash_at)
            with pytest.raises(Crashed):
                broker.flusher.flush()
        return broker

    @pytest.mark.parametrize("nth", [1, 2])
    def test_that_saves_the_epochs_of_many_logs_does_not_bring_one_back_that_a_truncation_has_forgotten(
        self, nth: int
    ) -> None:
        broker = Broker(SIDE_BY_SIDE + 1)
        broker.make_old()
        for log in broker.logs:
            log.begin_epoch(7)
        cut, sync = broker.logs[3], broker.files.sync_filesystem

        def truncating(fd: int) -> bool:
            # While the flush waits for the disk in its thread, the log follows another leader.
            if broker.calls["sync_filesystem"] == nth - 1:
                cut.truncate(1)
            return sync(fd)

        broker.files.sync_filesystem = truncating  # type: ignore[method-assign]
        broker.flusher.flush()
        assert broker.calls["sync_filesystem"] == 2
        assert cut.epochs.is_saved
        for damage in Damage:
            again = Broker(len(broker.logs), broker.files.after_crash(damage, random.Random(0)))
            assert again.logs[3].epochs.entries == ((0, 0),)
            assert again.logs[4].epochs.entries == ((0, 0), (7, 1))

    def test_of_a_log_whose_epochs_wait_their_turn_saves_them_with_its_next_records_or_never_if_it_is_gone(
        self,
    ) -> None:
        broker = Broker(4)
        broker.make_old()
        for log in broker.logs:
            log.begin_epoch(7)

        def flush() -> list[int]:
            round = broker.flusher.begin(saves=1)
            round.sync()
            broker.flusher.end(round)
            return [number for number, log in enumerate(broker.logs) if log.epochs.is_saved]

        assert flush() == [0]
        broker.append(2, epoch=7)
        broker.logs[1].let_go()
        assert flush() == [0, 2]
        assert flush() == [0, 2, 3]
        assert not broker.flusher.has_work

    def test_with_nothing_to_do_does_nothing(self) -> None:
        broker = Broker(3)
        broker.make_old()
        steps = broker.files.steps
        broker.flusher.flush()
        assert broker.files.steps == steps

    @pytest.mark.parametrize("count", [1, 3, MANY])
    @pytest.mark.parametrize("damage", Damage)
    def test_leaves_what_a_crash_cannot_harm(self, count: int, damage: Damage) -> None:
        broker = Broker(count)
        for number in range(5):
            broker.append(value=b"%d" % number, epoch=number // 2)
        broker.flusher.flush()
        broker.append(value=b"later")
        for seed in range(5):
            found = Broker(count, broker.files.after_crash(damage, random.Random(seed)))
            for log in found.logs:
                assert values_of(log)[:5] == [b"0", b"1", b"2", b"3", b"4"], f"seed {seed}"
                assert log.epochs.entries == ((0, 0), (1, 2), (2, 4)), f"seed {seed}"

    def test_covers_every_segment_since_the_last_one(self) -> None:
        broker = Broker(1)
        for _ in range(10):
            broker.append()
        broker.flusher.flush()
        found = Broker(1, broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert found.logs[0].end_offset == 10
        assert len(found.logs[0].segments) == 4

    def test_releases_the_files_that_are_no_longer_written(self) -> None:
        broker = Broker(1)
        for _ in range(30):
            broker.append()
        broker.flusher.flush()
        assert not any(segment.writers for segment in broker.logs[0].segments)


class TestWhileARoundIsUnderWay:
    def test_what_is_appended_waits_for_the_next_one(self) -> None:
        broker = Broker(2)
        broker.append(value=b"before")
        round = broker.flusher.begin()
        broker.append(1, value=b"during")
        round.sync()
        broker.append(0, value=b"after")
        broker.flusher.end(round)
        assert broker.flushed == [1, 1]
        assert broker.flusher.has_work
        broker.flusher.flush()
        assert broker.flushed == [2, 2]

    def test_what_was_appended_after_the_sync_is_not_taken_for_flushed_by_a_crash_either(self) -> None:
        broker = Broker(1)
        broker.append(value=b"before")
        round = broker.flusher.begin()
        round.sync()
        broker.append(value=b"after")
        broker.flusher.end(round)
        broker.flusher.save_recovery_points(NOW_MS)
        found = Broker(1, broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert values_of(found.logs[0]) == [b"before"]

    @pytest.mark.parametrize("end", [0, 1, 2, 3, 4])
    @pytest.mark.parametrize("synced_first", [True, False])
    @pytest.mark.parametrize("damage", Damage)
    def test_a_truncation_keeps_it_from_vouching_for_what_came_after(
        self, end: int, synced_first: bool, damage: Damage
    ) -> None:
        broker = Broker(1)
        for number in range(5):
            broker.append(value=b"old %d" % number)
        log = broker.logs[0]
        round = broker.flusher.begin()
        if synced_first:
            round.sync()
        log.truncate(end)
        for number in range(end, 5):
            broker.append(value=b"new %d" % number, epoch=1)
        if not synced_first:
            round.sync()
        broker.flusher.end(round)
        broker.flusher.save_recovery_points(NOW_MS)
        assert log.flushed_offset <= end
        found = Broker(1, broker.files.after_crash(damage, random.Random(0)))
        assert found.logs[0].end_offset >= log.flushed_offset
        assert broker.flusher.has_work
        broker.flusher.flush()
        assert log.flushed_offset == 5
        found = Broker(1, broker.files.after_crash(damage, random.Random(0)))
        expected = [b"old %d" % number for number in range(end)] + [b"new %d" % number for number in range(end, 5)]
        assert values_of(found.logs[0]) == expected

    def test_a_segment_may_be_deleted(self) -> None:
        broker = Broker(1)
        for _ in range(7):
            broker.append()
        round = broker.flusher.begin()
        broker.logs[0].advance_start(6)
        round.sync()
        broker.flusher.end(round)
        assert broker.logs[0].flushed_offset == 7
        broker.flusher.flush()
        found = Broker(1, broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert (found.logs[0].start_offset, found.logs[0].end_offset) == (6, 7)

    def test_a_log_may_be_deleted(self) -> None:
        broker = Broker(2)
        broker.append()
        round = broker.flusher.begin()
        broker.append(1)
        broker.directory.delete("orders", 1)
        round.sync()
        broker.flusher.end(round)
        assert broker.logs[0].flushed_offset == 1
        broker.flusher.flush()
        broker.flusher.save_recovery_points(NOW_MS)
        broker.files.kill_process()
        again = Broker(2, broker.files)
        assert [log.end_offset for log in again.logs] == [1, 0], "and leaves no trace"

    def test_there_is_no_other(self) -> None:
        broker = Broker(1)
        broker.append()
        broker.flusher.begin()
        with pytest.raises(AssertionError, match="one flush at a time"):
            broker.flusher.begin()


class TestAFailedSync:
    @pytest.mark.parametrize("count", [1, 3, MANY])
    def test_takes_all_logs_of_the_folder_offline_and_is_never_made_again(self, count: int) -> None:
        broker = Broker(count + 1)
        broker.make_old()
        broker.append(*range(count), value=b"in doubt")
        call = "sync" if count <= SIDE_BY_SIDE else "sync_filesystem"
        broker.files.fail(call, 1, OSError(errno.EIO, "the disk is broken"))
        with pytest.raises(OSError, match="the disk is broken"):
            broker.flusher.flush()
        calls = broker.calls.total()
        assert isinstance(broker.directory.failure, OSError)
        for log in broker.logs:
            assert log.flushed_offset == 1
            with pytest.raises(LogOfflineError, match=r"offline after: .*the disk is broken; restart the broker"):
                append(log)
        assert not broker.flusher.has_work
        broker.flusher.flush()
        assert broker.calls.total() == calls
        with pytest.raises(LogOfflineError, match="the disk is broken; restart the broker"):
            broker.directory.log("new", 0)
        with pytest.raises(LogOfflineError):
            broker.directory.delete("orders", 0)

    def test_of_one_log_still_waits_for_all_others(self) -> None:
        broker = Broker(5)
        broker.make_old()
        broker.append()
        broker.files.fail("sync", 2, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            broker.flusher.flush()
        assert broker.calls["sync"] == 5
        for log in broker.logs:
            log.let_go()
        assert broker.directory._descriptors.open_count == 0

    def test_is_followed_by_no_clean_stop(self) -> None:
        broker = Broker(2)
        broker.make_old()
        broker.append(0, value=b"in doubt")
        broker.files.fail("sync", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            broker.flusher.flush()
        broker.directory.close()
        assert broker.files.open_descriptors == 0
        again = Broker(2, broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert not again.directory.was_clean
        assert [log.end_offset for log in again.logs] == [1, 1]
        assert all(report.scanned_bytes for report in again.directory.reports.values())

    @pytest.mark.parametrize("count", [1, MANY])
    def test_leaves_nothing_that_the_next_process_serves_and_a_power_loss_then_takes_away(self, count: int) -> None:
        broker = Broker(count)
        broker.make_old()
        broker.flusher.save_recovery_points(NOW_MS)
        broker.append(value=b"in doubt", epoch=1)
        call = "sync" if count <= SIDE_BY_SIDE else "sync_filesystem"
        broker.files.fail(call, 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            broker.flusher.flush()
        broker.directory.close()
        # The bytes are in memory, where the next process finds them, and not on the disk.
        again = Broker(count, broker.files)
        served = [values_of(log) for log in again.logs]
        assert served == [[b"x", b"in doubt"]] * count
        assert again.flushed == [2] * count
        lost_power = Broker(count, again.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert [values_of(log) for log in lost_power.logs] == served

    def test_of_a_first_flush_leaves_a_log_whose_owner_is_known_after_a_power_loss(self) -> None:
        files = MemoryFiles()
        directory = DataDirectory(FOLDER, files)
        log = directory.log("orders", 0, identity=b"me")
        log.begin_epoch(3)
        append(log, epoch=3)
        files.fail("sync_filesystem", 1, OSError(errno.EIO, "broken"))
        files.fail("sync", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            directory.flusher.flush()
        directory.close()
        second = DataDirectory(FOLDER, files)
        assert second.log("orders", 0, identity=b"me").end_offset == 1
        third = DataDirectory(FOLDER, files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        log = third.log("orders", 0, identity=b"me")
        assert (log.end_offset, log.epochs.entries) == (1, ((3, 0),))

    def test_while_a_log_is_recovered_takes_the_folder_offline_too(self) -> None:
        broker = Broker(2)
        broker.append()
        broker.directory._descriptors.close_all()
        broker.files.kill_process()
        directory = DataDirectory(FOLDER, broker.files)
        directory.log("orders", 0)
        broker.files.fail("sync", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(SyncFailedError, match=r"00000000000000000000\.log could not be synced"):
            directory.log("orders", 1)
        assert directory.failure is not None
        assert directory.log("orders", 0).failure is not None

    @pytest.mark.parametrize("call", ["sync_directory", "rename"])
    def test_a_name_that_is_not_durable_is_no_better(self, call: str) -> None:
        broker = Broker(1)
        broker.append()
        broker.files.fail(call, 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            broker.flusher.flush()
        assert broker.flushed == [0]
        with pytest.raises(LogOfflineError):
            broker.append()

    def test_a_folder_that_somebody_removed_is_an_error_too(self) -> None:
        broker = Broker(1)
        broker.append()
        broker.files.rename(f"{FOLDER}/orders-0", f"{FOLDER}/elsewhere")
        with pytest.raises(FileNotFoundError):
            broker.flusher.flush()
        assert broker.flushed == [0]
        with pytest.raises(LogOfflineError):
            broker.append()


class TestARoundThatCouldNotBegin:
    """Nothing was synced and nothing lost, as there was no descriptor left to open a file with."""

    def test_is_made_again_and_takes_nothing_offline(self) -> None:
        broker = Broker(2)
        broker.append()
        broker.files.fail("sync_directory", 1, OSError(errno.EMFILE, "too many open files"))
        with pytest.raises(OSError, match="too many open files"):
            broker.flusher.flush()
        assert broker.flushed == [0, 0]
        assert broker.directory.failure is None
        assert broker.flusher.has_work
        broker.append(0)
        broker.flusher.flush()
        assert broker.flushed == [2, 1]
        again = Broker(2, broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert [log.end_offset for log in again.logs] == [2, 1]


class TestAFullDisk:
    def test_keeps_epochs_from_being_saved_and_takes_nothing_offline(self) -> None:
        broker = Broker(1)
        broker.make_old()
        broker.flusher.save_recovery_points(NOW_MS)
        [log] = broker.logs
        log.begin_epoch(7)
        append(log, b"y", 7)
        broker.files.fail("open", 1, OSError(errno.ENOSPC, "no space"))
        broker.flusher.flush()
        assert (log.failure, log.flushed_offset) == (None, 2)
        assert not log.epochs.is_saved
        # The recovery point stays below what nobody could tell the epoch of.
        broker.flusher.save_recovery_points(NOW_MS)
        again = Broker(1, broker.files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert values_of(again.logs[0]) == [b"x", b"y"]
        assert again.logs[0].epochs.entries == ((0, 0), (7, 1))
        assert again.directory.reports["orders-0"].scanned_bytes >= ONE
        append(log, b"z", 7)
        broker.flusher.flush()
        assert log.epochs.is_saved

    def test_saves_at_the_stop_what_it_could_not_save_before(self) -> None:
        broker = Broker(1)
        broker.make_old()
        [log] = broker.logs
        log.begin_epoch(7)
        broker.files.fail("open", 1, OSError(errno.ENOSPC, "no space"))
        broker.flusher.flush()
        broker.directory.close()
        again = Broker(1, broker.files)
        assert again.directory.was_clean
        assert again.logs[0].epochs.latest == 7

    def test_that_a_sync_tells_of_is_a_failed_sync(self) -> None:
        broker = Broker(1)
        broker.make_old()
        broker.append()
        broker.files.fail("sync", 1, OSError(errno.ENOSPC, "no space"))
        with pytest.raises(OSError, match="no space"):
            broker.flusher.flush()
        assert broker.directory.failure is not None


class TestRecoveryPoints:
    """Saved soon enough, so that what was acknowledged does not lie where it could be cut."""

    def test_are_due_each_second_while_anything_is_flushed(self) -> None:
        broker = Broker(1)
        assert not broker.flusher.recovery_points_are_due(NOW_MS)
        broker.append()
        assert not broker.flusher.recovery_points_are_due(NOW_MS), "nothing is flushed"
        broker.flusher.flush()
        assert broker.flusher.recovery_points_are_due(NOW_MS)
        broker.flusher.save_recovery_points(NOW_MS)
        assert not broker.flusher.recovery_points_are_due(NOW_MS + 5000), "nothing has moved"
        broker.append()
        broker.flusher.flush()
        assert not broker.flusher.recovery_points_are_due(NOW_MS + 999)
        assert broker.flusher.recovery_points_are_due(NOW_MS + 1000)

    def test_are_due_when_the_clock_went_back(self) -> None:
        broker = Broker(1)
        broker.append()
        broker.flusher.flush()
        broker.flusher.save_recovery_points(NOW_MS)
        broker.append()
        broker.flusher.flush()
        assert broker.flusher.recovery_points_are_due(NOW_MS - 3_600_000)

    @pytest.mark.parametrize("flushed_between", [True, False])
    def test_are_due_after_a_roll(self, flushed_between: bool) -> None:
        broker = Broker(1)
        for _ in range(3):
            broker.append()
        if flushed_between:
            broker.flusher.flush()
        broker.flusher.save_recovery_points(NOW_MS)
        broker.append()
        assert len(broker.logs[0].segments) == 2
        broker.flusher.flush()
        assert broker.flusher.recovery_points_are_due(NOW_MS + 1)
        broker.flusher.save_recovery_points(NOW_MS + 1)
        broker.append()
        broker.flusher.flush()
        assert not broker.flusher.recovery_points_are_due(NOW_MS + 2)

    def test_are_due_again_after_a_second_when_they_could_not_be_saved(self) -> None:
        broker = Broker(1)
        broker.append()
        broker.flusher.flush()
        broker.files.fail("rename", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            broker.flusher.save_recovery_points(NOW_MS)
        assert not broker.flusher.recovery_points_are_due(NOW_MS + 999)
        assert broker.flusher.recovery_points_are_due(NOW_MS + 1000), "though nothing was flushed since"
        broker.flusher.save_recovery_points(NOW_MS + 1000)
        assert broker.logs[0].recovery_point == 1
        assert not broker.flusher.recovery_points_are_due(NOW_MS + 5000)

    def test_bound_what_a_restart_has_to_check(self) -> None:
        store = Store(config=LogConfig(index_interval_bytes=ONE))
        for _ in range(50):
            store.append(b"x")
        store.flush(save_recovery_points=True)
        store.log.segments[-1].save_index()
        store.append(b"y")
        store.reopen(clean=False)
        assert store.report.scanned_bytes <= 3 * ONE

    def test_never_lie_above_what_was_flushed(self) -> None:
        broker = Broker(1)
        for _ in range(3):
            broker.append()
        broker.flusher.flush()
        broker.flusher.save_recovery_points(NOW_MS)
        broker.logs[0].truncate(1)
        broker.append(value=b"new", epoch=1)
        for damage in Damage:
            found = Broker(1, broker.files.after_crash(damage, random.Random(0)))
            assert values_of(found.logs[0])[:1] == [b"x"]
            assert found.logs[0].end_offset <= 2
