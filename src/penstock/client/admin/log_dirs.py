"""`describe_log_dirs` asks every broker for its data folders, and for the sizes of the replicas in them."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.client.admin.brokers import describe_cluster
from penstock.client.cluster.cluster import Cluster, Terms
from penstock.client.errors import ClientError, broker_error
from penstock.client.metadata import Broker, TopicPartition
from penstock.protocol.schemas.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse


class Compaction(NamedTuple):
    """How much of a compacted partition has one value for each key, and how much waits for that."""

    clean_bytes: int
    dirty_bytes: int


@dataclass(slots=True, frozen=True)
class LogDir:
    """A data folder of a broker: the sizes of the replicas in it, and of its disk (-1 from older brokers). `compaction`
    has an entry for each replica of a compacted topic; only Penstock's brokers report it."""

    path: str
    sizes: Mapping[TopicPartition, int]
    total_bytes: int
    usable_bytes: int
    error: ClientError | None = None
    compaction: Mapping[TopicPartition, Compaction] = field(default_factory=dict)


async def describe_log_dirs(
    cluster: Cluster,
    *,
    partitions: Iterable[TopicPartition] | None = None,
    timeout_ms: int | None = None,
) -> dict[int, list[LogDir] | ClientError]:
    """The data folders of each broker with the replicas in them: all, or those of `partitions`."""
    topics = None
    if partitions is not None:
        wanted: dict[str, list[int]] = {}
        for key in partitions:
            wanted.setdefault(key.topic, []).append(key.partition)
        topics = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in wanted.items()]
    request = DescribeLogDirsRequest(topics=topics, compaction=True)

    async def ask(broker: Broker) -> list[LogDir] | ClientError:
        try:
            return await cluster.request(request, _read_log_dirs, to=broker.id, terms=Terms(timeout_ms=timeout_ms))
        except ClientError as error:
            return error

    brokers = (await describe_cluster(cluster, timeout_ms=timeout_ms)).brokers
    async with asyncio.TaskGroup() as group:
        tasks = {broker.id: group.create_task(ask(broker)) for broker in brokers}
    return {number: task.result() for number, task in tasks.items()}


def _read_log_dirs(response: DescribeLogDirsResponse) -> list[LogDir]:
    if response.error_code:
        raise broker_error(response.error_code, "the broker's data folders")
    return [
        LogDir(
            path=told.log_dir,
            sizes={
                TopicPartition(topic.name, each.partition_index): each.partition_size
                for topic in told.topics
                for each in topic.partitions
            },
            total_bytes=told.total_bytes,
            usable_bytes=told.usable_bytes,
            error=broker_error(told.error_code, told.log_dir) if told.error_code else None,
            compaction={
                TopicPartition(topic.name, each.partition_index): Compaction(each.clean_bytes, each.dirty_bytes)
                for topic in told.topics
                for each in topic.partitions
                if each.clean_bytes >= 0
            },
        )
        for told in response.results
    ]
