"""The consumer's face: what it takes, and what it tells."""

from typing import Any

import pytest

from penstock.client.consumer.consumer import Consumer
from penstock.client.errors import (
    ClientError,
    NoBrokerError,
)
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.consuming import Stage, read, values
from tests.client.peer import closed_port
from tests.waiting import in_loop, until


@in_loop
async def test_a_message_has_everything_that_the_issue_asks_for(broker: Broker) -> None:
    stage = Stage(broker)
    await stage.append([NewRecord(b"paid", key=b"17", headers=[("trace", b"1"), ("empty", None)], timestamp=1234)])
    async with stage.consumer() as consumer:
        [message] = await consumer.poll()
    assert (message.topic, message.partition, message.offset) == (stage.topic, 0, 0)
    assert (message.key, message.value, message.timestamp) == (b"17", b"paid", 1234)
    assert message.headers == (("trace", b"1"), ("empty", None))
    assert message.header("trace") == b"1"
    # Two bytes of key, four of value, and the headers as they are stored, with their lengths.
    assert message.size == 2 + 4 + 1 + (1 + 5 + 1 + 1) + (1 + 5 + 1)
    assert message.crc != 0
    assert (message.producer_id, message.sequence) == (-1, -1)
    assert str(message.id) == f"{stage.topic}-0@0"


@in_loop
async def test_partitions_are_assigned_by_hand_with_and_without_a_group(broker: Broker) -> None:
    stage = Stage(broker, partitions=3)
    await stage.fill(10)
    one, two, three = stage.keys
    async with stage.lone_consumer(group_id=stage.group) as consumer:
        await consumer.assign([one, two])
        assert consumer.assignment == {one, two}
        await read(consumer, 20)
        await consumer.assign([two, three])
        assert {m.partition for m in await read(consumer, 10)} == {2}
        await consumer.commit()
        assert await consumer.committed(*stage.keys) == {one: None, two: 10, three: 10}
    async with stage.lone_consumer() as consumer:
        await consumer.assign([one])
        assert len(await read(consumer, 10)) == 10
        with pytest.raises(ClientError, match="without a group commits nothing: give it a group_id"):
            await consumer.commit()
        with pytest.raises(ClientError, match=r"-2 is not assigned to this consumer, which reads topic-\d+-0"):
            await consumer.position(three)


@in_loop
async def test_a_broker_that_was_never_there_is_an_error_of_the_poll_if_the_client_fails_fast() -> None:
    address = f"127.0.0.1:{closed_port()}"
    async with Consumer("orders", bootstrap_servers=address, group_id="g", fail_fast=True) as consumer:
        with pytest.raises(NoBrokerError, match="no broker can be reached"):
            await consumer.poll()


@pytest.mark.parametrize("group", [{}, {"group_id": "billing"}], ids=["alone", "in a group"])
@in_loop
async def test_the_first_poll_of_a_cold_consumer_waits_for_its_broker_and_returns_nothing_in_time(
    group: dict[str, Any],
) -> None:
    with Broker(storage="memory") as broker:
        stage = Stage(broker)
        await stage.send(b"paid")
        address = broker.bootstrap
        broker.stop()
        settings = {"bootstrap_servers": address, "auto_offset_reset": "earliest", **group}
        async with Consumer(stage.topic, **settings) as consumer:
            assert await consumer.poll(timeout_ms=10) == []
            assert list(consumer.stats().unreachable) == [address]
            broker.start()
            assert values(await consumer.poll(timeout_ms=None)) == [b"paid"]


@in_loop
async def test_an_address_that_is_given_as_a_topic_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        ValueError, match=r"'localhost:9092' is an address and no topic: write Consumer\('orders', boot"
    ):
        Consumer("localhost:9092", "orders")
    with pytest.raises(ValueError, match=r"write Consumer\('TOPIC', bootstrap_servers='localhost:9092'\)"):
        Consumer("localhost:9092")


@in_loop
async def test_position_and_lag_tell_how_far_it_is(broker: Broker) -> None:
    stage = Stage(broker, partitions=2)
    await stage.fill(10)
    async with stage.consumer() as consumer:
        await until(lambda: consumer.assignment)
        assert await consumer.lag() == dict.fromkeys(stage.keys, 10)
        await consumer.poll(4)
        assert sorted((await consumer.lag()).values()) == [6, 10]
        assert sorted([await consumer.position(key) for key in stage.keys]) == [0, 4]
        assert await consumer.end_offsets() == dict.fromkeys(stage.keys, 10)


@in_loop
async def test_another_subscription_takes_the_place_of_the_one_before(broker: Broker) -> None:
    stage = Stage(broker)
    other = Stage(broker)
    await stage.fill(1)
    await other.fill(1)
    for assignor in ("range", "cooperative-sticky"):
        stage.group = f"{stage.topic}-{assignor}"
        async with stage.consumer(assignors=[assignor]) as consumer:
            assert (await read(consumer, 1))[0].topic == stage.topic
            consumer.subscribe([other.topic])
            assert (await read(consumer, 1))[0].topic == other.topic
            assert consumer.assignment == {other.key}
            await consumer.unsubscribe()
            assert consumer.assignment == set()
            assert (await stage.describe()).members == ()
            await consumer.assign([stage.key])
            assert consumer.assignment == {stage.key}


@in_loop
async def test_a_consumer_that_was_never_used_is_closed_without_a_word() -> None:
    await Consumer("orders", bootstrap_servers="127.0.0.1:1", group_id="g").close()
