"""Replicas that are added by an administrator, on a cluster of real brokers."""

from collections import Counter

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.admin.reassignments import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
    plan_replication_factor,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError, ClientError, UnknownTopicError
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.testing import Broker
from penstock.testing import Cluster as Brokers
from tests.client.peer import peer
from tests.waiting import in_loop

KEY = TopicPartition("orders", 0)


@in_loop
async def test_every_partition_gets_the_replicas_that_are_asked_for_and_keeps_its_leader() -> None:
    async with Brokers(brokers=3, storage="memory") as brokers, Admin(brokers.bootstrap) as admin:
        await admin.create_topic("orders", 6, replication_factor=1)
        before = await admin.topic("orders")
        await admin.alter_replication_factor("orders", 2)
        brokers.until_in_sync()
        after = await admin.topic("orders")
        assert [each.replicas[0] for each in after.partitions] == [each.replicas[0] for each in before.partitions]
        assert all(len(each.replicas) == len(each.isr) == 2 for each in after.partitions)
        assert Counter(replica for each in after.partitions for replica in each.replicas) == {0: 4, 1: 4, 2: 4}
        assert await admin.reassignments() == {}


@in_loop
async def test_what_is_planned_is_only_what_changes() -> None:
    async with Brokers(brokers=2, storage="memory") as brokers, Cluster(brokers.bootstrap) as cluster:
        async with Admin(brokers.bootstrap) as admin:
            await admin.create_topic("orders", 2, replication_factor=1)
        plan = await plan_replication_factor(cluster, "orders", 2)
        assert sorted(plan.values()) == [(0, 1), (1, 0)]
        assert await alter_reassignments(cluster, plan) == dict.fromkeys(plan)
        brokers.until_in_sync()
        assert await plan_replication_factor(cluster, "orders", 2) == {}
        with pytest.raises(ClientError, match=r"cannot have 3 replicas.*: 2 are alive"):
            await plan_replication_factor(cluster, "orders", 3)
        with pytest.raises(ValueError, match="one replica or more"):
            await plan_replication_factor(cluster, "orders", 0)
        with pytest.raises(UnknownTopicError):
            await plan_replication_factor(cluster, "order", 1)


@in_loop
async def test_replicas_that_would_have_to_go_stay_and_the_broker_says_why() -> None:
    async with Brokers(brokers=2, storage="memory") as brokers, Admin(brokers.bootstrap) as admin:
        await admin.create_topic("orders", 1, replication_factor=2)
        with pytest.raises(BrokerError, match="not removed yet") as caught:
            await admin.alter_replication_factor("orders", 1)
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@in_loop
async def test_the_outcome_of_each_partition_is_told() -> None:
    async with Broker(storage="memory") as broker, Cluster(broker.bootstrap) as cluster:
        broker.create_topic("orders")
        missing = TopicPartition("orders", 9)
        outcomes = await alter_reassignments(cluster, {KEY: [0], missing: [0]})
        assert outcomes[KEY] is None
        assert isinstance(outcomes[missing], BrokerError)


@in_loop
async def test_what_is_being_changed_is_listed_as_the_broker_tells_it() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        told = OngoingPartitionReassignment(replicas=[0, 1, 2], adding_replicas=[2], removing_replicas=[0])
        broker.answers[ListPartitionReassignmentsRequest] = lambda _: ListPartitionReassignmentsResponse(
            error_message=None, topics=[OngoingTopicReassignment(name="orders", partitions=[told])]
        )
        expected = {KEY: Reassignment((0, 1, 2), (2,), (0,))}
        assert await list_reassignments(cluster) == await list_reassignments(cluster, [KEY]) == expected
        everything, one = broker.requests(ListPartitionReassignmentsRequest)
        assert everything.topics is None
        assert [(each.name, list(each.partition_indexes)) for each in one.topics or ()] == [("orders", [0])]


@in_loop
async def test_what_a_broker_refuses_as_a_whole_is_raised_and_what_it_leaves_out_is_unknown() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[AlterPartitionReassignmentsRequest] = lambda _: AlterPartitionReassignmentsResponse(
            error_message=None
        )
        [outcome] = (await alter_reassignments(cluster, {KEY: [0]})).values()
        assert isinstance(outcome, ClientError)
        assert outcome.outcome_unknown
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        broker.answers[AlterPartitionReassignmentsRequest] = lambda _: AlterPartitionReassignmentsResponse(
            error_code=denied, error_message=None
        )
        broker.answers[ListPartitionReassignmentsRequest] = lambda _: ListPartitionReassignmentsResponse(
            error_code=denied, error_message=None
        )
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await alter_reassignments(cluster, {KEY: [0]})
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await list_reassignments(cluster)
