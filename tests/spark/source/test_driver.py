"""The driver's half of queries on a real broker, without Spark."""

import json
import logging
import threading

import pytest

from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import UnknownTopicError
from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord
from penstock.spark import positions
from penstock.spark.offsets import Offsets
from penstock.spark.options import Mode, Subscription
from penstock.spark.planning import PlanError, Range
from penstock.spark.positions import DataLossError, Subscribed
from penstock.spark.source import progress
from penstock.spark.source.driver import Driver
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
    streaming = drive(cluster, subscribe=f"{topic}s")
    with pytest.raises(PlanError, match=f"did you mean '{topic}'"):
        streaming.latest(streaming.initial(), is_limited=False)


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


def test_a_first_batch_is_done_again_though_nobody_can_say_any_more_where_it_began(cluster: TestCluster) -> None:
    topic = cluster.create("unsaid")
    cluster.send_count(topic, 10)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2}})}
    driver = drive(cluster, **options)
    end = through_json(driver.latest(driver.initial(), is_limited=False))
    cluster.add_partitions(topic, 2)
    cluster.send_count(topic, 3, partition=1)

    again = drive(cluster, **options)
    initial = through_json(again.initial())

    assert bounds(again.plan(initial, end)) == [(0, 2, 10)]
    assert bounds(again.plan(end, again.latest(end, is_limited=False))) == [(1, 0, 3)]
    with pytest.raises(PlanError, match=f"leave out {topic}-1"):
        again.latest(initial, is_limited=False)


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


@pytest.mark.parametrize("subscribes", ["subscribe", "subscribePattern"])
def test_a_topic_added_before_the_first_batch_begins_where_the_user_says(cluster: TestCluster, subscribes: str) -> None:
    topic, added = cluster.create("begun"), cluster.create("added")
    joined = f"{topic},{added}" if subscribes == "subscribe" else f"{topic}|{added}"
    options = {"startingOffsets": "latest", "kafka__group__id": f"{topic}-query"}
    cluster.send_count(topic, 3)
    drive(cluster, **{subscribes: topic}, **options).initial()
    cluster.send_count(topic, 3)
    cluster.send_count(added, 10)

    initial = drive(cluster, **{subscribes: joined}, **options).initial()

    assert initial.positions == {TopicPartition(topic, 0): 3, TopicPartition(added, 0): 10}
    assert cluster.committed(f"{topic}-query") == initial.positions


def test_a_topic_added_with_its_own_offsets_begins_at_them(cluster: TestCluster) -> None:
    topic, added = cluster.create("begun"), cluster.create("added")
    cluster.send_count(topic, 10)
    cluster.send_count(added, 10)
    group = f"{topic}-query"
    first = json.dumps({topic: {"0": 4}})
    drive(cluster, subscribe=topic, startingOffsets=first, kafka__group__id=group).initial()
    cluster.add_partitions(topic, 3)
    cluster.send_count(topic, 10, partition=1)

    both = json.dumps({topic: {"0": 4, "1": 6}, added: {"0": 8}})
    initial = drive(cluster, subscribe=f"{topic},{added}", startingOffsets=both, kafka__group__id=group).initial()

    assert not initial.error
    assert [initial.positions[TopicPartition(topic, number)] for number in range(3)] == [4, 6, 0]
    assert initial.positions[TopicPartition(added, 0)] == 8


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


def test_a_limit_of_bytes_holds_though_the_first_records_are_gone(cluster: TestCluster) -> None:
    topic = cluster.create("gone")
    for _ in range(5):
        cluster.send(topic, ["x" * 1000] * 100)
    cluster.delete_records(topic, 100)
    driver = drive(cluster, subscribe=topic, maxBytesPerTrigger="100k", failOnDataLoss="false")
    key = TopicPartition(topic, 0)
    start = Offsets({key: 50}, driver.initial().topic_ids)

    assert 140 <= driver.latest(start, is_limited=True).positions[key] <= 155
    planned = drive(cluster, "batch", subscribe=topic, maxBytesPerPartition="100k").plan(start, Offsets({key: 450}))
    assert 4 <= len(planned) <= 5


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
    driver = drive(cluster, "streaming", 3_600_000, subscribe=topic)
    initial = driver.initial()
    found: list[Offsets] = []
    waiting = threading.Thread(target=lambda: found.append(driver.latest(initial, is_limited=False)), daemon=True)
    waiting.start()
    cluster.send_count(topic, 1)
    waiting.join(200)

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


