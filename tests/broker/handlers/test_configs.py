"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs over the wire, and that changes count at once."""

from typing import Any

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterableConfig,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from tests.broker.copies import copying
from tests.broker.harness import NOW_MS, Client, FakeClock, batch, create_topics, in_loop, records_of, running

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, OF_START, DEFAULT = range(1, 6)


async def describe(
    client: Client, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **options: Any
) -> tuple[DescribeConfigsResult, dict[str, DescribeConfigsResourceResult]]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    [result] = (await client.ask(DescribeConfigsRequest(resources=[resource], **options), version)).results
    assert isinstance(result, DescribeConfigsResult)
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result, {config.name: config for config in result.configs}


async def change(
    client: Client, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    configs = [
        IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [result] = (await client.ask(request, 1)).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message


async def replace(
    client: Client,
    kind: int,
    name: str,
    values: dict[str, str | None],
    *,
    version: int = 2,
    validate_only: bool = False,
) -> ErrorCode:
    configs = [AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in values.items()]
    resource = AlterConfigsRequestAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [result] = (await client.ask(request, version)).responses
    return ErrorCode(result.error_code)


# Describing


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_topics_and_brokers(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders", configs={"retention.ms": "1000"})
            result, configs = await describe(client, TOPIC, "orders", version=version)
            assert result.error_code == ErrorCode.NONE
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", OF_TOPIC)
            assert configs["cleanup.policy"].value == "delete"
            assert configs["cleanup.policy"].config_source == DEFAULT
            result, configs = await describe(client, BROKER, "0", version=version)
            assert configs["listeners"].value == "PLAINTEXT://127.0.0.1:0"
            assert (configs["listeners"].config_source, configs["listeners"].read_only) == (OF_START, True)
            assert not configs["log.retention.ms"].read_only

    run()


@in_loop
async def test_only_the_configs_that_are_asked_for_are_told() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        _, configs = await describe(client, TOPIC, "orders", ["segment.bytes", "no.such.config"])
        assert set(configs) == {"segment.bytes"}
        everything = (await describe(client, TOPIC, "orders", None))[1]
        assert set((await describe(client, TOPIC, "orders", []))[1]) == set(everything)
        assert len(everything) > 20
        assert not any(name.startswith("internal.") for name in everything)


@in_loop
async def test_synonyms_and_documentation_are_told_to_who_asks() -> None:
    async with running({"log.retention.ms": "5000"}) as node:
        client = await node.connect()
        await client.create_topic("orders", configs={"retention.ms": "1000"})
        _, plain = await describe(client, TOPIC, "orders", ["retention.ms"])
        assert not plain["retention.ms"].synonyms
        assert plain["retention.ms"].documentation is None
        _, full = await describe(
            client, TOPIC, "orders", ["retention.ms"], include_synonyms=True, include_documentation=True
        )
        synonyms = [(item.name, item.value, item.source) for item in full["retention.ms"].synonyms]
        assert synonyms[:2] == [("retention.ms", "1000", OF_TOPIC), ("log.retention.ms", "5000", OF_START)]
        assert full["retention.ms"].documentation


@in_loop
async def test_what_has_no_configs_here_is_refused() -> None:
    async with running() as node:
        client = await node.connect()
        for kind, name, expected in [
            (TOPIC, "orderz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "7", ErrorCode.INVALID_REQUEST),
            (BROKER, "zero", ErrorCode.INVALID_REQUEST),
            (GROUP, "g", ErrorCode.INVALID_REQUEST),
        ]:
            result, configs = await describe(client, kind, name)
            assert (result.error_code, configs) == (expected, {})
            assert result.error_message


@in_loop
async def test_secrets_are_never_told() -> None:
    async with running({"ssl.keystore.password": "hunter2"}) as node:
        _, configs = await describe(await node.connect(), BROKER, "0", ["ssl.keystore.password"], include_synonyms=True)
        secret = configs["ssl.keystore.password"]
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert "hunter2" not in repr(secret)


# Changing


@in_loop
async def test_configs_of_a_topic_are_set_appended_to_subtracted_from_and_deleted() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")

        async def value(name: str) -> tuple[str | None, int]:
            config = (await describe(client, TOPIC, "orders", [name]))[1][name]
            return config.value, config.config_source

        assert await change(client, TOPIC, "orders", ("retention.ms", SET, "1000")) == (ErrorCode.NONE, None)
        assert await value("retention.ms") == ("1000", OF_TOPIC)
        assert await change(client, TOPIC, "orders", ("cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
        assert await value("cleanup.policy") == ("delete,compact", OF_TOPIC)
        assert await change(client, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")) == (ErrorCode.NONE, None)
        assert await value("cleanup.policy") == ("compact", OF_TOPIC)
        assert await change(
            client, TOPIC, "orders", ("cleanup.policy", DELETE, None), ("retention.ms", DELETE, None)
        ) == (ErrorCode.NONE, None)
        assert await value("cleanup.policy") == ("delete", DEFAULT)
        assert (await value("retention.ms"))[1] == DEFAULT


@in_loop
async def test_what_cannot_be_set_is_refused_and_changes_nothing() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        cases: list[tuple[int, str, list[tuple[str, int, str | None]], ErrorCode]] = [
            (TOPIC, "orderz", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "orders", [("retention.mz", SET, "1")], ErrorCode.INVALID_CONFIG),
            (TOPIC, "orders", [("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG),
            (TOPIC, "orders", [("segment.bytes", SET, "1000000"), ("x", SET, "1")], ErrorCode.INVALID_CONFIG),
            (TOPIC, "orders", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
            (TOPIC, "orders", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
            (TOPIC, "orders", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
            (BROKER, "0", [("listeners", SET, "PLAINTEXT://:1")], ErrorCode.INVALID_CONFIG),
            (BROKER, "9", [("log.retention.ms", SET, "1")], ErrorCode.BROKER_ID_NOT_REGISTERED),
            (BROKER, "zero", [("log.retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST),
            (GROUP, "g", [("x", SET, "1")], ErrorCode.INVALID_REQUEST),
        ]
        for kind, name, changes, expected in cases:
            code, message = await change(client, kind, name, *changes)
            assert code == expected, (name, changes)
            assert message, (name, changes)
        assert node.broker.services.image.topics["orders"].configs == {}
        assert node.broker.services.image.broker_configs.get(0, {}) == {}


@in_loop
async def test_validation_changes_nothing() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        ok = await change(client, TOPIC, "orders", ("retention.ms", SET, "1"), validate_only=True)
        assert ok == (ErrorCode.NONE, None)
        bad, _ = await change(client, TOPIC, "orders", ("retention.ms", SET, "soon"), validate_only=True)
        assert bad == ErrorCode.INVALID_CONFIG
        assert await replace(client, TOPIC, "orders", {"retention.ms": "1"}, validate_only=True) == ErrorCode.NONE
        assert node.broker.services.image.topics["orders"].configs == {}


@pytest.mark.parametrize("version", range(3))
def test_the_old_way_replaces_all_configs_of_a_topic(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders", configs={"retention.ms": "1000", "segment.bytes": "2000000"})
            assert await replace(client, TOPIC, "orders", {"retention.ms": "7"}, version=version) == ErrorCode.NONE
            assert node.broker.services.image.topics["orders"].configs == {"retention.ms": "7"}
            assert await replace(client, TOPIC, "orders", {"x": "7"}, version=version) == ErrorCode.INVALID_CONFIG
            assert await replace(client, GROUP, "g", {}, version=version) == ErrorCode.INVALID_REQUEST
            assert node.broker.services.image.topics["orders"].configs == {"retention.ms": "7"}

    run()


@in_loop
async def test_changes_survive_a_restart() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await change(client, TOPIC, "orders", ("retention.ms", SET, "1000"))
        await change(client, BROKER, "", ("log.retention.bytes", SET, "12345678"))
        await node.restart()
        client = await node.connect()
        assert (await describe(client, TOPIC, "orders", ["retention.ms"]))[1]["retention.ms"].value == "1000"
        [config] = (await describe(client, BROKER, "", None))[1].values()
        assert (config.name, config.value, config.config_source) == ("log.retention.bytes", "12345678", OF_ALL_BROKERS)


# Effect without a restart


@in_loop
async def test_a_new_limit_on_batches_counts_from_the_next_batch_on() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        assert (await client.produce("orders", batch(bytes(5_000)))).error_code == ErrorCode.NONE
        await change(client, TOPIC, "orders", ("max.message.bytes", SET, "1000"))
        assert (await client.produce("orders", batch(bytes(5_000)))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        await change(client, TOPIC, "orders", ("max.message.bytes", DELETE, None))
        assert (await client.produce("orders", batch(bytes(5_000)))).error_code == ErrorCode.NONE


@in_loop
async def test_a_new_retention_counts_at_the_next_sweep() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        clock.advance(10_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 0
        await change(client, TOPIC, "orders", ("retention.ms", SET, "5000"))
        assert await node.broker.upkeep.housekeeping.sweep() == 1
        assert node.partition("orders").log.start_offset == 1


@in_loop
async def test_a_new_default_of_all_brokers_counts_for_every_topic_that_does_not_say_otherwise() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.create_topic("kept", configs={"retention.ms": "-1"})
        for topic in ("orders", "kept"):
            await client.produce(topic, batch(b"a"))
        assert await change(client, BROKER, "", ("log.retention.ms", SET, "5000")) == (ErrorCode.NONE, None)
        clock.advance(10_000)
        assert await node.broker.upkeep.housekeeping.sweep() == 1
        assert (node.partition("orders").log.start_offset, node.partition("kept").log.start_offset) == (1, 0)
        _, configs = await describe(client, TOPIC, "orders", ["retention.ms"])
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", OF_ALL_BROKERS)


@in_loop
async def test_an_unset_number_of_replicas_is_told_as_what_a_topic_gets_now() -> None:
    name = "default.replication.factor"
    async with copying(2) as copies:
        client = await copies.nodes[1].connect()
        _, configs = await describe(client, BROKER, "1", [name], include_synonyms=True)
        assert (configs[name].value, configs[name].config_source) == ("2", DEFAULT)
        assert [(synonym.value, synonym.source) for synonym in configs[name].synonyms] == [("2", DEFAULT)]
    async with copying(2, {name: "1"}) as copies:
        _, configs = await describe(await copies.nodes[1].connect(), BROKER, "1", [name])
        assert (configs[name].value, configs[name].config_source) == ("1", OF_START)


@in_loop
async def test_an_unset_number_of_in_sync_replicas_is_told_as_what_counts_for_the_topic() -> None:
    name = "min.insync.replicas"
    async with copying(3) as copies:
        client = await copies.nodes[0].connect()
        for topic, replicas, expected in (("one", 1, "1"), ("three", 3, "2")):
            [made] = (await client.ask(create_topics(topic, 1, replication_factor=replicas), 7)).topics
            assert [each.value for each in made.configs if each.name == name] == [expected]
            _, configs = await describe(client, TOPIC, topic, [name])
            assert (configs[name].value, configs[name].config_source) == (expected, DEFAULT)
        await change(client, TOPIC, "three", (name, SET, "3"))
        _, configs = await describe(client, TOPIC, "three", [name])
        assert (configs[name].value, configs[name].config_source) == ("3", OF_TOPIC)
        await change(client, BROKER, "", (name, SET, "1"))
        _, configs = await describe(client, TOPIC, "one", [name])
        assert (configs[name].value, configs[name].config_source) == ("1", OF_ALL_BROKERS)


@in_loop
async def test_what_is_set_for_one_broker_wins_over_what_is_set_for_all() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await change(client, BROKER, "", ("message.max.bytes", SET, "5000"))
        await change(client, BROKER, "0", ("message.max.bytes", SET, "1000"))
        _, configs = await describe(client, BROKER, "0", ["message.max.bytes"], include_synonyms=True)
        config = configs["message.max.bytes"]
        assert (config.value, config.config_source) == ("1000", OF_BROKER)
        assert [item.source for item in config.synonyms] == [OF_BROKER, OF_ALL_BROKERS, DEFAULT]
        assert (await client.produce("orders", batch(bytes(2_000)))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        await change(client, BROKER, "0", ("message.max.bytes", DELETE, None))
        assert (await client.produce("orders", batch(bytes(2_000)))).error_code == ErrorCode.NONE
        assert (await client.produce("orders", batch(bytes(6_000)))).error_code == ErrorCode.MESSAGE_TOO_LARGE


@in_loop
async def test_a_new_kind_of_timestamp_counts_from_the_next_batch_on() -> None:
    clock = FakeClock()
    async with running(clock=clock) as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a", timestamp=NOW_MS - 5))
        await change(client, TOPIC, "orders", ("message.timestamp.type", SET, "LogAppendTime"))
        clock.advance(77)
        await client.produce("orders", batch(b"b", timestamp=NOW_MS - 5))
        times = [record.timestamp for record in records_of(await client.fetch("orders"))]
        assert times == [NOW_MS - 5, NOW_MS + 77]


@in_loop
async def test_whether_topics_are_created_by_asking_can_be_changed_only_where_the_broker_is_started() -> None:
    async with running() as node:
        client = await node.connect()
        code, message = await change(client, BROKER, "0", ("auto.create.topics.enable", SET, "false"))
        assert code == ErrorCode.INVALID_CONFIG
        assert message is not None
        assert "auto.create.topics.enable" in message


@in_loop
async def test_a_resource_that_is_named_twice_is_described_once_with_all_that_was_asked_for() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")

        async def names(*keys: list[str] | None) -> list[str]:
            resources = [
                DescribeConfigsResource(resource_type=TOPIC, resource_name="orders", configuration_keys=names)
                for names in keys
            ]
            [result] = (await client.ask(DescribeConfigsRequest(resources=resources), 4)).results
            return sorted(config.name for config in result.configs)

        some = ["retention.ms", "retention.ms", "no.such.config"]
        assert await names(some, ["segment.bytes"], some) == ["retention.ms", "segment.bytes"]
        assert await names(some, None) == await names(None, some) == await names([])


@in_loop
async def test_resources_that_have_no_room_in_the_reply_are_refused_and_the_others_described() -> None:
    async with running({"penstock.reply.max.bytes": str(1 << 20)}) as node:
        client = await node.connect()
        topics = [f"t{number}" for number in range(200)]
        for name in topics:
            await client.create_topic(name)
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in topics
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        results = (await client.ask(request, 4)).results
        assert [result.resource_name for result in results] == topics
        described = [result for result in results if not result.error_code]
        assert 100 < len(described) < 200
        refused = results[len(described)]
        assert (refused.error_code, len(refused.configs)) == (ErrorCode.POLICY_VIOLATION, 0)
        assert "ask about fewer resources" in refused.error_message


@in_loop
async def test_a_resource_that_is_named_twice_is_not_changed() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.create_topic("sales")

        def change_of(topic: str) -> IncrementalAlterConfigsRequestAlterConfigsResource:
            config = IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", config_operation=SET, value="5")
            return IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=TOPIC, resource_name=topic, configs=[config]
            )

        def replacement_of(topic: str) -> AlterConfigsRequestAlterConfigsResource:
            config = AlterConfigsRequestAlterableConfig(name="segment.ms", value="7")
            return AlterConfigsRequestAlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])

        wanted = ("orders", "sales", "orders")
        changed = await client.ask(IncrementalAlterConfigsRequest(resources=list(map(change_of, wanted))), 1)
        assert [(result.resource_name, result.error_code) for result in changed.responses] == [
            ("orders", ErrorCode.INVALID_REQUEST),
            ("sales", ErrorCode.NONE),
        ]
        replaced = await client.ask(AlterConfigsRequest(resources=list(map(replacement_of, wanted))), 2)
        assert [(result.resource_name, result.error_code) for result in replaced.responses] == [
            ("orders", ErrorCode.INVALID_REQUEST),
            ("sales", ErrorCode.NONE),
        ]
        assert node.broker.services.image.topics["orders"].configs == {}
        assert node.broker.services.image.topics["sales"].configs == {"segment.ms": "7"}
