"""`archive`: every record once in the table, whatever happens on the way."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord
from penstock.spark import read
from penstock.spark.lake import archiving
from penstock.spark.lake.archiving import ArchiveProgress, ArchiveResult, LostRecordsError, Run, archive
from penstock.spark.lake.lake import Lake, LakeError, OverlapError
from penstock.spark.planning import Range
from penstock.spark.tasks import TaskFailedError
from tests.spark.cluster import TestCluster
from tests.spark.lakes import names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def run(spark: "SparkSession", cluster: TestCluster, lake: Path) -> Any:
    def archived(topic: str, **options: Any) -> ArchiveResult:
        return archive(spark, topic, str(lake), bootstrap=cluster.bootstrap, **options)

    return archived


def values(lake: Path, partition: int = 0) -> list[str]:
    """In the order of the offsets, each of which is there once."""
    table = DeltaTable(lake).to_pyarrow_table(filters=[("partition", "=", partition)]).sort_by("offset")
    offsets = table["offset"].to_pylist()
    assert len(offsets) == len(set(offsets))
    return [value.decode() for value in table["value"].to_pylist()]


def numbers(*bounds: int) -> list[str]:
    return [str(number) for number in range(*bounds)]


def test_a_topic_goes_into_a_table_and_what_came_since_is_added_by_the_next_run(
    cluster: TestCluster, run: Any, lake: Path
) -> None:
    topic = cluster.create("orders", 2)
    cluster.send_count(topic, 250)
    cluster.send_count(topic, 30, 1)
    result = run(topic)
    assert [(each.partition, each.start, each.end, each.rows) for each in result.added] == [
        (0, 0, 250, 250),
        (1, 0, 30, 30),
    ]
    assert (result.rows, result.version, result.ends) == (280, 0, {0: 250, 1: 30})
    assert result.truncated == {}
    cluster.send(topic, numbers(250, 300))
    result = run(topic)
    assert [(each.partition, each.start, each.end) for each in result.added] == [(0, 250, 300)]
    assert result.version == 1
    assert values(lake) == numbers(300)
    assert values(lake, 1) == numbers(30)


def test_a_record_keeps_all_that_it_has(cluster: TestCluster, run: Any, lake: Path) -> None:
    topic = cluster.create("orders")
    headers = (("a", b"1"), ("a", None), ("", b""))
    cluster.send(topic, [NewRecord(None, key=b"k", timestamp=1_700_000_000_123, headers=headers), "plain"])
    run(topic)
    first, second = DeltaTable(lake).to_pyarrow_table().sort_by("offset").to_pylist()
    assert (first["key"], first["value"], first["topic"]) == (b"k", None, topic)
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert first["headers"] == [{"key": name, "value": value} for name, value in headers]
    assert (second["key"], second["value"], second["headers"]) == (None, b"plain", None)


def test_a_run_without_news_commits_nothing(cluster: TestCluster, run: Any, lake: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    run(topic)
    result = run(topic)
    assert (result.added, result.version, result.rows) == ((), 0, 0)


def test_an_empty_topic_makes_no_table(cluster: TestCluster, run: Any, lake: Path) -> None:
    result = run(cluster.create("orders"))
    assert (result.added, result.ends, result.version) == ((), {}, -1)
    assert not lake.exists()


def test_each_file_has_one_range_of_one_partition_in_order(
    cluster: TestCluster, run: Any, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "FILE_BYTES", 1000)
    topic = cluster.create("orders", 2)
    cluster.send_count(topic, 300)
    cluster.send_count(topic, 200, 1)
    result = run(topic)
    assert all(each.files > 2 for each in result.added)
    spans = {number: [] for number in range(2)}  # type: dict[int, list[tuple[int, int]]]
    for each in Lake.load(lake).files():
        assert each.partitions is not None
        assert each.partitions[0] == each.partitions[1]
        assert each.offsets is not None
        spans[each.partitions[0]].append(each.offsets)
    for number, end in ((0, 300), (1, 200)):
        ordered = sorted(spans[number])
        assert [first for first, _ in ordered] == [0, *(last + 1 for _, last in ordered[:-1])]
        assert ordered[-1][1] == end - 1
    assert values(lake) == numbers(300)


def test_one_large_partition_is_shared_out_over_tasks(
    cluster: TestCluster, run: Any, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "_LEAST_BYTES", 100)
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    [added] = run(topic).added
    assert added.files == 2


def test_the_run_ends_where_it_is_told_to(cluster: TestCluster, run: Any, lake: Path) -> None:
    topic = cluster.create("orders", 2)
    for partition in (0, 1):
        records = [NewRecord(b"%d" % number, timestamp=1_700_000_000_000 + number) for number in range(100)]
        cluster.send(topic, records, partition)
    assert run(topic, until=1_700_000_000_040).ends == {0: 40, 1: 40}
    assert run(topic, until=1_700_000_000_020).added == ()
    assert run(topic, max_messages=20).ends == {0: 50, 1: 50}
    limited = run(topic, max_bytes=500)
    assert 0 < limited.rows < 100
    assert run(topic, until=1_800_000_000_000).ends == {0: 100, 1: 100}
    assert values(lake) == numbers(100)


def test_gaps_that_compaction_has_made_are_archived_as_such(cluster: TestCluster, run: Any, lake: Path) -> None:
    topic = cluster.create(
        "state", cleanup_policy="compact", internal_segment_bytes=1000, min_cleanable_dirty_ratio=0.01
    )
    for turn in range(40):
        cluster.send(topic, [NewRecord(b"%d" % turn, key=b"k%d" % key) for key in range(5)])
    cluster.compact(topic)
    result = run(topic)
    assert result.ends == {0: 200}
    assert 5 <= result.rows < 150
    table = DeltaTable(lake).to_pyarrow_table().sort_by("offset")
    latest = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert latest == {b"k%d" % key: b"39" for key in range(5)}
    cluster.send(topic, [NewRecord(b"40", key=b"k0")])
    assert [(each.start, each.end, each.rows) for each in run(topic).added] == [(200, 201, 1)]


def test_the_archives_group_tells_how_far_it_is(cluster: TestCluster, run: Any) -> None:
    topic = cluster.create("orders", 2)
    cluster.send_count(topic, 10, 1)
    result = run(topic)
    assert result.group == f"archive.{topic}"
    assert cluster.committed(result.group) == {TopicPartition(topic, 1): 10}
    cluster.send_count(topic, 5)
    run(topic, group="keeper")
    assert cluster.committed("keeper") == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 10}


def test_progress_is_told(cluster: TestCluster, run: Any) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    told: list[ArchiveProgress] = []
    run(topic, watch=told.append)
    assert told[-1] == ArchiveProgress(100, 100, "archiving")


def test_a_topic_that_was_made_again_is_refused(cluster: TestCluster, run: Any) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    run(topic)
    cluster.delete_topic(topic)
    cluster.broker.create_topic(topic)
    cluster.send_count(topic, 20)
    with pytest.raises(LakeError, match=r"does not belong to topic.*archive the new one into another folder"):
        run(topic)


def test_records_that_were_deleted_before_they_were_archived_are_an_error(
    cluster: TestCluster, run: Any, lake: Path
) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    run(topic, max_messages=10)
    cluster.delete_records(topic, 30)
    with pytest.raises(LostRecordsError, match=r"offsets 10 to 30 of .* deleted before they were archived"):
        run(topic)
    result = run(topic, skip_lost=True)
    assert [(each.start, each.end) for each in result.added] == [(30, 100)]
    assert values(lake) == [*numbers(10), *numbers(30, 100)]
    assert DeltaTable(lake).history(1)[0]["penstock.lost"] == [{"partition": 0, "start": 10, "end": 30}]


def test_a_loss_that_nothing_follows_is_passed_too(
    cluster: TestCluster, run: Any, lake: Path, spark: "SparkSession"
) -> None:
    topic = cluster.create("orders", 2)
    cluster.send_count(topic, 40)
    cluster.send_count(topic, 5, 1)
    run(topic, max_messages=18)
    cluster.delete_records(topic, 40)
    result = run(topic, skip_lost=True)
    assert (result.ends, [(each.partition, each.end) for each in result.added]) == ({0: 40, 1: 5}, [(1, 5)])
    assert DeltaTable(lake).history(1)[0]["penstock.lost"] == [{"partition": 0, "start": 16, "end": 40}]
    assert run(topic).added == ()
    assert read(spark, topic, bootstrap=cluster.bootstrap, lake=str(lake)).count() == 16 + 5


def test_what_was_deleted_before_the_first_run_was_never_the_archives(cluster: TestCluster, run: Any) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    cluster.delete_records(topic, 30)
    assert [(each.start, each.end) for each in run(topic).added] == [(30, 100)]


def test_a_log_that_ends_before_the_table_is_refused(cluster: TestCluster, spark: "SparkSession", lake: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    archive(spark, topic, str(lake), bootstrap=cluster.bootstrap)
    options = archiving.source_options(topic, cluster.bootstrap)
    source = archiving.find_source(cluster.link, topic)
    further = Lake.load(lake).commit(source, [Range(topic, source.topic_id, 0, 10, 15)], [], run="b" * 12)
    with pytest.raises(LakeError, match="is archived up to offset 15, but its log ends at 10"):
        Run(spark, cluster.link, options, source=source, lake=further).add()


def test_partitions_that_are_new_are_archived_from_their_beginning(cluster: TestCluster, run: Any, lake: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    run(topic)
    cluster.add_partitions(topic, 3)
    cluster.send_count(topic, 20, 2)
    assert run(topic).ends == {0: 10, 2: 20}
    assert values(lake, 2) == numbers(20)


def test_of_two_runs_at_once_one_is_refused_and_leaves_nothing_behind(
    cluster: TestCluster, run: Any, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    write = Run._write

    def write_and_be_overtaken(self: Run, ranges: Any) -> Any:
        written = write(self, ranges)
        monkeypatch.setattr(Run, "_write", write)
        run(topic)
        # The faster one has found that these can never come into the table.
        assert len(names(lake)) == 1
        return written

    monkeypatch.setattr(Run, "_write", write_and_be_overtaken)
    with pytest.raises(OverlapError, match="Another archive run was faster"):
        run(topic)
    assert len(names(lake)) == 1
    assert values(lake) == numbers(100)


def test_a_task_that_fails_for_good_fails_the_run_and_leaves_nothing_behind(
    cluster: TestCluster, run: Any, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("orders", 2)
    cluster.send_count(topic, 100)
    cluster.send_count(topic, 100, 1)
    real = archiving._archive_range

    def fail(options: Any, path: str, run: str, compression: Any, wanted: Range) -> Any:
        done = real(options, path, run, compression, wanted)
        if wanted.partition:
            raise OSError("the disk is full")
        return done

    monkeypatch.setattr(archiving, "_archive_range", fail)
    with pytest.raises(TaskFailedError, match="the disk is full"):
        run(topic)
    assert names(lake) == []
    assert not Lake.load(lake).exists


CRASH = """
import os, signal, sys
from penstock.spark import session
from penstock.spark.lake.archiving import archive
from penstock.spark.lake.lake import Lake
Lake.commit = lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL)
spark = session("local[1]", **{"spark.ui.enabled": False, "spark.log.level": "ERROR"})
archive(spark, sys.argv[1], sys.argv[2], bootstrap=sys.argv[3])
"""


@pytest.mark.timeout(900)
def test_a_crash_between_the_files_and_the_commit_leaves_no_trace_in_the_table(
    cluster: TestCluster, run: Any, lake: Path
) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    run(topic, max_messages=10)
    arguments = [sys.executable, "-c", CRASH, topic, str(lake), cluster.bootstrap]
    crashed = subprocess.run(arguments, capture_output=True, text=True, timeout=500, check=False)
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    # The file is there, and is none of the table's.
    assert len(names(lake)) == 2
    assert Lake.load(lake).version == 0
    assert values(lake) == numbers(10)
    result = run(topic)
    assert [(each.start, each.end, each.rows) for each in result.added] == [(10, 100, 90)]
    assert values(lake) == numbers(100)
    assert sorted(names(lake)) == sorted(each.path for each in Lake.load(lake).files())


def test_when_it_is_unknown_whether_the_commit_was_made_its_files_stay(
    cluster: TestCluster, run: Any, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    commit = Lake.commit

    def commit_and_fail(self: Lake, *args: Any, **options: Any) -> Lake:
        commit(self, *args, **options)
        raise OSError("the answer was lost")

    monkeypatch.setattr(Lake, "commit", commit_and_fail)
    with pytest.raises(OSError, match="the answer was lost"):
        run(topic)
    monkeypatch.setattr(Lake, "commit", commit)
    assert values(lake) == numbers(100)
    assert run(topic).added == ()


def test_transactions_that_were_aborted_are_not_archived(cluster: TestCluster) -> None:
    assert archiving.source_options("orders", cluster.bootstrap).reads_committed
    own = {"bootstrap.servers": cluster.bootstrap, "isolation.level": "read_uncommitted"}
    assert not archiving.source_options("orders", own).reads_committed
