"""Everything in a broker that goes by time, when its clock leaps: with real clients, and with members by hand."""

import asyncio
from typing import Any, Literal

import pytest
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer

from penstock.broker.partitions.partition import Partition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import DescribeGroupsRequest, FindCoordinatorRequest
from penstock.testing import Broker
from tests.broker.harness import Client, batch, fetch_request, fetched, in_loop
from tests.broker.members import Member, commit, committed
from tests.testing.clients import PATIENCE_SECONDS, consume, consumer, produce, producer, watermarks

DAY_MS = 86_400_000


async def member_of(broker: Broker, group: str = "g", *, session_ms: int = 10_000) -> Member:
    """The only member of a stable group."""
    client = await Client.open(broker.address)
    await client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 6)
    member = Member(client, group)
    await member.get_id()
    response = await client.ask(member.join_request(session_ms=session_ms), 9)
    assert member.take_joined(response).error_code == ErrorCode.NONE
    assert (await member.sync({member.member_id: b"all"})).error_code == ErrorCode.NONE
    return member


async def state_of(broker: Broker, group: str = "g") -> tuple[str, int]:
    """How a group is, and how many members it has."""
    client = await Client.open(broker.address)
    response = await client.ask(DescribeGroupsRequest(groups=[group]), 5)
    client.close()
    [found] = response.groups
    return found.group_state, len(found.members)


def partition_of(broker: Broker, topic: str) -> Partition:
    found = broker._production().services.partitions.get(topic, 0)
    assert isinstance(found, Partition)
    return found


# Retention


def test_a_topic_is_empty_at_once_when_its_retention_has_passed() -> None:
    with Broker() as broker:
        broker.create_topic("orders", retention_ms=DAY_MS)
        broker.create_topic("payments", retention_ms=30 * DAY_MS)
        for topic in ("orders", "payments"):
            produce(broker.bootstrap, topic, b"a", b"b")
        broker.clock.advance("23 hours")
        assert watermarks(broker.bootstrap, "orders") == (0, 2)
        broker.clock.advance("7 days")
        assert watermarks(broker.bootstrap, "orders") == (2, 2)
        assert watermarks(broker.bootstrap, "payments") == (0, 2)
        assert consume(broker.bootstrap, "payments", 2) == [b"a", b"b"]


def test_records_bear_the_time_of_the_broker_if_that_is_asked_for() -> None:
    with Broker() as broker:
        broker.create_topic("orders", message_timestamp_type="LogAppendTime", retention_ms=DAY_MS)
        broker.clock.advance("7 days")
        began_ms = broker.clock.now_ms()
        produce(broker.bootstrap, "orders", b"a")
        broker.clock.advance("1 h")
        reader = consumer(broker.bootstrap, "g")
        reader.subscribe(["orders"])
        message = reader.poll(PATIENCE_SECONDS)
        assert message is not None
        assert message.timestamp()[1] >= began_ms
        reader.close()


@pytest.mark.parametrize("storage", ["folder", "memory"])
def test_a_compacted_topic_is_compacted_at_once(storage: Literal["folder", "memory"]) -> None:
    configs = {"cleanup.policy": "compact", "segment.ms": 60_000, "min.cleanable.dirty.ratio": 0.01}
    with Broker(storage=storage) as broker:
        broker.create_topic("prices", configs=configs)
        sender = producer(broker.bootstrap)
        for price in (b"1", b"2", b"3"):
            sender.produce("prices", price, b"apples")
            assert sender.flush(PATIENCE_SECONDS) == 0
        broker.clock.advance("1 h")
        assert consume(broker.bootstrap, "prices", 1) == [b"3"]


@in_loop
async def test_silent_producers_are_forgotten() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        await client.produce("orders", batch(b"a", producer=(7, 0, 0), timestamp=broker.clock.now_ms()))
        assert len(partition_of(broker, "orders").producers) == 1
        broker.clock.advance("2 days")
        assert len(partition_of(broker, "orders").producers) == 0
        client.close()


# Groups


@in_loop
async def test_a_silent_member_is_out_of_its_group_at_once() -> None:
    async with Broker() as broker:
        member = await member_of(broker)
        broker.clock.advance("9 s")
        assert await member.heartbeat() == ErrorCode.NONE
        broker.clock.advance("9 s")
        assert await state_of(broker) == ("Stable", 1)
        broker.clock.advance("2 s")
        assert await state_of(broker) == ("Empty", 0)
        assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        member.client.close()


