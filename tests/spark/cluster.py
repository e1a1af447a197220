"""A broker with topics, as the tests of the source want to have it: records in, and things that happen to a log."""

import asyncio
import itertools
from collections.abc import Iterable

from penstock.client.admin.group_offsets import group_offsets
from penstock.client.admin.offsets import EARLIEST, delete_records, list_offsets
from penstock.client.admin.topics import add_partitions, delete_topics
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord
from penstock.spark.link import connect
from penstock.spark.options import Mode, SourceOptions, read_options
from penstock.testing import Broker
from tests.client.one_batch import produce

_numbers = itertools.count(1)


class TestCluster:
    """Topics have names of their own in each test."""

    __test__ = False

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.link = connect({"bootstrap.servers": broker.bootstrap})
        self.cluster = self.link.cluster

    def create(self, name: str, partitions: int = 1, **configs: object) -> str:
        unique = f"{name}-{next(_numbers)}"
        self.broker.create_topic(unique, partitions, configs)
        return unique

    def send(
        self, topic: str, values: Iterable[str | NewRecord], partition: int = 0, *, codec: Codec = Codec.NONE
    ) -> int:
        """One batch; returns the offset of its first record."""
        records = [each if isinstance(each, NewRecord) else NewRecord(each.encode()) for each in values]
        return self.link.run(produce(self.cluster, topic, partition, records, codec=codec))

    def send_count(self, topic: str, count: int, partition: int = 0, *, batch: int = 100) -> None:
        """So many records with their number in the partition as value, in batches."""
        for start in range(0, count, batch):
            self.send(topic, [str(number) for number in range(start, min(start + batch, count))], partition)

    def delete_topic(self, topic: str) -> None:
        unwrap(self.link.run(delete_topics(self.cluster, [topic])))

    def add_partitions(self, topic: str, total: int) -> None:
        unwrap(self.link.run(add_partitions(self.cluster, {topic: total})))

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        unwrap(self.link.run(delete_records(self.cluster, {TopicPartition(topic, partition): before})))

    def first_offset(self, topic: str, partition: int = 0) -> int:
        key = TopicPartition(topic, partition)
        return unwrap(self.link.run(list_offsets(self.cluster, {key: EARLIEST})))[key].offset

    def committed(self, group: str) -> dict[TopicPartition, int]:
        told = unwrap(self.link.run(group_offsets(self.cluster, [group])))[group]
        return {key: each.offset for key, each in told.items()}

    def sweep(self) -> None:
        """Have retention look at all partitions, now."""
        stage = self.broker._open_stage()
        stage.host.run(self.broker._production().upkeep.housekeeping.sweep())

    def compact(self, topic: str) -> None:
        """Compact what is due, once the disk has it."""
        production = self.broker._production()
        log = production.services.partitions.get(topic, 0).log  # type: ignore[union-attr]

        async def compact() -> bool:
            while log.recovery_point < log.segments[-1].base_offset:
                await asyncio.sleep(0.001)
            return await production.upkeep.compacting.compact_next()

        assert self.broker._open_stage().host.run(compact())

    def options(self, mode: Mode = "batch", /, **options: str) -> SourceOptions:
        """Of a source that reads here; dots are written as two underscores."""
        named = {name.replace("__", "."): value for name, value in options.items()}
        if mode == "streaming":
            named.setdefault("startingOffsets", "earliest")
        return read_options({"kafka.bootstrap.servers": self.bootstrap, **named}, mode)
