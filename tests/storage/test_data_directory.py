"""A data folder: whose it is, what a stop leaves behind, and what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.protocol.batch import split
from penstock.storage.checkpoint import write_checkpoint
from penstock.storage.data_directory import DataDirectory
from penstock.storage.errors import (
    CorruptCheckpointError,
    CorruptLogError,
    DirectoryRefusedError,
    UnsupportedFormatError,
)
from penstock.storage.files import RealFiles
from penstock.storage.log import LogConfig
from penstock.storage.memory_files import MemoryFiles
from tests.storage.store import FOLDER, NOW_MS, TOPIC, Store, contents, new_batch, overwrite

ROLLING = LogConfig(segment_bytes=150)


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    program = (
        "import sys; from penstock.storage.data_directory import DataDirectory; "
        "from penstock.storage.files import RealFiles; "
        f"held = DataDirectory({path!r}, RealFiles()); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(DirectoryRefusedError, match="in use by another process; stop it, or choose another"):
            DataDirectory(path, RealFiles())
        other.communicate()
    DataDirectory(path, RealFiles()).close()


def test_a_folder_of_another_cluster_is_refused_and_stays_free() -> None:
    files = MemoryFiles()
    DataDirectory(FOLDER, files, cluster_id="ours").close()
    with pytest.raises(DirectoryRefusedError, match="belongs to cluster 'ours', not to 'theirs'"):
        DataDirectory(FOLDER, files, cluster_id="theirs")
    assert DataDirectory(FOLDER, files).cluster_id == "ours"


def test_a_folder_full_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(DirectoryRefusedError, match=r"not empty.*holiday\.jpg"):
        DataDirectory(str(tmp_path), RealFiles())


def test_folders_above_it_are_made(tmp_path: Path) -> None:
    DataDirectory(str(tmp_path / "a" / "b" / "c"), RealFiles()).close()
    assert (tmp_path / "a" / "b" / "c" / "folder").exists()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "x" * 250, "ü"])
def test_a_topic_that_cannot_be_a_folder_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="cannot be a folder"):
        DataDirectory(FOLDER, MemoryFiles()).log(topic, 0)


def test_partitions_are_found_by_their_folders() -> None:
    directory = DataDirectory(FOLDER, MemoryFiles())
    for topic, partition in [("a-b", 3), ("a", 10), ("a", 0)]:
        directory.log(topic, partition).append(split(new_batch(b"x")), leader_epoch=0, now_ms=NOW_MS)
    assert sorted(directory.partitions()) == [("a", 0), ("a", 10), ("a-b", 3)]


def test_a_clean_stop_leaves_a_marker_with_the_broker_epoch_that_the_next_start_removes() -> None:
    store = Store()
    store.append(b"a")
    store.directory.close(broker_epoch=42)
    marker = f"{FOLDER}/clean-shutdown"
    assert store.files.stat(marker) is not None
    store.open()
    assert store.files.stat(marker) is None
    assert (store.directory.was_clean, store.directory.last_broker_epoch) == (True, 42)
    assert store.report.scanned_bytes == 0
    store.reopen(clean=False)
    assert (store.directory.was_clean, store.directory.last_broker_epoch) == (False, None)
    assert store.report.scanned_bytes > 0


def test_a_log_that_is_not_opened_stays_as_clean_or_unclean_as_it_was() -> None:
    store = Store()
    for partition in (0, 1):
        store.other_log(partition).append(split(new_batch(b"a")), leader_epoch=0, now_ms=NOW_MS)
    store.reopen()
    store.reopen()
    store.other_log(1)
    assert store.directory.reports[f"{TOPIC}-1"].scanned_bytes == 0
    store.append(b"b")
    store.kill()
    DataDirectory(FOLDER, store.files).close()
    store.open()
    assert store.report.scanned_bytes > 0, "it was never recovered, so it is not clean"


def test_a_clean_end_that_is_not_there_is_not_believed() -> None:
    store = Store()
    store.append(b"a")
    store.append(b"b")
    store.stop()
    path = f"{store.path}/{store.names('.log')[0]}"
    overwrite(store.files, path, contents(store.files, path)[:-10])
    with pytest.raises(CorruptLogError, match="too few for a batch"):
        store.open()


@pytest.mark.parametrize("lost", ["missing", "shortened", "emptied"])
def test_a_segment_lost_below_the_recovery_point_is_reported_after_an_unclean_stop(lost: str) -> None:
    store = Store(config=ROLLING)
    for number in range(8):
        store.append(b"%d" % number)
    store.flush(save_recovery_points=True)
    victim = store.log.segments[1].path
    store.kill()
    data = contents(store.files, victim)
    if lost == "missing":
        store.files.unlink(victim)
    else:
        overwrite(store.files, victim, data[: len(data) // 2] if lost == "shortened" else b"")
    with pytest.raises(CorruptLogError, match="restore this partition from a replica or a backup"):
        store.open()
    assert len(store.names(".log")) >= 4 - (lost == "missing"), "nothing is cut"


def test_a_fault_above_the_recovery_point_is_cut_and_told() -> None:
    store = Store()
    store.append(b"a")
    store.flush(save_recovery_points=True)
    store.append(b"b")
    store.append(b"c")
    path = f"{store.path}/{store.names('.log')[0]}"
    size = store.log.size
    store.kill()
    store.memory.flip_bit(path, size // 3 + 65, 0)
    store.open()
    assert store.values() == [b"a"]
    assert store.report.cut_bytes == size - store.log.size > 0
    assert "CRC32C" in (store.report.cut_reason or "")


def test_another_log_under_the_same_name_is_set_aside_and_not_deleted() -> None:
    files = MemoryFiles()
    directory = DataDirectory(FOLDER, files)
    log = directory.log(TOPIC, 0, identity=b"first")
    log.append(split(new_batch(b"old")), leader_epoch=0, now_ms=NOW_MS)
    directory.close()
    directory = DataDirectory(FOLDER, files)
    log = directory.log(TOPIC, 0, identity=b"second")
    assert log.end_offset == 0
    assert f"{TOPIC}-0.0-stray" in files.list(FOLDER)
    log.append(split(new_batch(b"new")), leader_epoch=0, now_ms=NOW_MS)
    directory.close()
    assert DataDirectory(FOLDER, files).log(TOPIC, 0, identity=b"second").end_offset == 1


def test_a_deleted_log_is_gone_at_once_and_what_was_known_of_it_too() -> None:
    store = Store()
    for _ in range(3):
        store.append(b"x")
    store.flush(save_recovery_points=True)
    store.directory.delete(TOPIC, 0)
    assert store.files.stat(store.path) is None
    assert store.other_log(0).end_offset == 0
    store.reopen(clean=False)
    assert store.log.end_offset == 0


def test_a_deletion_that_was_cut_short_is_finished_by_the_next_start() -> None:
    store = Store()
    store.append(b"x")
    store.flush(save_recovery_points=True)
    store.directory._set_aside(f"{TOPIC}-0", "delete")
    store.kill()
    assert f"{TOPIC}-0.0-delete" in store.files.list(FOLDER)
    store.open()
    assert store.files.list(FOLDER) == ["folder", "lock", "recovery-points"]
    assert store.log.end_offset == 0


def test_a_log_deleted_while_it_is_flushed_leaves_no_trace() -> None:
    store = Store()
    store.append(b"x")
    round = store.directory.flusher.begin()
    store.directory.delete(TOPIC, 0)
    round.work[0][1].dirt.files.clear()
    round.work[0][1].dirt.directories.clear()
    store.directory.flusher.end(round)
    store.directory.flusher.save_recovery_points(NOW_MS)
    store.reopen(clean=False)
    assert store.log.end_offset == 0


@pytest.mark.parametrize(
    ("name", "kind"), [("folder", b"FOLD"), ("recovery-points", b"RCVP"), ("clean-shutdown", b"CLEN")]
)
def test_a_newer_format_is_refused_and_a_damaged_file_named(name: str, kind: bytes) -> None:
    store = Store()
    store.append(b"a")
    store.stop()
    path = f"{FOLDER}/{name}"
    sound = contents(store.files, path)
    write_checkpoint(store.files, path, kind, 2, b"from the future")
    with pytest.raises(UnsupportedFormatError, match=f"{name} has format 2.*reads up to 1; upgrade Penstock"):
        store.open()
    overwrite(store.files, path, sound[:-1])
    with pytest.raises(CorruptCheckpointError, match=f"{name} is damaged"):
        store.open()
    overwrite(store.files, path, sound)
    store.open()
    assert store.values() == [b"a"]


@pytest.mark.parametrize(("name", "kind"), [("leader-epochs", b"EPOC"), ("log-start", b"STRT"), ("identity", b"IDEN")])
def test_a_newer_format_of_a_file_of_a_log_is_refused(name: str, kind: bytes) -> None:
    files = MemoryFiles()
    directory = DataDirectory(FOLDER, files)
    directory.log(TOPIC, 0, identity=b"me").append(split(new_batch(b"a")), leader_epoch=0, now_ms=NOW_MS)
    directory.close()
    write_checkpoint(files, f"{FOLDER}/{TOPIC}-0/{name}", kind, 2, b"from the future")
    with pytest.raises(UnsupportedFormatError, match=f"{name} has format 2.*upgrade Penstock"):
        DataDirectory(FOLDER, files).log(TOPIC, 0, identity=b"me")
