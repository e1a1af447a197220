"""How far a query is behind, out of what Spark reports of it."""

import json
from typing import TYPE_CHECKING, Any

from penstock.client.metadata import TopicPartition
from penstock.spark import progress
from penstock.spark.offsets import Offsets
from penstock.spark.source.metrics import BEHIND, TopicProgress, behind_by_topic, offsets_behind
from tests.spark.cluster import TestCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
END = Offsets({A0: 5, A1: 7, B0: 3}, {"a": "A", "b": "B"})
LATEST = Offsets({A0: 15, A1: 8, B0: 3}, {"a": "A", "b": "B"})


def source(end: object, latest: object) -> dict[str, Any]:
    return {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}


def test_what_is_behind_is_counted_by_topic_and_by_the_partition_that_has_most() -> None:
    told: Any = {"sources": [source({"other": 1}, {"other": 2}), source(END.to_json(), LATEST.to_json())]}
    assert progress(told) == [TopicProgress(1, "a", 2, 11, 10), TopicProgress(1, "b", 1, 0, 0)]
    assert behind_by_topic(END, LATEST) == {"a": 11, "b": 0}


def test_before_the_first_batch_nothing_is_known() -> None:
    class Query:
        lastProgress = None  # noqa: N815

    untold: Any = Query()
    assert progress(untold) == []
    told: Any = {"sources": [source(None, None), {"endOffset": None, "latestOffset": None}]}
    assert progress(told) == []


def test_a_partition_that_is_new_and_a_topic_that_was_made_again_are_behind_from_their_beginning() -> None:
    assert offsets_behind(Offsets({A0: 5}, {"a": "A"}), LATEST)[A1] == 8
    assert offsets_behind(END, Offsets({A0: 4}, {"a": "another"})) == {A0: 4}
    assert offsets_behind(END, Offsets({A0: 4}, {"a": "A"})) == {A0: 0}


def test_a_partition_that_was_out_of_sight_is_behind_from_where_it_was() -> None:
    end = Offsets({B0: 3}, {"b": "B"}, gone=Offsets({A0: 5}, {"a": "A"}))
    assert offsets_behind(end, Offsets({A0: 6, B0: 3}, {"a": "A", "b": "B"})) == {A0: 1, B0: 0}


def test_the_progress_of_a_query_has_the_offsets_behind_latest_of_each_topic(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic, quiet = cluster.create("lag", 2), cluster.create("lagging")
    cluster.send_count(topic, 30)
    seen: list[list[TopicProgress]] = []
    query = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(subscribe=f"{topic},{quiet}", startingOffsets="earliest", maxOffsetsPerTrigger="10")
        .load()
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(lambda _, __: None)
        .start()
    )
    query.awaitTermination()
    for told in query.recentProgress:
        seen.append(progress(told))
        assert json.loads(told.sources[0].latestOffset)[BEHIND] == {each.topic: each.behind for each in seen[-1]}
    assert [sum(each.behind for each in one) for one in seen][:3] == [20, 10, 0]
    assert progress(query)[0] == TopicProgress(0, topic, 2, 0, 0)