class Hidden:
    """Topics that brokers say nothing about for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics: set[str] = set()
        find = positions.find_partitions

        async def find_others(cluster: Cluster, subscription: Subscription) -> Subscribed:
            found = await find(cluster, subscription)
            keys = tuple(key for key in found.partitions if key.topic not in self.topics)
            ids = {name: told for name, told in found.topic_ids.items() if name not in self.topics}
            return Subscribed(keys, ids, {key: found.leaders[key] for key in keys}, found.missing)

        monkeypatch.setattr(positions, "find_partitions", find_others)


def test_a_topic_that_is_out_of_sight_for_a_while_is_read_once(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = cluster.create("flickering"), cluster.create("steady")
    cluster.send_count(topic, 10)
    hidden = Hidden(monkeypatch)
    group = f"{topic}-query"
    options = {"subscribePattern": f"{topic}|{other}", "kafka__group__id": group}
    driver = drive(cluster, **options, failOnDataLoss="false")
    first = through_json(driver.latest(driver.initial(), is_limited=False))
    driver.latest(first, is_limited=False)

    hidden.topics.add(topic)
    without = through_json(driver.latest(first, is_limited=False))
    assert driver.plan(first, without) == []
    assert driver.latest(without, is_limited=False) == without, "one batch says that it is gone, and no other"
    cluster.send_count(other, 2)
    more = through_json(driver.latest(without, is_limited=False))
    assert [(each.topic, each.start, each.end) for each in driver.plan(without, more)] == [(other, 0, 2)]
    driver.latest(more, is_limited=False)
    assert cluster.committed(group) == {TopicPartition(topic, 0): 10, TopicPartition(other, 0): 2}

    hidden.topics.clear()
    cluster.send_count(topic, 5)
    back = through_json(drive(cluster, **options).latest(more, is_limited=False))
    assert [(each.topic, each.start, each.end) for each in driver.plan(more, back)] == [(topic, 10, 15)]
    assert back.gone is None
    assert driver.latest(back, is_limited=False) == back


def test_a_topic_that_is_gone_is_not_told_to_the_group(cluster: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic, other = cluster.create("deleted"), cluster.create("left")
    cluster.send_count(topic, 10)
    group = f"{topic}-query"
    driver = drive(cluster, subscribePattern=f"{topic}|{other}", kafka__group__id=group, failOnDataLoss="false")
    first = driver.latest(driver.initial(), is_limited=False)
    cluster.delete_topic(topic)
    without = driver.latest(first, is_limited=False)
    caplog.clear()

    assert driver.latest(without, is_limited=False) == without

    assert without.gone is not None
    assert "could not be committed" not in caplog.text


def test_a_topic_made_again_after_it_was_gone_is_read_from_its_beginning(cluster: TestCluster) -> None:
    topic = cluster.create("renewed", 2)
    cluster.send_count(topic, 10, partition=1)
    driver = drive(cluster, subscribePattern=topic, failOnDataLoss="false")
    first = driver.latest(driver.initial(), is_limited=False)
    cluster.delete_topic(topic)
    without = driver.latest(first, is_limited=False)
    cluster.broker.create_topic(topic)
    cluster.send_count(topic, 3)

    back = driver.latest(without, is_limited=False)

    assert bounds(driver.plan(without, back)) == [(0, 0, 3)]
    assert back.gone is None, "what the topic before had is no concern of this one"
    strict = drive(cluster, subscribePattern=topic)
    with pytest.raises(DataLossError, match="was deleted and made again"):
        strict.latest(without, is_limited=False)


def test_a_query_of_what_is_there_now_ends_though_a_topic_is_out_of_sight(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.create("flickering")
    cluster.send_count(topic, 10)
    hidden = Hidden(monkeypatch)
    driver = drive(cluster, subscribePattern=topic, failOnDataLoss="false")
    first = driver.latest(driver.initial(), is_limited=False)
    hidden.topics.add(topic)
    driver.aim()
    without = driver.latest(first, is_limited=False)
    assert driver.latest(without, is_limited=False) == without
    hidden.topics.clear()
    cluster.send_count(topic, 5)

    back = driver.latest(without, is_limited=False)

    assert back.positions == first.positions, "what came since waits for the next query"
    assert driver.latest(back, is_limited=False) == back


def test_an_id_that_is_not_told_once_is_not_forgotten(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cluster.create("untold")
    driver = drive(cluster, subscribe=topic)
    first = driver.latest(driver.initial(), is_limited=False)
    cluster.send_count(topic, 5)
    monkeypatch.setattr(positions, "id_text", lambda _: "")

    second = through_json(driver.latest(first, is_limited=False))

    assert bounds(driver.plan(first, second)) == [(0, 0, 5)]
    assert second.topic_ids == first.topic_ids


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


def advance(driver: Driver, cluster: TestCluster, topic: str, start: Offsets | None = None) -> Offsets:
    """The end of a batch of one new record; the end of the batch before is published."""
    cluster.send(topic, ["x"])
    return driver.latest(driver.initial() if start is None else start, is_limited=False)


def test_two_queries_with_one_group_are_both_warned_of(cluster: TestCluster, caplog: pytest.LogCaptureFixture) -> None:
    topic, group = cluster.create("shared"), "one-for-two"
    options = cluster.options("streaming", subscribe=topic, kafka__group__id=group)
    drivers = [Driver(options, cluster.link, idle_wait_ms=0, group_check_ms=0) for _ in range(2)]
    caplog.set_level(logging.WARNING)
    ends = [advance(driver, cluster, topic) for driver in drivers]
    for _ in range(4):
        ends = [advance(driver, cluster, topic, end) for driver, end in zip(drivers, ends, strict=True)]

    told = [each for each in caplog.messages if f"commits to group {group!r} too, for {topic}-0" in each]
    assert len(told) == 2, "each of them says it once"


def test_a_query_alone_is_not_warned_of_its_group_though_it_is_restarted_and_a_listener_commits_too(
    cluster: TestCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = cluster.create("alone"), "of-one-alone"
    options = cluster.options("streaming", subscribe=topic, kafka__group__id=group)
    end = None
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        # The first batch fails, and the query asks again where it began.
        Driver(options, cluster.link, idle_wait_ms=0).initial()
    for _ in range(2):
        driver = Driver(options, cluster.link, idle_wait_ms=0, group_check_ms=0)
        for _ in range(3):
            end = through_json(advance(driver, cluster, topic, end))
            if not end.is_initial:
                cluster.link.run(progress.publish(cluster.cluster, group, end))

    # A busy machine may have brokers and clients warn of other things.
    assert [each.message for each in caplog.records if each.name.startswith("penstock.spark")] == []


def test_a_new_query_whose_group_has_the_progress_of_another_one_is_warned_at_once(
    cluster: TestCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = cluster.create("taken"), "taken"
    options = cluster.options("streaming", subscribe=topic, kafka__group__id=group)
    first = Driver(options, cluster.link, idle_wait_ms=0)
    advance(first, cluster, topic, advance(first, cluster, topic))
    caplog.set_level(logging.WARNING)

    Driver(options, cluster.link, idle_wait_ms=0).initial()

    assert f"group {group!r} already has the progress of a query: {topic}-0 is at offset 1" in caplog.text
