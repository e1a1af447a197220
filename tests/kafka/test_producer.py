"""The producer against Apache Kafka: what it is told is where its messages lie."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.errors import BrokerError, UnknownTopicError
from penstock.client.opening import open_cluster
from penstock.client.plain.fetch import fetch
from penstock.client.producer.bulk_result import NewMessage
from penstock.client.producer.producer import Producer
from penstock.client.settings import ClientSettings
from penstock.machines.partitioners import partition_of_key
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import Record
from tests.client.cutting import Cut, Cutter
from tests.waiting import in_loop

PARTITIONS = 3


@asynccontextmanager
async def producing(bootstrap: str, configs: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Any]:
    topic = f"orders-{random.SystemRandom().randrange(1 << 40)}"
    async with Producer(bootstrap, **settings) as producer:
        await producer.create_topic(topic, PARTITIONS, configs=configs)
        yield producer, topic


async def read(bootstrap: str, topic: str) -> list[list[Record]]:
    """All partitions to their ends."""
    async with open_cluster(ClientSettings(bootstrap_servers=bootstrap)) as cluster:
        logs = []
        for partition in range(PARTITIONS):
            found: list[Record] = []
            while True:
                fetched = await fetch(cluster, topic, partition, len(found), max_wait_ms=0)
                records = list(fetched.records())
                if not records:
                    break
                found += records
            logs.append(found)
        return logs


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@in_loop
async def test_messages_lie_where_it_is_told(bootstrap: str, codec: str) -> None:
    async with producing(bootstrap, compression_type=codec) as (producer, topic):
        values = [b"%d" % number * 50 for number in range(2_000)]
        keys = [b"k%d" % (number % 50) for number in range(2_000)]
        futures = [producer.send(topic, *each) for each in zip(values, keys, strict=True)]
        await producer.flush()

        logs = await read(bootstrap, topic)
        assert sum(map(len, logs)) == 2_000
        for key, value, future in zip(keys, values, futures, strict=True):
            where = future.result()
            assert where.partition == partition_of_key(key, PARTITIONS)
            record = logs[where.partition][where.offset]
            assert (record.key, record.value, record.timestamp) == (key, value, where.timestamp)


@in_loop
async def test_a_table_lies_where_it_is_told(bootstrap: str) -> None:
    async with producing(bootstrap) as (producer, topic):
        values = [b"%06d" % number + bytes(200) for number in range(20_000)]
        keys = [b"k%d" % (number % 50) for number in range(20_000)]
        result = await producer.send_batch(topic, pa.table({"key": pa.array(keys), "value": pa.array(values)}))

        result.raise_for_errors()
        logs = await read(bootstrap, topic)
        assert sum(map(len, logs)) == 20_000
        for partition, first, rows in result.sent:
            assert [each.value for each in logs[partition][first : first + len(rows)]] == [values[row] for row in rows]


@in_loop
async def test_only_the_rows_that_kafka_names_fail(bootstrap: str) -> None:
    async with producing(bootstrap, {"cleanup.policy": "compact"}) as (producer, topic):
        rows = [NewMessage(b"%d" % n, b"k" if n % 3 else None, partition=0) for n in range(30)]
        result = await producer.send_batch(topic, rows)

        assert result.failed_rows == list(range(0, 30, 3))
        assert {getattr(error, "code", None) for error, _ in result.failed} == {ErrorCode.INVALID_RECORD}
        logs = await read(bootstrap, topic)
        assert [each.value for each in logs[0]] == [b"%d" % n for n in range(30) if n % 3]


@in_loop
async def test_batches_that_are_too_large_for_the_topic_are_halved(bootstrap: str) -> None:
    async with producing(bootstrap, {"max.message.bytes": "2000"}) as (producer, topic):
        values = [b"%04d" % number + bytes(100) for number in range(300)]
        futures = [producer.send(topic, value, partition=0) for value in values]
        futures.append(producer.send(topic, bytes(3_000), partition=0))
        await producer.flush()

        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            futures.pop().result()
        assert [each.result().offset for each in futures] == list(range(300))
        logs = await read(bootstrap, topic)
        assert [each.value for each in logs[0]] == values


@pytest.mark.parametrize(
    "settings", [{"acks": 0, "enable_idempotence": False}, {"acks": 1, "enable_idempotence": False}]
)
@in_loop
async def test_fewer_acknowledgements_will_do(bootstrap: str, settings: dict[str, Any]) -> None:
    async with producing(bootstrap, **settings) as (producer, topic):
        await asyncio.gather(*[producer.send(topic, b"%d" % number, partition=1) for number in range(100)])
        while len((await read(bootstrap, topic))[1]) < 100:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("cut", Cut)
@in_loop
async def test_a_connection_that_is_cut_repeats_nothing(bootstrap: str, cut: Cut) -> None:
    """Kafka names its own address, so this producer is led astray by what it is told about brokers."""
    cutter = Cutter()
    host, port = bootstrap.rsplit(":", 1)
    cutter.upstream = host, int(port)
    await cutter.start()
    try:
        async with producing(bootstrap, linger_ms=0, batch_size=1, max_request_size=700) as (producer, topic):
            view = producer._cluster
            await producer.partitions_for(topic)
            view._brokers = {
                number: type(broker)(broker.id, "127.0.0.1", cutter.port, broker.rack)
                for number, broker in view._brokers.items()
            }
            # The greeting, and then the third of the requests that are in flight.
            cutter.step, cutter.cut = 4, cut
            values = [b"%d" % number for number in range(200)]
            futures = [producer.send(topic, value, partition=0) for value in values]
            await producer.flush()

            assert cutter.has_cut
            assert [each.result().offset for each in futures] == list(range(200))
            logs = await read(bootstrap, topic)
            assert [each.value for each in logs[0]] == values
    finally:
        await cutter.stop()


@in_loop
async def test_a_topic_that_is_not_there_is_an_error(bootstrap: str) -> None:
    async with producing(bootstrap) as (producer, _):
        with pytest.raises(UnknownTopicError):
            await producer.send("there-is-no-such-topic", b"x")
