"""What members of a group tell each other, read and written also by other people's clients."""

import pytest

from penstock.client.errors import BadReplyError
from penstock.client.group.protocol import (
    make_plan,
    read_own_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from penstock.client.metadata import TopicPartition
from penstock.machines.assignors import COOPERATIVE_STICKY, RANGE, Candidate

OWNED = frozenset({TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("u", 5)})


def test_a_subscription_is_read_as_it_was_written() -> None:
    data = write_subscription(COOPERATIVE_STICKY, {"u", "t"}, owned=OWNED, generation=7, rack="r1")
    assert read_subscription(data, "one") == Candidate(
        topics=frozenset({"t", "u"}),
        owned=OWNED,
        generation=7,
        instance_id="one",
        rack="r1",
        user_data=b"\x00\x00\x00\x07",
    )
    assert read_subscription(write_subscription(RANGE, {"t"})) == Candidate(topics=frozenset({"t"}))


def test_other_clients_read_our_subscription() -> None:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    data = write_subscription(COOPERATIVE_STICKY, {"u", "t"}, owned=OWNED, generation=7)
    theirs = ConsumerProtocolSubscription.decode(data)
    assert (list(theirs.topics), theirs.generation_id) == (["t", "u"], 7)
    assert {(each.topic, number) for each in theirs.owned_partitions for number in each.partitions} == OWNED
    assert ConsumerProtocolMemberMetadata.decode(data).subscription == ["t", "u"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_we_read_the_subscriptions_of_other_clients_in_every_version(version: int) -> None:
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

    owned = [ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[0, 1])] if version >= 1 else []
    theirs = ConsumerProtocolSubscription(
        version=version, topics=["t"], user_data=b"x", owned_partitions=owned, generation_id=3, rack_id="r"
    )
    found = read_subscription(theirs.encode())
    assert (found.topics, found.user_data) == (frozenset({"t"}), b"x")
    assert found.owned == (frozenset({("t", 0), ("t", 1)}) if version >= 1 else frozenset())
    assert found.generation == (3 if version >= 2 else -1)
    assert found.rack == ("r" if version >= 3 else None)


def test_a_later_version_is_read_like_the_last_that_is_known() -> None:
    data = write_subscription(RANGE, {"t"})
    assert read_subscription(b"\x00\x09" + data[2:] + b"more") == read_subscription(data)


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\x00\x03\x00\x00", b"x"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(BadReplyError, match="a member of the group sent what is no subscription"):
        read_subscription(data)


def test_an_assignment_is_read_by_us_and_by_other_clients() -> None:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    data = write_assignment([("u", 5), ("t", 1), ("t", 0)])
    assert read_own_assignment(data) == OWNED
    assert {tuple(each) for each in ConsumerProtocolAssignment.decode(data).partitions()} == OWNED
    assert read_own_assignment(b"") == frozenset()
    with pytest.raises(BadReplyError, match="no assignment of a consumer"):
        read_own_assignment(b"\x00")


class Fixed:
    name = "fixed"

    def __init__(self, plan: dict[str, list[tuple[str, int]]]) -> None:
        self._plan = plan

    def assign(self, members: object, partitions: object) -> dict[str, list[tuple[str, int]]]:
        return self._plan


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"c": [("t", 0)]}, "assignor 'fixed' gives partitions to 'c', who is no member"),
        ({"a": [("t", 2)]}, "assignor 'fixed' gives away t-2, which does not exist"),
        ({"a": [("x", 0)]}, "assignor 'fixed' gives away x-0, which does not exist"),
        ({"b": [("u", 0)]}, "assignor 'fixed' gives u-0 to 'b', who does not subscribe to it"),
        ({"a": [("t", 0)], "b": [("t", 0)]}, "assignor 'fixed' gives t-0 to 'a' and to 'b'"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan: dict[str, list[tuple[str, int]]], why: str) -> None:
    members = {"a": Candidate(topics=frozenset({"t", "u"})), "b": Candidate(topics=frozenset({"t"}))}
    with pytest.raises(ValueError, match=why):
        make_plan(Fixed(plan), members, {"t": 2, "u": 1})
    right = {"a": [("t", 1)], "b": []}
    assert make_plan(Fixed(right), members, {"t": 2, "u": 1}) == right
