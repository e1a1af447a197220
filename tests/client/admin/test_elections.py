"""Elections on command, of scripted brokers and of a real cluster."""

import pytest

from penstock.client.admin.admin import Admin
from penstock.client.admin.elections import elect_leaders, eligible_leaders, leaders
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BadReplyError, BrokerError
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.protocol.schemas.topics import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.testing import Cluster as RealCluster
from tests.client.peer import peer, peers
from tests.waiting import in_loop

FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))


def results(*codes: int) -> ElectLeadersResponse:
    told = [PartitionResult(partition_id=index, error_code=code) for index, code in enumerate(codes)]
    return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic="orders", partition_result=told)])


@in_loop
async def test_each_partition_has_its_outcome_and_one_that_has_its_leader_is_no_error() -> None:
    async with peers(2) as (first, second), Cluster(first.address) as cluster:
        first.layout.controller = 1
        second.answers[ElectLeadersRequest] = lambda _: results(0, ErrorCode.ELECTION_NOT_NEEDED)
        outcomes = await elect_leaders(cluster, [FIRST, SECOND, THIRD])
        assert (outcomes[FIRST], outcomes[SECOND]) == (True, False)
        assert isinstance(outcomes[THIRD], BadReplyError)


@in_loop
async def test_what_cannot_be_elected_is_an_error_and_is_not_asked_for_twice() -> None:
    asked: list[ElectLeadersRequest] = []

    def answer(request: ElectLeadersRequest) -> ElectLeadersResponse:
        asked.append(request)
        return results(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)

    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[ElectLeadersRequest] = answer
        outcomes = await elect_leaders(cluster, [FIRST], unclean=True)
        assert isinstance(outcomes[FIRST], BrokerError)
        [request] = asked
        assert request.election_type == 1


@in_loop
async def test_an_election_that_is_refused_as_a_whole_is_raised() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        broker.answers[ElectLeadersRequest] = lambda _: ElectLeadersResponse(error_code=code)
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await elect_leaders(cluster)


@in_loop
async def test_eligible_leaders_are_gathered_from_all_pages() -> None:
    def page(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        index = 0 if request.cursor is None else request.cursor.partition_index
        told = DescribeTopicPartitionsResponsePartition(partition_index=index, eligible_leader_replicas=[5, 6][:index])
        topic = DescribeTopicPartitionsResponseTopic(name="orders", partitions=[told])
        after = DescribeTopicPartitionsResponseCursor(topic_name="orders", partition_index=index + 1)
        return DescribeTopicPartitionsResponse(topics=[topic], next_cursor=after if index < 2 else None)

    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[DescribeTopicPartitionsRequest] = page
        assert await eligible_leaders(cluster, ["orders"]) == {SECOND: (5,), THIRD: (5, 6)}
        assert await eligible_leaders(cluster) == {SECOND: (5,), THIRD: (5, 6)}
        assert await eligible_leaders(cluster, []) == {}


@in_loop
async def test_the_preferred_replica_leads_again_on_command() -> None:
    settings = {"auto.leader.rebalance.enable": "false"}
    async with RealCluster(2, settings, storage="memory") as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create_topic("orders")
        preferred = cluster.leader_of("orders")
        assert preferred is not None
        cluster.restart(preferred)
        cluster.until_in_sync()
        assert cluster.leader_of("orders") != preferred
        assert await admin.elect_leaders([FIRST]) == [FIRST]
        assert cluster.leader_of("orders") == preferred
        async with Cluster(cluster.bootstrap) as client:
            missing = TopicPartition("nowhere", 0)
            assert await leaders(client, [FIRST, missing]) == {FIRST: preferred, missing: -1}
        assert await admin.elect_leaders() == []


@in_loop
async def test_a_broker_that_knows_no_eligible_leaders_has_none() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        del broker.versions[75]
        assert await eligible_leaders(cluster) == {}
