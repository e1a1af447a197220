"""A topic of four thousand partitions: what it costs while it is empty, and while it is not."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.harness import FETCH_VERSION, Client, records_of, values_of
from tests.system.clients import create_topic
from tests.system.processes import PATIENCE_SECONDS, BrokerProcess, Patience

TOPIC = "many"
PARTITIONS = 4000
MAX_IDLE_BYTES = 20 * 1024
IN_A_FETCH = 500


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """In memory where there is such a folder: making twenty thousand files takes a disk longer than all the rest."""
    in_memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=in_memory if os.access(in_memory, os.W_OK) else None) as folder:
        yield Path(folder) / "data"


def test_a_topic_of_four_thousand_partitions(data_dir: Path) -> None:
    with BrokerProcess(data_dir) as broker:
        assert broker.stop() == 0
    with BrokerProcess(data_dir) as broker:
        without = broker.memory_bytes()
        create_topic(broker.own_address, TOPIC, PARTITIONS)
        assert listed_partitions(broker) == PARTITIONS
        assert broker.stop() == 0
    assert folders_of_partitions(data_dir) == []

    with BrokerProcess(data_dir) as broker:
        empty = (broker.memory_bytes() - without) / PARTITIONS
        print(f"\nan empty partition: {empty / 1024:.1f} KiB of memory; started in {broker.seconds_to_start:.2f} s")
        assert listed_partitions(broker) == PARTITIONS
        produce_to_each(broker)
        assert broker.stop() == 0
    assert len(folders_of_partitions(data_dir)) == PARTITIONS

    with BrokerProcess(data_dir) as broker:
        idle = (broker.memory_bytes() - without) / PARTITIONS
        print(f"one with a message: {idle / 1024:.1f} KiB of memory; started in {broker.seconds_to_start:.2f} s")
        assert broker.started["partitions"] == PARTITIONS
        assert (broker.started["was_clean"], broker.started["scanned_bytes"]) == (True, 0)
        assert asyncio.run(read_each(broker)) == [[b"%d" % number] for number in range(PARTITIONS)]
        assert broker.stop() == 0
        assert broker.problems() == []
    assert empty <= MAX_IDLE_BYTES
    assert idle <= MAX_IDLE_BYTES


def listed_partitions(broker: BrokerProcess) -> int:
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*broker.own_address)})
    topics = admin.list_topics(timeout=PATIENCE_SECONDS).topics
    assert list(topics) == [TOPIC]
    return sum(partition.error is None and partition.leader == 0 for partition in topics[TOPIC].partitions.values())


def folders_of_partitions(data_dir: Path) -> list[Path]:
    return list(data_dir.rglob(f"{TOPIC}-*"))


def produce_to_each(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": "{}:{}".format(*broker.own_address), "acks": "all"})
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for number in range(PARTITIONS):
        producer.produce(TOPIC, b"%d" % number, partition=number, on_delivery=delivered)
    patience = Patience()
    while producer.flush(1) and patience.lasts("all to be delivered"):
        pass
    assert not refused


async def read_each(broker: BrokerProcess) -> list[list[bytes | None]]:
    """The values of every partition, several hundred partitions in a fetch."""
    found: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
    client = await Client.open(broker.own_address)
    for first in range(0, PARTITIONS, IN_A_FETCH):
        partitions = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1024)
            for number in range(first, first + IN_A_FETCH)
        ]
        request = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic=TOPIC, partitions=partitions)])
        response = await client.ask(request, FETCH_VERSION)
        for data in response.responses[0].partitions:
            assert data.error_code == ErrorCode.NONE, data
            found[data.partition_index] = values_of(records_of(data))
    client.close()
    return found
