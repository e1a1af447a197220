"""Each fault, as other people's clients meet it."""

import asyncio
import socket
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import KafkaError, TopicPartition
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.testing import Broker
from tests.broker.harness import Client, batch, fetch_request, fetched, in_loop, produce_request, produced
from tests.testing.clients import PATIENCE_SECONDS, consume, consumer, produce, producer, watermarks


def outcome(bootstrap: str, topic: str, value: bytes, **configs: Any) -> KafkaError | None:
    """What confluent-kafka tells about a record in the end."""
    outcomes: list[KafkaError | None] = []
    sender = producer(bootstrap, **configs)
    sender.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    sender.flush(PATIENCE_SECONDS)
    [found] = outcomes
    return found


# Connections


@in_loop
async def test_aiokafka_goes_on_after_its_connections_were_cut() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as sender:
            assert (await sender.send_and_wait("orders", b"a")).offset == 0
            assert broker.faults.cut_connections() >= 1
            assert (await sender.send_and_wait("orders", b"b")).offset == 1


@in_loop
async def test_the_connections_of_one_client_can_be_cut_and_those_of_others_stay() -> None:
    async with Broker() as broker:
        one = await Client.open(broker.address, client_id="one")
        two = await Client.open(broker.address, client_id="two")
        for client in (one, two):
            await client.ask(MetadataRequest(), 9)
        assert broker.faults.cut_connections("nobody") == 0
        assert broker.faults.cut_connections(client_id="one") == 1
        assert await one.closed() == b""
        await two.ask(MetadataRequest(), 9)
        for client in (one, two):
            client.close()


def test_while_connections_are_refused_those_there_are_stay() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        with socket.create_connection(broker.address) as existing:
            with broker.faults.refuse_connections():
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(broker.address)
                existing.settimeout(0.01)
                with pytest.raises(TimeoutError):
                    existing.recv(1)
            socket.create_connection(broker.address).close()
        assert produce(broker.bootstrap, "orders", b"a") == [0]


def test_connections_are_refused_after_a_restart_as_before() -> None:
    with Broker() as broker:
        fault = broker.faults.refuse_connections()
        broker.restart()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(broker.address)
        fault.clear()
        socket.create_connection(broker.address).close()


# Requests and replies


def test_a_reply_that_was_dropped_leads_to_no_duplicate_of_an_idempotent_producer() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        fault = broker.faults.drop_replies("Produce", 2)
        assert produce(broker.bootstrap, "orders", b"a", enable_idempotence=True, retry_backoff_ms=10) == [0]
        assert fault.struck == 2
        assert watermarks(broker.bootstrap, "orders") == (0, 1)


def test_a_reply_that_was_dropped_leads_to_a_duplicate_of_any_other_producer() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        with broker.faults.drop_replies("Produce"):
            produce(broker.bootstrap, "orders", b"a", retry_backoff_ms=10)
        assert watermarks(broker.bootstrap, "orders") == (0, 2)


def test_a_request_that_fails_is_not_executed_and_is_sent_again_if_that_may_help() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", 3)
        assert produce(broker.bootstrap, "orders", b"a", retry_backoff_ms=10) == [0]
        assert fault.struck == 3
        assert watermarks(broker.bootstrap, "orders") == (0, 1)


def test_a_request_that_fails_for_good_fails_for_the_user() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        with broker.faults.fail("produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            error = outcome(broker.bootstrap, "orders", b"a")
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        sender = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=False)
        with broker.faults.fail("Produce", 29):
            sent = sender.send("orders", b"a")
            with pytest.raises(KafkaPythonError):
                sent.get(PATIENCE_SECONDS)
        sender.close()


