"""The producer against a real broker: everything that a user sees."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.client.errors import (
    BrokerError,
    ClientError,
    TimedOutError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsendableError,
)
from penstock.client.producer.producer import Producer
from penstock.client.serializers import JSON, STRING
from penstock.client.settings import SettingsError
from penstock.protocol.batch import split
from penstock.protocol.records import Record
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.protocol.schemas.topics import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.protocol.schemas.transactions import InitProducerIdRequest
from tests.broker.harness import Client, Node, records_of, running
from tests.client.peer import peer
from tests.client.produce_peer import Log
from tests.system.processes import spare_port
from tests.waiting import in_loop, until


@asynccontextmanager
async def producing(
    partitions: int = 1, configs: dict[str, str] | None = None, **settings: Any
) -> "AsyncIterator[tuple[Producer[Any, Any], Client, Node]]":
    """A producer, and a client that reads what it has sent to the topic "orders"."""
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders", partitions, configs)
        async with Producer(address_of(node), **settings) as producer:
            yield producer, client, node


def address_of(node: Node) -> str:
    host, port = node.broker.address
    return f"{host}:{port}"


async def read(client: Client, partition: int = 0) -> list[Record]:
    found: list[Record] = []
    while records := records_of(await client.fetch("orders", len(found), partition=partition)):
        found += [record for record in records if record.offset >= len(found)]
    return found


@in_loop
async def test_a_message_is_told_where_it_lies() -> None:
    async with producing() as (producer, client, _):
        before = time.time_ns() // 1_000_000
        first = await producer.send("orders", b"one", key=b"k")
        second = await producer.send("orders", b"two", headers=[("trace", b"1"), ("none", None)], timestamp_ms=before)

        assert (first.topic, first.partition, first.offset) == ("orders", 0, 0)
        assert first.timestamp >= before
        assert second[1:] == (0, 1, before)
        assert [record._replace(timestamp=0) for record in await read(client)] == [
            Record(0, 0, b"k", b"one"),
            Record(1, 0, None, b"two", (("trace", b"1"), ("none", None))),
        ]


@in_loop
async def test_a_message_without_a_value_is_a_tombstone() -> None:
    async with producing() as (producer, client, _):
        await producer.send("orders", key=b"gone")
        await producer.send("orders", None, b"")

        assert [(record.key, record.value) for record in await read(client)] == [(b"gone", None), (b"", None)]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 100, 8_191, 8_192, 20_000, 300_000])
def test_messages_of_every_size_arrive_as_they_were(size: int) -> None:
    @in_loop
    async def test() -> None:
        async with producing() as (producer, client, _):
            values = [bytes([number]) * size for number in range(3)]
            await asyncio.gather(*[producer.send("orders", value, value[: size // 2]) for value in values])

            assert [(each.key, each.value) for each in await read(client)] == [(v[: size // 2], v) for v in values]

    test()


@in_loop
async def test_what_is_sent_in_one_go_travels_in_few_batches() -> None:
    async with producing(linger_ms=0) as (producer, client, _):
        results = await asyncio.gather(*[producer.send("orders", b"%d" % number) for number in range(1_000)])

        assert [each.offset for each in results] == list(range(1_000))
        assert [each.value for each in await read(client)] == [b"%d" % number for number in range(1_000)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("batch_size", [2_000, 200_000])
def test_batches_are_compressed(codec: str, batch_size: int) -> None:
    @in_loop
    async def test() -> None:
        async with producing(compression_type=codec, batch_size=batch_size) as (producer, client, _):
            futures = [producer.send("orders", b"%d " % number * 100) for number in range(500)]
            await producer.flush()

            assert [future.result().offset for future in futures] == list(range(500))
            assert [each.value for each in await read(client)] == [b"%d " % number * 100 for number in range(500)]
            records = (await client.fetch("orders")).records
            assert isinstance(records, memoryview)
            assert {header.codec.name.lower() for header, _ in split(records)} == {codec}

    test()


@in_loop
async def test_flush_does_not_wait_for_more() -> None:
    async with producing(linger_ms=60_000) as (producer, _, _):
        future = producer.send("orders", b"paid")
        await producer.flush()

        assert future.done()
        assert future.result().offset == 0


@in_loop
async def test_a_batch_waits_as_long_as_it_may_linger() -> None:
    async with producing(linger_ms=1) as (producer, _, _):
        assert (await producer.send("orders", b"paid")).offset == 0


@in_loop
async def test_closing_sends_what_is_buffered() -> None:
    async with producing(linger_ms=60_000) as (producer, client, _):
        future = producer.send("orders", b"paid")
        await producer.close()

        assert future.result().offset == 0
        assert len(await read(client)) == 1
        with pytest.raises(ClientError, match="closed: make a new one"):
            producer.send("orders", b"late")
        with pytest.raises(ClientError, match="closed: make a new one"):
            await producer.send_batch("orders", [b"late"])


@in_loop
async def test_a_producer_that_was_never_used_can_be_closed() -> None:
    producer = Producer("localhost:1")
    await producer.flush()
    await producer.ready()
    await producer.close()
    await producer.close()
    with pytest.raises(ClientError, match="closed"):
        producer.send("orders", b"late")


@in_loop
async def test_who_stops_waiting_loses_nothing() -> None:
    async with producing(linger_ms=50) as (producer, client, _):
        futures = [producer.send("orders", b"%d" % number) for number in range(3)]

        async def wait() -> None:
            await futures[1]

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert [(await future).offset for future in futures] == [0, 1, 2]
        assert len(await read(client)) == 3


@in_loop
async def test_what_nobody_awaits_is_sent_all_the_same() -> None:
    async with producing(linger_ms=0) as (producer, client, _):
        for number in range(10_000):
            await producer.ready()
            producer.send("orders", b"%d" % number)
        await producer.flush()

        assert [each.value for each in await read(client)] == [b"%d" % number for number in range(10_000)]


@in_loop
async def test_a_callback_hears_of_a_message() -> None:
    async with producing() as (producer, _, _):
        heard: asyncio.Queue[int] = asyncio.Queue()
        future = producer.send("orders", b"paid")
        future.add_done_callback(lambda done: heard.put_nowait(done.result().offset))
        assert await heard.get() == 0
        future.add_done_callback(lambda done: heard.put_nowait(done.result().offset))
        assert await heard.get() == 0


@in_loop
async def test_keys_and_values_are_serialized() -> None:
    async with producing(key_serializer=STRING, value_serializer=JSON) as (producer, client, _):
        await producer.send("orders", {"paid": True}, key="größe")
        with pytest.raises(ValueError, match="cannot be written as JSON"):
            producer.send("orders", object())

        [record] = await read(client)
        assert (record.key, record.value) == ("größe".encode(), b'{"paid":true}')


@in_loop
async def test_what_is_no_bytes_is_refused_at_once() -> None:
    async with producing() as (producer, _, _):
        with pytest.raises(ValueError, match=r"not bytes.*STRING or JSON"):
            producer.send("orders", "paid")
        with pytest.raises(TypeError, match="a header is a name"):
            producer.send("orders", b"paid", headers=[("trace", "1")])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="timestamp_ms is -5"):
            producer.send("orders", b"paid", timestamp_ms=-5)
        assert (await producer.send("orders", bytearray(b"paid"), memoryview(b"key"))).offset == 0


@in_loop
async def test_a_message_that_no_request_can_hold_is_refused_at_once() -> None:
    async with producing() as (producer, _, _):
        with pytest.raises(UnsendableError, match=r"over max\.request\.size"):
            producer.send("orders", bytes(1024 * 1024))
        assert producer.buffered_bytes == 0


@in_loop
async def test_a_topic_that_is_not_there_is_an_error_with_near_names() -> None:
    async with producing() as (producer, _, _):
        with pytest.raises(UnknownTopicError, match="did you mean 'orders'"):
            await producer.send("order", b"paid")
        assert producer.buffered_bytes == 0
        assert (await producer.send("orders", b"paid")).offset == 0


@in_loop
async def test_no_broker_at_all_is_an_error_at_once_if_the_client_fails_fast() -> None:
    async with Producer("127.0.0.1:1", fail_fast=True) as producer:
        with pytest.raises(ClientError, match="no broker can be reached"):
            await producer.send("orders", b"paid")


@in_loop
async def test_the_first_send_of_a_cold_producer_waits_for_its_broker_until_max_block_ms() -> None:
    async with peer(orders=[0]) as broker:
        await broker.stop()
        log = Log()
        broker.answers[InitProducerIdRequest] = log.begin
        broker.answers[ProduceRequest] = log.produce
        async with Producer(broker.address, max_block_ms=50) as producer:
            with pytest.raises(TimedOutError, match="no success within 50 ms; the last try failed: no broker"):
                await producer.send("orders", b"paid")
        async with Producer(broker.address) as producer:
            future = producer.send("orders", b"paid")
            await until(lambda: producer.stats().unreachable)
            await broker.start()
            assert (await future).offset == 0


@in_loop
async def test_a_partition_can_be_given() -> None:
    async with producing(4) as (producer, _, _):
        results = [await producer.send("orders", b"x", b"same key", partition=number) for number in range(4)]
        assert [each.partition for each in results] == [0, 1, 2, 3]
        with pytest.raises(UnknownPartitionError, match="the topic has 4 partitions"):
            await producer.send("orders", b"x", partition=4)
        with pytest.raises(ValueError, match="numbered from 0"):
            producer.send("orders", b"x", partition=-1)


@in_loop
async def test_a_partition_that_was_added_is_found_when_it_is_asked_for() -> None:
    async with producing(1) as (producer, client, _):
        await producer.send("orders", b"x")
        await grow(client, 3)

        assert (await producer.send("orders", b"x", partition=2)).partition == 2
        assert await producer.partitions_for("orders") == [0, 1, 2]


@in_loop
async def test_partitions_that_were_added_are_noticed_in_time() -> None:
    async with producing(1, metadata_max_age_ms=20, partitioner="round_robin") as (producer, client, _):
        await producer.send("orders", b"x")
        await grow(client, 3)
        seen: set[int] = set()
        while len(seen) < 3:
            seen.add((await producer.send("orders", b"x")).partition)


@in_loop
async def test_a_function_of_the_user_chooses() -> None:
    asked: list[tuple[str, bytes | None, list[int]]] = []

    def choose(topic: str, key: bytes | None, partitions: Sequence[int]) -> int:
        asked.append((topic, key, list(partitions)))
        return partitions[-1] if key != b"bad" else 99

    async with producing(3, partitioner=choose) as (producer, _, _):
        assert (await producer.send("orders", b"x", b"key")).partition == 2
        assert asked == [("orders", b"key", [0, 1, 2])]
        with pytest.raises(ValueError, match="the partitioner chose 99"):
            producer.send("orders", b"x", b"bad")


@in_loop
async def test_a_function_that_fails_while_the_topic_is_looked_up_fails_the_message() -> None:
    def choose(topic: str, key: bytes | None, partitions: Sequence[int]) -> int:
        raise RuntimeError("no idea")

    async with producing(3, partitioner=choose) as (producer, _, _):
        with pytest.raises(ClientError, match="the partitioner failed: RuntimeError: no idea"):
            await producer.send("orders", b"x")


@in_loop
async def test_a_topic_is_created() -> None:
    async with producing() as (producer, _, _):
        await producer.create_topic("payments", 2, configs={"retention.ms": "1000"})
        assert await producer.partitions_for("payments") == [0, 1]
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            await producer.create_topic("payments")
        await producer.create_topic("payments", exist_ok=True)


@in_loop
async def test_a_producer_outlives_restarts_of_its_broker() -> None:
    async with running({"listeners": f"PLAINTEXT://127.0.0.1:{spare_port()}"}) as node:
        client = await node.connect()
        await client.create_topic("orders")
        async with Producer(address_of(node), linger_ms=0) as producer:
            for number in range(3):
                await producer.send("orders", b"%d" % number)
                await node.stop()
                future = producer.send("orders", b"%d while it is away" % number)
                await node.start()
                await future
        client = await node.connect()

        expected = [text for number in range(3) for text in (b"%d" % number, b"%d while it is away" % number)]
        assert [each.value for each in await read(client)] == expected


@in_loop
async def test_log_append_time_is_told_as_the_timestamp() -> None:
    async with producing(configs={"message.timestamp.type": "LogAppendTime"}) as (producer, client, _):
        result = await producer.send("orders", b"x", timestamp_ms=5)

        assert result.timestamp > 1_000_000_000_000
        assert [each.timestamp for each in await read(client)] == [result.timestamp]


def test_settings_come_in_kafkas_words_and_in_keywords() -> None:
    producer = Producer({"bootstrap.servers": "a:1,b:2", "linger.ms": "7"}, batch_size=5, delivery="at_least_once")

    assert producer.settings.bootstrap_servers == "a:1,b:2"
    assert (producer.settings.linger_ms, producer.settings.batch_size) == (7, 5)
    with pytest.raises(SettingsError, match="partitioner is 'murmur'"):
        Producer(partitioner="murmur")
    with pytest.raises(SettingsError, match=r"compression\.level is 77"):
        Producer(compression_type="gzip", compression_level=77)
    with pytest.raises(SettingsError, match="exactly_once"):
        Producer(delivery="exactly_once")


def test_a_producer_can_be_made_where_no_event_loop_runs() -> None:
    producer = Producer("127.0.0.1:1", fail_fast=True)

    async def use() -> None:
        async with producer:
            with pytest.raises(ClientError, match="no broker can be reached"):
                await producer.send("orders", b"x")

    asyncio.run(use())


async def grow(client: Client, partitions: int) -> None:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="orders", count=partitions, assignments=None)])
    response = await client.ask(request, 3)
    assert response.results[0].error_code == 0
