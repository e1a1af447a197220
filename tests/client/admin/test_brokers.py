"""A cluster as scripted brokers describe it."""

import pytest

from penstock.client.admin.brokers import describe_cluster
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import (
    BrokerError,
)
from penstock.client.metadata import Broker
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.client.peer import Peer, peer, peers
from tests.waiting import in_loop


def describing(*brokers: Peer) -> None:
    for each in brokers:
        each.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
            cluster_id="one",
            controller_id=1,
            brokers=[
                DescribeClusterBroker(broker_id=broker.node_id, host="127.0.0.1", port=broker.port, rack="r")
                for broker in reversed(brokers)
            ],
        )


@in_loop
async def test_a_cluster_is_described_with_its_brokers_in_order() -> None:
    async with peers(2) as (first, second), Cluster(first.address) as cluster:
        describing(first, second)
        told = await describe_cluster(cluster)
        assert (told.cluster_id, told.controller_id) == ("one", 1)
        assert told.brokers == (Broker(0, "127.0.0.1", first.port, "r"), Broker(1, "127.0.0.1", second.port, "r"))


@in_loop
async def test_a_cluster_that_may_not_be_described_is_an_error() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await describe_cluster(cluster)


@in_loop
async def test_brokers_that_are_not_alive_are_described_if_they_are_wanted() -> None:
    def describe(request: DescribeClusterRequest) -> DescribeClusterResponse:
        fenced = DescribeClusterBroker(broker_id=7, host="gone.example", port=9092, is_fenced=True)
        return DescribeClusterResponse(cluster_id="one", brokers=[fenced] if request.include_fenced_brokers else [])

    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[DescribeClusterRequest] = describe
        told = await describe_cluster(cluster, include_fenced=True)
        assert [each.id for each in told.brokers] == [7]
        assert told.fenced == {7}
        assert (await describe_cluster(cluster)).brokers == ()