@in_loop
async def test_a_rebalance_that_an_expired_session_began_is_over_too_if_its_time_has_passed() -> None:
    async with Broker() as broker:
        patient = await member_of(broker, session_ms=1_800_000)
        other = Member(await Client.open(broker.address))
        await other.get_id()
        other.send_join()
        patient.take_joined(await patient.ask(patient.join_request(session_ms=1_800_000), 9))
        other.take_joined(await other.client.reply())
        await patient.sync({patient.member_id: b"one", other.member_id: b"two"})
        await other.sync()
        assert await state_of(broker) == ("Stable", 2)
        # After 10 s the other's session is over, and a minute later the time that the patient one has to join again.
        broker.clock.advance("11 s")
        assert await state_of(broker) == ("PreparingRebalance", 1)
        broker.clock.advance("5 min")
        assert await state_of(broker) == ("Empty", 0)
        for member in (patient, other):
            member.client.close()


def test_a_real_consumer_that_was_thrown_out_comes_back_and_reads_on() -> None:
    with Broker() as broker:
        broker.create_topic("orders", message_timestamp_type="LogAppendTime")
        produce(broker.bootstrap, "orders", b"a")
        lost: list[Any] = []
        reader = consumer(broker.bootstrap, "g", heartbeat_interval_ms=100)
        reader.subscribe(["orders"], on_lost=lambda _, partitions: lost.extend(partitions))
        message = reader.poll(PATIENCE_SECONDS)
        assert message is not None
        assert message.value() == b"a"
        reader.commit(message=message, asynchronous=False)
        broker.clock.advance("1 h")
        produce(broker.bootstrap, "orders", b"b")
        message = None
        while message is None or not lost:
            message = message or reader.poll(0.1)
            assert message is None or message.error() is None, message
            if message is not None and not lost:
                reader.poll(0.1)
        assert message.value() == b"b"
        reader.close()


def test_kafka_python_reads_on_after_a_leap() -> None:
    with Broker() as broker:
        broker.create_topic("orders", message_timestamp_type="LogAppendTime")
        produce(broker.bootstrap, "orders", b"a")
        reader = KafkaConsumer(
            "orders",
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=100,
        )
        assert next(reader).value == b"a"
        broker.clock.advance("1 h")
        produce(broker.bootstrap, "orders", b"b")
        # What was read and not committed before the leap may come again.
        while next(reader).value != b"b":
            pass
        reader.close()


@in_loop
async def test_committed_offsets_are_forgotten_when_their_retention_has_passed() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        assert await commit(client, "g", {("orders", 0): 5}) == {ErrorCode.NONE}
        client.close()
        broker.clock.advance("6 days")
        client = await Client.open(broker.address)
        assert list((await committed(client, "g", {"orders": [0]})).values()) == [5]
        client.close()
        broker.clock.advance("2 days")
        client = await Client.open(broker.address)
        assert list((await committed(client, "g", {"orders": [0]})).values()) == [-1]
        client.close()


def test_a_committed_offset_of_a_real_consumer_expires() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        reader = consumer(broker.bootstrap, "g")
        reader.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
        reader.close()
        broker.clock.advance("8 days")
        reader = consumer(broker.bootstrap, "g")
        [found] = reader.committed([TopicPartition("orders", 0)], timeout=PATIENCE_SECONDS)
        assert found.offset < 0
        reader.close()


# Waiting


@in_loop
async def test_a_fetch_that_waits_for_records_is_answered_when_its_time_has_passed() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        client.send(fetch_request("orders", 0, max_wait_ms=300_000), 12)
        reply = asyncio.ensure_future(client.reply())
        while not partition_of(broker, "orders").fetch_waiters:
            await asyncio.sleep(0.001)
        broker.clock.advance("299 s")
        assert partition_of(broker, "orders").fetch_waiters
        broker.clock.advance("2 s")
        assert not partition_of(broker, "orders").fetch_waiters
        assert fetched(await reply).error_code == ErrorCode.NONE
        client.close()


@in_loop
async def test_idle_connections_are_closed_when_their_time_has_passed() -> None:
    async with Broker() as broker:
        client = await Client.open(broker.address)
        await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        broker.clock.advance("11 min")
        assert await client.closed() == b""
        client.close()


# The leap itself


def test_a_long_leap_is_over_in_no_time_with_fetches_and_groups_waiting() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        reader = consumer(broker.bootstrap, "g")
        reader.subscribe(["orders"])
        reader.poll(0.1)
        broker.clock.advance("52 weeks")
        assert broker.clock.lead_ms == 364 * DAY_MS
        reader.close()


def test_time_that_passes_while_the_broker_is_down_has_passed() -> None:
    with Broker() as broker:
        broker.create_topic("orders", retention_ms=DAY_MS)
        produce(broker.bootstrap, "orders", b"a")
        broker.stop()
        broker.clock.advance("7 days")
        broker.start()
        broker.clock.advance("5 min")
        assert watermarks(broker.bootstrap, "orders") == (1, 1)


def test_a_leap_does_not_wait_for_a_disk_that_has_failed() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        consume_group = consumer(broker.bootstrap, "g")
        consume_group.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
        consume_group.close()
        with broker.faults.fail_disk():
            broker.clock.advance("8 days")
