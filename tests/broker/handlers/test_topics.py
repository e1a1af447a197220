"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords over the wire: rules and error codes."""

from typing import Any

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.harness import BrokenFiles, Client, batch, create_topics, in_loop, running, until
from tests.broker.members import with_groups

# CreateTopics


async def create(client: Client, name: str, **options: Any) -> CreatableTopicResult:
    [result] = (await client.ask(create_topics(name, **options), 7)).topics
    assert isinstance(result, CreatableTopicResult)
    return result


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates_a_topic(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            request = create_topics("orders", 3, {"retention.ms": "1000"})
            [result] = (await client.ask(request, version)).topics
            assert (result.name, result.error_code) == ("orders", ErrorCode.NONE)
            topic = node.broker.services.image.topics["orders"]
            assert (len(topic.partitions), topic.configs) == (3, {"retention.ms": "1000"})
            if version >= 5:
                assert (result.num_partitions, result.replication_factor) == (3, 1)
                configs = {config.name: config for config in result.configs}
                assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
                assert configs["cleanup.policy"].value == "delete"
            if version >= 7:
                assert result.topic_id == topic.topic_id

    run()


@in_loop
async def test_minus_one_means_the_default_number() -> None:
    async with running({"num.partitions": "4"}) as node:
        result = await create(await node.connect(), "orders", partitions=-1, replication_factor=-1)
        assert (result.num_partitions, result.replication_factor) == (4, 1)


@in_loop
async def test_what_cannot_be_created_is_refused_with_the_code_that_kafka_gives() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("taken")
        await client.create_topic("a.b")
        cases: list[tuple[str, dict[str, Any], ErrorCode]] = [
            ("taken", {}, ErrorCode.TOPIC_ALREADY_EXISTS),
            ("a/b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("t", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
            ("t", {"partitions": -2}, ErrorCode.INVALID_PARTITIONS),
            ("t", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ("t", {"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ("t", {"partitions": 1_000_000}, ErrorCode.POLICY_VIOLATION),
            ("t", {"configs": {"retention.mz": "1"}}, ErrorCode.INVALID_CONFIG),
            ("t", {"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
            ("t", {"configs": {"cleanup.policy": "hide"}}, ErrorCode.INVALID_CONFIG),
        ]
        for name, options, expected in cases:
            result = await create(client, name, **options)
            assert result.error_code == expected, (name, options)
            assert result.error_message, (name, options)
            assert result.configs is not None
        collides = await create(client, "a_b")
        assert collides.error_code != ErrorCode.NONE
        assert set(node.broker.services.image.topics) == {"taken", "a.b"}


@in_loop
async def test_a_config_that_is_almost_right_gets_a_suggestion() -> None:
    async with running() as node:
        result = await create(await node.connect(), "t", configs={"retention.mz": "1"})
        assert result.error_message is not None
        assert "retention.ms" in result.error_message


@in_loop
async def test_validation_creates_nothing() -> None:
    async with running() as node:
        client = await node.connect()
        result = await create(client, "orders", partitions=3, validate_only=True)
        assert (result.error_code, result.num_partitions, result.topic_id) == (ErrorCode.NONE, 3, bytes(16))
        assert (await create(client, "a/b", validate_only=True)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert not node.broker.services.image.topics


@in_loop
async def test_a_request_may_create_many_topics_each_with_its_own_outcome_and_none_twice() -> None:
    async with running() as node:
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in ("one", "twice", "a/b", "twice", "two")
        ]
        response = await (await node.connect()).ask(CreateTopicsRequest(topics=topics), 7)
        assert {result.name: result.error_code for result in response.topics} == {
            "one": ErrorCode.NONE,
            "twice": ErrorCode.INVALID_REQUEST,
            "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "two": ErrorCode.NONE,
        }
        assert set(node.broker.services.image.topics) == {"one", "two"}


@in_loop
async def test_replicas_can_be_assigned_by_hand() -> None:
    async with running() as node:
        client = await node.connect()

        async def assign(*brokers: list[int], partitions: int = -1) -> ErrorCode:
            topic = CreatableTopic(
                name="orders",
                num_partitions=partitions,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                    for index, ids in enumerate(brokers)
                ],
            )
            return ErrorCode((await client.ask(CreateTopicsRequest(topics=[topic]), 7)).topics[0].error_code)

        assert await assign([0], [5]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await assign([0], []) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await assign([0], [0], partitions=2) == ErrorCode.INVALID_REQUEST
        assert await assign([0], [0]) == ErrorCode.NONE
        assert len(node.broker.services.image.topics["orders"].partitions) == 2


@in_loop
async def test_a_config_without_a_value_is_refused() -> None:
    async with running() as node:
        topic = CreatableTopic(
            name="t",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value=None)],
        )
        response = await (await node.connect()).ask(CreateTopicsRequest(topics=[topic]), 7)
        assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG


@in_loop
async def test_a_new_topic_takes_records_at_once() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3)
        for index in range(3):
            assert (await client.produce("orders", batch(b"a"), partition=index)).error_code == ErrorCode.NONE


# DeleteTopics


async def delete(client: Client, name: str | None = None, topic_id: bytes = bytes(16)) -> DeletableTopicResult:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=topic_id)])
    [result] = (await client.ask(request, 6)).responses
    assert isinstance(result, DeletableTopicResult)
    return result


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes_topics_by_name(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders")
            if version >= 6:
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders"), DeleteTopicState(name="orderz")])
            else:
                request = DeleteTopicsRequest(topic_names=["orders", "orderz"])
            response = await client.ask(request, version)
            assert [(result.name, result.error_code) for result in response.responses] == [
                ("orders", ErrorCode.NONE),
                ("orderz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            assert not node.broker.services.image.topics

    run()


@in_loop
async def test_a_topic_can_be_deleted_by_its_id() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        unknown = await delete(client, topic_id=b"?" * 16)
        assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        deleted = await delete(client, topic_id=created.topic_id)
        assert (deleted.error_code, deleted.name, deleted.topic_id) == (ErrorCode.NONE, "orders", created.topic_id)
        assert not node.broker.services.image.topics


@in_loop
async def test_name_and_id_together_or_neither_are_no_topic() -> None:
    async with running() as node:
        client = await node.connect()
        created = await client.create_topic("orders")
        assert (await delete(client, "orders", created.topic_id)).error_code == ErrorCode.INVALID_REQUEST
        assert (await delete(client)).error_code == ErrorCode.INVALID_REQUEST
        assert set(node.broker.services.image.topics) == {"orders"}


@in_loop
async def test_deleting_can_be_switched_off() -> None:
    async with running({"delete.topic.enable": "false"}) as node:
        client = await node.connect()
        await client.create_topic("orders")
        result = await delete(client, "orders")
        assert result.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert result.error_message is not None
        assert "delete.topic.enable" in result.error_message
        assert set(node.broker.services.image.topics) == {"orders"}


@in_loop
async def test_a_deleted_topic_stays_deleted() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await delete(client, "orders")
        assert (await client.produce("orders", batch(b"b"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await node.restart()
        assert not node.broker.services.image.topics
        assert len(node.broker.services.partitions) == 0


# CreatePartitions


async def add(
    client: Client, name: str, count: int, assignments: list[list[int]] | None = None, *, validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    brokers = None
    if assignments is not None:
        brokers = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=brokers)], validate_only=validate_only
    )
    [result] = (await client.ask(request, 3)).results
    assert result.name == name
    return ErrorCode(result.error_code), result.error_message


@pytest.mark.parametrize("version", range(4))
def test_every_version_adds_partitions_that_can_be_used_at_once(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders", 2)
            await client.produce("orders", batch(b"kept"), partition=1)
            topic = CreatePartitionsTopic(name="orders", count=4, assignments=None)
            [result] = (await client.ask(CreatePartitionsRequest(topics=[topic]), version)).results
            assert (result.name, result.error_code, result.error_message) == ("orders", ErrorCode.NONE, None)
            assert (await client.produce("orders", batch(b"new"), partition=3)).error_code == ErrorCode.NONE
            assert await client.values("orders", partition=1) == [b"kept"]

    run()


@in_loop
async def test_partitions_can_only_become_more() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", 3)
        for name, count, assignments, expected in [
            ("orderz", 4, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("orders", 3, None, ErrorCode.INVALID_PARTITIONS),
            ("orders", 2, None, ErrorCode.INVALID_PARTITIONS),
            ("orders", -1, None, ErrorCode.INVALID_PARTITIONS),
            ("orders", 5, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ("orders", 4, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ]:
            code, message = await add(client, name, count, assignments)
            assert code == expected, (name, count)
            assert message
        assert await add(client, "orders", 9, validate_only=True) == (ErrorCode.NONE, None)
        assert len(node.broker.services.image.topics["orders"].partitions) == 3
        assert await add(client, "orders", 5, [[0], [0]]) == (ErrorCode.NONE, None)
        assert len(node.broker.services.image.topics["orders"].partitions) == 5


# DeleteRecords


async def trim(client: Client, offset: int, *, topic: str = "orders", partition: int = 0, version: int = 2) -> Any:
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])])
    [result] = (await client.ask(request, version)).topics[0].partitions
    assert isinstance(result, DeleteRecordsPartitionResult)
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_deletes_records_before_an_offset(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders")
            for number in range(5):
                await client.produce("orders", batch(b"%d" % number))
            assert await trim(client, 2, version=version) == (ErrorCode.NONE, 2)
            assert await client.values("orders", 2) == [b"2", b"3", b"4"]
            assert (await client.fetch("orders", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            # The beginning never goes back.
            assert await trim(client, 1, version=version) == (ErrorCode.NONE, 2)
            await node.restart()
            client = await node.connect()
            assert (await client.fetch("orders", 2)).log_start_offset == 2

    run()


@in_loop
async def test_minus_one_deletes_all_that_is_committed() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", b"b"))
        assert await trim(client, -1) == (ErrorCode.NONE, 2)
        assert await client.values("orders", 2) == []
        assert (await client.produce("orders", batch(b"c"))).base_offset == 2
        assert await client.values("orders", 2) == [b"c"]


@in_loop
async def test_what_cannot_be_deleted_is_refused() -> None:
    files = BrokenFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.create_topic("table", configs={"cleanup.policy": "compact"})
        await client.produce("orders", batch(b"a"))
        assert await trim(client, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await trim(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await trim(client, 0, partition=5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await trim(client, 0, topic="orderz") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await trim(client, 0, topic="table") == (ErrorCode.POLICY_VIOLATION, -1)
        files.broken = "/log-start"
        assert await trim(client, 1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert await client.values("orders") == [b"a"]


@in_loop
async def test_an_empty_log_has_nothing_to_delete() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        assert await trim(client, -1) == (ErrorCode.NONE, 0)
        assert await trim(client, 0) == (ErrorCode.NONE, 0)
        await client.produce("orders", batch(b"a"), acks=1)
        await until(lambda: node.partition("orders").high_watermark == 1)
        assert await trim(client, -1) == (ErrorCode.NONE, 1)


# What is named twice, and too much at once


@in_loop
async def test_topics_that_are_named_twice_are_neither_deleted_nor_given_partitions() -> None:
    async with running() as node:
        client = await node.connect()
        ids = {name: (await client.create_topic(name)).topic_id for name in ("one", "twice")}
        wanted = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("twice", "one", "twice")]
        added = (await client.ask(CreatePartitionsRequest(topics=wanted, timeout_ms=1000), 3)).results
        assert [(result.name, result.error_code) for result in added] == [
            ("twice", ErrorCode.INVALID_REQUEST),
            ("one", ErrorCode.NONE),
        ]
        states = [DeleteTopicState(name=name) for name in ("twice", "one", "twice")]
        states += [DeleteTopicState(name=None, topic_id=ids["twice"])] * 2
        deleted = (await client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6)).responses
        assert [(result.name, result.error_code) for result in deleted] == [
            ("twice", ErrorCode.INVALID_REQUEST),
            ("one", ErrorCode.NONE),
            (None, ErrorCode.INVALID_REQUEST),
        ]
        assert set(node.broker.services.image.topics) == {"twice"}
        names = ["twice", "twice"]
        [result] = (await client.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=1000), 5)).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST


@in_loop
async def test_of_a_partition_that_is_named_twice_the_last_offset_counts() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", b"b", b"c"))
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 1)]
        topics = [DeleteRecordsTopic(name="orders", partitions=[partition]) for partition in partitions]
        [topic] = (await client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)).topics
        assert [found.low_watermark for found in topic.partitions] == [1]


@pytest.mark.parametrize("counts", [(10_001,), (6000, 6000), ((1 << 31) - 1, 1), (9999, -1, -1)])
def test_a_request_for_too_many_partitions_is_refused_as_a_whole(counts: tuple[int, ...]) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            topics = [
                CreatableTopic(name=f"t{number}", num_partitions=count, replication_factor=1)
                for number, count in enumerate(counts)
            ]
            results = (await client.ask(CreateTopicsRequest(topics=topics), 7)).topics
            assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
            assert len(results) == len(counts)
            assert not node.broker.services.image.topics

    run()


@in_loop
async def test_partitions_that_are_too_many_are_refused_for_all_topics_of_the_request() -> None:
    async with running() as node:
        client = await node.connect()
        for name in ("a", "b"):
            await client.create_topic(name)
        wanted = [CreatePartitionsTopic(name=name, count=6000, assignments=None) for name in ("a", "b")]
        added = (await client.ask(CreatePartitionsRequest(topics=wanted, timeout_ms=1000), 3)).results
        assert [result.error_code for result in added] == [ErrorCode.POLICY_VIOLATION] * 2
        assert {len(topic.partitions) for topic in node.broker.services.image.topics.values()} == {1}


@in_loop
async def test_a_broker_has_as_many_partitions_as_it_may_and_groups_all_the_same() -> None:
    async with running({"penstock.max.partitions": "10"}) as node:
        client = await node.connect()
        await client.create_topic("a", 6)
        refused = await create(client, "b", partitions=5)
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        assert "penstock.max.partitions" in (refused.error_message or "")
        await client.create_topic("b", 4)
        code, message = await add(client, "a", 7)
        assert (code, "penstock.max.partitions" in (message or "")) == (ErrorCode.POLICY_VIOLATION, True)
        await with_groups(node)
        [deleted] = (await client.ask(DeleteTopicsRequest(topic_names=["b"], timeout_ms=1000), 5)).responses
        assert deleted.error_code == ErrorCode.NONE
