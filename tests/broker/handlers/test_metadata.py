"""Metadata, DescribeTopicPartitions and DescribeCluster over the wire."""

from collections.abc import Generator

import pytest

from penstock.broker.cluster.metadata_pieces import Piece, make_piece
from penstock.broker.handlers import metadata as metadata_module
from penstock.broker.handlers.metadata import MAX_CREATED_TOPICS
from penstock.machines.cluster_records import (
    BrokerFenced,
    BrokerRegistered,
    ControllerElected,
    PartitionImage,
    PartitionsChanged,
    Record,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.cluster import DescribeClusterRequest
from penstock.protocol.schemas.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    TopicRequest,
)
from penstock.protocol.schemas.topics import CreatePartitionsRequest, CreatePartitionsTopic
from tests.broker.harness import Client, create_topics, in_loop, running

SWITCHED_OFF = {"auto.create.topics.enable": "false"}


async def metadata(
    client: Client, *names: str, version: int = 13, may_create: bool = True
) -> dict[str | None, MetadataResponseTopic]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=may_create
    )
    response = await client.ask(request, version)
    assert isinstance(response, MetadataResponse)
    return {topic.name: topic for topic in response.topics}


# Metadata


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_brokers_and_leaders(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running({"node.id": "3", "broker.rack": "r1"}) as node:
            client = await node.connect()
            created = await client.create_topic("orders", 2)
            response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), version)
            [broker] = response.brokers
            assert (broker.node_id, broker.host, broker.port) == (3, *node.broker.address)
            assert broker.rack == ("r1" if version >= 1 else None)
            assert response.controller_id == (3 if version >= 1 else -1)
            assert response.cluster_id == (node.broker.cluster_id if version >= 2 else None)
            [topic] = response.topics
            assert topic.topic_id == (created.topic_id if version >= 10 else bytes(16))
            for index, partition in enumerate(topic.partitions):
                assert (partition.partition_index, partition.leader_id) == (index, 3)
                assert (list(partition.replica_nodes), list(partition.isr_nodes)) == ([3], [3])
                assert partition.leader_epoch == (0 if version >= 7 else -1)

    run()


@in_loop
async def test_all_topics_are_told_to_who_asks_for_none_in_particular() -> None:
    async with running() as node:
        client = await node.connect()
        for name in ("orders", "payments"):
            await client.create_topic(name)

        async def names(request: MetadataRequest, version: int) -> set[str]:
            return {topic.name for topic in (await client.ask(request, version)).topics}

        assert await names(MetadataRequest(topics=[]), 0) == {"orders", "payments"}
        for version in (1, 13):
            assert await names(MetadataRequest(topics=None), version) == {"orders", "payments"}
            assert await names(MetadataRequest(topics=[]), version) == set()


@in_loop
async def test_a_topic_can_be_asked_for_by_its_id() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        request = MetadataRequest(
            topics=[
                MetadataRequestTopic(name=None, topic_id=created.topic_id),
                MetadataRequestTopic(name=None, topic_id=b"?" * 16),
            ]
        )
        known, unknown = (await client.ask(request, 12)).topics
        assert (known.error_code, known.name, len(known.partitions)) == (ErrorCode.NONE, "orders", 1)
        assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        assert unknown.topic_id == b"?" * 16
        assert set(node.broker.services.image.topics) == {"orders"}


