"""Topics against scripted brokers: what is asked of whom, and the outcome of each thing asked for."""

from typing import Any

from penstock.client.admin.topics import (
    CreatedTopic,
    NewTopic,
    add_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    list_topics,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import (
    BadReplyError,
    BrokerError,
    ClientError,
    ConnectionLostError,
    NoBrokerError,
    UnknownTopicError,
    unwrap,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.client.peer import HANG_UP, Peer, closed_port, peer, peers
from tests.waiting import in_loop


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
