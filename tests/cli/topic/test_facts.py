"""Ends and sizes, and brokers that do not tell them."""

from collections.abc import Collection

import pytest

from penstock.cli.topic.facts import look_at
from penstock.client.cluster.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.schemas.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.peer import Peer, peer, peers
from tests.waiting import in_loop


def answer(broker: Peer, *, sizes: list[int] | None = None, denied: Collection[int] = ()) -> None:
    """Partition n has offsets from n up to 10; of those denied nothing is told."""
    broker.answers[DescribeClusterRequest] = lambda _: DescribeClusterResponse(
        cluster_id="x",
        brokers=[
            DescribeClusterBroker(broker_id=number, host=host, port=port)
            for number, (host, port) in broker.layout.addresses.items()
        ],
    )

    def log_dirs(_: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        if sizes is None:
            return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        partitions = [DescribeLogDirsPartition(partition_index=n, partition_size=size) for n, size in enumerate(sizes)]
        return DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir="/a", topics=[DescribeLogDirsTopic(name="orders", partitions=partitions)]
                ),
                DescribeLogDirsResult(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
            ]
        )

    def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            offset=each.partition_index if each.timestamp == -2 else 10,
                            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED if each.partition_index in denied else 0,
                        )
                        for each in topic.partitions
                    ],
                )
            ]
        )

    broker.answers[DescribeLogDirsRequest] = log_dirs
    broker.answers[ListOffsetsRequest] = list_offsets


@in_loop
async def test_a_partition_is_as_large_as_its_largest_replica(capsys: pytest.CaptureFixture[str]) -> None:
    async with peers(2, orders=[0, 1]) as brokers, Cluster(brokers[0].address) as cluster:
        answer(brokers[0], sizes=[100, 50])
        answer(brokers[1], sizes=[90, 60])
        facts = await look_at(cluster, [await cluster.topic("orders")])
    assert facts.sizes == {TopicPartition("orders", 0): 100, TopicPartition("orders", 1): 60}
    assert [facts.messages(TopicPartition("orders", number)) for number in (0, 1)] == [10, 9]
    assert "KAFKA_STORAGE_ERROR" in capsys.readouterr().err, "of the folder that has failed"


@in_loop
async def test_what_a_broker_cannot_tell_is_missing_and_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        answer(broker, denied=[1])
        facts = await look_at(cluster, [await cluster.topic("orders")])
    assert facts.messages(TopicPartition("orders", 0)) == 10
    assert facts.messages(TopicPartition("orders", 1)) is None
    assert facts.sizes == {}
    warnings = capsys.readouterr().err
    assert "CLUSTER_AUTHORIZATION_FAILED" in warnings
    assert "TOPIC_AUTHORIZATION_FAILED" in warnings


@in_loop
async def test_a_few_of_many_warnings_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    async with peer(orders=[0] * 100) as broker, Cluster(broker.address) as cluster:
        answer(broker, sizes=[], denied=range(100))
        await look_at(cluster, [await cluster.topic("orders")])
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 6
    assert warnings[-1] == "Warning: and 96 more"


@in_loop
async def test_of_no_topics_nobody_is_asked() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        assert (await look_at(cluster, [])).sizes == {}
        assert broker.received == []
