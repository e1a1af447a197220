"""Where logs begin and end, and what is data loss, on a real broker."""

import asyncio
import logging
import time

import pytest

from penstock.client.admin.offsets import EARLIEST, LATEST
from penstock.client.errors import UnknownPartitionError, UnknownTopicError
from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord
from penstock.spark import positions
from penstock.spark.offsets import Offsets
from penstock.spark.options import Assigned, Bound, Matching, Named, OptionsError, SourceOptions
from penstock.spark.positions import DataLossError, Subscribed
from tests.spark.cluster import TestCluster


def find(cluster: TestCluster, subscription: Named | Matching | Assigned) -> Subscribed:
    return cluster.link.run(positions.find_partitions(cluster.cluster, subscription))


def resolve(
    cluster: TestCluster, topic: str, bound: Bound, options: SourceOptions, *, is_start: bool = True
) -> list[int]:
    keys = find(cluster, Named((topic,))).partitions
    resolved = cluster.link.run(positions.resolve(cluster.cluster, keys, bound, options, is_start=is_start))
    return [resolved[key] for key in keys]


def latest(cluster: TestCluster, options: SourceOptions, start: Offsets) -> Offsets:
    return cluster.link.run(positions.latest(cluster.cluster, options, start))[0]


def test_a_pattern_matches_whole_names_and_no_internal_topic(cluster: TestCluster) -> None:
    topic = cluster.create("matching", 2)
    cluster.create(f"not-{topic}")

    assert list(find(cluster, Matching(topic)).partitions) == [TopicPartition(topic, n) for n in (0, 1)]
    assert "__consumer_offsets" not in find(cluster, Matching(".*")).topic_ids


def test_assigned_partitions_are_the_only_ones(cluster: TestCluster) -> None:
    topic = cluster.create("assigned", 3)

    assert find(cluster, Assigned((TopicPartition(topic, 1),))).partitions == (TopicPartition(topic, 1),)
    missing = find(cluster, Assigned((TopicPartition(topic, 7),))).missing
    assert isinstance(missing[topic], UnknownPartitionError)


def test_a_topic_that_is_not_there_is_told_with_names_that_are_like_it(cluster: TestCluster) -> None:
    topic = cluster.create("wanted")

    missing = find(cluster, Named((topic, f"{topic}x"))).missing

    assert isinstance(error := missing[f"{topic}x"], UnknownTopicError)
    assert topic in error.near


def test_bounds_are_resolved_to_offsets(cluster: TestCluster) -> None:
    topic = cluster.create("bounds", 2)
    cluster.send(topic, [NewRecord(b"x", timestamp=time_ms) for time_ms in (1000, 2000, 3000)])
    options = cluster.options(subscribe=topic, startingOffsetsByTimestampStrategy="latest")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    assert resolve(cluster, topic, Bound(EARLIEST), options) == [0, 0]
    assert resolve(cluster, topic, Bound(LATEST), options) == [3, 0]
    assert resolve(cluster, topic, Bound(each={first: 2, second: LATEST}), options) == [2, 0]
    assert resolve(cluster, topic, Bound(1500, is_time=True), options) == [1, 0]
    assert resolve(cluster, topic, Bound(each={first: 9000, second: 1}, is_time=True), options) == [3, 0]


def test_a_starting_time_behind_all_records_is_an_error_unless_latest_is_wanted(cluster: TestCluster) -> None:
    topic = cluster.create("times")
    cluster.send(topic, [NewRecord(b"x", timestamp=1000)])
    options = cluster.options(subscribe=topic)

    with pytest.raises(OptionsError, match="has no record from time 2000 on"):
        resolve(cluster, topic, Bound(2000, is_time=True), options)

    assert resolve(cluster, topic, Bound(2000, is_time=True), options, is_start=False) == [1]


def test_every_partition_needs_its_own_offset(cluster: TestCluster) -> None:
    topic = cluster.create("partial", 2)
    options = cluster.options(subscribe=topic)

    with pytest.raises(OptionsError, match=f"leave out {topic}-1"):
        resolve(cluster, topic, Bound(each={TopicPartition(topic, 0): 0}), options)
    each = {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0, TopicPartition("other", 0): 0}
    with pytest.raises(OptionsError, match="name other-0, which is not subscribed"):
        resolve(cluster, topic, Bound(each=each), options)