@pytest.mark.parametrize("version", [10, 11])
def test_before_version_12_a_request_by_id_is_refused_as_a_whole(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            created = await client.create_topic("orders")
            for topic in (
                MetadataRequestTopic(name=None, topic_id=created.topic_id),
                MetadataRequestTopic(name=None, topic_id=b"?" * 16),
                MetadataRequestTopic(name="orders", topic_id=created.topic_id),
            ):
                answered = await client.ask(
                    MetadataRequest(topics=[topic, MetadataRequestTopic(name="orders")]), version
                )
                assert {each.error_code for each in answered.topics} == {ErrorCode.INVALID_REQUEST}
                assert {each.name for each in answered.topics} == {topic.name or "", "orders"}

    run()


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_a_topic_that_is_asked_for_is_created_with_the_defaults(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running({"num.partitions": "3"}) as node:
            client = await node.connect()
            topic = (await metadata(client, "new", version=version))["new"]
            assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 3)
            assert all(partition.leader_id == 0 for partition in topic.partitions)
            assert (await metadata(client, "new", version=version))["new"] == topic

    run()


@in_loop
async def test_no_topic_is_created_for_who_does_not_want_it_or_where_it_is_switched_off() -> None:
    async with running() as node:
        told = await metadata(await node.connect(), "new", may_create=False)
        assert told["new"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not node.broker.services.image.topics
    async with running(SWITCHED_OFF) as node:
        for version in (0, 13):
            told = await metadata(await node.connect(), "new", version=version)
            assert told["new"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not node.broker.services.image.topics


@pytest.mark.parametrize("configs", [{}, SWITCHED_OFF])
def test_invalid_names_are_refused_and_not_created(configs: dict[str, str]) -> None:
    @in_loop
    async def run() -> None:
        async with running(configs) as node:
            client = await node.connect()
            invalid = ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\0b"]
            told = await metadata(client, *invalid)
            assert [told[name].error_code for name in invalid] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * len(invalid)
            assert not node.broker.services.image.topics

    run()


@in_loop
async def test_a_name_that_only_differs_in_dots_and_underscores_is_not_created() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("a.b")
        told = await metadata(client, "a_b")
        assert told["a_b"].error_code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert set(node.broker.services.image.topics) == {"a.b"}


@in_loop
async def test_two_clients_that_ask_for_a_new_topic_at_once_get_the_same_one() -> None:
    async with running() as node:
        clients = [await node.connect() for _ in range(5)]
        for client in clients:
            client.send(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 13)
        topics = [(await client.reply()).topics[0] for client in clients]
        assert {topic.error_code for topic in topics} == {ErrorCode.NONE}
        assert len({topic.topic_id for topic in topics}) == 1


# DescribeTopicPartitions


async def describe(
    client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor and DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = await client.ask(request, 0)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


@in_loop
async def test_partitions_are_described_with_lists_and_never_with_null() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders", 2)
        [topic] = (await describe(client, "orders")).topics
        assert (topic.name, topic.topic_id) == ("orders", created.topic_id)
        assert [partition.partition_index for partition in topic.partitions] == [0, 1]
        for partition in topic.partitions:
            assert (partition.leader_id, partition.leader_epoch) == (0, 0)
            assert list(partition.replica_nodes) == list(partition.isr_nodes) == [0]
            assert partition.eligible_leader_replicas is not None
            assert partition.last_known_elr is not None


@in_loop
async def test_topics_that_do_not_exist_are_described_by_an_error() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        response = await describe(client, "orders", "orderz", "a/b")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("orders", ErrorCode.NONE),
            ("orderz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert set(node.broker.services.image.topics) == {"orders"}


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 100])
def test_pages_of_any_size_tell_every_partition_once_in_order(limit: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            for name, partitions in [("c", 1), ("a", 5), ("b", 3)]:
                await client.create_topic(name, partitions)
            found: list[tuple[str | None, int]] = []
            cursor = None
            for _ in range(20):
                response = await describe(client, limit=limit, cursor=cursor)
                page = [
                    (topic.name, partition.partition_index)
                    for topic in response.topics
                    for partition in topic.partitions
                ]
                assert 0 < len(page) <= limit
                found += page
                if response.next_cursor is None:
                    break
                cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
            assert found == [(name, index) for name, count in (("a", 5), ("b", 3), ("c", 1)) for index in range(count)]

    run()


@in_loop
async def test_a_page_has_two_thousand_partitions_at_most_and_a_senseless_limit_means_that() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("large", 2500)
        for limit in (0, -5, 1_000_000):
            response = await describe(client, "large", limit=limit)
            assert len(response.topics[0].partitions) == 2000
            assert response.next_cursor is not None
            assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("large", 2000)
        rest = await describe(client, "large", cursor=("large", 2000))
        assert len(rest.topics[0].partitions) == 500
        assert rest.next_cursor is None


@in_loop
async def test_a_cursor_whose_topic_has_gone_goes_on_behind_it() -> None:
    async with running() as node:
        client = await node.connect()
        for name in ("a", "c"):
            await client.create_topic(name, 2)
        response = await describe(client, cursor=("b", 1))
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("c", 2)]
        assert not (await describe(client, cursor=("z", 0))).topics


# DescribeCluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running({"node.id": "7", "broker.rack": "r2"}) as node:
            response = await (await node.connect()).ask(DescribeClusterRequest(), version)
            assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, node.broker.cluster_id)
            assert response.controller_id == 7
            [broker] = response.brokers
            assert (broker.broker_id, broker.host, broker.port, broker.rack) == (7, *node.broker.address, "r2")

    run()


@in_loop
async def test_a_broker_tells_no_controller_endpoints() -> None:
    async with running() as node:
        response = await (await node.connect()).ask(DescribeClusterRequest(endpoint_type=2), 1)
        assert response.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        assert "endpoint type 1" in response.error_message


@in_loop
async def test_a_topic_of_four_thousand_partitions_is_told_whole() -> None:
    async with running() as node:
        client = await node.connect()
        [result] = (await client.ask(create_topics("large", 4000), 7)).topics
        assert result.num_partitions == 4000
        topic = (await metadata(client, "large"))["large"]
        assert [partition.partition_index for partition in topic.partitions] == list(range(4000))


@in_loop
async def test_a_topic_that_is_named_twice_is_told_once() -> None:
    async with running(SWITCHED_OFF) as node:
        client = await node.connect()
        topic_id = (await client.create_topic("orders", 3)).topic_id
        names = [MetadataRequestTopic(name=name) for name in ("orders", "none", "orders", "none")]
        response = await client.ask(MetadataRequest(topics=names), 12)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("orders", 3), ("none", 0)]
        ids = [MetadataRequestTopic(name=None, topic_id=topic_id)] * 3
        response = await client.ask(MetadataRequest(topics=ids), 12)
        assert [topic.name for topic in response.topics] == ["orders"]


@in_loop
async def test_one_request_creates_a_hundred_topics_and_the_next_one_more() -> None:
    async with running() as node:
        client = await node.connect()
        names = [f"t{number}" for number in range(MAX_CREATED_TOPICS + 20)]
        codes = [topic.error_code for topic in (await metadata(client, *names)).values()]
        assert codes == [ErrorCode.NONE] * MAX_CREATED_TOPICS + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 20
        assert {topic.error_code for topic in (await metadata(client, *names)).values()} == {ErrorCode.NONE}


@in_loop
async def test_no_more_topics_are_created_than_the_broker_may_have_partitions() -> None:
    async with running({"penstock.max.partitions": "3"}) as node:
        client = await node.connect()
        codes = [topic.error_code for topic in (await metadata(client, *"abcde")).values()]
        assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.POLICY_VIOLATION] * 2


