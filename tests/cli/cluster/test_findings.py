"""Partitions as health is found by them."""

from penstock.cli.cluster.findings import Replicas, Severity
from penstock.client.metadata import TopicPartition

KEY = TopicPartition("orders", 0)


def test_a_partition_with_a_leader_and_too_few_in_sync_replicas_refuses_acks_all() -> None:
    assert Replicas(KEY, 0, (0, 1, 2), (0,), needed=2).is_refusing
    assert not Replicas(KEY, 0, (0, 1, 2), (0, 1), needed=2).is_refusing
    assert not Replicas(KEY, -1, (0, 1, 2), (0,), needed=2).is_refusing


def test_a_broker_lacks_what_it_has_a_replica_of_that_is_not_in_sync() -> None:
    partition = Replicas(KEY, 0, (0, 1, 2), (0, 1))
    assert [partition.lacks(broker) for broker in range(4)] == [False, False, True, False]
    assert not Replicas(KEY, -1, (0, 1), (0,)).lacks(1)
    added = Replicas(KEY, 0, (0, 1, 2), (0,), adding=(2,))
    assert [added.lacks(broker) for broker in range(3)] == [False, True, False]


def test_what_clients_feel_or_soon_may_is_a_problem() -> None:
    assert [each for each in Severity if each.is_problem] == [Severity.BROKEN, Severity.AT_RISK]
