"""Ranges from the log, and from the lake what the log has no longer."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.lake.archiving import archive, find_source
from penstock.spark.lake.lake import Source
from penstock.spark.lake.spans import SpanDataSource, SpanPlan, read_anywhere
from penstock.spark.planning import Range
from penstock.spark.positions import DataLossError
from penstock.spark.source import reader as reading
from tests.spark.cluster import TestCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(cluster: TestCluster, topic: str, lake: Path | None, end: int) -> tuple[SpanPlan, Range]:
    source = find_source(cluster.link, topic)
    wanted = Range(topic, source.topic_id, 0, 0, end)
    settings = {"bootstrap.servers": cluster.bootstrap}
    return SpanPlan(settings, source, None if lake is None else str(lake), (wanted,)), wanted


def offsets(made: tuple[SpanPlan, Range]) -> list[int]:
    return [offset for batch in read_anywhere(*made) for offset in batch.column("offset").to_pylist()]


def test_a_plan_travels_as_text_and_its_parts_as_objects() -> None:
    made = SpanPlan({"bootstrap.servers": "a:1"}, Source("t", "id", 2), "/lake", (Range("t", "id", 1, 5, 9),))
    assert SpanPlan.from_json(made.to_json()) == made
    reader = SpanDataSource({"plan": made.to_json()}).reader(None)  # type: ignore[arg-type]
    [part] = pickle.loads(pickle.dumps(reader.partitions()))
    assert part.range == made.ranges[0]
    assert list(reader.read(object())) == []  # type: ignore[arg-type]


def test_what_the_log_has_comes_from_the_log(cluster: TestCluster, tmp_path: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 50)
    assert offsets(plan(cluster, topic, None, 40)) == list(range(40))
    assert offsets(plan(cluster, topic, tmp_path / "none", 40)) == list(range(40))


def test_what_the_log_has_no_longer_comes_from_the_lake(
    cluster: TestCluster, spark: "SparkSession", tmp_path: Path
) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    archive(spark, topic, str(tmp_path), bootstrap=cluster.bootstrap, max_messages=60, truncate=True)
    assert offsets(plan(cluster, topic, tmp_path, 90)) == list(range(90))
    assert offsets(plan(cluster, topic, tmp_path, 30)) == list(range(30))


def test_a_log_that_is_truncated_while_it_is_read_is_gone_on_with_in_the_lake(
    cluster: TestCluster, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fetch for each batch, and the next one is on its way while the first is looked at.
    monkeypatch.setattr(reading, "MAX_BYTES", 1)
    topic = cluster.create("orders")
    cluster.send_count(topic, 100, batch=10)
    rows = read_anywhere(*plan(cluster, topic, tmp_path, 100))
    found = next(rows).column("offset").to_pylist()
    archive(spark, topic, str(tmp_path), bootstrap=cluster.bootstrap, max_messages=70, truncate=True)
    found += [offset for batch in rows for offset in batch.column("offset").to_pylist()]
    assert found == list(range(100))


def test_what_neither_has_is_an_error(cluster: TestCluster, spark: "SparkSession", tmp_path: Path) -> None:
    topic = cluster.create("orders")
    cluster.send_count(topic, 100)
    archive(spark, topic, str(tmp_path), bootstrap=cluster.bootstrap, max_messages=60)
    cluster.delete_records(topic, 80)
    for lake in (tmp_path, None):
        with pytest.raises(DataLossError, match="are gone"):
            offsets(plan(cluster, topic, lake, 100))
