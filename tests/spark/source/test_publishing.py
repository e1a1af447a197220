"""Progress of queries in a group, by a listener."""

import json
from typing import TYPE_CHECKING

import pytest

from penstock.client.metadata import TopicPartition
from penstock.client.settings import SettingsError
from penstock.spark import publish_progress
from penstock.spark.offsets import Offsets
from penstock.spark.options import Named
from penstock.spark.positions import find_partitions
from penstock.spark.source.publishing import finished_offsets, publish_finished
from tests.spark.cluster import TestCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_listener_commits_every_batch_of_its_query(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic = cluster.create("listened")
    cluster.send_count(topic, 10)
    group, others = f"{topic}-query", f"{topic}-others"
    listeners = [
        publish_progress(spark, cluster.bootstrap, group=group, query="listened"),
        publish_progress(spark, {"bootstrap.servers": cluster.bootstrap}, group=others, query="another"),
    ]
    rows = spark.readStream.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap)
    query = (
        rows.option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.queryName("listened")
        .option("checkpointLocation", checkpoint)
        .format("noop")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(120_000)

    assert cluster.committed(group) == {TopicPartition(topic, 0): 10}
    assert cluster.committed(others) == {}
    for each in listeners:
        spark.streams.removeListener(each)


def test_only_offsets_of_ours_are_published() -> None:
    ours = Offsets({TopicPartition("a", 0): 5}, {"a": "A"}, begin=Offsets({}))
    more = Offsets({TopicPartition("b", 1): 7})
    sources = [json.dumps(ours.to_json()), json.dumps(more.to_json()), '{"a": {"0": 3}}', "12", None, "no json"]

    assert finished_offsets(sources) == [ours, more]


def test_only_topics_of_this_cluster_are_published(cluster: TestCluster) -> None:
    """Without a name of a query the listener hears of all, and another cluster may have topics of the same names."""
    topic, plain = cluster.create("here"), cluster.create("plain")
    group, key = f"{topic}-query", TopicPartition(topic, 0)
    ids = cluster.link.run(find_partitions(cluster.cluster, Named((topic,)))).topic_ids
    ours = Offsets({key: 5, TopicPartition(plain, 0): 3}, ids, gone=Offsets({TopicPartition(topic, 1): 9}, ids))
    theirs = Offsets({key: 7, TopicPartition("not-here", 0): 8}, {topic: "another", "not-here": "one more"})
    sources = [json.dumps(each.to_json()) for each in (ours, theirs)]

    cluster.link.run(publish_finished(cluster.cluster, group, sources))

    assert cluster.committed(group) == {key: 5, TopicPartition(plain, 0): 3}


def test_settings_are_checked_before_a_listener_is_made(spark: "SparkSession") -> None:
    with pytest.raises(SettingsError, match=r"bootstrap\.server is no setting"):
        publish_progress(spark, {"bootstrap.server": "x"}, group="g")
