"""The statistics of clients, async and blocking."""

import pytest

from penstock.client import Admin, ClientStats, ConsumerStats, Producer, ProducerStats, sync
from penstock.client.errors import TimedOutError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.testing import Broker
from tests.client.consuming import Stage, read
from tests.client.peer import SILENCE
from tests.client.produce_peer import producing_to, refused
from tests.waiting import in_loop, until


@in_loop
async def test_a_producer_counts_what_is_buffered_until_the_broker_has_answered() -> None:
    async with producing_to() as (producer, _, [broker]):
        broker.answers[ProduceRequest] = lambda _: SILENCE
        for _ in range(3):
            producer.send("orders", b"paid")
        # Before that the second connection is made, on which the brokers' versions are asked for.
        await until(lambda: broker.requests(ProduceRequest))
        stats = producer.stats()
        assert (stats.buffered_messages, stats.connections, stats.last_error) == (3, 2, None)
        assert stats.requests_in_flight == 1
        assert stats.buffered_bytes == producer.buffered_bytes > 0
        await producer.close(timeout_ms=0)
        assert producer.stats().buffered_messages == 0
        assert producer.stats().connections == 0


@in_loop
async def test_messages_that_wait_for_their_topic_count_as_buffered() -> None:
    async with producing_to() as (producer, _, _):
        producer.send("payments", b"paid")
        assert producer.stats().buffered_messages == 1
        await producer.flush()
        assert producer.stats().buffered_messages == 0
        assert "payments" in (producer.stats().last_error or "")


@in_loop
async def test_an_error_that_a_broker_answers_with_is_the_last_error() -> None:
    async with producing_to(refused(ErrorCode.NOT_ENOUGH_REPLICAS)) as (producer, _, _):
        await producer.send("orders", b"paid")
        assert "NOT_ENOUGH_REPLICAS" in (producer.stats().last_error or "")


@in_loop
async def test_a_consumer_counts_partitions_rebalances_and_what_it_fetched_ahead(broker: Broker) -> None:
    stage = Stage(broker, partitions=3)
    await stage.fill(10)
    async with stage.consumer() as consumer:
        await read(consumer, 1, max_records=1)
        await until(lambda: consumer.stats().buffered_bytes)
        stats = consumer.stats()
        assert (stats.partitions, stats.rebalances, stats.skipped_batches) == (3, 1, 0)
        assert stats.connections >= 2
        await consumer.unsubscribe()
        assert (consumer.stats().partitions, consumer.stats().rebalances) == (0, 1)
        consumer.subscribe(stage.topic)
        await read(consumer, 1)
        assert consumer.stats().rebalances == 2


@in_loop
async def test_an_admin_has_statistics_of_its_connections(broker: Broker) -> None:
    async with Admin(broker.bootstrap) as admin:
        assert admin.stats() == ClientStats(connections=0, requests_in_flight=0, unreachable={}, last_error=None)
        await admin.topics()
        assert admin.stats().connections == 1


@in_loop
async def test_statistics_before_the_first_message_are_zeros() -> None:
    async with Producer("localhost:1") as producer:
        assert producer.stats() == ProducerStats(
            connections=0,
            requests_in_flight=0,
            unreachable={},
            last_error=None,
            buffered_bytes=0,
            buffered_messages=0,
        )


def test_blocking_clients_have_them_too(broker: Broker) -> None:
    stage = Stage(broker)
    with sync.Producer(broker.bootstrap) as producer:
        producer.send(stage.topic, b"paid").result()
        assert isinstance(producer.stats(), ProducerStats)
        assert producer.stats().buffered_messages == 0
    with sync.Admin(broker.bootstrap) as admin:
        admin.topics()
        assert admin.stats().connections == 1
    with sync.Consumer(stage.topic, bootstrap_servers=broker.bootstrap) as consumer:
        consumer.poll(timeout_ms=0)
        assert isinstance(consumer.stats(), ConsumerStats)


def test_a_callback_of_a_blocking_client_hears_of_an_outage() -> None:
    heard: list[object] = []
    late = pytest.raises(TimedOutError, match="no success within 50 ms")
    with sync.Admin("127.0.0.1:1", on_connection=heard.append, default_api_timeout_ms=50) as admin, late:
        admin.topics()
    assert len(heard) == 1
