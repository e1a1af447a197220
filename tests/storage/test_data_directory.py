"""A data folder: who may use it, what a clean stop is worth, and what is refused with which words."""

import errno
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.protocol.batch import split, stamp
from penstock.storage.data_directory import CLEAN_SHUTDOWN_FILE, FOLDER_FILE, DataDirectory
from penstock.storage.errors import (
    CorruptCheckpointError,
    CorruptLogError,
    DirectoryRefusedError,
    LogOfflineError,
    OffsetOutOfRangeError,
    UnsupportedFormatError,
)
from penstock.storage.files import Files, RealFiles
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from penstock.storage.log.log import Log, LogConfig
from tests.storage.store import FOLDER, NOW_MS, contents, make_newer, new_batch, overwrite, values_of

MARKER = f"{FOLDER}/{CLEAN_SHUTDOWN_FILE}"


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def append(log: Log, value: bytes = b"x") -> None:
    log.append(split(new_batch(value)), leader_epoch=0, now_ms=NOW_MS)


class TestTaking:
    def test_a_folder_is_made_with_those_above_it(self, files: MemoryFiles) -> None:
        DataDirectory("/var/lib/data", files).close()
        assert files.list("/var/lib/data") == [CLEAN_SHUTDOWN_FILE, FOLDER_FILE, "lock", "recovery-points"]
        for damage in Damage:
            found = files.after_crash(damage, random.Random(0))
            assert DataDirectory("/var/lib/data", found).was_clean

    def test_a_crash_while_it_is_made_is_no_reason_to_refuse_it(self, files: MemoryFiles) -> None:
        DataDirectory("/a/b", dry_run := MemoryFiles(), cluster_id="one")
        for step in range(1, dry_run.steps + 1):
            for damage in Damage:
                files = MemoryFiles(seed=step)
                files.crash_at(step)
                with pytest.raises(Crashed):
                    DataDirectory("/a/b", files, cluster_id="one")
                found = files.after_crash(damage, random.Random(step))
                assert DataDirectory("/a/b", found, cluster_id="one").cluster_id == "one"

    def test_a_folder_that_another_descriptor_holds_is_refused(self, files: MemoryFiles) -> None:
        first = DataDirectory(FOLDER, files)
        with pytest.raises(DirectoryRefusedError, match=f"{FOLDER} is in use by another process; stop it, or choose"):
            DataDirectory(FOLDER, files)
        first.close()
        DataDirectory(FOLDER, files)

    def test_a_second_process_on_the_folder_is_refused(self, tmp_path: Path) -> None:
        folder = str(tmp_path / "data")
        program = (
            "import sys\n"
            "from penstock.storage.data_directory import DataDirectory\n"
            "from penstock.storage.files import RealFiles\n"
            f"directory = DataDirectory({folder!r}, RealFiles())\n"
            "print('taken', flush=True)\n"
            "sys.stdin.read()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "taken\n"
            with pytest.raises(DirectoryRefusedError, match="in use by another process"):
                DataDirectory(folder, RealFiles())
            other.kill()
            other.wait()
            directory = DataDirectory(folder, RealFiles())
            assert not directory.was_clean
            directory.close()

    def test_a_folder_of_another_cluster_is_refused(self, files: MemoryFiles) -> None:
        DataDirectory(FOLDER, files, cluster_id="ours").close()
        with pytest.raises(DirectoryRefusedError, match=f"{FOLDER} belongs to cluster 'ours', not to 'theirs'; choose"):
            DataDirectory(FOLDER, files, cluster_id="theirs")
        assert DataDirectory(FOLDER, files, cluster_id="ours").cluster_id == "ours"

    def test_who_does_not_ask_learns_the_cluster(self, files: MemoryFiles) -> None:
        DataDirectory(FOLDER, files, cluster_id="ours").close()
        assert DataDirectory(FOLDER, files).cluster_id == "ours"

    def test_a_folder_that_has_other_things_in_it_is_refused_and_left_alone(self, files: MemoryFiles) -> None:
        files.make_directory(FOLDER)
        overwrite(files, f"{FOLDER}/holiday.jpg", b"sea")
        with pytest.raises(DirectoryRefusedError, match=r"not empty \(it has holiday.jpg\); choose an empty one"):
            DataDirectory(FOLDER, files)
        assert set(files.list(FOLDER)) <= {"holiday.jpg", "lock"}

    @pytest.mark.parametrize("call", ["open", "pwritev", "sync", "rename", "unlink", "sync_directory"])
    def test_a_refusal_or_an_error_leaves_the_folder_free_for_the_next(self, files: MemoryFiles, call: str) -> None:
        DataDirectory(FOLDER, files).close(broker_epoch=1)
        nth, has_failed = 0, True
        while has_failed:
            nth += 1
            copy = files.copy()
            copy.fail(call, nth, error := OSError(errno.EIO, "broken"))
            try:
                DataDirectory(FOLDER, copy).close()
            except OSError:
                assert copy.open_descriptors == 0
                DataDirectory(FOLDER, copy).close()
            has_failed = error.__traceback__ is not None


class TestFormats:
    """Each kind of file carries a version, and a newer one is refused by name, with the advice to upgrade."""

    def folder(self) -> MemoryFiles:
        files = MemoryFiles()
        directory = DataDirectory(FOLDER, files)
        log = directory.log("orders", 0, LogConfig(segment_bytes=150), identity=b"me")
        for number in range(5):
            append(log, b"%d" % number)
        log.save_snapshot(b"state", version=1)
        follower = directory.log("orders", 1)
        batch = new_batch(b"after a hole")
        stamp(batch, 7, 0)
        follower.append_replicated(split(batch), now_ms=NOW_MS)
        log.advance_start(1)
        directory.note_boot()
        directory.close()
        return files

    def use(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        log = directory.log("orders", 0, LogConfig(segment_bytes=150), identity=b"me")
        values_of(log)
        log.latest_snapshot(version=1)
        directory.log("orders", 1)
        directory.close()

    @pytest.mark.parametrize(
        "name",
        [
            "orders-1/holes",
            "folder",
            "recovery-points",
            "clean-shutdown",
            "boot",
            "orders-0/identity",
            "orders-0/leader-epochs",
            "orders-0/log-start",
            "orders-0/00000000000000000005.snapshot",
            "orders-0/00000000000000000000.index",
            "orders-0/00000000000000000000.timeindex",
            "orders-0/00000000000000000004.index",
            "orders-0/00000000000000000004.timeindex",
        ],
    )
    def test_a_newer_one_is_refused_and_nothing_is_lost_by_the_attempt(self, name: str) -> None:
        files = self.folder()
        self.use(files.copy())
        older = contents(files, f"{FOLDER}/{name}")
        make_newer(files, f"{FOLDER}/{name}")
        before = snapshot_of(files)
        with pytest.raises(UnsupportedFormatError, match=rf"{FOLDER}/{name} has format [23], .* upgrade Penstock"):
            self.use(files)
        files.kill_process()
        after = snapshot_of(files)
        after.setdefault(CLEAN_SHUTDOWN_FILE, before[CLEAN_SHUTDOWN_FILE])
        assert after == before
        overwrite(files, f"{FOLDER}/{name}", older)
        self.use(files)

    def test_no_kind_of_file_is_missing_above(self) -> None:
        names = {name.partition(".")[2] or name for name in snapshot_of(self.folder())}
        names -= {"orders-1/leader-epochs"}
        assert names == {
            "boot", "clean-shutdown", "folder", "lock", "recovery-points", "orders-0/identity",
            "orders-0/leader-epochs", "orders-0/log-start", "orders-1/holes", "snapshot", "index", "timeindex", "log",
        }  # fmt: skip

    @pytest.mark.parametrize(
        "name", ["folder", "recovery-points", "clean-shutdown", "boot", "orders-0/identity", "orders-0/leader-epochs",
                 "orders-0/log-start", "orders-1/holes"]
    )  # fmt: skip
    def test_a_damaged_checkpoint_is_reported_by_name(self, name: str) -> None:
        files = self.folder()
        files.flip_bit(f"{FOLDER}/{name}", 14, 0)
        with pytest.raises(CorruptCheckpointError, match=f"{FOLDER}/{name} is damaged"):
            self.use(files)


def snapshot_of(files: Files) -> dict[str, bytes]:
    """Every file below the folder and its content."""
    names = files.list(FOLDER)
    folders = [name for name in names if name.startswith("orders-")]
    names = [name for name in names if name not in folders]
    names += [f"{folder}/{name}" for folder in folders for name in files.list(f"{FOLDER}/{folder}")]
    return {name: contents(files, f"{FOLDER}/{name}") for name in names}


class TestTheMachine:
    """Whether it has run on since a process noted its run, so that what was written and not flushed is there."""

    def noted(self, files: MemoryFiles) -> DataDirectory:
        directory = DataDirectory(FOLDER, files)
        directory.note_boot()
        return directory

    def test_that_runs_on_has_what_a_killed_process_wrote(self, files: MemoryFiles) -> None:
        self.noted(files).abandon()
        assert not DataDirectory(FOLDER, files).may_lack_unflushed

    def test_that_lost_its_power_may_lack_what_was_not_flushed(self, files: MemoryFiles) -> None:
        self.noted(files)
        for damage in Damage:
            found = files.after_crash(damage, random.Random(0))
            assert DataDirectory(FOLDER, found).may_lack_unflushed

    def test_lacks_nothing_after_a_clean_stop_in_an_earlier_run(self, files: MemoryFiles) -> None:
        self.noted(files).close()
        found = files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        assert not DataDirectory(FOLDER, found).may_lack_unflushed

    def test_may_lack_something_until_that_is_noted_however_often_a_process_starts(self, files: MemoryFiles) -> None:
        self.noted(files)
        found = files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))
        for _ in range(2):
            directory = DataDirectory(FOLDER, found)
            assert directory.may_lack_unflushed
            directory.abandon()
        self.noted(found).abandon()
        assert not DataDirectory(FOLDER, found).may_lack_unflushed

    def test_may_lack_something_if_it_has_no_name_for_its_runs(
        self, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(MemoryFiles, "boot_id", lambda self: "")
        self.noted(files).abandon()
        assert DataDirectory(FOLDER, files).may_lack_unflushed

    def test_notes_its_run_once(self, files: MemoryFiles) -> None:
        directory = self.noted(files)
        steps = files.steps
        directory.note_boot()
        assert files.steps == steps

    def test_without_room_for_the_note_may_lack_something_at_the_next_start(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        files.capacity = 0
        directory.note_boot()
        directory.abandon()
        files.capacity = None
        assert DataDirectory(FOLDER, files).may_lack_unflushed


class TestACleanStop:
    def test_leaves_a_marker_with_the_broker_epoch(self, files: MemoryFiles) -> None:
        first = DataDirectory(FOLDER, files)
        assert (first.was_clean, first.last_broker_epoch) == (False, None)
        first.close(broker_epoch=77)
        second = DataDirectory(FOLDER, files)
        assert (second.was_clean, second.last_broker_epoch) == (True, 77)

    def test_is_not_what_an_abandoned_folder_tells_of(self, files: MemoryFiles) -> None:
        first = DataDirectory(FOLDER, files)
        steps = files.steps
        first.abandon()
        assert (files.steps, files.open_descriptors) == (steps, 0)
        assert not DataDirectory(FOLDER, files).was_clean

    def test_counts_once_because_the_marker_is_removed_before_anything_is_served(self, files: MemoryFiles) -> None:
        DataDirectory(FOLDER, files).close()
        assert files.stat(MARKER) is not None
        DataDirectory(FOLDER, files)
        assert files.stat(MARKER) is None
        for damage in Damage:
            found = files.after_crash(damage, random.Random(0))
            assert found.stat(MARKER) is None

    def test_flushes_everything_first(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        for number in range(12):
            append(directory.log("orders", number))
        directory.close()
        for damage in Damage:
            found = DataDirectory(FOLDER, files.after_crash(damage, random.Random(0)))
            assert found.was_clean
            for number in range(12):
                assert values_of(found.log("orders", number)) == [b"x"]
                assert found.reports[f"orders-{number}"].scanned_bytes == 0

    def test_is_none_if_the_flush_failed(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0))
        files.fail("sync", 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            directory.close()
        assert files.stat(MARKER) is None
        assert files.open_descriptors == 0
        assert not DataDirectory(FOLDER, files).was_clean

    def test_is_remembered_for_logs_that_nobody_opened_since(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        for topic in ("used", "idle"):
            append(directory.log(topic, 0))
        directory.close()
        for _ in range(3):
            directory = DataDirectory(FOLDER, files)
            append(directory.log("used", 0))
            directory.close()
        directory = DataDirectory(FOLDER, files)
        assert values_of(directory.log("idle", 0)) == [b"x"]
        assert directory.reports["idle-0"].scanned_bytes == 0
        assert directory.log("used", 0).end_offset == 4

    def test_is_remembered_for_a_log_that_could_not_be_opened(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0))
        directory.close()
        index = f"{FOLDER}/orders-0/00000000000000000000.index"
        older = contents(files, index)
        make_newer(files, index)
        directory = DataDirectory(FOLDER, files)
        with pytest.raises(UnsupportedFormatError):
            directory.log("orders", 0)
        directory.close()
        overwrite(files, index, older)
        directory = DataDirectory(FOLDER, files)
        assert values_of(directory.log("orders", 0)) == [b"x"]
        assert directory.reports["orders-0"].scanned_bytes == 0

    def test_is_forgotten_for_logs_that_nobody_opened_before_a_crash(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("idle", 0))
        directory.close()
        DataDirectory(FOLDER, files)
        found = DataDirectory(FOLDER, files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
        assert not found.was_clean
        assert values_of(found.log("idle", 0)) == [b"x"]
        assert found.reports["idle-0"].cut_bytes == 0

    def test_leaves_nothing_open(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        for number in range(12):
            append(directory.log("orders", number))
            values_of(directory.log("orders", number))
        directory.close()
        assert files.open_descriptors == 0


class TestLogs:
    def test_a_partition_has_one_log(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        assert directory.log("orders", 0) is directory.log("orders", 0)
        assert directory.log("orders", 0) is not directory.log("orders", 1)

    def test_partitions_are_those_that_have_a_folder(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        for topic, partition in [("orders", 0), ("orders", 12), ("a-1", 3), ("with.dots_and", 4_294_967_295)]:
            append(directory.log(topic, partition))
        directory.log("never-written", 0)
        directory.close()
        found = DataDirectory(FOLDER, files).partitions()
        assert sorted(found) == [("a-1", 3), ("orders", 0), ("orders", 12), ("with.dots_and", 4_294_967_295)]

    @pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../up", "a b", "ü", "a\n", "a\0", "x" * 250])
    def test_a_topic_that_cannot_be_a_folder_is_refused(self, files: MemoryFiles, topic: str) -> None:
        directory = DataDirectory(FOLDER, files)
        with pytest.raises(ValueError, match="cannot be a folder: a topic has 1 to 249 letters, digits"):
            directory.log(topic, 0)

    @pytest.mark.parametrize("partition", [-1, 10**10])
    def test_a_partition_that_cannot_be_is_refused(self, files: MemoryFiles, partition: int) -> None:
        with pytest.raises(ValueError, match="cannot be a folder"):
            DataDirectory(FOLDER, files).log("orders", partition)

    def test_more_segments_than_descriptors_can_be_read(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files, descriptors=3)
        log = directory.log("orders", 0, LogConfig(segment_bytes=1))
        for number in range(20):
            append(log, b"%d" % number)
        directory.flusher.flush()
        assert values_of(log) == [b"%d" % number for number in range(20)]
        assert files.open_descriptors <= 3 + 1, "those of the log and the lock"


class TestIdentity:
    """Whose log it is: a topic that was deleted and made anew has the same name but another identity."""

    def test_the_same_owner_finds_its_log(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0, identity=b"one"))
        directory.close()
        directory = DataDirectory(FOLDER, files)
        assert values_of(directory.log("orders", 0, identity=b"one")) == [b"x"]
        assert directory.reports["orders-0"].scanned_bytes == 0

    def test_what_belongs_to_another_is_set_aside_and_neither_opened_nor_deleted(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0, identity=b"one"), b"of one")
        directory.close()
        for number, identity in enumerate([b"two", b"three"]):
            directory = DataDirectory(FOLDER, files)
            log = directory.log("orders", 0, identity=identity)
            assert (log.start_offset, log.end_offset) == (0, 0)
            append(log, b"of another")
            directory.close()
            assert files.stat(f"{FOLDER}/orders-0.{number}-stray/00000000000000000000.log") is not None
        assert b"of one" in contents(files, f"{FOLDER}/orders-0.0-stray/00000000000000000000.log")
        assert DataDirectory(FOLDER, files).partitions() == [("orders", 0)]

    def test_who_does_not_care_gets_what_is_there(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0, identity=b"one"))
        directory.close()
        assert values_of(DataDirectory(FOLDER, files).log("orders", 0)) == [b"x"]

    def test_a_damaged_one_is_no_reason_to_lose_what_was_flushed(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0, identity=b"one"))
        directory.close()
        files.flip_bit(f"{FOLDER}/orders-0/identity", 19, 0)
        with pytest.raises(CorruptCheckpointError, match="orders-0/identity is damaged"):
            DataDirectory(FOLDER, files).log("orders", 0, identity=b"one")
        assert files.list(FOLDER).count("orders-0") == 1

    @pytest.mark.parametrize("call", ["make_directory", "open", "truncate", "pwritev"])
    def test_a_log_that_could_not_write_it_writes_it_with_the_next_append(self, call: str) -> None:
        nth = 1
        while True:
            files = MemoryFiles()
            directory = DataDirectory(FOLDER, files)
            log = directory.log("orders", 0, identity=b"one")
            files.fail(call, nth, OSError(errno.ENOSPC, "full"))
            try:
                append(log)
            except OSError:
                append(log)
            else:
                break
            directory.flusher.flush()
            found = DataDirectory(FOLDER, files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0)))
            assert values_of(found.log("orders", 0, identity=b"one")) == [b"x"], f"call {nth}"
            nth += 1
        assert nth > 1, "the first append makes this call"


class TestTruncatingMany:
    """Logs of ten records each, of epochs 0 to 4, of which one is to be cut in the middle, one not at all ..."""

    CONFIG = LogConfig(segment_bytes=3 * len(new_batch(b"x")))
    OFFSETS = (4, 10, 0, 9, 6)

    def logs(self, directory: DataDirectory) -> list[Log]:
        return [directory.log("orders", number, self.CONFIG) for number in range(len(self.OFFSETS))]

    def filled(self, files: MemoryFiles) -> tuple[DataDirectory, list[Log]]:
        directory = DataDirectory(FOLDER, files)
        logs = self.logs(directory)
        for log in logs:
            for number in range(10):
                log.append(split(new_batch(b"%d" % number)), leader_epoch=number // 2, now_ms=NOW_MS)
            log.begin_epoch(8)
        directory.flusher.flush()
        directory.flusher.save_recovery_points(NOW_MS)
        return directory, logs

    def cuts(self, logs: list[Log]) -> list[tuple[Log, int]]:
        return list(zip(logs, self.OFFSETS, strict=True))

    def check(self, log: Log, end: int) -> None:
        assert values_of(log) == [b"%d" % number for number in range(end)]
        assert log.epochs.entries == tuple((epoch, 2 * epoch) for epoch in range((end + 1) // 2))

    def test_cuts_each_where_it_is_told_to_and_durably(self, files: MemoryFiles) -> None:
        directory, logs = self.filled(files)
        assert directory.truncate_many(self.cuts(logs)) == {}
        for log, end in self.cuts(logs):
            self.check(log, end)
            assert log.flushed_offset == end
        for damage in Damage:
            again = self.logs(DataDirectory(FOLDER, files.after_crash(damage, random.Random(0))))
            for log, end in self.cuts(again):
                self.check(log, end)
        append(logs[0], b"new")
        directory.flusher.flush()
        assert logs[0].flushed_offset == 5

    def test_lowers_all_recovery_points_at_once(self, files: MemoryFiles) -> None:
        directory, logs = self.filled(files)
        renamed: list[str] = []
        rename = files.rename

        def noted(old: str, new: str) -> None:
            renamed.append(new)
            rename(old, new)

        files.rename = noted  # type: ignore[method-assign]
        directory.truncate_many(self.cuts(logs))
        assert renamed.count(f"{FOLDER}/recovery-points") == 1

    def test_leaves_each_log_whole_or_cut_after_a_power_loss(self) -> None:
        files = MemoryFiles()
        directory, logs = self.filled(files)
        begun = files.steps
        directory.truncate_many(self.cuts(logs))
        for step in range(begun + 1, files.steps + 1):
            copy = MemoryFiles(seed=step)
            doomed, its_logs = self.filled(copy)
            copy.crash_at(step)
            with pytest.raises(Crashed):
                doomed.truncate_many(self.cuts(its_logs))
            for damage in Damage:
                again = self.logs(DataDirectory(FOLDER, copy.after_crash(damage, random.Random(step))))
                for log, end in self.cuts(again):
                    assert end <= log.end_offset <= 10
                    assert values_of(log) == [b"%d" % number for number in range(log.end_offset)]
                    assert log.last_record_epoch == (log.end_offset + 1) // 2 - 1

    def test_that_fails_for_one_log_takes_that_one_offline_and_cuts_the_others(self, files: MemoryFiles) -> None:
        directory, logs = self.filled(files)
        logs[1].fail(OSError(errno.EIO, "earlier"))
        logs[4].advance_start(8)
        files.fail("truncate", 3, OSError(errno.EIO, "broken"))
        errors = directory.truncate_many(self.cuts(logs))
        assert {logs.index(log): type(error) for log, error in errors.items()} == {
            0: LogOfflineError,
            1: LogOfflineError,
            4: OffsetOutOfRangeError,
        }
        assert [log.failure is None for log in logs] == [False, False, True, True, True]
        self.check(logs[2], 0)
        self.check(logs[3], 9)
        assert logs[4].end_offset == 10
        assert directory.failure is None

    def test_that_cannot_lower_recovery_points_cuts_nothing(self, files: MemoryFiles) -> None:
        directory, logs = self.filled(files)
        rename = files.rename

        def refused(old: str, new: str) -> None:
            if new.endswith("recovery-points"):
                raise OSError(errno.EIO, "broken")
            rename(old, new)

        files.rename = refused  # type: ignore[method-assign]
        errors = directory.truncate_many(self.cuts(logs))
        assert [logs.index(log) for log in errors] == [0, 2, 3, 4], "the one that need not be cut is well"
        again = self.logs(DataDirectory(FOLDER, files.after_crash(Damage.LOSE_UNSYNCED, random.Random(0))))
        assert [log.end_offset for log in again] == [10] * 5

    @pytest.mark.parametrize("synced_first", [True, False])
    @pytest.mark.parametrize("damage", Damage)
    def test_keeps_a_flush_that_is_under_way_from_vouching_for_what_comes_after(
        self, files: MemoryFiles, damage: Damage, synced_first: bool
    ) -> None:
        directory, logs = self.filled(files)
        for log in logs:
            append(log, b"10")
        under_way = directory.flusher.begin()
        if synced_first:
            under_way.sync()
        assert directory.truncate_many(self.cuts(logs)) == {}
        for log in logs:
            log.append(split(new_batch(b"new")), leader_epoch=9, now_ms=NOW_MS)
        if not synced_first:
            under_way.sync()
        directory.flusher.end(under_way)
        directory.flusher.save_recovery_points(NOW_MS)
        for log, end in self.cuts(logs):
            assert log.flushed_offset <= end
        found = self.logs(DataDirectory(FOLDER, files.after_crash(damage, random.Random(0))))
        for log, end in self.cuts(found):
            assert values_of(log)[:end] == [b"%d" % number for number in range(end)]
        directory.flusher.flush()
        assert [log.flushed_offset for log in logs] == [end + 1 for end in self.OFFSETS]

    def test_goes_on_beside_appends_reads_and_flushes_of_other_logs(self, tmp_path: Path) -> None:
        # Few descriptors, so that each file closes others.
        directory = DataDirectory(f"{tmp_path}/data", RealFiles(), descriptors=3)
        count = 24
        cut = [directory.log("cut", number, self.CONFIG) for number in range(count)]
        others = [directory.log("other", number, self.CONFIG) for number in range(8)]
        for log in (*cut, *others):
            for number in range(10):
                append(log, b"%d" % number)
        directory.flusher.flush()
        errors: list[dict[Log, Exception]] = []
        cuts = [(log, number % 11) for number, log in enumerate(cut)]
        for log in cut[::2]:
            # Flushes that end while the logs are cut have an effect later.
            log.begin_epoch(3)
        thread = threading.Thread(target=lambda: errors.append(directory.truncate_many(cuts)))
        written = 10
        thread.start()
        while thread.is_alive() or written < 20:
            for log in others:
                append(log, b"%d" % written)
                assert len(values_of(log)) == written + 1
            directory.flusher.flush()
            directory.flusher.save_recovery_points(NOW_MS)
            written += 1
        thread.join()
        assert errors == [{}]
        directory.flusher.flush()
        for log, end in cuts:
            assert (log.end_offset, log.flushed_offset) == (min(end, 10), min(end, 10))
        assert directory.close()
        again = DataDirectory(f"{tmp_path}/data", RealFiles())
        for number in range(count):
            found = again.log("cut", number, self.CONFIG)
            assert values_of(found) == [b"%d" % value for value in range(min(number % 11, 10))]
        assert len(values_of(again.log("other", 0, self.CONFIG))) == written
        again.close()


class TestSettingAside:
    def damaged(self, files: MemoryFiles) -> DataDirectory:
        """A folder with a log that was flushed, and cannot be opened."""
        directory = DataDirectory(FOLDER, files)
        log = directory.log("orders", 0, identity=b"me")
        append(log, b"old")
        directory.close()
        files.unlink(f"{FOLDER}/clean-shutdown")
        files.flip_bit(f"{FOLDER}/orders-0/{0:020}.log", 40, 0)
        directory = DataDirectory(FOLDER, files)
        with pytest.raises(CorruptLogError):
            directory.log("orders", 0, identity=b"me")
        return directory

    def test_frees_the_name_of_a_log_that_cannot_be_opened_for_a_new_one(self, files: MemoryFiles) -> None:
        directory = self.damaged(files)
        aside = directory.set_aside("orders", 0)
        assert aside == f"{FOLDER}/orders-0.0-stray"
        log = directory.log("orders", 0, identity=b"me")
        assert (log.start_offset, log.end_offset, log.epochs.entries) == (0, 0, ())
        append(log, b"new")
        directory.flusher.flush()
        for damage in Damage:
            again = DataDirectory(FOLDER, files.after_crash(damage, random.Random(0)))
            assert values_of(again.log("orders", 0, identity=b"me")) == [b"new"]
            assert again.partitions() == [("orders", 0)]

    def test_knows_a_folder_that_this_process_has_not_opened(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0))
        assert not directory.has_unopened("orders", 0)
        assert directory.close()
        directory = DataDirectory(FOLDER, files)
        assert directory.has_unopened("orders", 0)
        assert not directory.has_unopened("orders", 1)
        directory.log("orders", 0)
        assert not directory.has_unopened("orders", 0)

    def test_takes_a_log_that_is_open_out_of_use(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        log = directory.log("orders", 0)
        append(log)
        under_way = directory.flusher.begin()
        log.begin_epoch(5)
        assert directory.set_aside("orders", 0) is not None
        under_way.sync()
        directory.flusher.end(under_way)
        log.epochs.save()
        fresh = directory.log("orders", 0)
        assert fresh is not log
        assert values_of(fresh) == []
        append(fresh, b"new")
        directory.flusher.flush()
        assert directory.close()
        assert values_of(DataDirectory(FOLDER, files).log("orders", 0)) == [b"new"]

    def test_keeps_every_log_that_was_set_aside_under_a_name_of_its_own_for_good(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        for number in range(3):
            append(directory.log("orders", 0), b"%d" % number)
            directory.flusher.flush()
            assert directory.set_aside("orders", 0) == f"{FOLDER}/orders-0.{number}-stray"
        directory.close()
        DataDirectory(FOLDER, files).close()
        for number in range(3):
            assert f"{0:020}.log" in files.list(f"{FOLDER}/orders-0.{number}-stray")

    def test_forgets_that_a_log_was_flushed_whose_folder_is_gone(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0))
        directory.close()
        for name in files.list(f"{FOLDER}/orders-0"):
            files.unlink(f"{FOLDER}/orders-0/{name}")
        files.remove_directory(f"{FOLDER}/orders-0")
        directory = DataDirectory(FOLDER, files)
        with pytest.raises(CorruptLogError):
            directory.log("orders", 0)
        assert directory.set_aside("orders", 0) is None
        assert directory.log("orders", 0).end_offset == 0

    @pytest.mark.parametrize("damage", Damage)
    def test_is_done_or_not_after_a_power_loss(self, files: MemoryFiles, damage: Damage) -> None:
        log_file = f"{0:020}.log"
        for step in range(1, 20):
            copy = MemoryFiles(seed=step)
            directory = self.damaged(copy)
            copy.crash_at(copy.steps + step)
            try:
                directory.set_aside("orders", 0)
            except Crashed:
                pass
            else:
                assert step > 3
                return
            left = copy.after_crash(damage, random.Random(step))
            names = left.list(FOLDER)
            assert ("orders-0" in names) != ("orders-0.0-stray" in names)
            kept = "orders-0" if "orders-0" in names else "orders-0.0-stray"
            assert log_file in left.list(f"{FOLDER}/{kept}")


class TestDeleting:
    def test_a_deleted_log_is_gone_and_its_name_is_free(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        for number in (0, 1):
            append(directory.log("orders", number), b"old")
        directory.flusher.flush()
        directory.flusher.save_recovery_points(NOW_MS)
        directory.delete("orders", 0)
        assert directory.partitions() == [("orders", 1)]
        log = directory.log("orders", 0)
        assert log.end_offset == 0
        append(log, b"new")
        directory.close()
        directory = DataDirectory(FOLDER, files)
        assert values_of(directory.log("orders", 0)) == [b"new"]
        assert values_of(directory.log("orders", 1)) == [b"old"]

    def test_large_files_are_unlinked_by_whoever_has_the_time(self, files: MemoryFiles) -> None:
        later: list[Callable[[], None]] = []
        directory = DataDirectory(FOLDER, files, unlink_later=later.append)
        config = LogConfig(segment_bytes=100)
        for name in ("orders", "payments"):
            for _ in range(4):
                append(directory.log(name, 0, config))
        directory.flusher.flush()
        log = directory.log("orders", 0)
        log.advance_start(3)
        assert [name for name in files.list(f"{FOLDER}/orders-0") if name.endswith(".log")] == [f"{3:020}.log"]
        directory.delete("payments", 0)
        assert directory.partitions() == [("orders", 0)]
        left = [name for name in files.list(FOLDER) if name.endswith("-delete")]
        assert left == ["payments-0.0-delete"]
        assert len(files.list(f"{FOLDER}/orders-0")) > 3
        append(log, b"new")
        for call in [*later, *later]:
            call()
        assert not [name for name in files.list(FOLDER) if name.endswith("-delete")]
        assert not [name for name in files.list(f"{FOLDER}/orders-0") if name.endswith(".deleted")]
        assert values_of(log) == [b"x", b"new"]

    def test_what_nobody_unlinked_is_gone_after_the_next_start(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files, unlink_later=lambda call: None)
        log = directory.log("orders", 0, LogConfig(segment_bytes=100))
        for _ in range(4):
            append(log)
        directory.flusher.flush()
        log.advance_start(3)
        directory.close()
        assert [name for name in files.list(f"{FOLDER}/orders-0") if name.endswith(".deleted")]
        again = DataDirectory(FOLDER, files).log("orders", 0)
        assert (again.start_offset, again.end_offset) == (3, 4)
        assert not [name for name in files.list(f"{FOLDER}/orders-0") if name.endswith(".deleted")]

    def test_on_a_disk_that_is_full_to_the_last_byte_a_log_can_be_deleted(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        append(directory.log("orders", 0), b"old")
        directory.flusher.flush()
        directory.flusher.save_recovery_points(NOW_MS)
        files.capacity = (1 << 40) - files.free_bytes(FOLDER)
        directory.delete("orders", 0)
        assert directory.partitions() == []
        assert files.free_bytes(FOLDER) > 0

    def test_what_was_never_there_can_be_deleted(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        directory.delete("orders", 0)
        directory.log("orders", 1)
        directory.delete("orders", 1)
        directory.close()

    @pytest.mark.parametrize("damage", Damage)
    def test_a_crash_leaves_a_log_whole_or_gone(self, damage: Damage) -> None:
        def prepare(files: MemoryFiles) -> DataDirectory:
            directory = DataDirectory(FOLDER, files)
            append(directory.log("orders", 0), b"old")
            directory.flusher.flush()
            directory.flusher.save_recovery_points(NOW_MS)
            return directory

        dry_run = MemoryFiles()
        directory = prepare(dry_run)
        first = dry_run.steps + 1
        directory.delete("orders", 0)
        for step in range(first, dry_run.steps + 1):
            files = MemoryFiles(seed=step)
            directory = prepare(files)
            files.crash_at(step)
            with pytest.raises(Crashed):
                directory.delete("orders", 0)
            for seed in range(5):
                after = files.after_crash(damage, random.Random(seed))
                found = DataDirectory(FOLDER, after)
                assert not [name for name in after.list(FOLDER) if name.endswith("-delete")], "deleting is finished"
                assert values_of(found.log("orders", 0)) in ([], [b"old"]), f"step {step}, seed {seed}"

    def test_readers_of_a_deleted_log_can_finish(self, files: MemoryFiles) -> None:
        directory = DataDirectory(FOLDER, files)
        log = directory.log("orders", 0)
        append(log)
        found = log.read(0, max_bytes=1000)
        assert found is not None
        directory.delete("orders", 0)
        with found:
            assert len(found.read()) == len(found)
        assert files.open_descriptors == 1, "the lock"
