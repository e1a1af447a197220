"""Administration: topics, configs, offsets, and what the cluster consists of.

Functions that take many things tell the outcome of each, which for a failed one is its error; `errors.unwrap` raises
it. What changes the cluster is never sent twice: when it is unknown whether a broker has carried it out, the error says
so.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from penstock.client.cluster import Cluster, Route, Target, Terms
from penstock.client.errors import ClientError, broker_error, outcome, topic_outcome, unanswered
from penstock.client.metadata import Broker, Topic, TopicPartition
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.schemas.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

V = TypeVar("V")

# Instead of a timestamp, in `list_offsets`.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

# Instead of an offset, in `delete_records`.
HIGH_WATERMARK = -1


@dataclass(slots=True, frozen=True, kw_only=True)
class NewTopic:
    """A topic to be made; -1 leaves a number to the broker. With an assignment (the replicas of each partition, the
    leader first) both numbers follow from it.

    >>> NewTopic(name="orders", partitions=3, configs={"retention.ms": "3600000"}).partitions
    3
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class CreatedTopic:
    """What a new topic has become. Brokers before Kafka 2.4 leave the numbers out (-1)."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


class ListedOffset(NamedTuple):
    """`offset` is -1 if no record is as young as the timestamp asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(slots=True, frozen=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]


class Compaction(NamedTuple):
    """How much of a compacted partition has one value for each key, and how much waits for that."""

    clean_bytes: int
    dirty_bytes: int


@dataclass(slots=True, frozen=True)
class LogDir:
    """A data folder of a broker: the sizes of the replicas in it, and of its disk (-1 from older brokers); how those of
    compacted topics are, which Penstock's brokers alone tell."""

    path: str
    sizes: Mapping[TopicPartition, int]
    total_bytes: int
    usable_bytes: int
    error: ClientError | None = None
    compaction: Mapping[TopicPartition, Compaction] = field(default_factory=dict)


async def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
) -> dict[str, CreatedTopic | ClientError]:
    wanted = [
        CreatableTopic(
            name=topic.name,
            num_partitions=-1 if topic.assignment else topic.partitions,
            replication_factor=-1 if topic.assignment else topic.replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(topic.assignment)
            ],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        for topic in topics
    ]

    def read(response: CreateTopicsResponse) -> dict[str, CreatedTopic | ClientError]:
        return {
            told.name: topic_outcome(
                told.name,
                told.error_code,
                told.error_message,
                CreatedTopic(told.name, told.topic_id, told.num_partitions, told.replication_factor),
            )
            for told in response.topics
        }

    wait_ms = _wait_ms(cluster, timeout_ms)
    request = CreateTopicsRequest(topics=wanted, timeout_ms=wait_ms, validate_only=validate_only)
    names = [topic.name for topic in wanted]
    return await _change(cluster, request, read, names=names, timeout_ms=timeout_ms)


async def list_topics(cluster: Cluster, *, timeout_ms: int | None = None) -> list[Topic]:
    """All topics that we may see, by name, internal ones too."""
    return await cluster.all_topics(timeout_ms=timeout_ms)


async def describe_topics(
    cluster: Cluster, names: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, Topic | ClientError]:
    """The topics as they are now."""
    return await cluster.topics(names, fresh=True, timeout_ms=timeout_ms)


async def delete_topics(
    cluster: Cluster, names: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, ClientError | None]:
    def read(response: DeleteTopicsResponse) -> dict[str, ClientError | None]:
        return {
            told.name: topic_outcome(told.name, told.error_code, told.error_message, None)
            for told in response.responses
            if told.name is not None
        }

    listed = list(names)
    request = DeleteTopicsRequest(topic_names=listed, timeout_ms=_wait_ms(cluster, timeout_ms))
    # From version 6 on the names stand in another field, beside ids, which nobody needs here.
    versions = Versions(1, 5)
    return await _change(cluster, request, read, names=listed, timeout_ms=timeout_ms, versions=versions)


