"""A topic of four thousand partitions: made, listed, written to, and there again after a restart."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from penstock.client.admin import LATEST, describe_topics, list_offsets
from penstock.client.cluster import Cluster
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition
from tests.system.clients import create_topic
from tests.system.processes import PATIENCE_SECONDS, BrokerProcess

PARTITIONS = 4000
BYTES_PER_IDLE_PARTITION = 20_000


async def ends(address: tuple[str, int]) -> list[int]:
    """The end of every partition, as the broker tells it."""
    async with Cluster(f"{address[0]}:{address[1]}") as cluster:
        topic = unwrap(await describe_topics(cluster, ["wide"]))["wide"]
        assert len(topic.partitions) == PARTITIONS
        wanted = {TopicPartition("wide", number): LATEST for number in range(PARTITIONS)}
        found = unwrap(await list_offsets(cluster, wanted))
        return [found[partition].offset for partition in wanted]


def folders(data: Path) -> int:
    return len(list((data / "logs").glob("wide-*")))


def test_a_topic_of_four_thousand_partitions(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    data = tmp_path / "data"
    with BrokerProcess(tmp_path / "empty") as broker:
        empty = broker.memory_bytes()
        assert broker.stop() == 0
    with BrokerProcess(data) as broker:
        create_topic(broker.address, "wide", PARTITIONS)
        assert asyncio.run(ends(broker.address)) == [0] * PARTITIONS
        assert folders(data) == 0, "an empty partition has no file and no folder"
        assert broker.stop() == 0
    with BrokerProcess(data) as broker:
        idle = (broker.memory_bytes() - empty) / PARTITIONS
        record_property("bytes per idle partition", round(idle))
        print(f"{idle:,.0f} bytes per idle partition")
        assert idle <= BYTES_PER_IDLE_PARTITION
        producer = Producer({"bootstrap.servers": "{}:{}".format(*broker.address), "acks": "all"})
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number in range(PARTITIONS):
            producer.produce("wide", b"%d" % number, partition=number, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert not failed
        assert folders(data) == PARTITIONS
        assert broker.stop() == 0
    with BrokerProcess(data) as broker:
        record_property("seconds to start with 4,000 written partitions", round(broker.seconds_to_start, 1))
        assert (broker.started["partitions"], broker.started["scanned_bytes"]) == (PARTITIONS, 0)
        assert asyncio.run(ends(broker.address)) == [1] * PARTITIONS
        assert broker.stop() == 0
        assert broker.problems() == []
