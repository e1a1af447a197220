"""The window of a push: credits, lanes, and how far everything is acknowledged."""

import random

from penstock.client.consumer.credits import Delivery, Entry, Window
from penstock.client.message import Message


def message(offset: int, partition: int = 0) -> Message[None, None]:
    return Message("orders", partition, offset, 0, None, None)


def deliver(window: Window, *offsets: int, lane: object = None, source: str = "a") -> None:
    for offset in offsets:
        window.deliver(lane, Entry(source, message(offset)))


def hand_over(window: Window) -> Delivery:
    delivery = window.hand_over()
    assert delivery is not None
    return delivery


def offsets(delivery: Delivery) -> list[int]:
    return [each.offset for each in delivery.messages]


def test_every_message_that_is_not_acknowledged_takes_a_credit() -> None:
    window = Window(3)
    deliver(window, 5, 6, 7)
    assert (window.free, window.outstanding, window.wants_more) == (0, 3, False)
    delivery = hand_over(window)
    window.returned(delivery)
    assert window.free == 0, "it has returned, and is not acknowledged"
    window.acknowledge(delivery)
    window.acknowledge(delivery)
    assert window.free == 1


def test_more_is_wanted_when_half_is_free_or_nothing_waits_to_be_handed_over() -> None:
    window = Window(4)
    deliver(window, 1, 2, 3, 4)
    assert not window.wants_more
    first, second = hand_over(window), None
    window.returned(first)
    window.acknowledge(first)
    assert not window.wants_more, "one is free, and two wait"
    second = hand_over(window)
    window.returned(second)
    window.acknowledge(second)
    assert window.wants_more
    for _ in range(2):
        window.returned(hand_over(window))
    assert window.wants_more, "two are still out, but nobody is busy with any"


def test_a_lane_is_handed_over_one_by_one_and_waits_for_nobody_but_itself() -> None:
    window = Window(10)
    deliver(window, 1, 2, lane="x")
    deliver(window, 3, lane="y")
    one, other = hand_over(window), hand_over(window)
    assert (offsets(one), offsets(other)) == ([1], [3])
    assert window.hand_over() is None
    window.returned(one)
    assert offsets(hand_over(window)) == [2]


def test_lists_have_all_that_waits_in_a_lane() -> None:
    window = Window(10, lists=True)
    deliver(window, 1, 2, lane="x")
    first = hand_over(window)
    assert offsets(first) == [1, 2]
    deliver(window, 3, 4, lane="x")
    assert window.hand_over() is None
    window.returned(first)
    assert offsets(hand_over(window)) == [3, 4]


def test_the_frontier_is_the_first_that_is_not_acknowledged() -> None:
    window = Window(10)
    for offset in (5, 6, 8):
        deliver(window, offset, lane=offset)
    five, six, eight = (hand_over(window) for _ in range(3))
    window.acknowledge(six)
    window.acknowledge(eight)
    assert window.frontier("a") == 5
    window.acknowledge(five)
    assert window.frontier("a") is None
    assert window.frontier("b") is None


def test_what_was_not_handed_over_can_be_taken_back_and_delivered_again() -> None:
    window = Window(10)
    deliver(window, 1, 3, lane="x")
    deliver(window, 2, 4, lane="y")
    one = hand_over(window)
    taken = window.take_back()
    assert {source: [each.offset for each in messages] for source, messages in taken.items()} == {"a": [2, 3, 4]}
    assert (window.outstanding, window.frontier("a")) == (1, 1)
    window.returned(one)
    window.acknowledge(one)
    assert (window.outstanding, window.frontier("a"), window.hand_over()) == (0, None, None)
    deliver(window, 2, 3, lane="x")
    assert window.frontier("a") == 2
    assert window.unsettled() == ["a"]
    for _ in range(2):
        delivery = hand_over(window)
        window.returned(delivery)
        window.acknowledge(delivery)
    window.forget_settled()
    assert window.unsettled() == []


def test_in_any_order_of_acknowledgements_the_frontier_is_right_and_no_credit_is_lost() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        window = Window(20, lists=chance.random() < 0.5)
        out: list[Delivery] = []
        unacknowledged: set[int] = set()
        next_offset = 0
        while next_offset < 500 or out:
            while window.wants_more and next_offset < 500:
                deliver(window, next_offset, lane=chance.randrange(5))
                unacknowledged.add(next_offset)
                next_offset += 1
            while (delivery := window.hand_over()) is not None:
                out.append(delivery)
            assert window.outstanding == len(unacknowledged) <= 20, f"seed {seed}"
            done = out.pop(chance.randrange(len(out)))
            window.returned(done)
            window.acknowledge(done)
            unacknowledged -= set(offsets(done))
            assert window.frontier("a") == min(unacknowledged, default=None), f"seed {seed}"
