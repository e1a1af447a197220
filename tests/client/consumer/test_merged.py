"""Iteration in the order of timestamps, against the real broker."""

import asyncio
import time
from typing import Any

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.deserializers import DeserializationError
from penstock.client.consumer.merged import QUEUED_PER_PARTITION, Merged
from penstock.client.message import Message
from penstock.client.serializers import Json
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, polling_until
from tests.client.threads import client_threads
from tests.waiting import in_loop, until

BEGIN = 1_700_000_000_000


async def send(stage: Stage, partition: int, *times: int, **options: Any) -> None:
    await stage.append(
        [NewRecord(b"%d" % time, timestamp=BEGIN + time) for time in times], partition=partition, **options
    )


async def take(merged: Merged[Any, Any], count: int) -> list[Message[Any, Any]]:
    return [await anext(merged) for _ in range(count)]


def times(messages: list[Message[Any, Any]]) -> list[int]:
    return [message.timestamp - BEGIN for message in messages]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@in_loop
async def test_messages_of_many_partitions_come_in_the_order_of_their_timestamps(broker: Broker, codec: Codec) -> None:
    stage = Stage(broker, partitions=3)
    for number in range(3):
        for first in range(0, 3_000, 600):
            await send(stage, number, *range(first + number, first + 600, 3), codec=codec)
    async with stage.consumer() as consumer:
        merged = consumer.merged(max_wait_ms=20_000)
        assert times(await take(merged, 2_990)) == list(range(2_990))
        assert merged.late == 0
    assert await stage.committed() == {0: 997, 1: 997, 2: 996}


