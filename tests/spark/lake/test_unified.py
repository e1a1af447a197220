"""One DataFrame over lake and log: every record once, whenever it is archived and truncated."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from penstock.protocol.records import NewRecord
from penstock.spark.lake.archiving import LostRecordsError, archive
from penstock.spark.lake.lake import Lake, LakeError
from penstock.spark.lake.unified import read, read_lake
from tests.spark.cluster import TestCluster
from tests.spark.lakes import contents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Stage:
    """A topic and its lake."""

    def __init__(self, spark: "SparkSession", cluster: TestCluster, lake: str, partitions: int = 1) -> None:
        self.spark = spark
        self.cluster = cluster
        self.lake = lake
        self.topic = cluster.create("orders", partitions)

    def archive(self, **options: Any) -> None:
        archive(self.spark, self.topic, self.lake, bootstrap=self.cluster.bootstrap, **options)

    def read(self, **options: Any) -> "DataFrame":
        return read(self.spark, self.topic, bootstrap=self.cluster.bootstrap, **{"lake": self.lake, **options})

    def send(self, start: int, end: int, partition: int = 0) -> None:
        self.cluster.send(self.topic, [str(number) for number in range(start, end)], partition)


@pytest.fixture
def stage(spark: "SparkSession", cluster: TestCluster, tmp_path: Path) -> Stage:
    return Stage(spark, cluster, str(tmp_path / "lake"))


def values(frame: "DataFrame") -> list[int]:
    return [
        int(row.value) for row in frame.select("value", "partition", "offset").orderBy("partition", "offset").collect()
    ]


def test_rows_come_from_the_lake_below_the_cut_and_from_the_log_above_it(stage: Stage) -> None:
    stage.send(0, 100)
    stage.archive(max_messages=60)
    assert values(stage.read()) == list(range(100))
    stage.archive(max_messages=20, truncate=True)
    assert stage.cluster.first_offset(stage.topic) == 80
    assert values(stage.read()) == list(range(100))
    stage.archive(truncate=True)
    assert values(stage.read()) == list(range(100))


def test_a_dataframe_stays_what_it_was_when_it_was_made(stage: Stage) -> None:
    stage.send(0, 50)
    stage.archive(max_messages=30)
    frame = stage.read()
    stage.send(50, 70)
    assert values(frame) == list(range(50))
    assert values(stage.read()) == list(range(70))


def test_what_is_archived_and_truncated_after_the_dataframe_was_made_is_read_from_the_lake(stage: Stage) -> None:
    stage.send(0, 100)
    stage.archive(max_messages=20)
    frame = stage.read()
    stage.archive(max_messages=40, truncate=True)
    assert stage.cluster.first_offset(stage.topic) == 60
    assert values(frame) == list(range(100))
    stage.archive(truncate=True)
    assert values(frame) == list(range(100))


def test_a_truncation_between_a_look_at_the_table_and_one_at_the_log_loses_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.send(0, 50)
    stage.archive(max_messages=20)
    load = Lake.load
    looks: list[int] = []

    def look_and_be_overtaken(path: Any) -> Lake:
        lake = load(path)
        if not looks:
            looks.append(lake.version)
            stage.archive(truncate=True)
        return lake

    monkeypatch.setattr(Lake, "load", look_and_be_overtaken)
    frame = stage.read()
    monkeypatch.undo()
    assert looks == [0]
    assert values(frame) == list(range(50))


def test_lake_and_log_have_the_same_columns_with_the_same_contents(stage: Stage) -> None:
    headers = (("a", b"1"), ("b", None))
    records = [
        NewRecord(None, key=b"k", timestamp=1_700_000_000_123, headers=headers),
        NewRecord(b"v", timestamp=1_700_000_000_999),
    ]
    stage.cluster.send(stage.topic, records)
    before = contents(stage.read(lake=None))
    assert before[0][2:] == (b"k", None, before[0][4], 0, list(headers))
    assert before[1][6] is None
    stage.archive(truncate=True)
    assert contents(stage.read()) == before
    assert stage.read().schema == stage.read(lake=None).schema


def test_partitions_that_were_never_archived_come_from_the_log(stage: Stage) -> None:
    stage.send(0, 10)
    stage.archive()
    stage.cluster.add_partitions(stage.topic, 2)
    stage.send(10, 20, 1)
    assert values(stage.read()) == list(range(20))


def test_without_a_lake_it_is_the_log_alone(stage: Stage) -> None:
    stage.send(0, 30)
    assert values(stage.read(lake=None, min_partitions=3)) == list(range(30))
    assert stage.read(lake=None, min_partitions=3).rdd.getNumPartitions() == 3
    empty = stage.cluster.create("empty")
    assert read(stage.spark, empty, bootstrap=stage.cluster.bootstrap).collect() == []


def test_a_lake_that_is_not_there_is_an_error(stage: Stage) -> None:
    stage.send(0, 10)
    with pytest.raises(LakeError, match=r"there is no table in .*: archive the topic first, or leave the lake out"):
        stage.read()


def test_records_that_neither_has_are_an_error(stage: Stage) -> None:
    stage.send(0, 100)
    stage.archive(max_messages=20)
    stage.cluster.delete_records(stage.topic, 50)
    with pytest.raises(LostRecordsError, match="offsets 20 to 50 of"):
        stage.read()


def test_a_topic_that_was_made_again_is_an_error(stage: Stage) -> None:
    stage.send(0, 10)
    stage.archive()
    stage.cluster.delete_topic(stage.topic)
    stage.cluster.broker.create_topic(stage.topic)
    with pytest.raises(LakeError, match="does not belong to"):
        stage.read()


def test_a_table_that_somebody_has_optimized_is_read_as_well(stage: Stage) -> None:
    stage.send(0, 10)
    stage.archive()
    stage.send(10, 20)
    stage.archive(truncate=True)
    frame = stage.read()
    DeltaTable(stage.lake).optimize.compact()
    assert values(frame) == values(stage.read()) == list(range(20))
    assert values(read_lake(stage.spark, Lake.load(stage.lake))) == list(range(20))


def test_an_empty_table_has_no_rows(stage: Stage, tmp_path: Path) -> None:
    assert read_lake(stage.spark, Lake.load(tmp_path / "none")).collect() == []
