"""Truncation: only what the table has, and only when that was read back."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from penstock.client.metadata import TopicPartition
from penstock.spark.lake import truncating
from penstock.spark.lake.archiving import ArchiveProgress, ArchiveResult, archive
from penstock.spark.lake.lake import LakeError
from penstock.spark.tasks import TaskFailedError
from tests.spark.cluster import TestCluster
from tests.spark.lakes import names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(spark: "SparkSession", cluster: TestCluster, tmp_path: Path) -> Any:
    def archived(topic: str, **options: Any) -> ArchiveResult:
        return archive(spark, topic, str(tmp_path), bootstrap=cluster.bootstrap, **options)

    return archived


def test_what_is_archived_is_deleted_from_the_log(cluster: TestCluster, run: Any) -> None:
    topic = cluster.create("orders", 2)
    cluster.send_count(topic, 100)
    cluster.send_count(topic, 50, 1)
    told: list[ArchiveProgress] = []
    assert run(topic, max_messages=60, truncate=True, watch=told.append).truncated == {0: 40, 1: 20}
    assert told[-1] == ArchiveProgress(60, 60, "checking")
    assert (cluster.first_offset(topic), cluster.first_offset(topic, 1)) == (40, 20)
    assert run(topic, truncate=True).truncated == {0: 100, 1: 50}
    assert run(topic, truncate=True).truncated == {}


def test_a_run_that_ended_before_its_truncation_is_made_up_for_by_the_next(cluster: TestCluster, run: Any) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    run(topic)
    assert cluster.first_offset(topic) == 0
    result = run(topic, truncate=True)
    assert (result.added, result.truncated) == ((), {0: 100})


def test_nothing_is_deleted_when_a_file_is_damaged(cluster: TestCluster, run: Any, tmp_path: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 1000)
    run(topic)
    [name] = names(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 4] ^= 1
    (tmp_path / name).write_bytes(data)
    cluster.send_count(topic, 100)
    with pytest.raises(TaskFailedError, match=name):
        run(topic, truncate=True)
    assert cluster.first_offset(topic) == 0
    assert cluster.committed(f"archive.{topic}") == {TopicPartition(topic, 0): 1000}, "retention may wait for that"


def test_nothing_is_deleted_when_a_file_is_gone(cluster: TestCluster, run: Any, tmp_path: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    run(topic)
    (tmp_path / names(tmp_path)[0]).unlink()
    with pytest.raises(TaskFailedError, match="cannot be read"):
        run(topic, truncate=True)
    assert cluster.first_offset(topic) == 0


def test_files_of_what_the_log_has_no_longer_are_left_alone(cluster: TestCluster, run: Any, tmp_path: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    run(topic, truncate=True)
    [old] = names(tmp_path)
    (tmp_path / old).write_bytes(b"")
    cluster.send_count(topic, 10)
    assert run(topic, truncate=True).truncated == {0: 20}


def test_a_table_that_was_optimized_is_checked_as_well(cluster: TestCluster, run: Any, tmp_path: Path) -> None:
    topic = cluster.create("orders", 2)
    for turn in range(3):
        cluster.send_count(topic, 10, turn % 2)
        run(topic)
    DeltaTable(tmp_path).optimize.compact()
    assert run(topic, truncate=True).truncated == {0: 20, 1: 10}


def test_nothing_is_deleted_that_others_have_taken_from_the_table(
    cluster: TestCluster, run: Any, tmp_path: Path
) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    run(topic)
    cluster.send_count(topic, 20)
    run(topic)
    DeltaTable(tmp_path).restore(0)

    with pytest.raises(LakeError, match=r"has 10 rows, but 30 were archived.*Nothing was truncated"):
        run(topic, truncate=True)
    assert cluster.first_offset(topic) == 0

    assert run(topic, truncate=True, skip_lost=True).truncated == {0: 30}


def test_what_retention_waits_for_is_on_the_disk_before_the_group_says_so(
    spark: "SparkSession", cluster: TestCluster, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(truncating, "sync", lambda _, path: synced.append(Path(path).name))
    free, held = cluster.create("free"), cluster.create("held", penstock_retention_hold_group="other-holder")
    cluster.send_count(held, 10)
    cluster.send_count(free, 10)

    run(held, group="other-holder")
    assert {*names(tmp_path), "_delta_log", "00000000000000000000.json", tmp_path.name} == set(synced)

    synced.clear()
    assert archive(spark, free, str(tmp_path / "free"), bootstrap=cluster.bootstrap).ends == {0: 10}
    assert synced == []


def test_a_topic_that_is_made_again_at_the_last_moment_is_not_truncated(
    cluster: TestCluster, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 10)
    sync_log = truncating._sync_log

    def make_again(*args: Any) -> None:
        sync_log(*args)
        cluster.delete_topic(topic)
        cluster.broker.create_topic(topic)
        cluster.send_count(topic, 30)

    monkeypatch.setattr(truncating, "_sync_log", make_again)
    with pytest.raises(LakeError, match="made again while it was archived: nothing was truncated"):
        run(topic, truncate=True)
    assert cluster.first_offset(topic) == 0


def test_retention_stays_behind_the_archive_when_the_topic_says_so(cluster: TestCluster, run: Any) -> None:
    topic = cluster.create("held", internal_segment_bytes=300, retention_bytes=0)
    cluster.broker.create_topic(
        f"{topic}-too",
        1,
        {"internal.segment.bytes": 300, "retention.bytes": 0, "penstock.retention.hold.group": "holder"},
    )
    held = f"{topic}-too"
    cluster.send_count(held, 100, batch=10)
    cluster.send_count(topic, 100, batch=10)
    cluster.sweep()
    assert cluster.first_offset(topic) > 0
    assert cluster.first_offset(held) == 0
    assert run(held, group="holder", max_messages=50).ends == {0: 50}
    assert cluster.committed("holder") == {TopicPartition(held, 0): 50}
    cluster.sweep()
    assert 0 < cluster.first_offset(held) <= 50
