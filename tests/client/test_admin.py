"""Administration against scripted brokers: what is asked of whom, and the outcome of each thing asked for."""

from typing import Any

import pytest

from penstock.client.admin import (
    EARLIEST,
    HIGH_WATERMARK,
    LATEST,
    MAX_TIMESTAMP,
    Compaction,
    CreatedTopic,
    ListedOffset,
    LogDir,
    NewTopic,
    add_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_topics,
    list_offsets,
    list_topics,
)
from penstock.client.cluster import Cluster
from penstock.client.errors import (
    BadReplyError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    NoBrokerError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsendableError,
    unwrap,
)
from penstock.client.metadata import Broker, TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
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
from penstock.protocol.schemas.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.client.peer import HANG_UP, Peer, closed_port, in_loop, peer, peers


def creating(broker: Peer, **codes: int) -> None:
    """Topics are made, but for those that have a code."""
    broker.answers[CreateTopicsRequest] = lambda request: CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=topic.name,
                topic_id=b"i" * 16,
                num_partitions=3,
                replication_factor=1,
                error_code=codes.get(topic.name, 0),
                error_message=None,
            )
            for topic in request.topics
        ]
    )


@in_loop
async def test_topics_are_created_with_what_they_were_given() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        creating(broker)
        wanted = [
            NewTopic(name="orders", partitions=3, replication_factor=1, configs={"retention.ms": "1000"}),
            NewTopic(name="defaults"),
            NewTopic(name="placed", assignment=[[1, 2], [2, 1]]),
        ]
        outcomes = unwrap(await create_topics(cluster, wanted, timeout_ms=9_000))
        assert outcomes["orders"] == CreatedTopic("orders", b"i" * 16, 3, 1)
        (request,) = broker.requests(CreateTopicsRequest)
        orders, defaults, placed = request.topics
        assert (orders.num_partitions, orders.replication_factor) == (3, 1)
        assert [(config.name, config.value) for config in orders.configs] == [("retention.ms", "1000")]
        assert (defaults.num_partitions, defaults.replication_factor) == (-1, -1)
        assert (placed.num_partitions, placed.replication_factor) == (-1, -1)
        assert [(each.partition_index, list(each.broker_ids)) for each in placed.assignments] == [
            (0, [1, 2]),
            (1, [2, 1]),
        ]
        assert (request.timeout_ms, request.validate_only) == (9_000, False)


@in_loop
async def test_each_topic_has_its_own_outcome() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        creating(broker, taken=ErrorCode.TOPIC_ALREADY_EXISTS)
        outcomes = await create_topics(cluster, [NewTopic(name="taken"), NewTopic(name="free")], validate_only=True)
        assert isinstance(outcomes["taken"], BrokerError)
        assert isinstance(outcomes["free"], CreatedTopic)
        assert broker.requests(CreateTopicsRequest)[0].validate_only


@in_loop
async def test_changes_follow_the_controller_when_it_moves() -> None:
    async with peers(2) as (first, second), Cluster(first.address) as cluster:
        creating(first, orders=ErrorCode.NOT_CONTROLLER)
        creating(second)
        refuse = first.answers[CreateTopicsRequest]

        def move(request: CreateTopicsRequest) -> Any:
            first.layout.controller = 1
            return refuse(request)

        first.answers[CreateTopicsRequest] = move
        assert isinstance((await create_topics(cluster, [NewTopic(name="orders")]))["orders"], CreatedTopic)


@in_loop
async def test_a_change_that_was_lost_on_the_way_is_not_sent_again() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[CreateTopicsRequest] = lambda _: HANG_UP
        error = (await create_topics(cluster, [NewTopic(name="orders")]))["orders"]
        assert isinstance(error, ConnectionLostError)
        assert error.outcome_unknown
        assert len(broker.requests(CreateTopicsRequest)) == 1


@in_loop
async def test_a_failure_of_the_whole_is_the_outcome_of_each() -> None:
    async with Cluster(f"127.0.0.1:{closed_port()}") as cluster:
        outcomes = await create_topics(cluster, [NewTopic(name="a"), NewTopic(name="b")])
        assert [type(outcome) for outcome in outcomes.values()] == [NoBrokerError, NoBrokerError]


@in_loop
async def test_a_topic_that_the_answer_leaves_out_is_an_error() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[CreateTopicsRequest] = lambda _: CreateTopicsResponse()
        assert isinstance((await create_topics(cluster, [NewTopic(name="a")]))["a"], BadReplyError)


@in_loop
async def test_topics_are_listed_and_described() -> None:
    async with peer(orders=[0, 0], clicks=[0]) as broker, Cluster(broker.address) as cluster:
        assert [(topic.name, len(topic.partitions)) for topic in await list_topics(cluster)] == [
            ("clicks", 1),
            ("orders", 2),
        ]
        await cluster.topic("orders")
        broker.layout.leaders["orders"] = [0, 0, 0]
        outcomes = await describe_topics(cluster, ["orders", "ordes"])
        assert not isinstance(outcomes["orders"], ClientError)
        assert len(outcomes["orders"].partitions) == 3
        assert isinstance(outcomes["ordes"], UnknownTopicError)
        assert outcomes["ordes"].near == ("orders",)


@in_loop
async def test_topics_are_deleted_by_name_and_an_unknown_one_is_told_with_near_names() -> None:
    async with peer(orders=[0], clicks=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[DeleteTopicsRequest] = lambda request: DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=name, error_code=0 if name == "clicks" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                for name in request.topic_names
            ]
        )
        outcomes = await delete_topics(cluster, ["clicks", "order"])
        assert outcomes["clicks"] is None
        assert isinstance(outcomes["order"], UnknownTopicError)
        assert outcomes["order"].near == ("orders",)
        assert list(broker.requests(DeleteTopicsRequest)[0].topic_names) == ["clicks", "order"]


@in_loop
async def test_partitions_are_added_up_to_a_total() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.answers[CreatePartitionsRequest] = lambda request: CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.INVALID_PARTITIONS if topic.count < 2 else 0,
                    error_message="there are more already" if topic.count < 2 else None,
                )
                for topic in request.topics
            ]
        )
        outcomes = await add_partitions(cluster, {"orders": 5, "clicks": 1})
        assert outcomes["orders"] is None
        assert isinstance(outcomes["clicks"], BrokerError)
        assert "there are more already" in str(outcomes["clicks"])
        (request,) = broker.requests(CreatePartitionsRequest)
        assert [(topic.name, topic.count, topic.assignments) for topic in request.topics] == [
            ("orders", 5, None),
            ("clicks", 1, None),
        ]


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
