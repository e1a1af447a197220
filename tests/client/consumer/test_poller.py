"""Polls and iteration against the real broker: everything comes once and in order, whatever is cancelled."""

import asyncio
import random
import threading
from typing import Any

import pytest

from penstock.client.consumer.fetched import HEAVY_BYTES
from penstock.client.errors import (
    ClientError,
)
from penstock.protocol.compression import Codec
from penstock.testing import Broker
from tests.client.consuming import Stage, places, read, values
from tests.waiting import in_loop, until


@in_loop
async def test_everything_is_polled_once_and_in_the_order_of_its_partition(broker: Broker) -> None:
    stage = Stage(broker, partitions=3)
    await stage.fill(1000)
    async with stage.consumer() as consumer:
        messages = await read(consumer, 3000)
        assert await consumer.poll(timeout_ms=50) == []
    for number in range(3):
        assert [m.offset for m in messages if m.partition == number] == list(range(1000))


@in_loop
async def test_a_poll_returns_500_messages_unless_told(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(1200)
    async with stage.consumer() as consumer:
        assert [len(await consumer.poll()) for _ in range(2)] == [500, 500]
        assert len(await consumer.poll(7)) == 7
        with pytest.raises(ValueError, match="max_records is 0"):
            await consumer.poll(0)
    async with stage.consumer(max_poll_records=3) as consumer:
        assert len(await consumer.poll()) == 3


@in_loop
async def test_a_busy_partition_does_not_keep_others_from_their_turn(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(2000)
    async with stage.consumer(max_poll_records=100) as consumer:
        await until(lambda: len(consumer.assignment) == 2)
        await until(lambda: all(each.queued for each in consumer._subscription.cursors.values()))
        first = await read(consumer, 1000)
    assert {m.partition for m in first} == {0, 1}


@pytest.mark.parametrize("codec", Codec)
@in_loop
async def test_compressed_messages_are_read_in_a_thread_if_they_are_many(broker: Broker, codec: Codec) -> None:
    stage = Stage(broker)
    noise = random.Random(17)
    values_sent = [noise.randbytes(1000) for _ in range(200)]
    await stage.send(*values_sent, codec=codec)
    assert sum(map(len, values_sent)) > HEAVY_BYTES
    before = threading.active_count()
    async with stage.consumer() as consumer:
        assert values(await read(consumer, 200)) == values_sent
        assert (threading.active_count() > before) == (codec is not Codec.NONE)
    assert threading.active_count() == before


@in_loop
async def test_a_poll_waits_for_messages_and_no_longer_than_it_was_told(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.consumer() as consumer:
        assert await consumer.poll(timeout_ms=0) == []
        waiting = asyncio.create_task(consumer.poll(timeout_ms=None))
        await until(lambda: consumer.assignment)
        await stage.send(b"late")
        assert values(await waiting) == [b"late"]


@in_loop
async def test_a_cancelled_poll_loses_nothing_and_repeats_nothing(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(3000, batch=50)
    chance = random.Random(8)
    messages: list[Any] = []
    async with stage.consumer() as consumer:
        while len(messages) < 6000:
            try:
                async with asyncio.timeout(chance.choice((0, 0.0001, 0.001, 1))):
                    messages += await consumer.poll(chance.randint(1, 400))
            except TimeoutError:
                pass
    assert sorted(places(messages)) == [(number, offset) for number in range(2) for offset in range(3000)]
    for number in range(2):
        assert [m.offset for m in messages if m.partition == number] == list(range(3000))


@in_loop
async def test_two_tasks_cannot_poll_at_once(broker: Broker) -> None:
    stage = Stage(broker)
    async with stage.consumer() as consumer:
        waiting = asyncio.create_task(consumer.poll(timeout_ms=None))
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="another task polls"):
            await consumer.poll()
        waiting.cancel()


@in_loop
async def test_an_iteration_gives_every_message_and_can_be_gone_on_with(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(700)
    messages = []
    async with stage.consumer() as consumer:
        for most in (3, 600):
            async for message in consumer:
                messages.append(message)
                if len(messages) >= most:
                    break
            messages += await consumer.poll(10)
        messages += await read(consumer, 1400 - len(messages))
    assert sorted(places(messages)) == [(number, offset) for number in range(2) for offset in range(700)]
    assert await stage.committed() == {0: 700, 1: 700}


@in_loop
async def test_in_an_iteration_the_position_is_behind_the_message_in_hand(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(10)
    async with stage.consumer(enable_auto_commit=False) as consumer:
        async for message in consumer:
            assert await consumer.position(stage.key) == message.offset + 1
            if message.offset == 6:
                break
        await consumer.commit()
        assert await consumer.committed() == {stage.key: 7}


@in_loop
async def test_in_an_iteration_a_pause_and_a_seek_count_at_once(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(5)
    seen = []
    async with stage.consumer() as consumer:
        async for message in consumer:
            seen.append((message.partition, message.offset))
            if len(seen) == 2:
                consumer.pause(message.topic_partition)
            elif len(seen) == 7:
                await consumer.seek(message.topic_partition, 3)
            elif len(seen) == 9:
                break
    (paused, _), other = seen[0], 1 - seen[0][0]
    assert seen == [(paused, 0), (paused, 1), *((other, offset) for offset in range(5)), (other, 3), (other, 4)]


@in_loop
async def test_closing_a_consumer_ends_an_iteration_in_another_task(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.fill(2)
    consumer = stage.consumer()
    seen = []

    async def iterate() -> None:
        async for message in consumer:
            seen.append(message.offset)

    iterating = asyncio.create_task(iterate())
    await until(lambda: len(seen) == 2)
    await consumer.close()
    await iterating