# What is said again


@in_loop
async def test_the_second_request_for_many_partitions_encodes_none_of_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By calls, not by time: what is encoded anew for each request does not depend on the number of partitions."""
    encoded: list[str | None] = []

    def counted(topic: MetadataResponseTopic, version: int) -> Generator[None, None, Piece]:
        encoded.append(topic.name)
        return make_piece(topic, version)

    monkeypatch.setattr(metadata_module, "make_piece", counted)
    async with running() as node:
        client = await node.connect()
        for number in range(10):
            await client.create_topic(f"orders-{number}", 1000)
        first = await client.ask(MetadataRequest(topics=None), 12)
        assert sum(len(topic.partitions) for topic in first.topics) == 10_000
        assert len(encoded) == 10
        assert await client.ask(MetadataRequest(topics=None), 12) == first
        assert len(encoded) == 10
        await client.ask(CreatePartitionsRequest(topics=[more("orders-3", 1001)]), 3)
        answer = await client.ask(MetadataRequest(topics=None), 12)
        third = {topic.name: topic for topic in answer.topics}
        assert (encoded[10:], len(third["orders-3"].partitions)) == (["orders-3"], 1001)
        # Another version has other bytes.
        await client.ask(MetadataRequest(topics=None), 9)
        assert len(encoded) == 21


def more(name: str, count: int) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(name=name, count=count, assignments=None)


@in_loop
async def test_partitions_without_a_leader_are_counted_as_errors_from_kept_pieces_too() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        change = PartitionsChanged(created.topic_id, (PartitionImage(0, (0,), (0,), (), -1, 1, 1),))
        await node.broker._image_changed(node.broker.services.image.apply_all([change]))
        for _ in range(2):
            response = await client.ask(MetadataRequest(topics=None), 12)
            assert response.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        errors = node.broker.services.meters.requests._by_key[3].errors
        assert errors[ErrorCode.LEADER_NOT_AVAILABLE] == 2


# Brokers and the controller


@in_loop
async def test_fenced_brokers_are_described_when_asked_for_and_told_to_no_reader_of_metadata() -> None:
    async with running() as node:
        client = await node.connect()
        listener = node.broker.config.listeners[0].name
        records: list[Record] = [
            BrokerRegistered(5, 11, {listener: ("b5", 9095)}, None, "f5", "f5"),
            BrokerRegistered(6, 12, {listener: ("b6", 9096)}, "r", "f6", "f6"),
            BrokerRegistered(7, 13, {"OTHER": ("b7", 9097)}, "r", "f7", "f7"),
            BrokerFenced(6, 12),
            ControllerElected(5, 4),
        ]
        await node.broker._image_changed(node.broker.services.image.apply_all(records))
        told = await client.ask(MetadataRequest(topics=[]), 12)
        # A broker without the listener that the client came by is none that it could reach.
        assert {broker.node_id: (broker.host, broker.port) for broker in told.brokers} == {
            0: node.broker.address,
            5: ("b5", 9095),
        }
        assert told.controller_id == 5
        described = await client.ask(DescribeClusterRequest(), 2)
        assert [(broker.broker_id, broker.is_fenced) for broker in described.brokers] == [(0, False), (5, False)]
        described = await client.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
        assert [(broker.broker_id, broker.is_fenced) for broker in described.brokers] == [
            (0, False),
            (5, False),
            (6, True),
        ]
        assert described.controller_id == 5