@pytest.mark.parametrize("api", ["Metadata", "FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "Fetch"])
def test_a_consumer_gets_over_a_failure_of_each_request_that_it_sends(api: str) -> None:
    codes = {"Metadata": "LEADER_NOT_AVAILABLE", "Fetch": "NOT_LEADER_OR_FOLLOWER"}
    with Broker() as broker:
        broker.create_topic("orders")
        produce(broker.bootstrap, "orders", b"a")
        with broker.faults.fail(api, codes.get(api, "COORDINATOR_LOAD_IN_PROGRESS")) as fault:
            assert consume(broker.bootstrap, "orders", 1) == [b"a"]
            assert fault.struck == 1


@in_loop
async def test_delayed_replies_come_when_their_time_has_come() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        with broker.faults.delay_replies("1 h", api="Produce") as fault:
            client.send(produce_request("orders", batch(b"a")), 12)
            while not fault.struck:
                await asyncio.sleep(0.001)
            assert watermarks(broker.bootstrap, "orders") == (0, 1)
            waiting = asyncio.ensure_future(client.reply())
            broker.clock.advance("59 min")
            assert not waiting.done()
            broker.clock.advance("1 min")
            assert produced(await waiting).base_offset == 0
        client.close()


@in_loop
async def test_replies_that_are_delayed_leave_when_the_fault_is_cleared() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        await client.produce("orders", batch(bytes(200_000)))
        with broker.faults.delay_replies("1 h") as fault:
            client.send(fetch_request("orders", 0), 12)
            client.send(produce_request("orders", batch(b"b")), 12)
            while fault.struck < 2:
                await asyncio.sleep(0.001)
        assert fetched(await client.reply()).records is not None
        assert produced(await client.reply()).base_offset == 1
        client.close()


@in_loop
async def test_a_broker_with_delayed_replies_stops_without_waiting_for_them() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        fault = broker.faults.delay_replies("1 h")
        client.send(produce_request("orders", batch(b"a")), 12)
        while not fault.struck:
            await asyncio.sleep(0.001)
        broker.stop()
        assert produced(await client.reply()).base_offset == 0
        client.close()


@in_loop
async def test_delayed_and_dropped_fetches_hold_no_files_when_their_connection_is_gone() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        client = await Client.open(broker.address)
        await client.produce("orders", batch(bytes(200_000)))
        for fault in (broker.faults.delay_replies("1 h", "Fetch"), broker.faults.drop_replies("Fetch", 2)):
            for version in (12, 4):
                reader = await Client.open(broker.address)
                reader.send(fetch_request("orders", 0), version)
                while not fault.struck:
                    await asyncio.sleep(0.001)
                reader.close()
            fault.clear()
        descriptors = broker._production().directory._descriptors
        while any(file.readers for file in descriptors.open_files):
            await asyncio.sleep(0.001)
        client.close()


@in_loop
async def test_aiokafka_reads_on_when_a_fetch_is_delayed() -> None:
    async with Broker() as broker:
        broker.create_topic("orders")
        produce(broker.bootstrap, "orders", b"a")
        with broker.faults.delay_replies("50 ms", "Fetch") as fault:
            async with AIOKafkaConsumer(
                "orders", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
            ) as reader:
                assert (await reader.getone()).value == b"a"
            assert fault.struck >= 1


# The disk


def test_after_its_disk_has_failed_a_broker_takes_nothing_until_it_is_restarted() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        produce(broker.bootstrap, "orders", b"a")
        with broker.faults.fail_disk():
            error = outcome(broker.bootstrap, "orders", b"b", message_timeout_ms=500)
            assert error is not None
            assert broker.failure is not None
        assert outcome(broker.bootstrap, "orders", b"c", message_timeout_ms=500) is not None
        broker.restart()
        assert broker.failure is None
        assert produce(broker.bootstrap, "orders", b"d") == [1]
        assert consume(broker.bootstrap, "orders", 2) == [b"a", b"d"]


def test_on_a_full_disk_records_are_refused_and_all_else_goes_on() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        produce(broker.bootstrap, "orders", b"a")
        fault = broker.faults.fill_disk()
        error = outcome(broker.bootstrap, "orders", b"b", message_timeout_ms=300)
        assert error is not None
        reader = consumer(broker.bootstrap, "g")
        reader.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        reader.close()
        assert consume(broker.bootstrap, "orders", 1) == [b"a"]
        fault.clear()
        assert produce(broker.bootstrap, "orders", b"c") == [1]


def test_a_producer_gets_through_once_there_is_room_again() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        sender = producer(broker.bootstrap, retry_backoff_ms=10)
        offsets: list[Any] = []
        broker.faults.fill_disk(free_bytes=0)
        fault = broker.faults.delay_replies(0, "Produce")
        sender.produce("orders", b"a", on_delivery=lambda error, message: offsets.append(error or message.offset()))
        while fault.struck < 3:
            sender.poll(0.01)
        assert not offsets
        broker.faults.free_disk()
        sender.flush(PATIENCE_SECONDS)
        assert offsets == [0]


# All of them


def test_clear_undoes_all_of_them() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", count=None)
        broker.faults.drop_replies("Fetch", count=None)
        broker.faults.delay_replies("1 h")
        broker.faults.refuse_connections()
        broker.faults.fill_disk()
        broker.faults.fail_disk()
        broker.faults.clear()
        broker.faults.clear()
        assert produce(broker.bootstrap, "orders", b"a") == [0]
        assert consume(broker.bootstrap, "orders", 1) == [b"a"]


def test_what_cannot_be_is_refused_with_what_can() -> None:
    with Broker() as broker:
        with pytest.raises(ValueError, match="no API 'Prodduce'; did you mean Produce"):
            broker.faults.fail("Prodduce", 6)
        with pytest.raises(ValueError, match="'NO_SUCH' is no error code"):
            broker.faults.fail("Produce", "NO_SUCH")
        with pytest.raises(ValueError, match="9999 is no error code"):
            broker.faults.fail("Produce", 9999)
        with pytest.raises(ValueError, match="once or more, not 0"):
            broker.faults.drop_replies("Produce", 0)
        with pytest.raises(ValueError, match="is no duration"):
            broker.faults.delay_replies("a bit")
