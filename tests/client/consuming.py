"""A broker to consume from, messages in it, and what tests of consumers wait for."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from penstock.client.admin.group_offsets import group_offsets
from penstock.client.admin.groups import GroupDescription, describe_groups
from penstock.client.cluster.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord
from penstock.testing import Broker
from tests.client.one_batch import produce

_numbers = itertools.count(1)


class Stage:
    """A topic of its own for each test, and a group of the same name."""

    def __init__(self, broker: Broker, partitions: int = 1, configs: dict[str, object] | None = None) -> None:
        self.broker = broker
        self.topic = broker.create_topic(f"topic-{next(_numbers)}", partitions, configs)
        self.group = self.topic
        self.keys = [TopicPartition(self.topic, number) for number in range(partitions)]
        self.key = self.keys[0]

    def consumer(self, *topics: Any, **settings: Any) -> Consumer[Any, Any]:
        """In the group, from the beginning on, unless told."""
        given: dict[str, Any] = {
            "bootstrap_servers": self.broker.bootstrap,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": 20_000,
            "fetch_max_wait_ms": 100,
            **settings,
        }
        if given["group_id"] is None:
            del given["group_id"]
        return Consumer(*(topics or (self.topic,)), **given)

    def lone_consumer(self, **settings: Any) -> Consumer[Any, Any]:
        """Without a group, and with nothing to read yet."""
        given: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **settings}
        return Consumer(bootstrap_servers=self.broker.bootstrap, **given)

    async def send(self, *values: bytes | None, partition: int = 0, **options: Any) -> None:
        await self.append([NewRecord(value) for value in values], partition=partition, **options)

    async def append(
        self, records: Iterable[NewRecord], *, partition: int = 0, codec: Codec = Codec.NONE, topic: str | None = None
    ) -> None:
        async with Cluster(self.broker.bootstrap) as cluster:
            await produce(cluster, topic or self.topic, partition, records, codec=codec)

    async def fill(self, count: int, *, batch: int = 100) -> None:
        """So many messages in each partition, each saying where it is."""
        async with Cluster(self.broker.bootstrap) as cluster:
            for key in self.keys:
                for first in range(0, count, batch):
                    records = [NewRecord(b"%d" % number) for number in range(first, min(count, first + batch))]
                    await produce(cluster, key.topic, key.partition, records)

    async def committed(self) -> dict[int, int]:
        async with Cluster(self.broker.bootstrap) as cluster:
            told = (await group_offsets(cluster, [self.group]))[self.group]
            assert isinstance(told, dict), told
            return {key.partition: each.offset for key, each in told.items()}

    async def describe(self) -> GroupDescription:
        async with Cluster(self.broker.bootstrap) as cluster:
            told = (await describe_groups(cluster, [self.group]))[self.group]
            assert isinstance(told, GroupDescription), told
            return told


async def read(consumer: Consumer[Any, Any], count: int, **options: Any) -> list[Message[Any, Any]]:
    """So many messages, by as many polls as that takes."""
    messages: list[Message[Any, Any]] = []
    while len(messages) < count:
        messages += await consumer.poll(**options)
    return messages


def values(messages: Sequence[Message[Any, Any]]) -> list[Any]:
    return [message.value for message in messages]


def places(messages: Sequence[Message[Any, Any]]) -> list[tuple[int, int]]:
    return [(message.partition, message.offset) for message in messages]


async def eventually(ask: Callable[[], Awaitable[Any]], expected: Any) -> None:
    while (await ask()) != expected:
        await asyncio.sleep(0.01)


async def polling_until(condition: Callable[[], object], *consumers: Consumer[Any, Any]) -> list[Message[Any, Any]]:
    """Poll all of them, as applications do; returns what came meanwhile."""
    messages: list[Message[Any, Any]] = []
    while not condition():
        for came in await asyncio.gather(*(each.poll(timeout_ms=20) for each in consumers)):
            messages += came
    return messages


async def balanced(stage: Stage, *consumers: Consumer[Any, Any]) -> list[Message[Any, Any]]:
    """Poll until each partition is one consumer's, and as equally as can be."""

    def is_balanced() -> bool:
        counts = [len(each.assignment) for each in consumers]
        owned = [key for each in consumers for key in each.assignment]
        return sorted(owned) == stage.keys and max(counts) - min(counts) <= 1

    return await polling_until(is_balanced, *consumers)
