"""The driver's half of queries on a real broker, without Spark."""

import json
import threading

import pytest

from penstock.client.errors import UnknownTopicError
from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord
from penstock.spark.driver import Driver
from penstock.spark.offsets import Offsets
from penstock.spark.options import Mode
from penstock.spark.planning import PlanError, Range
from penstock.spark.positions import DataLossError
from tests.spark.cluster import TestCluster


def drive(cluster: TestCluster, mode: Mode = "streaming", idle_wait_ms: int = 0, /, **options: str) -> Driver:
    return Driver(cluster.options(mode, **options), cluster.link, idle_wait_ms=idle_wait_ms)


def through_json(offsets: Offsets) -> Offsets:
    return Offsets.from_json(json.loads(json.dumps(offsets.to_json())))


def bounds(ranges: list[Range]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in ranges]


def test_a_batch_is_planned_from_start_to_end(cluster: TestCluster) -> None:
    topic = cluster.create("batch", 3)
    cluster.send_count(topic, 30, partition=0)
    cluster.send_count(topic, 5, partition=2)

    assert bounds(drive(cluster, "batch", subscribe=topic).plan_batch()) == [(0, 0, 30), (2, 0, 5)]
    planned = drive(cluster, "batch", subscribe=topic, minPartitions="4").plan_batch()
    assert bounds(planned) == [(0, 0, 10), (0, 10, 20), (0, 20, 30), (2, 0, 5)]
    planned = drive(cluster, "batch", subscribe=topic, maxBytesPerPartition="200").plan_batch()
    assert len(planned) > 2


def test_a_batch_between_two_times_that_nothing_lies_between_is_empty(cluster: TestCluster) -> None:
    topic = cluster.create("times")
    cluster.send(topic, [NewRecord(b"x", timestamp=each) for each in (1000, 5000)])

    assert drive(cluster, "batch", subscribe=topic, startingTimestamp="2000", endingTimestamp="3000").plan_batch() == []
    planned = drive(cluster, "batch", subscribe=topic, startingTimestamp="500", endingTimestamp="3000").plan_batch()
    assert bounds(planned) == [(0, 0, 1)]
    ending = json.dumps({topic: {"0": 1}})
    late = drive(cluster, "batch", subscribe=topic, startingTimestamp="6000", endingOffsets=ending)
    with pytest.raises(ValueError, match="has no record from time 6000 on"):
        late.plan_batch()
    assert drive(cluster, "batch", subscribe=topic, startingTimestamp="2000", endingOffsets=ending).plan_batch() == []


def test_an_end_before_the_start_is_refused(cluster: TestCluster) -> None:
    topic = cluster.create("reversed")
    cluster.send_count(topic, 10)
    cluster.delete_records(topic, 8)
    ending = json.dumps({topic: {"0": 5}})

    with pytest.raises((PlanError, DataLossError)):
        drive(cluster, "batch", subscribe=topic, endingOffsets=ending).plan_batch()


def test_a_topic_that_is_not_there_is_an_error_before_any_job(cluster: TestCluster) -> None:
    topic = cluster.create("there")

    with pytest.raises(UnknownTopicError, match=f"did you mean '{topic}'"):
        drive(cluster, "batch", subscribe=f"{topic}s").plan_batch()
    with pytest.raises(UnknownTopicError):
        drive(cluster, subscribe=f"{topic}s").initial()


def test_a_stream_goes_from_batch_to_batch(cluster: TestCluster) -> None:
    topic = cluster.create("stream", 2)
    cluster.send_count(topic, 10)
    driver = drive(cluster, subscribe=topic)

    initial = through_json(driver.initial())
    first = through_json(driver.latest(initial, is_limited=False))
    assert bounds(driver.plan(initial, first)) == [(0, 0, 10)]
    assert driver.latest(first, is_limited=False) == first, "nothing new is the same text"
    cluster.send_count(topic, 3, partition=1)
    second = through_json(driver.latest(first, is_limited=False))
    assert bounds(driver.plan(first, second)) == [(1, 0, 3)]
    assert second.begin is None
    assert driver.seen is not None
    assert driver.seen.positions == second.positions


def test_the_first_batch_begins_where_it_began_when_it_is_done_again(cluster: TestCluster) -> None:
    """`initialOffset()` is asked again after a failed first batch and is not persisted."""
    topic = cluster.create("again")
    cluster.send_count(topic, 10)
    driver = drive(cluster, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 4}}))
    end = through_json(driver.latest(driver.initial(), is_limited=False))
    moved = drive(cluster, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 9}}))

    assert bounds(moved.plan(through_json(moved.initial()), end)) == [(0, 4, 10)]


def test_latest_is_resolved_once_and_kept_in_the_group(cluster: TestCluster) -> None:
    topic = cluster.create("latest")
    cluster.send_count(topic, 10)
    options = {"subscribe": topic, "startingOffsets": "latest", "kafka__group__id": f"{topic}-query"}
    initial = drive(cluster, **options).initial()
    cluster.send_count(topic, 5)

    again = drive(cluster, **options)
    assert again.initial() == initial
    assert cluster.committed(f"{topic}-query") == {TopicPartition(topic, 0): 10}
    assert bounds(again.plan(initial, again.latest(initial, is_limited=False))) == [(0, 10, 15)]


def test_partitions_made_since_the_start_was_kept_are_read_whole(cluster: TestCluster) -> None:
    topic = cluster.create("grown")
    options = {"subscribe": topic, "startingOffsets": "latest", "kafka__group__id": f"{topic}-query"}
    drive(cluster, **options).initial()
    cluster.add_partitions(topic, 2)
    cluster.send_count(topic, 5, partition=1)

    assert drive(cluster, **options).initial().positions[TopicPartition(topic, 1)] == 0


