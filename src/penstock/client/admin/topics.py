"""Administration of topics: these functions create, list, describe and delete them, and add partitions.

Functions that take several things report the outcome of each, which for a failed one is its error; `errors.unwrap`
raises it. A request that changes the cluster is never sent twice: when it is unknown whether a broker has carried it
out, the error says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.client.cluster.cluster import Cluster, Route, Terms
from penstock.client.errors import ClientError, topic_outcome, unanswered
from penstock.client.metadata import Topic
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

V = TypeVar("V")


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
    """A topic as it was created. Brokers before Kafka 2.4 leave the numbers out (-1)."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


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

    wait_ms = wait_ms_for(cluster, timeout_ms)
    request = CreateTopicsRequest(topics=wanted, timeout_ms=wait_ms, validate_only=validate_only)
    names = [topic.name for topic in wanted]
    return await _change(cluster, request, read, names=names, timeout_ms=timeout_ms)


async def list_topics(cluster: Cluster, *, timeout_ms: int | None = None) -> list[Topic]:
    """All topics that the client may see, by name, including internal ones."""
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
    request = DeleteTopicsRequest(topic_names=listed, timeout_ms=wait_ms_for(cluster, timeout_ms))
    # From version 6 on the names stand in another field, beside ids, which are not needed here.
    versions = Versions(1, 5)
    return await _change(cluster, request, read, names=listed, timeout_ms=timeout_ms, versions=versions)


async def add_partitions(
    cluster: Cluster, totals: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
) -> dict[str, ClientError | None]:
    """Raise the number of each topic's partitions to a total. Keys may then go to other partitions than before."""

    def read(response: CreatePartitionsResponse) -> dict[str, ClientError | None]:
        return {
            told.name: topic_outcome(told.name, told.error_code, told.error_message, None) for told in response.results
        }

    wanted = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in totals.items()]
    wait_ms = wait_ms_for(cluster, timeout_ms)
    request = CreatePartitionsRequest(topics=wanted, timeout_ms=wait_ms, validate_only=validate_only)
    return await _change(cluster, request, read, names=totals, timeout_ms=timeout_ms)


def wait_ms_for(cluster: Cluster, timeout_ms: int | None) -> int:
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
    hold_ms = wait_ms_for(cluster, timeout_ms)
    terms = Terms(versions=versions, repeatable=False, hold_ms=hold_ms, timeout_ms=timeout_ms)
    answers: dict[str, V | ClientError]
    try:
        answers = await cluster.request(request, read, to=Route.CONTROLLER, terms=terms)
    except ClientError as error:
        answers = dict.fromkeys(names, error)
    outcomes = {name: answers.get(name, unanswered(f"topic {name!r}")) for name in names}
    return await cluster.with_near_names(outcomes)