def test_an_offset_that_is_not_in_the_log_is_data_loss(cluster: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = cluster.create("outside")
    cluster.send_count(topic, 10)
    cluster.delete_records(topic, 4)
    low, high = (Bound(each={TopicPartition(topic, 0): offset}) for offset in (2, 20))

    with pytest.raises(DataLossError, match="from offset 2 on, but its log has 4 to 10"):
        resolve(cluster, topic, low, cluster.options(subscribe=topic))

    tolerant = cluster.options(subscribe=topic, failOnDataLoss="false")
    assert resolve(cluster, topic, low, tolerant) == [4]
    assert resolve(cluster, topic, high, tolerant, is_start=False) == [10]
    assert "up to offset 20" in caplog.text


def test_a_deleted_topic_is_data_loss(cluster: TestCluster) -> None:
    topic, other = cluster.create("deleted"), cluster.create("left")
    options = cluster.options("streaming", subscribe=f"{topic},{other}")
    start = latest(cluster, options, Offsets({}))
    cluster.delete_topic(topic)

    with pytest.raises(DataLossError, match=f"topic '{topic}': there is no such topic"):
        latest(cluster, options, start)

    tolerant = cluster.options("streaming", subscribe=f"{topic},{other}", failOnDataLoss="false")
    assert list(latest(cluster, tolerant, start).positions) == [TopicPartition(other, 0)]


def test_a_topic_that_no_longer_matches_is_data_loss(cluster: TestCluster) -> None:
    topic = cluster.create("vanished")
    options = cluster.options("streaming", subscribePattern=f"{topic}.*")
    start = latest(cluster, options, Offsets({}))
    cluster.delete_topic(topic)

    with pytest.raises(DataLossError, match=f"{topic}-0 cannot be read any more"):
        latest(cluster, options, start)


def test_a_recreated_topic_is_a_clear_error(cluster: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic = cluster.create("recreated")
    options = cluster.options("streaming", subscribe=topic)
    start = latest(cluster, options, Offsets({}))
    cluster.delete_topic(topic)
    cluster.broker.create_topic(topic)

    with pytest.raises(DataLossError, match="was deleted and made again"):
        latest(cluster, options, start)

    tolerant = cluster.options("streaming", subscribe=topic, failOnDataLoss="false")
    caplog.set_level(logging.WARNING)
    assert latest(cluster, tolerant, start).topic_ids != start.topic_ids
    latest(cluster, tolerant, start)
    assert caplog.text.count("was deleted and made again") == 1, "told once, not at every look"


def test_a_loss_that_was_survived_once_is_no_loss_again(cluster: TestCluster) -> None:
    topic, other = cluster.create("survived"), cluster.create("stays")
    options = cluster.options("streaming", subscribe=other)
    ids = find(cluster, Named((topic, other))).topic_ids
    gone = Offsets({TopicPartition(topic, 0): 5}, {topic: ids[topic]})
    start = Offsets({TopicPartition(other, 0): 0}, {other: ids[other]}, gone=gone)

    assert list(latest(cluster, options, start).positions) == [TopicPartition(other, 0)]


def test_a_topic_that_comes_back_is_known_by_its_id(cluster: TestCluster) -> None:
    topic = cluster.create("back")
    options = cluster.options("streaming", subscribe=topic)
    key, ids = TopicPartition(topic, 0), find(cluster, Named((topic,))).topic_ids

    with pytest.raises(DataLossError, match="was deleted and made again"):
        latest(cluster, options, Offsets({}, gone=Offsets({key: 0}, {topic: "another"})))
    with pytest.raises(DataLossError, match="was read up to offset 5, but its log ends at 0"):
        latest(cluster, options, Offsets({}, gone=Offsets({key: 5}, ids)))
    assert latest(cluster, options, Offsets({}, gone=Offsets({key: 0}, ids))).positions == {key: 0}


def test_a_log_that_ends_before_the_query_was_is_data_loss(cluster: TestCluster) -> None:
    topic = cluster.create("cut")
    options = cluster.options("streaming", subscribe=topic)
    start = Offsets({TopicPartition(topic, 0): 9}, find(cluster, Named((topic,))).topic_ids)

    with pytest.raises(DataLossError, match="was read up to offset 9, but its log ends at 0"):
        latest(cluster, options, start)

    tolerant = cluster.options("streaming", subscribe=topic, failOnDataLoss="false")
    assert latest(cluster, tolerant, start).positions == {TopicPartition(topic, 0): 0}


def test_waiting_ends_when_something_comes(cluster: TestCluster) -> None:
    topic = cluster.create("awaited")
    options = cluster.options("streaming", subscribe=topic)
    key = TopicPartition(topic, 0)
    leaders = find(cluster, Named((topic,))).leaders

    async def wait(wait_ms: int) -> None:
        await positions.wait_for_more(cluster.cluster, options, {key: 0}, leaders, wait_ms=wait_ms)

    cluster.link.run(wait(1))
    waiting = cluster.link.submit(wait(3_600_000))
    assert not waiting.done()
    cluster.send(topic, ["there"])

    waiting.result(timeout=200)
    assert waiting.done(), "long before the hour was over"


def test_waiting_without_partitions_takes_its_time(cluster: TestCluster) -> None:
    options = cluster.options("streaming", subscribePattern="none")
    began = time.monotonic()

    cluster.link.run(positions.wait_for_more(cluster.cluster, options, {}, {}, wait_ms=20))

    assert time.monotonic() - began >= 0.02


def test_waiting_for_a_partition_that_is_gone_is_not_busy(cluster: TestCluster) -> None:
    options = cluster.options("streaming", subscribe="gone")

    began = time.monotonic()

    async def wait() -> None:
        async with asyncio.timeout(200):
            await positions.wait_for_more(cluster.cluster, options, {TopicPartition("gone", 0): 0}, {}, wait_ms=10)

    cluster.link.run(wait())
    assert time.monotonic() - began >= 0.01, "whoever asks again at once would never rest"


def test_the_size_of_records_is_told_by_the_first_ones(cluster: TestCluster) -> None:
    small, large, empty = (cluster.create(name) for name in ("small", "large", "empty"))
    cluster.send(small, ["x" * 10] * 100)
    cluster.send(large, ["x" * 1000] * 100)
    starts = {TopicPartition(topic, 0): 0 for topic in (small, large, empty, "gone")}

    sizes = cluster.link.run(positions.probe_sizes(cluster.cluster, starts))

    assert 10 < sizes[TopicPartition(small, 0)] < 30
    assert 1000 < sizes[TopicPartition(large, 0)] < 1050
    assert len(sizes) == 2
    assert cluster.link.run(positions.probe_sizes(cluster.cluster, {})) == {}


def test_the_size_of_records_is_told_by_the_first_that_are_left(cluster: TestCluster) -> None:
    topic = cluster.create("left")
    for _ in range(3):
        cluster.send(topic, ["x" * 1000] * 10)
    cluster.delete_records(topic, 12)
    key = TopicPartition(topic, 0)

    sizes = cluster.link.run(positions.probe_sizes(cluster.cluster, {key: 5}))

    assert 1000 < sizes[key] < 1050
