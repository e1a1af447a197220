"""Data folders read without touching them: whole ones, damaged ones, ones in use."""

import pytest

from penstock.cli.log.view import (
    BatchView,
    FaultView,
    IndexView,
    NoLogError,
    PartitionView,
    SegmentView,
    View,
    partition_folders,
    walk,
)
from penstock.machines.producers import SNAPSHOT_VERSION, Producers
from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import Files, write_all
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.log import LogConfig

T = 1_767_225_600_000
TOPIC_ID = bytes(range(16))


class Folder:
    """A data folder with one log: two closed segments of two batches each, and an active one with a batch."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.data = DataDirectory("/data/logs", self.files, cluster_id="example")
        self.log = self.data.log("orders", 0, LogConfig(segment_bytes=200, index_interval_bytes=1), identity=TOPIC_ID)
        for number in range(5):
            self.append(number, epoch=number // 4)

    def append(self, number: int, *, epoch: int) -> None:
        record = NewRecord(b"value %d" % number, timestamp=T + number)
        batch = build([record, record], producer_id=7, producer_epoch=0, base_sequence=2 * number)
        self.log.append(split(batch), leader_epoch=epoch, now_ms=T)

    def views(self, path: str = "/data") -> list[View]:
        return list(walk(self.files, path))

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        fd = self.files.open(f"/data/logs/orders-0/{path}", write=True)
        write_all(self.files, fd, [data], position)
        self.files.close(fd)

    def cut(self, path: str, size: int) -> None:
        fd = self.files.open(f"/data/logs/orders-0/{path}", write=True)
        self.files.truncate(fd, size)
        self.files.close(fd)


@pytest.fixture
def folder() -> Folder:
    return Folder()


def segment(number: int, suffix: str = ".log") -> str:
    return f"{number:020}{suffix}"


def batches(views: list[View]) -> list[BatchView]:
    return [view for view in views if isinstance(view, BatchView)]


def partition(views: list[View]) -> PartitionView:
    assert isinstance(views[0], PartitionView)
    return views[0]


def content(files: Files, path: str) -> dict[str, bytes | None]:
    """All that lies below a path."""
    found: dict[str, bytes | None] = {}
    for name in files.list(path):
        child = f"{path}/{name}"
        stat = files.stat(child)
        assert stat is not None
        if stat.is_directory:
            found |= {child: None, **content(files, child)}
        else:
            fd = files.open(child)
            found[child] = files.pread(fd, files.size(fd), 0)
            files.close(fd)
    return found


def test_everything_comes_in_its_order(folder: Folder) -> None:
    folder.data.close()
    views = folder.views()
    closed = [SegmentView, BatchView, BatchView, IndexView]
    assert [type(view) for view in views] == [PartitionView, *closed, *closed, SegmentView, BatchView, IndexView]
    assert [view.base_offset for view in views if isinstance(view, SegmentView)] == [0, 4, 8]
    assert [(view.header.base_offset, view.header.base_sequence) for view in batches(views)] == [
        (0, 0),
        (2, 2),
        (4, 4),
        (6, 6),
        (8, 8),
    ]
    assert all(view.problem is None for view in batches(views))
    assert [view.header.leader_epoch for view in batches(views)] == [0, 0, 0, 0, 1]


def test_checkpoints_are_read(folder: Folder) -> None:
    producers = Producers()
    producers.fold(folder.log.headers(0), T)
    folder.log.save_snapshot(producers.snapshot(), version=SNAPSHOT_VERSION)
    folder.log.advance_start(3)
    folder.data.close()
    view = partition(folder.views())
    assert view.name == "orders-0"
    assert view.identity == TOPIC_ID
    assert view.log_start == 3
    assert view.recovery_point == 10
    assert view.leader_epochs == ((0, 3), (1, 8))
    assert view.snapshots == (10,)
    assert view.producers == 1
    assert view.problems == ()


def test_a_folder_in_use_can_be_read_and_is_left_as_it_was(folder: Folder) -> None:
    folder.data.flusher.flush()
    before = content(folder.files, "/data")
    views = folder.views()
    assert len(batches(views)) == 5
    assert content(folder.files, "/data") == before
    # Whoever holds the lock goes on as if nobody had looked.
    folder.append(5, epoch=1)
    assert len(batches(folder.views())) == 6
    folder.data.close()


def test_the_folder_of_a_broker_of_its_logs_and_of_a_partition_are_known(folder: Folder) -> None:
    everything = folder.views("/data")
    assert everything == folder.views("/data/") == folder.views("/data/logs") == folder.views("/data/logs/orders-0")


def test_partitions_come_by_topic_and_number() -> None:
    files = MemoryFiles()
    data = DataDirectory("/data", files)
    for topic, number in (("b", 10), ("b", 9), ("a-1", 0)):
        data.log(topic, number).append(split(build([NewRecord(b"x")])), leader_epoch=0, now_ms=T)
    assert partition_folders(files, "/data") == ["/data/a-1-0", "/data/b-9", "/data/b-10"]


def test_where_there_is_no_log_it_is_said(folder: Folder) -> None:
    folder.files.make_directory("/empty")
    with pytest.raises(NoLogError, match="no partition in it"):
        folder.views("/empty")
    with pytest.raises(NoLogError, match="is no folder"):
        folder.views("/nowhere")


def test_a_damaged_batch_is_told_and_the_next_ones_are_read(folder: Folder) -> None:
    folder.data.close()
    folder.overwrite(segment(0), 70, b"\xff")
    problems = [view.problem for view in batches(folder.views())]
    assert problems[0] is not None
    assert "CRC32C" in problems[0]
    assert problems[1:] == [None] * 4


def test_a_batch_cut_off_is_damage_in_a_closed_segment_only(folder: Folder) -> None:
    folder.data.close()
    for base, is_damage in ((0, True), (8, False)):
        folder.cut(segment(base), 80)
        (fault,) = [view for view in folder.views() if isinstance(view, FaultView) and view.is_damage == is_damage]
        assert fault.reason.startswith("the last 80 bytes, from 0 on: a batch of ")


def test_index_entries_are_held_against_the_batches(folder: Folder) -> None:
    folder.data.close()
    views = [view for view in folder.views() if isinstance(view, IndexView)]
    assert [len(view.entries or ()) for view in views] == [3, 3, 2]
    assert [entry.offset for entry in views[1].entries or ()] == [4, 6, 8]
    assert [view.wrong for view in views] == [[], [], []]


@pytest.mark.parametrize(
    ("relative", "position", "timestamp", "time_offset", "problem"),
    [
        (2, 40, T, 2, "no batch begins there"),
        (1, None, T, 1, "what begins there has offset 2"),
        (2, None, T, 1, "the time index has another offset"),
        (2, None, T + 9, 2, f"the newest before it is {T}"),
        (9, 5000, T, 9, "beyond the last batch"),
    ],
)
def test_a_wrong_entry_is_told(
    *, folder: Folder, relative: int, position: int | None, timestamp: int, time_offset: int, problem: str
) -> None:
    from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX, SegmentIndex

    folder.data.close()
    second = batches(folder.views())[1].position
    stem = f"/data/logs/orders-0/{0:020}"
    for suffix in (OFFSET_INDEX, TIME_INDEX):
        folder.files.unlink(stem + suffix)
    index = SegmentIndex(T)
    index.add(relative, second if position is None else position, timestamp)
    index.time_offsets[0] = time_offset
    index.save(folder.files, stem, 0)
    view = next(view for view in folder.views() if isinstance(view, IndexView))
    (entry,) = view.wrong
    assert problem in (entry.problem or "")


def test_an_index_that_is_missing_or_damaged_is_told(folder: Folder) -> None:
    folder.data.close()
    folder.files.unlink(f"/data/logs/orders-0/{segment(0, '.timeindex')}")
    folder.overwrite(segment(4, ".index"), 0, b"XXXX")
    missing, damaged, sound = [view for view in folder.views() if isinstance(view, IndexView)]
    assert (missing.entries, missing.problem) == (None, "there is no .timeindex")
    assert (damaged.entries, damaged.problem) == (None, "it is damaged")
    assert sound.problem is None


def test_a_damaged_checkpoint_is_told_and_the_rest_is_read(folder: Folder) -> None:
    folder.log.save_snapshot(b"no snapshot of producers", version=SNAPSHOT_VERSION)
    folder.data.close()
    folder.overwrite("leader-epochs", 20, b"\xff")
    views = folder.views()
    problems = partition(views).problems
    assert len(problems) == 2
    assert "leader-epochs is damaged" in problems[0]
    assert "snapshot at offset 10 is none" in problems[1]
    assert len(batches(views)) == 5


def test_a_segment_that_retention_takes_meanwhile_is_told(folder: Folder) -> None:
    walking = walk(folder.files, "/data")
    assert isinstance(next(walking), PartitionView)
    assert isinstance(next(walking), SegmentView)
    folder.log.advance_start(8)
    (fault,) = list(walking)
    assert isinstance(fault, FaultView)
    assert "was deleted meanwhile" in fault.reason
    assert not fault.is_damage


def test_a_partition_without_records_has_no_segment() -> None:
    files = MemoryFiles()
    data = DataDirectory("/data", files)
    log = data.log("orders", 0)
    log.append(split(build([NewRecord(b"x")], codec=Codec.GZIP)), leader_epoch=0, now_ms=T)
    data.flusher.flush()
    log.advance_start(1)
    views = list(walk(files, "/data"))
    assert [type(view) for view in views] == [PartitionView]
    assert partition(views).log_start == 1