def test_progress_is_committed_to_the_group_when_more_is_looked_for(cluster: TestCluster) -> None:
    topic = cluster.create("published")
    cluster.send_count(topic, 10)
    driver = drive(cluster, subscribe=topic, kafka__group__id=f"{topic}-query")
    initial = driver.initial()
    end = driver.latest(initial, is_limited=False)
    assert cluster.committed(f"{topic}-query") == {TopicPartition(topic, 0): 0}, "a batch that is not done is not told"

    driver.latest(end, is_limited=False)

    assert cluster.committed(f"{topic}-query") == {TopicPartition(topic, 0): 10}


def test_a_new_query_of_a_group_begins_where_it_says_and_not_where_the_old_one_ended(cluster: TestCluster) -> None:
    topic = cluster.create("restarted")
    cluster.send_count(topic, 10)
    driver = drive(cluster, subscribe=topic, kafka__group__id=f"{topic}-query")
    driver.latest(driver.latest(driver.initial(), is_limited=False), is_limited=False)

    assert drive(cluster, subscribe=topic, kafka__group__id=f"{topic}-query").initial().positions == {
        TopicPartition(topic, 0): 0
    }


def test_a_limit_of_offsets_is_obeyed_and_shared(cluster: TestCluster) -> None:
    topic = cluster.create("limited", 2)
    cluster.send_count(topic, 80, partition=0)
    cluster.send_count(topic, 20, partition=1)
    driver = drive(cluster, subscribe=topic, maxOffsetsPerTrigger="10")

    initial = driver.initial()
    end = driver.latest(initial, is_limited=True)
    assert bounds(driver.plan(initial, end)) == [(0, 0, 8), (1, 0, 2)]
    assert bounds(driver.plan(initial, driver.latest(initial, is_limited=False))) == [(0, 0, 80), (1, 0, 20)]


def test_a_limit_of_bytes_goes_by_the_size_of_records(cluster: TestCluster) -> None:
    topic = cluster.create("bytes")
    for _ in range(10):
        cluster.send(topic, ["x" * 1000] * 100)
    driver = drive(cluster, subscribe=topic, maxBytesPerTrigger="100k")

    initial = driver.initial()
    ((_, start, end),) = bounds(driver.plan(initial, driver.latest(initial, is_limited=True)))

    assert start == 0
    assert 90 <= end <= 105


def test_a_batch_waits_for_enough_records_but_not_for_ever(cluster: TestCluster) -> None:
    topic = cluster.create("enough")
    cluster.send_count(topic, 5)
    driver = drive(cluster, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    end = driver.latest(driver.initial(), is_limited=True)
    assert list(end.positions.values()) == [5], "the first batch does not wait"
    cluster.send_count(topic, 5)
    assert driver.latest(end, is_limited=True) == end
    cluster.send_count(topic, 5)
    assert list(driver.latest(end, is_limited=True).positions.values()) == [15]

    hasty = drive(cluster, subscribe=topic, minOffsetsPerTrigger="1000", maxTriggerDelay="0ms")
    first = hasty.latest(hasty.initial(), is_limited=True)
    cluster.send_count(topic, 1)
    assert list(hasty.latest(first, is_limited=True).positions.values()) == [16]


def test_a_query_of_what_is_there_now_ends_there(cluster: TestCluster) -> None:
    topic = cluster.create("now")
    cluster.send_count(topic, 10)
    driver = drive(cluster, subscribe=topic, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    driver.aim()
    cluster.send_count(topic, 10)
    cluster.add_partitions(topic, 2)
    cluster.send_count(topic, 1, partition=1)

    ends = [driver.initial()]
    while (end := driver.latest(ends[-1], is_limited=True)) != ends[-1]:
        ends.append(end)

    assert [list(each.positions.values()) for each in ends] == [[0, 0], [6, 0], [10, 0]]


def test_an_idle_query_waits_for_more_inside_latest(cluster: TestCluster) -> None:
    """An idle query polls every 12 ms unless the source waits."""
    topic = cluster.create("idle")
    driver = drive(cluster, "streaming", 60_000, subscribe=topic)
    initial = driver.initial()
    found: list[Offsets] = []
    waiting = threading.Thread(target=lambda: found.append(driver.latest(initial, is_limited=False)))
    waiting.start()
    cluster.send_count(topic, 1)
    waiting.join(30)

    assert list(found[0].positions.values()) == [1]


def test_a_topic_made_again_is_read_from_its_beginning_if_loss_is_tolerated(cluster: TestCluster) -> None:
    topic = cluster.create("remade")
    cluster.send_count(topic, 10)
    driver = drive(cluster, subscribe=topic, failOnDataLoss="false")
    end = driver.latest(driver.initial(), is_limited=False)
    cluster.delete_topic(topic)
    cluster.broker.create_topic(topic)
    cluster.send_count(topic, 10)

    after = driver.latest(end, is_limited=False)

    assert after.positions == end.positions
    assert bounds(driver.plan(end, after)) == [(0, 0, 10)]


def test_a_log_that_was_cut_off_is_followed_if_loss_is_tolerated(cluster: TestCluster) -> None:
    topic = cluster.create("cut")
    cluster.send_count(topic, 4)
    driver = drive(cluster, subscribe=topic, failOnDataLoss="false")
    ids = driver.initial().topic_ids
    ahead = Offsets({TopicPartition(topic, 0): 9}, ids)

    back = driver.latest(ahead, is_limited=False)
    assert bounds(driver.plan(ahead, back)) == []
    driver.aim()
    assert driver.latest(ahead, is_limited=False) == back
    cluster.send_count(topic, 2)
    after = drive(cluster, subscribe=topic).latest(back, is_limited=False)
    assert bounds(driver.plan(back, after)) == [(0, 4, 6)]
