"""Idempotent producers with several requests in flight, on a network that delays, loses and repeats."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.system.clients import create_topic
from tests.system.processes import PATIENCE_SECONDS, BrokerProcess, Patience
from tests.system.producing import IN_FLIGHT, IdempotentProducer, read_all
from tests.system.proxy import Faults, Proxy

TOPIC = "orders"
PARTITIONS = 4
MESSAGES = 6000
FAULTS = Faults(cut=0.02, delay_ms=4, late_ms=15)


@pytest.fixture
def proxy(seed: int) -> Iterator[Proxy]:
    with Proxy(seed=seed) as proxy:
        yield proxy


@pytest.fixture
def broker(proxy: Proxy, tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that sends all its clients through the proxy."""
    advertised = f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxy.port}"
    with BrokerProcess(tmp_path / "data", "-X", advertised) as broker:
        proxy.connect_to(broker.port)
        create_topic(broker.own_address, TOPIC, PARTITIONS)
        proxy.faults = FAULTS
        yield broker
        assert broker.stop() == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_a_pipelined_idempotent_producer_survives_delays_and_cuts(
    seed: int, proxy: Proxy, broker: BrokerProcess
) -> None:
    rng = random.Random(seed)
    expected: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    messages = []
    while sum(map(len, expected)) < MESSAGES:
        partition = rng.randrange(PARTITIONS)
        first = len(expected[partition])
        values = tuple(b"%d of %d" % (first + i, partition) for i in range(rng.randint(1, 8)))
        expected[partition] += values
        messages.append((partition, values))
    producer = IdempotentProducer(("127.0.0.1", proxy.port), TOPIC)

    async def send() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await producer.send(messages)

    asyncio.run(send())
    found = asyncio.run(read_all(broker.own_address, TOPIC, PARTITIONS))
    print(f"\nseed {seed}: {len(messages)} batches, {producer.sent_again} sent again, cuts {dict(proxy.cuts)}")
    assert found == expected, f"seed {seed}"
    for sent in producer.acknowledged:
        lies_at = found[sent.partition][sent.base_offset : sent.base_offset + len(sent.values)]
        assert tuple(lies_at) == sent.values, f"seed {seed}: a reply named the wrong offset"
    assert proxy.most_in_flight == IN_FLIGHT
    assert proxy.cuts.total() >= 10
    assert producer.sent_again >= 10


@pytest.mark.parametrize("seed", [3])
def test_librdkafka_as_an_idempotent_producer_survives_delays_and_cuts(
    seed: int, proxy: Proxy, broker: BrokerProcess
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 8,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 5,
            # A connection that is cut is no news here.
            "log_level": 0,
        }
    )
    expected: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    places: dict[tuple[int, int], bytes | None] = {}
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error)
        else:
            places[message.partition() or 0, message.offset() or 0] = message.value()

    for number in range(MESSAGES):
        partition = number % PARTITIONS
        value = b"%d of %d" % (len(expected[partition]), partition)
        expected[partition].append(value)
        producer.produce(TOPIC, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    patience = Patience()
    while producer.flush(1) and patience.lasts("librdkafka to deliver"):
        pass
    found = asyncio.run(read_all(broker.own_address, TOPIC, PARTITIONS))
    print(f"\nseed {seed}: {proxy.requests['Produce']} requests, cuts {dict(proxy.cuts)}")
    assert not refused, f"seed {seed}"
    assert found == expected, f"seed {seed}"
    assert all(found[partition][offset] == value for (partition, offset), value in places.items()), f"seed {seed}"
    assert len(places) == MESSAGES
    assert proxy.most_in_flight > 1
    assert proxy.cuts.total() >= 10
