"""The consumer with Apache Kafka: groups of both kinds, commits, seeks, transactions, and members of other clients."""

import asyncio
import itertools
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.errors import NoPositionError, unwrap
from penstock.client.metadata import TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord
from tests.client.consuming import places, polling_until, read, values
from tests.client.one_batch import produce
from tests.waiting import in_loop

_numbers = itertools.count(1)


async def new_topic(bootstrap: str, partitions: int = 1, messages: int = 0, **configs: str) -> str:
    name = f"consumed-{next(_numbers)}"
    async with Cluster(bootstrap) as cluster:
        unwrap(await create_topics(cluster, [NewTopic(name=name, partitions=partitions, configs=configs)]))
        for number in range(partitions):
            if messages:
                records = [NewRecord(b"%d" % offset, timestamp=1_000 + offset) for offset in range(messages)]
                await produce(cluster, name, number, records)
    return name


def consumer_of(bootstrap: str, topic: str, **settings: Any) -> Consumer[Any, Any]:
    given: dict[str, Any] = {
        "group_id": f"group-of-{topic}",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        **settings,
    }
    return Consumer(topic, bootstrap_servers=bootstrap, **given)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@in_loop
async def test_members_share_a_topic_and_read_everything_once(bootstrap: str, assignor: str) -> None:
    topic = await new_topic(bootstrap, partitions=4, messages=100)
    async with consumer_of(bootstrap, topic, assignors=[assignor]) as one:
        messages = await read(one, 1)
        async with consumer_of(bootstrap, topic, assignors=[assignor]) as two:
            messages += await polling_until(lambda: len(one.assignment) == len(two.assignment) == 2, one, two)
            while len(messages) < 400:
                messages += await one.poll(timeout_ms=20) + await two.poll(timeout_ms=20)
        messages += await polling_until(lambda: len(one.assignment) == 4, one)
    assert sorted(places(messages)) == [(number, offset) for number in range(4) for offset in range(100)]


@in_loop
async def test_a_group_goes_on_where_it_was(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, messages=10)
    async with consumer_of(bootstrap, topic) as consumer:
        assert [m.offset for m in await read(consumer, 4, max_records=4)] == [0, 1, 2, 3]
    async with consumer_of(bootstrap, topic, enable_auto_commit=False) as consumer:
        [first, *_] = await read(consumer, 1)
        assert first.offset == 4
        await consumer.commit(first)
        assert await consumer.committed(first.topic_partition) == {first.topic_partition: 5}


@in_loop
async def test_seeks_and_times(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, messages=10)
    key = TopicPartition(topic, 0)
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        await consumer.assign([key])
        with pytest.raises(NoPositionError):
            await consumer.poll()
        await consumer.seek_to_time(1_006)
        assert values(await read(consumer, 4)) == [b"6", b"7", b"8", b"9"]
        await consumer.seek_to_beginning()
        assert await consumer.lag() == {key: 10}
        await consumer.seek(key, 1000)
        with pytest.raises(NoPositionError, match="does not hold offset 1000"):
            await polling_until(lambda: False, consumer)


@pytest.mark.parametrize("codec", Codec)
@in_loop
async def test_every_codec_is_read(bootstrap: str, codec: Codec) -> None:
    topic = await new_topic(bootstrap)
    async with Cluster(bootstrap) as cluster:
        await produce(cluster, topic, 0, [NewRecord(b"v" * 100, key=b"k")] * 200, codec=codec)
    async with consumer_of(bootstrap, topic) as consumer:
        assert {m.value for m in await read(consumer, 200)} == {b"v" * 100}


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("read_committed", [b"kept", b"plain"]), ("read_uncommitted", [b"dropped", b"kept", b"plain"])],
)
@in_loop
async def test_of_aborted_transactions_nothing_is_seen(bootstrap: str, isolation: str, expected: list[bytes]) -> None:
    topic = await new_topic(bootstrap)

    def write() -> None:
        producer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        producer.init_transactions()
        for value, keep in ((b"dropped", False), (b"kept", True)):
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            producer.flush()
            producer.commit_transaction() if keep else producer.abort_transaction()

    await asyncio.to_thread(write)
    async with Cluster(bootstrap) as cluster:
        await produce(cluster, topic, 0, [NewRecord(b"plain")])
    async with consumer_of(bootstrap, topic, isolation_level=isolation) as consumer:
        assert values(await read(consumer, len(expected))) == expected
        assert await consumer.lag() == {TopicPartition(topic, 0): 0}


@in_loop
async def test_a_static_member_keeps_its_partitions(bootstrap: str) -> None:
    topic = await new_topic(bootstrap, partitions=2, messages=1)
    async with consumer_of(bootstrap, topic, group_instance_id="one") as first:
        await read(first, 2)
    async with consumer_of(bootstrap, topic, group_instance_id="one") as second:
        await polling_until(lambda: len(second.assignment) == 2, second)
