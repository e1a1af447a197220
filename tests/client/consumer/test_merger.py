"""The rules of merging: whose turn it is, and for how long a partition without messages is waited for."""

import random

from penstock.client.consumer.merger import Merger
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))
NOW = 1_000_000


class Scene:
    """A merger, and which partitions are at their ends."""

    def __init__(self, *partitions: TopicPartition, max_wait_ms: float = 100) -> None:
        self.ends: set[TopicPartition] = set()
        self.merger = Merger(max_wait_ms, is_at_end=self.ends.__contains__)
        self.merger.track(partitions, NOW)
        self.offset = 0

    def add(self, partition: TopicPartition, *timestamps: int, at: float = NOW) -> None:
        messages = [message(partition, self.offset + number, time) for number, time in enumerate(timestamps)]
        self.offset += len(timestamps)
        self.merger.add(partition, messages, at)

    def release(self, at: float = NOW, most: int = 100) -> list[int]:
        return [each.timestamp for each in self.merger.release(most, at)]


def message(partition: TopicPartition, offset: int, timestamp: int) -> Message[None, None]:
    return Message(*partition, offset, timestamp, None, None)


def test_the_oldest_comes_first_while_every_partition_has_one() -> None:
    scene = Scene(A, B)
    scene.add(A, 1, 4, 5)
    scene.add(B, 2, 3, 6)
    assert scene.release() == [1, 2, 3, 4, 5]
    assert scene.release() == [], "the next one of A may be older than 6"
    scene.add(A, 7)
    assert scene.release() == [6]


def test_with_equal_timestamps_messages_come_by_partition_and_offset() -> None:
    scene = Scene(A, B)
    scene.add(B, 1, 1)
    scene.add(A, 1, 1, 2)
    released = scene.merger.release(100, NOW)
    assert [(each.partition, each.offset) for each in released] == [(0, 2), (0, 3), (1, 0), (1, 1)]


def test_no_more_are_released_than_are_asked_for() -> None:
    scene = Scene(A)
    scene.add(A, 1, 2, 3)
    assert scene.release(most=2) == [1, 2]
    assert scene.merger.queued == scene.merger.count(A) == 1


def test_a_partition_of_which_more_is_to_come_is_waited_for_but_not_for_ever() -> None:
    scene = Scene(A, B)
    scene.add(A, 1, 2)
    assert scene.release(NOW + 99) == []
    assert scene.merger.wait_ms(NOW + 60) == 40
    assert scene.merger.wait_ms(NOW + 200) == 0
    assert scene.release(NOW + 100) == [1, 2]
    scene.add(A, 3, at=NOW + 100)
    assert scene.release(NOW + 100) == [3], "nobody waits for it again before it has brought something"


def test_an_idle_partition_holds_up_only_what_is_young() -> None:
    scene = Scene(A, B)
    scene.ends.add(B)
    scene.add(A, NOW - 5_000, NOW - 100, NOW - 99, NOW)
    assert scene.release() == [NOW - 5_000, NOW - 100]
    assert scene.merger.wait_ms(NOW) == 1
    assert scene.release(NOW + 1) == [NOW - 99]
    assert scene.release(NOW + 99) == []
    assert scene.release(NOW + 100) == [NOW]


def test_an_idle_partition_holds_nothing_up_for_longer_than_was_said_even_if_clocks_differ() -> None:
    scene = Scene(A, B)
    scene.ends.add(B)
    scene.add(A, NOW + 1_000_000)
    scene.add(A, NOW + 1_000_001, at=NOW + 50)
    assert scene.release(NOW + 99) == []
    assert scene.release(NOW + 100) == [NOW + 1_000_000]
    assert scene.release(NOW + 149) == []
    assert scene.release(NOW + 150) == [NOW + 1_000_001]


def test_an_idle_partition_that_gets_something_in_time_is_in_order() -> None:
    scene = Scene(A, B)
    scene.ends.add(B)
    scene.add(A, NOW - 10, NOW - 5)
    assert scene.release(NOW) == []
    scene.add(B, NOW - 7)
    assert scene.release(NOW) == [NOW - 10, NOW - 7], "B is at its end again, and could get one older than the next"
    assert scene.release(NOW + 95) == [NOW - 5]


def test_what_comes_late_is_released_at_once_and_counted() -> None:
    scene = Scene(A, B, max_wait_ms=0)
    scene.add(A, 10, 30)
    given = scene.merger.release(100, NOW)
    scene.add(B, 5, 20)
    scene.add(A, 40)
    given += scene.merger.release(100, NOW)
    assert [each.timestamp for each in given] == [10, 30, 5, 20, 40]
    assert [scene.merger.is_late(each) for each in given] == [False, False, True, True, False]
    assert scene.merger.late == 2


def test_messages_of_one_partition_keep_the_order_of_its_log() -> None:
    scene = Scene(A, B)
    scene.add(A, 5, 1, 6)
    scene.add(B, 2, 9)
    given = scene.merger.release(100, NOW)
    assert [each.timestamp for each in given] == [2, 5, 1, 6]
    assert [scene.merger.is_late(each) for each in given] == [False, False, True, False]


def test_a_new_partition_is_waited_for() -> None:
    scene = Scene(A)
    scene.add(A, 1, 2)
    scene.merger.track([A, B], NOW + 10)
    assert scene.release(NOW + 10) == []
    scene.add(B, 0)
    scene.ends.add(B)
    assert scene.release(NOW + 10) == [0, 1, 2]


def test_a_partition_that_is_gone_holds_nothing_up_and_its_messages_are_dropped() -> None:
    scene = Scene(A, B, C)
    scene.add(A, 2, 4)
    scene.add(B, 1, 3)
    scene.merger.track([A], NOW)
    assert scene.release() == [2, 4]
    assert scene.merger.queued == 0
    assert list(scene.merger.partitions) == [A]


def test_what_is_taken_back_is_as_if_it_had_not_come() -> None:
    scene = Scene(A, B)
    scene.add(A, 1, 2)
    scene.add(B, 3)
    taken = scene.merger.take_back(NOW)
    assert {key: [each.timestamp for each in messages] for key, messages in taken.items()} == {A: [1, 2], B: [3]}
    assert scene.merger.queued == 0
    assert scene.merger.wait_ms(NOW) is None
    scene.merger.add(A, taken[A], NOW)
    scene.merger.add(B, taken[B], NOW)
    assert scene.release() == [1, 2]


def test_random_logs_that_come_in_random_pieces_are_merged_in_order() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        keys = [TopicPartition("t", number) for number in range(chance.randint(1, 6))]
        logs = {key: sorted(chance.randrange(1000) for _ in range(chance.randint(0, 80))) for key in keys}
        left = {key: [message(key, offset, time) for offset, time in enumerate(log)] for key, log in logs.items()}
        merger = Merger(100, is_at_end=lambda key, left=left: not left[key])  # type: ignore[misc]
        merger.track(keys, NOW)
        given = []
        while any(left.values()):
            key = chance.choice(keys)
            count = chance.randint(0, 5)
            merger.add(key, left[key][:count], NOW)
            left[key] = left[key][count:]
            given += merger.release(chance.randint(1, 10), NOW)
        given += merger.release(1000, NOW)
        order = [(each.timestamp, each.partition, each.offset) for each in given]
        assert order == sorted(order), f"seed {seed}"
        assert len(given) == sum(map(len, logs.values()))
        assert not any(merger.is_late(each) for each in given)
