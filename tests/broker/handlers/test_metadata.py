"""Metadata, DescribeTopicPartitions and DescribeCluster over the wire."""

import pytest

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
        assert set(node.broker.image.topics) == {"orders"}


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
        assert not node.broker.image.topics
    async with running(SWITCHED_OFF) as node:
        for version in (0, 13):
            told = await metadata(await node.connect(), "new", version=version)
            assert told["new"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not node.broker.image.topics


@pytest.mark.parametrize("configs", [{}, SWITCHED_OFF])
def test_invalid_names_are_refused_and_not_created(configs: dict[str, str]) -> None:
    @in_loop
    async def run() -> None:
        async with running(configs) as node:
            client = await node.connect()
            invalid = ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\0b"]
            told = await metadata(client, *invalid)
            assert [told[name].error_code for name in invalid] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * len(invalid)
            assert not node.broker.image.topics

    run()


@in_loop
async def test_a_name_that_only_differs_in_dots_and_underscores_is_not_created() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("a.b")
        told = await metadata(client, "a_b")
        assert told["a_b"].error_code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert set(node.broker.image.topics) == {"a.b"}


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
        assert set(node.broker.image.topics) == {"orders"}


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
