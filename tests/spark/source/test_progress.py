"""A group that keeps where a query began and how far it is."""

import logging

import pytest

from penstock.client.admin.offsets import EARLIEST, LATEST
from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets
from penstock.spark.options import Bound
from penstock.spark.source import progress
from tests.spark.cluster import TestCluster


def recall(
    cluster: TestCluster, group: str, bound: Bound, topic: str, topic_id: str = "A"
) -> dict[TopicPartition, int]:
    key = TopicPartition(topic, 0)
    return cluster.link.run(progress.recall_start(cluster.cluster, group, bound, {topic: topic_id}, (key,)))


def keep(cluster: TestCluster, group: str, bound: Bound, topic: str, offset: int) -> None:
    starts = {TopicPartition(topic, 0): offset}
    cluster.link.run(progress.keep_start(cluster.cluster, group, bound, {topic: "A"}, starts))


def test_a_start_is_kept_until_a_batch_is_done(cluster: TestCluster) -> None:
    topic, group = cluster.create("kept"), "kept-start"
    key = TopicPartition(topic, 0)
    assert recall(cluster, group, Bound(LATEST), topic) == {}
    keep(cluster, group, Bound(LATEST), topic, 7)

    assert recall(cluster, group, Bound(LATEST), topic) == {key: 7}
    assert cluster.link.run(progress.publish(cluster.cluster, group, Offsets({key: 9})))
    assert cluster.committed(group) == {key: 9}
    assert recall(cluster, group, Bound(LATEST), topic) == {}, "a query that starts now is another one"


def test_a_start_is_that_of_one_topic_and_one_wish(cluster: TestCluster) -> None:
    topic, group = cluster.create("wish"), "wishes"
    keep(cluster, group, Bound(LATEST), topic, 7)

    assert recall(cluster, group, Bound(EARLIEST), topic) == {}
    assert recall(cluster, group, Bound(LATEST), topic, topic_id="B") == {}
    assert recall(cluster, group, Bound(LATEST), topic) != {}


def test_nothing_to_keep_or_to_publish_is_no_error(cluster: TestCluster) -> None:
    cluster.link.run(progress.keep_start(cluster.cluster, "nothing", Bound(LATEST), {}, {}))

    assert cluster.link.run(progress.publish(cluster.cluster, "nothing", Offsets({})))


def test_progress_that_cannot_be_published_is_logged_and_no_error(
    cluster: TestCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    done = cluster.link.run(progress.publish(cluster.cluster, "", Offsets({TopicPartition("no-such", 0): 1})))

    assert not done
    assert "could not be committed to group" in caplog.text
