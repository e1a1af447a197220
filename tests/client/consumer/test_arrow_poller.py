"""Polls of whole columns: the same messages, positions and commits as with other polls."""

import asyncio
import random
import sys
from typing import Any

import pytest

from penstock.client.consumer.arrow_poller import LIGHT_BYTES, ArrowPoller
from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.consumer.deserializers import Deserializers
from penstock.client.consumer.fetched import FetchedBatches
from penstock.client.consumer.poller import Poller
from penstock.client.consumer.subscription import Subscription
from penstock.client.errors import ClientError, CommitFailedError, CorruptBatchError
from penstock.client.metadata import TopicPartition
from penstock.client.serializers import BYTES, STRING
from penstock.protocol.columns import SPARK_NAMES
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.fetch import AbortedTransaction
from penstock.testing import Broker
from tests.client.consuming import Stage, balanced
from tests.client.threads import client_threads
from tests.waiting import in_loop, until

KEY = TopicPartition("orders", 0)


async def read_rows(consumer: Any, count: int, most: int | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        rows += (await consumer.poll_arrow(most)).to_pylist()
    return rows


def row_places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


@in_loop
async def test_the_columns_are_those_of_sparks_kafka_source(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.append(
        [
            NewRecord(b"v", b"k", (("trace", b"1"), ("none", None)), 1_700_000_000_123),
            NewRecord(None, None, (), 1_700_000_000_124),
        ]
    )
    async with stage.consumer() as consumer:
        rows = await consumer.poll_arrow(timeout_ms=None)
        empty = await consumer.poll_arrow(timeout_ms=0)
    assert rows.schema.names == list(SPARK_NAMES.values())
    assert [str(field.type) for field in rows.schema] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[us, tz=UTC]",
        "int32",
        "list<element: struct<key: string, value: binary>>",
    ]
    first, second = rows.to_pylist()
    assert (first["key"], first["value"], first["topic"], first["partition"]) == (b"k", b"v", stage.topic, 0)
    assert first["headers"] == [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]
    assert (second["key"], second["value"], second["offset"]) == (None, None, 1)
    assert [row["timestamp"].timestamp() for row in (first, second)] == [1_700_000_000.123, 1_700_000_000.124]
    assert (empty.num_rows, empty.schema) == (0, rows.schema)


@pytest.mark.parametrize("codec", Codec)
@in_loop
async def test_rows_of_many_partitions_come_in_one_batch_each_partition_in_order(broker: Broker, codec: Codec) -> None:
    stage = Stage(broker, partitions=4)
    noise = random.Random(3)
    sent = [noise.randbytes(noise.randint(0, 300)) for _ in range(1_000)]
    for number in range(4):
        for first in range(0, 1_000, 250):
            await stage.send(*sent[first : first + 250], partition=number, codec=codec)
    async with stage.consumer() as consumer:
        await until(lambda: len(consumer.assignment) == 4)
        cursors = list(consumer._subscription.cursors.values())
        await until(lambda: all(each.fetch_offset == 1_000 for each in cursors))
        rows = (await consumer.poll_arrow()).to_pylist()
    assert len(rows) == 4_000
    for number in range(4):
        own = [row for row in rows if row["partition"] == number]
        assert [row["offset"] for row in own] == list(range(1_000))
        assert [row["value"] for row in own] == sent


@in_loop
async def test_no_more_rows_come_than_were_asked_for(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(300)
    async with stage.consumer() as consumer:
        sizes = [(await consumer.poll_arrow(7)).num_rows for _ in range(5)]
        assert sizes == [7] * 5
        rows = await read_rows(consumer, 565)
        with pytest.raises(ValueError, match="max_records is 0"):
            await consumer.poll_arrow(0)
    assert len(set(row_places(rows))) == 565


@in_loop
async def test_polls_iteration_and_columns_can_take_turns(broker: Broker) -> None:
    seed = 5
    chance = random.Random(seed)
    stage = Stage(broker, partitions=2)
    await stage.fill(1_500, batch=60)
    seen: list[tuple[int, int]] = []
    async with stage.consumer() as consumer:
        while len(seen) < 3_000:
            match chance.randrange(4):
                case 0:
                    seen += [(m.partition, m.offset) for m in await consumer.poll(chance.randint(1, 100))]
                case 1 if len(seen) < 2_900:
                    for _ in range(chance.randint(1, 50)):
                        message = await anext(consumer)
                        seen.append((message.partition, message.offset))
                case 2 if len(seen) < 2_900:
                    merged = consumer.merged(max_wait_ms=0)
                    for _ in range(chance.randint(1, 50)):
                        message = await anext(merged)
                        seen.append((message.partition, message.offset))
                case _:
                    seen += row_places((await consumer.poll_arrow(chance.randint(1, 400))).to_pylist())
    assert sorted(seen) == [(number, offset) for number in range(2) for offset in range(1_500)], f"seed {seed}"
    for number in range(2):
        own = [offset for partition, offset in seen if partition == number]
        assert own == sorted(own), f"seed {seed}"
    assert await stage.committed() == {0: 1_500, 1: 1_500}


@in_loop
async def test_seeks_pauses_positions_and_commits_count_as_with_other_polls(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(100)
    first, second = stage.keys
    async with stage.consumer(enable_auto_commit=False) as consumer:
        await until(lambda: len(consumer.assignment) == 2)
        consumer.pause(second)
        assert {row["partition"] for row in await read_rows(consumer, 40, 40)} == {0}
        assert await consumer.position(first) == 40
        await consumer.commit()
        assert await consumer.committed() == {first: 40, second: 0}
        await consumer.seek(first, 90)
        assert row_places(await read_rows(consumer, 10)) == [(0, offset) for offset in range(90, 100)]
        consumer.resume(second)
        assert len(await read_rows(consumer, 100)) == 100


@in_loop
async def test_a_cancelled_poll_of_columns_loses_nothing_and_repeats_nothing(broker: Broker) -> None:
    seed = 11
    chance = random.Random(seed)
    stage = Stage(broker, partitions=2)
    for number in range(2):
        for _ in range(20):
            await stage.send(*[b"x" * 1000] * 100, partition=number)
    places: list[tuple[int, int]] = []
    async with stage.consumer() as consumer:
        await consumer.poll_arrow(1, timeout_ms=0)
        while len(places) < 4_000:
            try:
                async with asyncio.timeout(chance.choice((0, 0.0005, 0.002, 1))):
                    places += row_places((await consumer.poll_arrow(chance.randint(1, 900))).to_pylist())
            except TimeoutError:
                pass
    assert sorted(places) == [(number, offset) for number in range(2) for offset in range(2_000)], f"seed {seed}"


@in_loop
async def test_what_is_committed_before_it_is_returned_is_not_returned_if_that_fails(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(50)
    async with stage.consumer(delivery="at_most_once") as consumer:
        await consumer.poll_arrow(10, timeout_ms=None)
        assert await stage.committed() == {0: 10}
        committer = consumer._parts.committer_of_group  # type: ignore[union-attr]
        commit, failures = committer.commit, [CommitFailedError("another has it")]

        async def fail_once(offsets: Any) -> None:
            if failures:
                raise failures.pop()
            await commit(offsets)

        committer.commit = fail_once  # type: ignore[method-assign]
        assert row_places(await read_rows(consumer, 5, 5)) == [(0, offset) for offset in range(10, 15)]
        assert await stage.committed() == {0: 15}


@in_loop
async def test_members_share_columns(broker: Broker) -> None:
    stage = Stage(broker, partitions=4)
    async with stage.consumer() as one, stage.consumer() as two:
        await balanced(stage, one, two)
        await stage.fill(50)
        rows = await asyncio.gather(read_rows(one, 100), read_rows(two, 100))
    assert sorted(row_places(rows[0] + rows[1])) == [(number, offset) for number in range(4) for offset in range(50)]
    assert await stage.committed() == dict.fromkeys(range(4), 50)


@in_loop
async def test_deserializers_have_no_part_in_it_and_deduplication_is_refused(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.send(b"\xff")
    async with stage.consumer(value_deserializer=STRING) as consumer:
        assert [row["value"] for row in await read_rows(consumer, 1)] == [b"\xff"]
    async with stage.consumer(dedup=Deduplicator()) as consumer:
        with pytest.raises(ClientError, match="drops duplicates"):
            await consumer.poll_arrow()


@in_loop
async def test_without_arrow_it_says_what_to_install(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    async with Stage(broker).consumer() as consumer:
        with pytest.raises(ImportError, match=r"pip install 'penstock-mq\[arrow\]'"):
            await consumer.poll_arrow()


@in_loop
async def test_large_replies_are_decoded_in_a_thread_that_ends_with_the_consumer(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.send(*[b"x" * 1000] * 100)
    before = client_threads()
    async with stage.consumer() as consumer:
        await read_rows(consumer, 100)
        assert [each.name for each in client_threads() - before] == ["penstock-consumer_0"]
    assert client_threads() == before


# What is in a log beside plain messages, without a broker


class Queue:
    """Fetched batches of one partition, and who takes from them."""

    def __init__(self) -> None:
        self.subscription = Subscription()
        [self.cursor] = self.subscription.add([KEY])
        self.subscription.seek(self.cursor, 0)
        self.poller = Poller(self.subscription, Deserializers(BYTES, BYTES), room=lambda: None)
        self.arrow = ArrowPoller(self.subscription, self.poller)

    def arrived(self, *batches: bytes | bytearray, aborted: tuple[AbortedTransaction, ...] | None = None) -> None:
        data = memoryview(b"".join(batches))
        self.subscription.arrived(self.cursor, FetchedBatches(KEY, self.cursor.fetch_offset, data, aborted=aborted))

    async def rows(self, most: int = 100_000) -> list[dict[str, Any]]:
        taken = await self.poller.poll(lambda: self.arrow.take(most), 0, _nobody)
        return [] if taken is None else (await self.arrow.join(taken)).to_pylist()

    async def polled(self, most: int = 100_000) -> list[int]:
        messages = await self.poller.poll(lambda: self.poller.take(most), 0, _nobody)
        return [message.offset for message in messages or ()]


async def _nobody() -> None:
    raise AssertionError


async def a_queue() -> Queue:
    queue = Queue()
    await queue.arrow.prepare()
    return queue


def batch(first: int, count: int, **options: Any) -> bytearray:
    return build([NewRecord(b"%d" % number, timestamp=1) for number in range(count)], base_offset=first, **options)


@in_loop
async def test_positions_go_over_what_compaction_has_left_out() -> None:
    queue = await a_queue()
    kept = [NewRecord(b"a", timestamp=1), NewRecord(b"b", timestamp=1)]
    queue.arrived(
        build(kept, base_offset=2, offset_deltas=[1, 3], last_offset_delta=9),
        build([], base_offset=12, offset_deltas=[], last_offset_delta=7),
    )
    assert [row["offset"] for row in await queue.rows(1)] == [3]
    assert queue.cursor.position == 4
    assert [row["offset"] for row in await queue.rows()] == [5]
    assert await queue.rows() == []
    assert queue.cursor.position == 20
    queue.poller.close()


@in_loop
async def test_control_records_and_aborted_transactions_are_left_out_in_any_mixture_of_polls() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        batches: list[bytes] = []
        expected: list[int] = []
        aborted: list[AbortedTransaction] = []
        offset = 0
        for _ in range(chance.randint(1, 8)):
            producer, count, is_aborted = chance.randrange(3), chance.randint(1, 9), chance.random() < 0.5
            batches.append(bytes(batch(offset, count, producer_id=producer, producer_epoch=0, transactional=True)))
            batches.append(bytes(batch(offset + count, 2)))
            kind = ControlType.ABORT if is_aborted else ControlType.COMMIT
            batches.append(
                bytes(
                    build_end_marker(
                        kind,
                        producer_id=producer,
                        producer_epoch=0,
                        coordinator_epoch=0,
                        timestamp=1,
                        base_offset=offset + count + 2,
                    )
                )
            )
            if is_aborted:
                aborted.append(AbortedTransaction(producer_id=producer, first_offset=offset))
                expected += range(offset + count, offset + count + 2)
            else:
                expected += range(offset, offset + count + 2)
            offset += count + 3
        queue = await a_queue()
        queue.arrived(*batches, aborted=tuple(aborted))
        seen: list[int] = []
        while queue.cursor.position < offset:
            if chance.random() < 0.5:
                seen += [row["offset"] for row in await queue.rows(chance.randint(1, 12))]
            else:
                seen += await queue.polled(chance.randint(1, 12))
        assert seen == expected, f"seed {seed}"
        queue.poller.close()


@in_loop
async def test_a_damaged_batch_is_told_behind_the_rows_before_it() -> None:
    for size in (1, LIGHT_BYTES):
        queue = await a_queue()
        damaged = batch(7, 3)
        damaged[-2] ^= 1
        queue.arrived(build([NewRecord(b"x" * size, timestamp=1)] * 7), damaged, batch(10, 1))
        assert [row["offset"] for row in await queue.rows(5)] == [0, 1, 2, 3, 4]
        assert [row["offset"] for row in await queue.rows(5)] == [5, 6]
        with pytest.raises(CorruptBatchError, match="the batch at offset 7 cannot be read"):
            await queue.rows()
        assert (queue.cursor.position, queue.cursor.fetch_offset) == (7, 7)
        queue.poller.close()


@in_loop
async def test_what_is_given_back_is_fetched_again_unless_somebody_has_moved_on() -> None:
    queue = await a_queue()
    queue.arrived(batch(0, 10))
    taken = queue.arrow.take(4)
    assert taken is not None
    assert queue.cursor.position == 4
    queue.arrow.give_back(taken)
    assert (queue.cursor.position, queue.cursor.fetch_offset) == (0, 0)
    queue.subscription.seek(queue.cursor, 8)
    queue.arrow.give_back(taken)
    assert queue.cursor.position == 8
    queue.poller.close()