@in_loop
async def test_an_idle_partition_does_not_hold_up_what_is_old(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await send(stage, 0, *range(2_000))
    async with stage.consumer() as consumer:
        assert times(await take(consumer.merged(max_wait_ms=20_000), 2_000)) == list(range(2_000))


@in_loop
async def test_an_idle_partition_holds_up_what_is_new_for_a_while(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.send(b"new")
    async with stage.consumer() as consumer:
        waiting = asyncio.create_task(anext(consumer.merged(max_wait_ms=300)))
        await until(lambda: all(each.high_watermark >= 0 for each in consumer._subscription.cursors.values()))
        assert (await waiting).value == b"new"


@in_loop
async def test_what_comes_too_late_is_returned_at_once_and_told(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await send(stage, 0, 10, 20)
    async with stage.consumer() as consumer:
        merged = consumer.merged(max_wait_ms=100)
        assert times(await take(merged, 2)) == [10, 20]
        await send(stage, 1, 15, 30)
        assert times(await take(merged, 1)) == [15]
        assert (merged.is_late, merged.late) == (True, 1)
        assert times(await take(merged, 1)) == [30]
        assert (merged.is_late, merged.late) == (False, 1)


@in_loop
async def test_a_paused_partition_holds_nothing_up(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await send(stage, 0, 1, 3, 5)
    await send(stage, 1, 2, 4, 6)
    async with stage.consumer() as consumer:
        merged = consumer.merged(max_wait_ms=20_000)
        assert times(await take(merged, 1)) == [1]
        consumer.pause(stage.keys[1])
        assert times(await take(merged, 2)) == [3, 5]
        consumer.resume(stage.keys[1])
        assert times(await take(merged, 3)) == [2, 4, 6]
        assert merged.late == 2
        await consumer.seek(stage.keys[0], 1)
        assert times(await take(merged, 2)) == [3, 5]


@in_loop
async def test_positions_and_commits_are_behind_what_the_application_has_seen(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await send(stage, 0, *range(0, 100, 2))
    await send(stage, 1, *range(1, 100, 2))
    async with stage.consumer(auto_commit_interval_ms=10) as consumer:
        await take(consumer.merged(), 21)
        assert [await consumer.position(key) for key in stage.keys] == [11, 10]
        await consumer.commit()
        assert await stage.committed() == {0: 11, 1: 10}
        # By other means one goes on behind it.
        messages = await polling_until(lambda: consumer.positions() == dict.fromkeys(stage.keys, 50), consumer)
        assert len(messages) == 79


@in_loop
async def test_an_exception_in_the_loop_has_its_message_come_again(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await send(stage, 0, *range(0, 10, 2))
    await send(stage, 1, *range(1, 10, 2))

    async def work() -> None:
        async with stage.consumer() as consumer:
            async for message in consumer.merged():
                if message.timestamp == BEGIN + 5:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert await stage.committed() == {0: 3, 1: 2}


async def give_within(merged: Merged[Any, Any], seconds: float) -> list[Message[Any, Any]]:
    try:
        async with asyncio.timeout(seconds):
            return [await anext(merged)]
    except TimeoutError:
        return []


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@in_loop
async def test_partitions_that_come_and_go_meanwhile_are_merged_or_left(broker: Broker, assignor: str) -> None:
    stage = Stage(broker, partitions=2)
    await send(stage, 0, *range(0, 40, 2))
    await send(stage, 1, *range(1, 40, 2))
    strategy = {"partition_assignment_strategy": [assignor]}
    async with stage.consumer(**strategy) as consumer:
        merged = consumer.merged(max_wait_ms=100)
        seen = await take(merged, 5)
        async with stage.consumer(**strategy) as other:
            while len(other.assignment) != 1 or len(consumer.assignment) != 1:
                seen += await other.poll(timeout_ms=10) + await give_within(merged, 0.01)
            await send(stage, 0, 100)
            await send(stage, 1, 101)
            while len(seen) < 42:
                seen += await other.poll(timeout_ms=10) + await give_within(merged, 0.01)
        while len(consumer.assignment) != 2:
            seen += await give_within(merged, 0.01)
        await send(stage, 1, 102)
        await send(stage, 0, 103)
        assert times(await take(merged, 2)) == [102, 103]
    assert sorted((m.partition, m.offset) for m in seen) == [(p, o) for p in range(2) for o in range(21)]


@in_loop
async def test_no_more_waits_for_its_turn_than_the_bound(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.append([NewRecord(b"x" * 100, timestamp=BEGIN + n) for n in range(5_000)], partition=0)
    async with stage.consumer() as consumer:
        merged = consumer.merged(max_wait_ms=20_000)
        await send(stage, 1, 7_000)
        most = 0
        for _ in range(5_000):
            await anext(merged)
            most = max(most, merged._merger.queued + len(merged._ready))
    assert most <= 2 * QUEUED_PER_PARTITION


@in_loop
async def test_a_cancelled_wait_loses_nothing(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    async with stage.consumer() as consumer:
        merged = consumer.merged(max_wait_ms=20_000)
        now = round(time.time() * 1000) - BEGIN
        await send(stage, 0, now)
        for _ in range(5):
            assert await give_within(merged, 0.01) == []
        await send(stage, 1, now + 1)
        await send(stage, 0, now + 2)
        assert times(await take(merged, 2)) == [now, now + 1]


@in_loop
async def test_a_message_that_cannot_be_read_is_told_and_gone_on_behind(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.send(b"1", b"{", b"3")
    async with stage.consumer(value_deserializer=Json(int)) as consumer:
        merged = consumer.merged(max_wait_ms=0)
        assert (await anext(merged)).value == 1
        with pytest.raises(DeserializationError):
            await anext(merged)
        assert (await anext(merged)).value == 3


@in_loop
async def test_at_most_once_commits_before_anything_is_returned(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await send(stage, 0, 1, 3)
    await send(stage, 1, 2, 4)
    async with stage.consumer(delivery="at_most_once") as consumer:
        merged = consumer.merged(max_wait_ms=200)
        for number in range(1, 5):
            message = await anext(merged)
            assert message.timestamp == BEGIN + number
            assert (await stage.committed())[message.partition] > message.offset


@in_loop
async def test_it_ends_with_the_consumer_and_leaves_nothing(broker: Broker) -> None:
    stage = Stage(broker)
    await send(stage, 0, 1)
    before = client_threads()
    consumer: Consumer[Any, Any] = stage.consumer()
    merged = consumer.merged()
    await anext(merged)
    waiting = asyncio.create_task(anext(merged, None))
    await asyncio.sleep(0)
    await consumer.close()
    assert await waiting is None
    assert [message async for message in merged] == []
    assert client_threads() == before
    with pytest.raises(ValueError, match="max_wait_ms is -1"):
        stage.lone_consumer().merged(max_wait_ms=-1)
