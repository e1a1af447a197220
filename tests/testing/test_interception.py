"""Rules between connections and handlers: which calls they strike, and in which order."""

from penstock.protocol.apis import api
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.testing import Broker
from penstock.testing.interception import Delay, Drop, Fail, Rule
from tests.broker.harness import Client, batch, in_loop, produce_request, produced

PRODUCE, METADATA = 0, 3


async def list_offsets(client: Client) -> ErrorCode:
    asked = ListOffsetsTopic(name="orders", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    response = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def add(broker: Broker, *rules: Rule) -> None:
    stage = broker._open_stage()
    for rule in rules:
        stage.host.call(lambda rule=rule: stage.interception.add(rule))  # type: ignore[misc]


@in_loop
async def test_a_rule_strikes_its_api_as_often_as_it_says_and_no_other() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        rule = Fail(PRODUCE, 2, ErrorCode.KAFKA_STORAGE_ERROR)
        add(broker, rule)
        assert await list_offsets(client) == ErrorCode.NONE
        answers = [await client.produce("orders", batch(b"a")) for _ in range(3)]
        assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2 + [ErrorCode.NONE]
        assert answers[-1].base_offset == 0
        assert (rule.struck, rule.left) == (2, 0)
        client.close()


@in_loop
async def test_a_rule_for_every_api_strikes_all_of_them() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        add(broker, Fail(None, None, ErrorCode.KAFKA_STORAGE_ERROR))
        assert await list_offsets(client) == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("orders", batch(b"a"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        client.close()


@in_loop
async def test_rules_add_up() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        delay = Delay(PRODUCE, None, 0.001)
        add(broker, delay, Delay(PRODUCE, None, 0.001), Fail(PRODUCE, 1, ErrorCode.KAFKA_STORAGE_ERROR))
        assert (await client.produce("orders", batch(b"a"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("orders", batch(b"a"))).base_offset == 0
        assert delay.struck == 2
        client.close()


@in_loop
async def test_a_dropped_reply_is_one_of_a_call_that_was_made() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        add(broker, Drop(PRODUCE, 1))
        client.send(produce_request("orders", batch(b"a")), 12)
        assert await client.closed() == b""
        client.close()
        client = await Client.open(broker.address)
        assert produced(await client.ask(produce_request("orders", batch(b"b")), 12)).base_offset == 1
        client.close()


@in_loop
async def test_a_producer_that_wants_no_reply_loses_its_connection() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        add(broker, Fail(PRODUCE, None, ErrorCode.KAFKA_STORAGE_ERROR))
        client.send(produce_request("orders", batch(b"a"), acks=0), 12)
        assert await client.closed() == b""
        client.close()


@in_loop
async def test_metadata_with_an_error_still_tells_of_the_brokers() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        add(broker, Fail(METADATA, 1, ErrorCode.LEADER_NOT_AVAILABLE))
        response = await client.ask(MetadataRequest(topics=None), 12)
        assert [(node.host, node.port) for node in response.brokers] == [broker.address]
        assert [topic.error_code for topic in response.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
        client.close()


@in_loop
async def test_a_version_that_nobody_knows_is_answered_as_ever() -> None:
    async with Broker() as broker:
        client = await Client.open(broker.address)
        rule = Fail(None, None, ErrorCode.KAFKA_STORAGE_ERROR)
        add(broker, rule)
        # ApiVersions of a version from the future.
        assert api(18).name == "ApiVersions"
        client.send_bytes(bytes([0, 0, 0, 10, 0, 18, 0, 99, 0, 0, 0, 1, 0xFF, 0xFF]))
        client.close()
        await client.closed()
        assert rule.struck == 0


@in_loop
async def test_the_ids_of_clients_that_are_gone_are_forgotten() -> None:
    async with Broker() as broker:
        interception = broker._open_stage().interception
        for name in ("one", "two", "three"):
            client = await Client.open(broker.address, client_id=name)
            await client.ask(MetadataRequest(), 9)
            broker.faults.cut_connections(name)
            await client.closed()
            client.close()
        assert len(interception._client_ids) == 1
