"""Data folders as scripted brokers describe them."""

from penstock.client.admin.log_dirs import Compaction, LogDir, describe_log_dirs
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import (
    BrokerError,
)
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tests.client.admin.test_brokers import describing
from tests.client.peer import peer, peers
from tests.waiting import in_loop


@in_loop
async def test_the_data_folders_of_each_broker_are_described_by_itself() -> None:
    async with peers(2) as (first, second), Cluster(first.address) as cluster:
        describing(first, second)
        first.answers[DescribeLogDirsRequest] = lambda _: DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir="/data",
                    total_bytes=1000,
                    usable_bytes=10,
                    topics=[
                        DescribeLogDirsTopic(
                            name="orders",
                            partitions=[
                                DescribeLogDirsPartition(partition_index=2, partition_size=990),
                                DescribeLogDirsPartition(
                                    partition_index=3, partition_size=90, clean_bytes=50, dirty_bytes=40
                                ),
                            ],
                        )
                    ],
                ),
                DescribeLogDirsResult(log_dir="/broken", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
            ]
        )
        second.answers[DescribeLogDirsRequest] = lambda _: DescribeLogDirsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        keys = [TopicPartition("orders", 2), TopicPartition("orders", 3)]
        outcomes = await describe_log_dirs(cluster, partitions=keys)
        found = outcomes[0]
        assert isinstance(found, list)
        sizes = {keys[0]: 990, keys[1]: 90}
        assert found[0] == LogDir("/data", sizes, 1000, 10, compaction={keys[1]: Compaction(50, 40)})
        assert isinstance(found[1].error, BrokerError)
        assert isinstance(outcomes[1], BrokerError)
        (request,) = first.requests(DescribeLogDirsRequest)
        assert request.compaction
        assert request.topics is not None
        assert [(topic.topic, list(topic.partitions)) for topic in request.topics] == [("orders", [2, 3])]


@in_loop
async def test_all_replicas_are_described_if_none_is_named() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        describing(broker)
        broker.answers[DescribeLogDirsRequest] = lambda _: DescribeLogDirsResponse()
        assert await describe_log_dirs(cluster) == {0: []}
        assert broker.requests(DescribeLogDirsRequest)[0].topics is None
