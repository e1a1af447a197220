"""Many messages at once: lists and tables, spread as single ones are, with the outcome of every row."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.errors import BrokerError, UnknownPartitionError, UnknownTopicError, UnsendableError
from penstock.client.producer.bulk_result import BatchError, BatchResult, NewMessage
from penstock.client.serializers import JSON, STRING
from penstock.machines.partitioners import jump_partition_of_key, partition_of_key
from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import Client
from tests.client.produce_peer import Answer, Got, producing_to, refused
from tests.client.producer.test_producer import producing, read
from tests.waiting import in_loop


async def check(client: Client, result: BatchResult, expected: Sequence[Any], partitions: int = 1) -> None:
    """Every row is where the result says, and nothing else is there."""
    logs = [await read(client, partition) for partition in range(partitions)]
    found: dict[int, Any] = {}
    for partition, first_offset, rows in result.sent:
        for place, row in enumerate(rows):
            record = logs[partition][first_offset + place]
            found[int(row)] = (record.key, record.value)
    assert [found[row] for row in range(len(expected))] == list(expected)
    assert sum(map(len, logs)) == len(expected)


@in_loop
async def test_values_pairs_and_messages_are_sent() -> None:
    async with producing(2, key_serializer=STRING, value_serializer=JSON) as (producer, client, _):
        result = await producer.send_batch(
            "orders",
            [
                {"n": 1},
                ("key", {"n": 2}),
                NewMessage({"n": 3}, partition=1, headers=[("trace", b"1")], timestamp_ms=1_700_000_000_000),
                NewMessage(None, "gone"),
            ],
        )

        result.raise_for_errors()
        expected = [(None, b'{"n":1}'), (b"key", b'{"n":2}'), (None, b'{"n":3}'), (b"gone", None)]
        await check(client, result, expected, 2)
        [record] = [each for each in await read(client, 1) if each.headers]
        assert (record.timestamp, record.headers) == (1_700_000_000_000, (("trace", b"1"),))


@in_loop
async def test_a_long_list_goes_in_few_requests_and_in_order() -> None:
    async with producing_to() as (producer, log, _):
        values = [b"%d" % number for number in range(50_000)]
        result = await producer.send_batch("orders", values)

        assert result.sent_count == 50_000
        assert log.records["orders", 0] == values
        assert len(log.batches) < 5
        assert producer.buffered_bytes == 0


@in_loop
async def test_a_list_that_is_larger_than_the_memory_waits_for_room() -> None:
    async with producing_to(buffer_memory=50_000) as (producer, log, _):
        values = [b"%04d" % number + bytes(1_000) for number in range(500)]
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, producer.buffered_bytes)
                await asyncio.sleep(0)

        watching = asyncio.ensure_future(watch())
        result = await producer.send_batch("orders", values)
        watching.cancel()

        assert result.sent_count == 500
        assert log.records["orders", 0] == values
        assert 40_000 < most <= 50_000


@in_loop
async def test_keys_go_where_single_messages_go() -> None:
    async with producing(5) as (producer, _, _):
        keys = [b"%d" % number for number in range(50)]
        result = await producer.send_batch("orders", [(key, b"x") for key in keys])

        chosen = {row: partition for partition, _, rows in result.sent for row in rows}
        assert [chosen[row] for row in range(50)] == [partition_of_key(key, 5) for key in keys]


@in_loop
async def test_rows_that_cannot_be_sent_are_told_one_by_one() -> None:
    async with producing(2) as (producer, client, _):
        rows: list[Any] = [
            b"good",
            "no bytes",
            bytes(2_000_000),
            NewMessage(b"x", partition=9),
            (b"k", b"v"),
            (1, 2, 3),
        ]
        result = await producer.send_batch("orders", rows)

        assert result.failed_rows == [1, 2, 3, 5]
        assert result.sent_count == 2
        reasons = [type(error).__name__ for error, _ in result.failed]
        assert reasons == ["SerializationError", "UnsendableError", "UnknownPartitionError", "ValueError"]
        with pytest.raises(BatchError, match="4 of 6 rows"):
            result.raise_for_errors()
        assert sum([len(await read(client, partition)) for partition in (0, 1)]) == 2


@in_loop
async def test_a_compacted_topic_refuses_the_rows_without_a_key_and_takes_the_others() -> None:
    async with producing(configs={"cleanup.policy": "compact"}) as (producer, client, _):
        rows = [(b"k%d" % number if number % 3 else None, b"%d" % number) for number in range(30)]
        result = await producer.send_batch("orders", rows)

        assert result.failed_rows == list(range(0, 30, 3))
        assert all(
            isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_RECORD for error, _ in result.failed
        )
        kept = [each for each in rows if each[0] is not None]
        assert [(each.key, each.value) for each in await read(client)] == kept


@in_loop
async def test_a_partition_that_refuses_takes_no_other_with_it() -> None:
    def judge(batch: Got) -> Answer:
        return refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if batch.partition == 1 else Answer()

    async with producing_to(*[judge] * 3, leaders=[0, 0, 0]) as (producer, log, _):
        rows = [NewMessage(b"%d" % number, partition=number % 3) for number in range(30)]
        result = await producer.send_batch("orders", rows)

        assert result.failed_rows == list(range(1, 30, 3))
        assert result.sent_count == 20
        assert log.records["orders", 0] == [b"%d" % number for number in range(0, 30, 3)]


@in_loop
async def test_halves_of_a_batch_are_told_apart() -> None:
    def judge(batch: Got) -> Answer:
        return refused(ErrorCode.MESSAGE_TOO_LARGE) if len(batch.values) > 4 or b"6" in batch.values else Answer()

    async with producing_to(*[judge] * 20) as (producer, log, _):
        result = await producer.send_batch("orders", [b"%d" % number for number in range(10)])

        assert result.failed_rows == [6]
        rows = [(row, first + place) for _, first, covered in result.sent for place, row in enumerate(covered)]
        stored = log.records["orders", 0]
        assert all(stored[offset] == b"%d" % row for row, offset in rows)
        assert len(rows) == 9


@in_loop
async def test_an_empty_batch_is_sent_at_once() -> None:
    async with producing() as (producer, _, _):
        assert (await producer.send_batch("orders", [])).count == 0
        assert (await producer.send_batch("orders", pa.table({"value": pa.array([], pa.binary())}))).count == 0
        with pytest.raises(UnknownTopicError):
            await producer.send_batch("nothing", [b"x"])


@in_loop
async def test_who_is_cancelled_has_sent_what_was_handed_over() -> None:
    async with producing_to() as (producer, log, _):
        sending = asyncio.ensure_future(producer.send_batch("orders", [b"%d" % number for number in range(5_000)]))
        for _ in range(4):
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await producer.flush()

        stored = log.records["orders", 0]
        assert stored == [b"%d" % number for number in range(len(stored))]
        assert producer.buffered_bytes == 0


# Tables


@in_loop
async def test_a_table_is_sent_as_it_is() -> None:
    async with producing() as (producer, client, _):
        table = pa.table(
            {
                "value": pa.array([b"one", None, b"three"], pa.binary()),
                "key": pa.array(["a", None, "größe"]),
                "timestamp": pa.array([1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002], pa.timestamp("ms")),
            }
        )
        result = await producer.send_batch("orders", table)

        result.raise_for_errors()
        await check(client, result, [(b"a", b"one"), (None, None), ("größe".encode(), b"three")])
        assert [each.timestamp % 10 for each in await read(client)] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["table", "chunks", "batch"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_of_a_table_go_where_their_keys_belong(kind: str, codec: str) -> None:
    @in_loop
    async def test() -> None:
        async with producing(4, compression_type=codec) as (producer, client, _):
            keys = [b"k%d" % (number % 100) for number in range(3_000)]
            values = [b"%d" % number for number in range(3_000)]
            batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})
            table = {
                "batch": batch,
                "table": pa.table(batch),
                "chunks": pa.Table.from_batches([batch[:1000], batch[1000:]]),
            }
            result = await producer.send_batch("orders", table[kind])

            result.raise_for_errors()
            await check(client, result, list(zip(keys, values, strict=True)), 4)
            chosen = {int(row): partition for partition, _, rows in result.sent for row in rows}
            assert all(chosen[row] == partition_of_key(key, 4) for row, key in enumerate(keys))
            records = (await client.fetch("orders")).records
            assert isinstance(records, memoryview)
            [(header, _), *_] = split(records)
            assert header.codec is Codec[codec.upper()]

    test()


@in_loop
async def test_rows_without_a_key_are_spread_batch_by_batch() -> None:
    async with producing(4) as (producer, client, _):
        values = [b"%06d" % number + bytes(1_000) for number in range(4_000)]
        result = await producer.send_batch("orders", pa.table({"value": pa.array(values)}))

        await check(client, result, [(None, value) for value in values], 4)
        assert len({partition for partition, _, _ in result.sent}) > 1


@pytest.mark.parametrize("name", ["jump", "random", "round_robin", "sticky", "function"])
def test_every_partitioner_takes_tables(name: str) -> None:
    def by_length(topic: str, key: bytes | None, partitions: Sequence[int]) -> int:
        return partitions[len(key or b"") % len(partitions)]

    @in_loop
    async def test() -> None:
        async with producing(3, partitioner=by_length if name == "function" else name) as (producer, client, _):
            keys = [b"k" * (number % 7) if number % 5 else None for number in range(500)]
            table = pa.table({"value": pa.array([b"%d" % n for n in range(500)]), "key": pa.array(keys, pa.binary())})
            result = await producer.send_batch("orders", table)

            await check(client, result, [(key, b"%d" % row) for row, key in enumerate(keys)], 3)
            chosen = {int(row): partition for partition, _, rows in result.sent for row in rows}
            if name == "jump":
                assert all(
                    chosen[row] == jump_partition_of_key(key, 3) for row, key in enumerate(keys) if key is not None
                )
            if name == "function":
                assert all(chosen[row] == len(key or b"") % 3 for row, key in enumerate(keys))
            if name == "round_robin":
                assert [chosen[row] for row in range(6)] == [0, 1, 2, 0, 1, 2]

    test()


@in_loop
async def test_a_column_says_the_partition_and_where_it_is_null_the_key_does() -> None:
    async with producing(3) as (producer, _, _):
        table = pa.table(
            {
                "value": pa.array([b"%d" % number for number in range(6)]),
                "key": pa.array([b"k"] * 6),
                "partition": pa.array([0, 1, 2, None, 2, 7]),
            }
        )
        result = await producer.send_batch("orders", table)

        chosen = {int(row): partition for partition, _, rows in result.sent for row in rows}
        assert chosen == {0: 0, 1: 1, 2: 2, 3: partition_of_key(b"k", 3), 4: 2}
        [(error, rows)] = result.failed
        assert isinstance(error, UnknownPartitionError)
        assert list(rows) == [5]


@in_loop
async def test_a_partition_can_be_given_for_a_whole_table() -> None:
    async with producing(3) as (producer, _, _):
        table = pa.table({"value": pa.array([b"x"] * 10), "key": pa.array([b"k"] * 10)})
        result = await producer.send_batch("orders", table, partition=2)

        assert [(partition, len(rows)) for partition, _, rows in result.sent] == [(2, 10)]


@in_loop
async def test_a_row_of_a_table_that_is_too_large_fails_alone() -> None:
    async with producing() as (producer, client, _):
        table = pa.table({"value": pa.array([b"one", bytes(2_000_000), b"three"])})
        result = await producer.send_batch("orders", table)

        assert result.failed_rows == [1]
        assert [each.value for each in await read(client)] == [b"one", b"three"]


@in_loop
async def test_a_table_that_cannot_be_sent_says_why() -> None:
    async with producing() as (producer, _, _):
        with pytest.raises(UnsendableError, match="has no column 'value'"):
            await producer.send_batch("orders", pa.table({"text": pa.array([b"x"])}))
        with pytest.raises(UnsendableError, match="'partition' has type"):
            await producer.send_batch("orders", pa.table({"value": [b"x"], "partition": ["first"]}))


@in_loop
async def test_a_table_that_is_larger_than_the_memory_waits_for_room() -> None:
    async with producing_to(buffer_memory=2_000_000) as (producer, log, _):
        table = pa.table({"value": pa.array([b"%06d" % number + bytes(1_000) for number in range(8_000)])})
        result = await producer.send_batch("orders", table)

        assert result.sent_count == 8_000
        assert len(log.records["orders", 0]) == 8_000
        assert producer.buffered_bytes == 0
