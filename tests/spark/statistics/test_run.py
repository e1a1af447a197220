"""Statistics of topics that were filled by hand: every number is known."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.client.errors import UnknownTopicError
from penstock.client.sync import Producer
from penstock.protocol.records import NewRecord
from penstock.spark.lake.archiving import archive
from penstock.spark.lake.lake import LakeError
from penstock.spark.statistics.run import HourStats, Stats, StatsProgress, stats
from tests.spark.cluster import TestCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
NOON_MS = 472_222 * HOUR_MS


class Stage:
    def __init__(self, spark: "SparkSession", cluster: TestCluster) -> None:
        self.spark = spark
        self.cluster = cluster

    def stats(self, *topics: str, **options: Any) -> Stats:
        return stats(self.spark, topics, bootstrap=self.cluster.bootstrap, **options)


@pytest.fixture
def stage(spark: "SparkSession", cluster: TestCluster) -> Stage:
    return Stage(spark, cluster)


def record(size: int, key: str | None = None, *, minutes: int = 0, **options: Any) -> NewRecord:
    encoded = None if key is None else key.encode()
    return NewRecord(b"x" * size, key=encoded, timestamp=NOON_MS + minutes * 60_000, **options)


def test_messages_and_bytes_are_counted_by_topic_partition_hour_and_key(stage: Stage) -> None:
    topic = stage.cluster.create("counted", 3)
    headers = (("a", b"12"), ("bc", None))
    stage.cluster.send(topic, [record(10, "ada"), record(20, "ada", minutes=59), record(30, minutes=60)])
    stage.cluster.send(topic, [record(5, "grace", headers=headers), NewRecord(None, key=b"ada", timestamp=NOON_MS)], 1)
    result = stage.stats(topic)
    assert result.hours == (
        HourStats(topic, 0, NOON_MS, 2, 36, 13, 23),
        HourStats(topic, 0, NOON_MS + HOUR_MS, 1, 30, 30, 30),
        HourStats(topic, 1, NOON_MS, 2, 18, 3, 15),
    )
    assert [(each.start_ms, each.width_ms, each.messages) for each in result.times] == [
        (NOON_MS, 1000, 3),
        (NOON_MS + 59 * 60_000, 1000, 1),
        (NOON_MS + HOUR_MS, 1000, 1),
    ]
    assert result.cluster == stage.cluster.bootstrap
    assert [(each.partition, each.messages, each.bytes) for each in result.partitions] == [
        (0, 3, 66),
        (1, 2, 18),
        (2, 0, 0),
    ]
    assert [round(each.heat, 2) for each in result.partitions] == [1.8, 1.2, 0.0]
    assert [(each.key, each.messages, each.bytes, each.share) for each in result.keys] == [
        (b"ada", 3, 39, 0.6),
        (b"grace", 1, 15, 0.2),
    ]
    told = result.topics[0]
    assert (told.messages, told.bytes, told.keys, told.without_key) == (5, 84, 2, 1)
    assert told.sizes is not None
    assert (told.sizes.min, told.sizes.mean, told.sizes.p50, told.sizes.max) == (3, 16.8, 15, 30)
    assert told.latency_ms is None


def test_size_percentiles_are_within_a_hundredth(stage: Stage) -> None:
    topic = stage.cluster.create("sizes", 2)
    sizes = [(number * 7919) % 20_000 for number in range(2_000)]
    for first in range(0, 2_000, 100):
        stage.cluster.send(topic, [record(each) for each in sizes[first : first + 100]], first // 100 % 2)
    told = stage.stats(topic).topics[0].sizes
    assert told is not None
    assert (told.count, told.min, told.max, told.mean) == (2_000, min(sizes), max(sizes), sum(sizes) / 2_000)
    for percent, found in ((50, told.p50), (95, told.p95), (99, told.p99)):
        exact = sorted(sizes)[math.ceil(20 * percent) - 1]
        assert abs(found - exact) <= 0.01 * exact, percent


def test_the_top_keys_of_each_topic_are_exact_over_all_tasks(stage: Stage) -> None:
    topics = [stage.cluster.create(name, 4) for name in ("first", "second")]
    for number, topic in enumerate(topics):
        for partition in range(4):
            keys = [f"{key}" for key in range(200) for _ in range(1 + (key == 150 + number) * 5 + (key == 7))]
            stage.cluster.send(topic, [record(1, key) for key in keys], partition)
    result = stage.stats(*topics, top=2)
    assert [(each.topic, each.key, each.messages) for each in result.keys] == [
        (topics[0], b"150", 24),
        (topics[0], b"7", 8),
        (topics[1], b"151", 24),
        (topics[1], b"7", 8),
    ]
    assert [each.keys for each in result.topics] == [200, 200]


def test_latency_is_from_the_producers_time_to_the_brokers(stage: Stage) -> None:
    topic = stage.cluster.create("late", 1, **{"message.timestamp.type": "LogAppendTime"})
    records = [NewRecord(b"x", timestamp=NOON_MS + number) for number in range(100)]
    stage.cluster.send(topic, records)
    stage.cluster.send(topic, [NewRecord(b"x", timestamp=2**42)])
    result = stage.stats(topic)
    latency = result.topics[0].latency_ms
    assert latency is not None
    assert (latency.count, latency.max - latency.min, result.topics[0].ahead) == (100, 99, 1)
    hour_ms = result.hours[0].hour_ms
    assert hour_ms is not None
    assert abs(hour_ms + HOUR_MS / 2 - NOON_MS - latency.max) <= HOUR_MS


def test_only_messages_of_the_time_asked_for_are_counted(stage: Stage) -> None:
    topic = stage.cluster.create("timed")
    stage.cluster.send(topic, [record(1, minutes=minutes) for minutes in (0, 10, 30, 20, 40, 50)])
    result = stage.stats(topic, since=NOON_MS + 20 * 60_000, until=NOON_MS + 40 * 60_000)
    assert result.topics[0].messages == 2
    assert stage.stats(topic, since=NOON_MS + HOUR_MS).topics[0].messages == 0


def test_what_the_log_has_no_longer_is_counted_from_the_lake_and_nothing_twice(stage: Stage, tmp_path: Path) -> None:
    topic = stage.cluster.create("archived", 2)
    headers = (("a", b"12"), ("bc", None))
    stage.cluster.send(topic, [record(number, f"{number % 3}", headers=headers) for number in range(100)])
    stage.cluster.send(topic, [record(number, minutes=60) for number in range(50)], 1)
    before = stage.stats(topic)
    options = {"bootstrap": stage.cluster.bootstrap, "max_messages": 90}
    archive(stage.spark, topic, str(tmp_path / "lake"), truncate=True, **options)  # type: ignore[arg-type]
    archive(stage.spark, topic, str(tmp_path / "lake"), bootstrap=stage.cluster.bootstrap)
    assert stage.stats(topic).topics[0].messages == 60
    after = stage.stats(topic, lake=str(tmp_path / "lake"))
    assert (after.topics, after.hours, after.keys) == (before.topics, before.hours, before.keys)
    assert stage.stats(topic, lake={topic: str(tmp_path / "lake")}).topics == before.topics


def test_a_lake_that_is_not_there_and_a_topic_that_is_not_there_are_errors(stage: Stage, tmp_path: Path) -> None:
    topic = stage.cluster.create("poor")
    with pytest.raises(LakeError, match="there is no table in"):
        stage.stats(topic, lake=str(tmp_path))
    with pytest.raises(UnknownTopicError):
        stage.stats("nowhere")


def test_an_empty_topic_has_statistics_too(stage: Stage) -> None:
    topic = stage.cluster.create("empty", 2)
    result = stage.stats(topic)
    assert (result.topics[0].messages, result.topics[0].sizes, result.hours, result.keys) == (0, None, (), ())
    assert [each.heat for each in result.partitions] == [0.0, 0.0]


def test_records_of_an_idempotent_producer_are_audited_and_nothing_is_found(stage: Stage) -> None:
    topic = stage.cluster.create("audited", 2)
    with Producer(stage.cluster.bootstrap, batch_size=200) as producer:
        producer.send_batch(topic, [(b"%d" % number, b"x" * 50) for number in range(500)]).raise_for_errors()
    stage.cluster.send(topic, ["plain"])
    result = stage.stats(topic)
    assert sum(each.numbered for each in result.audits) == 500
    assert [each.unnumbered for each in result.audits] == [1, 0]
    assert {each.producers for each in result.audits} == {1}
    assert all(not (each.duplicates or each.gaps or each.removed or each.findings) for each in result.audits)


def test_a_log_whose_beginning_was_deleted_has_no_gap(stage: Stage) -> None:
    topic = stage.cluster.create("shortened")
    with Producer(stage.cluster.bootstrap) as producer:
        producer.send_batch(topic, [b"%d" % number for number in range(100)]).raise_for_errors()
    stage.cluster.delete_records(topic, 33)
    result = stage.stats(topic)
    assert (result.topics[0].messages, result.audits[0].numbered, result.audits[0].gaps) == (67, 67, 0)


def test_what_compaction_took_is_no_gap(stage: Stage) -> None:
    topic = stage.cluster.create(
        "compacted", cleanup_policy="compact", internal_segment_bytes=1000, min_cleanable_dirty_ratio=0.01
    )
    with Producer(stage.cluster.bootstrap, batch_size=400, linger_ms=0) as producer:
        for number in range(60):
            producer.send(topic, b"x" * 100, key=b"%d" % (number % 2)).result()
    stage.cluster.compact(topic)
    result = stage.stats(topic)
    audit = result.audits[0]
    assert result.topics[0].messages < 60
    assert audit.missing_offsets == 60 - result.topics[0].messages
    assert (audit.gaps, audit.duplicates) == (0, 0)
    assert audit.removed > 0


def test_progress_is_told_and_ends_with_everything(stage: Stage) -> None:
    topic = stage.cluster.create("watched", 2)
    stage.cluster.send_count(topic, 300)
    told: list[StatsProgress] = []
    stage.stats(topic, watch=told.append)
    assert told[-1] == StatsProgress(300, 300)
