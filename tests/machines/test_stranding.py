"""Partitions that would be away."""

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import PartitionsCreated, TopicCreated
from penstock.machines.stranding import stranding_problem


def image(**topics: list[tuple[int, ...]]) -> ClusterImage:
    made = ClusterImage()
    for number, (name, replicas) in enumerate(topics.items(), 1):
        topic_id = number.to_bytes(16, "big")
        made.apply_all([TopicCreated(topic_id, name, {}), PartitionsCreated(topic_id, 0, tuple(replicas))])
    return made


def test_brokers_that_hold_nothing_may_stay_away() -> None:
    assert stranding_problem(ClusterImage(), {0}) is None
    assert stranding_problem(image(orders=[(0,), (1,)]), {0, 1}) is None


def test_every_broker_that_holds_something_and_is_missing_is_named() -> None:
    problem = stranding_problem(image(orders=[(0,), (1,), (2,), (1,)]), {0})
    assert problem is not None
    assert "broker 1 holds 2 partitions, broker 2 holds 1 partition (orders)" in problem


def test_a_replica_counts_although_another_is_there() -> None:
    assert "broker 1 holds 1 partition" in (stranding_problem(image(orders=[(0, 1)]), {0}) or "")


def test_of_many_topics_a_few_are_named() -> None:
    problem = stranding_problem(image(a=[(1,)], b=[(1,)], c=[(1,)], d=[(1,)], e=[(1,)]), {0})
    assert problem is not None
    assert "(a, b, c and 2 more topics)" in problem
