"""What is asked of a cluster, with scripted brokers: one of them gone, one that does not say what lies on its disk."""

import pytest

from penstock.cli.cluster.facts import look_at_cluster
from penstock.client.cluster.cluster import Cluster
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.schemas.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.testing import Cluster as RealCluster
from tests.client.peer import peers
from tests.waiting import in_loop


def lying_there(size: int) -> DescribeLogDirsResponse:
    partition = DescribeLogDirsPartition(partition_index=0, partition_size=size)
    topic = DescribeLogDirsTopic(name="orders", partitions=[partition])
    return DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(log_dir="/data", topics=[topic], total_bytes=100, usable_bytes=60)]
    )


@in_loop
async def test_partitions_and_sizes_are_counted_by_broker(capsys: pytest.CaptureFixture[str]) -> None:
    async with peers(2) as (first, second), Cluster(first.address) as cluster:
        alive = [
            DescribeClusterBroker(broker_id=n, host="127.0.0.1", port=p.port) for n, p in ((0, first), (1, second))
        ]
        away = DescribeClusterBroker(broker_id=2, host="gone.example", port=9092, is_fenced=True)
        for each in (first, second):
            each.layout.leaders = {"orders": [0, 1, 0, -1]}
            each.answers[DescribeClusterRequest] = lambda request: DescribeClusterResponse(
                cluster_id="one", controller_id=1, brokers=[*alive, away] if request.include_fenced_brokers else alive
            )
        first.answers[DescribeLogDirsRequest] = lambda _: lying_there(12)
        second.answers[DescribeLogDirsRequest] = lambda _: DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        facts = await look_at_cluster(cluster)
        assert (facts.partitions, facts.without_leader, set(facts.cluster.fenced)) == (4, 1, {2})
        assert (facts.leads[0], facts.leads[1], facts.leads[2]) == (2, 1, 0)
        assert (facts.size(0), facts.free(0)) == (12, 60)
        assert (facts.size(1), facts.free(1), facts.size(2)) == (None, None, None)
    assert "broker 1" in capsys.readouterr().err


@in_loop
async def test_partitions_with_too_few_in_sync_replicas_are_counted_by_what_their_topic_needs() -> None:
    async with RealCluster(3, storage="memory") as cluster:
        for topic, needed in (("needs-one", 1), ("needs-two", 2), ("needs-three", 3)):
            cluster.create_topic(topic, min_insync_replicas=needed)
        cluster.until_in_sync()
        async with Cluster(cluster.brokers[0].bootstrap) as client:
            facts = await look_at_cluster(client)
            assert (facts.min_isr, facts.below_min_isr, facts.under_replicated) == ({}, 0, 0)
            cluster.stop(2)
            cluster.until_leaders()
            facts = await look_at_cluster(client)
            assert facts.min_isr == {"needs-one": 1, "needs-two": 2, "needs-three": 3}
            assert (facts.below_min_isr, facts.under_replicated, facts.without_leader) == (1, 3, 0)
