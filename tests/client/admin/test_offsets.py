"""Offsets against scripted brokers: every leader is asked for its own partitions."""

from penstock.client.admin.offsets import (
    EARLIEST,
    HIGH_WATERMARK,
    LATEST,
    MAX_TIMESTAMP,
    ListedOffset,
    delete_records,
    list_offsets,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import (
    BrokerError,
    UnknownPartitionError,
    UnsendableError,
    unwrap,
)
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.protocol.schemas.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tests.client.peer import Peer, peer, peers
from tests.waiting import in_loop


def listing(broker: Peer) -> None:
    """The offset is the partition's number, the timestamp the one asked for."""
    broker.answers[ListOffsetsRequest] = lambda request: ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        offset=each.partition_index,
                        timestamp=each.timestamp,
                        leader_epoch=each.current_leader_epoch,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@in_loop
async def test_offsets_are_listed_by_the_leaders_of_their_partitions() -> None:
    async with peers(2, orders=[0, 1, 0, 1]) as (first, second), Cluster(first.address) as cluster:
        first.layout.epoch = 3
        listing(first)
        listing(second)
        wanted = [EARLIEST, LATEST, MAX_TIMESTAMP, 1_700_000_000_000]
        keys = [TopicPartition("orders", number) for number in range(4)]
        outcomes = unwrap(await list_offsets(cluster, dict(zip(keys, wanted, strict=True))))
        assert list(outcomes.values()) == [ListedOffset(number, wanted[number], 3) for number in range(4)]
        assert [request.replica_id for request in first.requests(ListOffsetsRequest)] == [-1]


@in_loop
async def test_to_one_who_reads_committed_records_a_log_ends_at_its_first_open_transaction() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        listing(broker)
        for read_committed in (False, True):
            await list_offsets(cluster, {TopicPartition("orders", 0): LATEST}, read_committed=read_committed)
        assert [request.isolation_level for request in broker.requests(ListOffsetsRequest)] == [0, 1]


@in_loop
async def test_a_broker_that_does_not_know_the_latest_timestamp_is_not_asked_for_it() -> None:
    """It would take -3 for a time before 1970."""
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.offer(ListOffsetsRequest, 1, 6)
        listing(broker)
        key = TopicPartition("orders", 0)
        assert isinstance((await list_offsets(cluster, {key: MAX_TIMESTAMP}))[key], UnsendableError)
        assert unwrap(await list_offsets(cluster, {key: LATEST}))[key].offset == 0
        assert broker.versions_of(ListOffsetsRequest) == [6]


def deleting(broker: Peer) -> None:
    broker.answers[DeleteRecordsRequest] = lambda request: DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=100 + each.partition_index,
                        error_code=ErrorCode.OFFSET_OUT_OF_RANGE if each.offset > 1000 else 0,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@in_loop
async def test_records_are_deleted_by_the_leaders_of_their_partitions() -> None:
    async with peers(2, orders=[0, 1, 1]) as (first, second), Cluster(first.address) as cluster:
        deleting(first)
        deleting(second)
        keys = [TopicPartition("orders", number) for number in range(4)]
        outcomes = await delete_records(cluster, dict(zip(keys, [5, HIGH_WATERMARK, 1001, 1], strict=True)))
        assert [outcomes[key] for key in keys[:2]] == [100, 101]
        assert isinstance(outcomes[keys[2]], BrokerError)
        assert isinstance(outcomes[keys[3]], UnknownPartitionError)
        (request,) = second.requests(DeleteRecordsRequest)
        assert [(each.partition_index, each.offset) for each in request.topics[0].partitions] == [(1, -1), (2, 1001)]