async def add_partitions(
    cluster: Cluster, totals: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
) -> dict[str, ClientError | None]:
    """Give each topic so many partitions in all. Keys may then go to other partitions than before."""

    def read(response: CreatePartitionsResponse) -> dict[str, ClientError | None]:
        return {
            told.name: topic_outcome(told.name, told.error_code, told.error_message, None) for told in response.results
        }

    wanted = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in totals.items()]
    wait_ms = _wait_ms(cluster, timeout_ms)
    request = CreatePartitionsRequest(topics=wanted, timeout_ms=wait_ms, validate_only=validate_only)
    return await _change(cluster, request, read, names=totals, timeout_ms=timeout_ms)


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int | ClientError]:
    """Delete what lies before an offset (`HIGH_WATERMARK`: everything); tells the first offset that is left."""
    wait_ms = _wait_ms(cluster, timeout_ms)

    def request(targets: Sequence[Target]) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=each.partition, offset=offsets[each.key]) for each in group
                ],
            )
            for name, group in _by_topic(targets).items()
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=wait_ms)

    def read(response: DeleteRecordsResponse, _: Sequence[Target]) -> dict[TopicPartition, int | ClientError]:
        return {
            (key := TopicPartition(topic.name, told.partition_index)): outcome(
                told.error_code, str(key), None, told.low_watermark
            )
            for topic in response.topics
            for told in topic.partitions
        }

    terms = Terms(repeatable=False, hold_ms=wait_ms, timeout_ms=timeout_ms)
    return await cluster.request_to_leaders(offsets, request, read, terms=terms)


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    """For each partition the first offset whose record is not older than a timestamp in milliseconds; or, for
    `EARLIEST` the first, for `LATEST` the one behind the last, for `MAX_TIMESTAMP` that of the youngest record. To one
    who reads committed records only, a log ends where its first open transaction begins."""

    def request(targets: Sequence[Target]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=each.partition,
                        current_leader_epoch=each.leader_epoch,
                        timestamp=timestamps[each.key],
                    )
                    for each in group
                ],
            )
            for name, group in _by_topic(targets).items()
        ]
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=int(read_committed), topics=topics, timeout_ms=cluster.request_timeout_ms
        )

    def read(response: ListOffsetsResponse, _: Sequence[Target]) -> dict[TopicPartition, ListedOffset | ClientError]:
        return {
            (key := TopicPartition(topic.name, told.partition_index)): outcome(
                told.error_code, str(key), None, ListedOffset(told.offset, told.timestamp, told.leader_epoch)
            )
            for topic in response.topics
            for told in topic.partitions
        }

    # A broker that does not know what -3 stands for would take it for a timestamp.
    versions = Versions(7, 11) if MAX_TIMESTAMP in timestamps.values() else None
    return await cluster.request_to_leaders(
        timestamps, request, read, terms=Terms(versions=versions, timeout_ms=timeout_ms)
    )


async def describe_cluster(cluster: Cluster, *, timeout_ms: int | None = None) -> ClusterDescription:
    def read(response: DescribeClusterResponse) -> ClusterDescription:
        if response.error_code:
            raise broker_error(response.error_code, "the cluster", response.error_message)
        brokers = sorted(response.brokers, key=lambda told: told.broker_id)
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(Broker(told.broker_id, told.host, told.port, told.rack) for told in brokers),
        )

    return await cluster.request(DescribeClusterRequest(), read, terms=Terms(timeout_ms=timeout_ms))


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


def _wait_ms(cluster: Cluster, timeout_ms: int | None) -> int:
    """How long a broker may work on a change before it answers that it is not done."""
    return min(cluster.request_timeout_ms, cluster.timeout_ms if timeout_ms is None else timeout_ms)


async def _change(
    cluster: Cluster,
    request: Message,
    read: Callable[[Any], dict[str, V | ClientError]],
    *,
    names: Iterable[str],
    timeout_ms: int | None,
    versions: Versions | None = None,
) -> dict[str, V | ClientError]:
    """Have the controller change topics."""
    hold_ms = _wait_ms(cluster, timeout_ms)
    terms = Terms(versions=versions, repeatable=False, hold_ms=hold_ms, timeout_ms=timeout_ms)
    answers: dict[str, V | ClientError]
    try:
        answers = await cluster.request(request, read, to=Route.CONTROLLER, terms=terms)
    except ClientError as error:
        answers = dict.fromkeys(names, error)
    outcomes = {name: answers.get(name, unanswered(f"topic {name!r}")) for name in names}
    return await cluster.with_near_names(outcomes)


def _by_topic(targets: Iterable[Target]) -> dict[str, list[Target]]:
    groups: dict[str, list[Target]] = {}
    for target in targets:
        groups.setdefault(target.topic, []).append(target)
    return groups


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
