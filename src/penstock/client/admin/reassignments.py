"""Administration of replicas: these functions say which brokers partitions are to be on, and which of those do not have
everything yet."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.client.admin.brokers import describe_cluster
from penstock.client.admin.topics import wait_ms_for
from penstock.client.cluster.cluster import Cluster, Route, Terms
from penstock.client.errors import ClientError, broker_error, outcome, unanswered
from penstock.client.metadata import TopicPartition
from penstock.machines.placement import extend
from penstock.protocol.schemas.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


@dataclass(slots=True, frozen=True)
class Reassignment:
    """A partition whose replicas are being changed: all of them, those that come, and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def alter_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int]], *, timeout_ms: int | None = None
) -> dict[TopicPartition, ClientError | None]:
    """Let partitions be on these brokers, the preferred leader first. Penstock can add replicas, and not remove any
    yet. They are copied after the answer: `list_reassignments` has those that are not done."""

    def read(response: AlterPartitionReassignmentsResponse) -> dict[TopicPartition, ClientError | None]:
        if response.error_code:
            raise broker_error(response.error_code, "replicas", response.error_message)
        return {
            (key := TopicPartition(topic.name, each.partition_index)): outcome(
                each.error_code, f"the replicas of {key}", each.error_message, None
            )
            for topic in response.responses
            for each in topic.partitions
        }

    topics: dict[str, list[ReassignablePartition]] = {}
    for key, replicas in targets.items():
        wanted = ReassignablePartition(partition_index=key.partition, replicas=list(replicas))
        topics.setdefault(key.topic, []).append(wanted)
    wait_ms = wait_ms_for(cluster, timeout_ms)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=wait_ms,
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    terms = Terms(repeatable=False, hold_ms=wait_ms, timeout_ms=timeout_ms)
    answers = await cluster.request(request, read, to=Route.CONTROLLER, terms=terms)
    return {key: answers.get(key, unanswered(f"the replicas of {key}")) for key in targets}


async def list_reassignments(
    cluster: Cluster, partitions: Sequence[TopicPartition] | None = None, *, timeout_ms: int | None = None
) -> dict[TopicPartition, Reassignment]:
    """Those of the partitions, or of all that there are, whose replicas are being changed."""

    def read(response: ListPartitionReassignmentsResponse) -> dict[TopicPartition, Reassignment]:
        if response.error_code:
            raise broker_error(response.error_code, "replicas", response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }

    topics: dict[str, list[int]] = {}
    for key in partitions or ():
        topics.setdefault(key.topic, []).append(key.partition)
    named = [ListPartitionReassignmentsTopics(name=name, partition_indexes=each) for name, each in topics.items()]
    request = ListPartitionReassignmentsRequest(
        timeout_ms=wait_ms_for(cluster, timeout_ms), topics=None if partitions is None else named
    )
    return await cluster.request(request, read, to=Route.CONTROLLER, terms=Terms(timeout_ms=timeout_ms))


async def plan_replication_factor(
    cluster: Cluster, topic: str, factor: int, *, timeout_ms: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Where the partitions of a topic would be with this many replicas: of those that would change, and each also where
    it is now. New replicas go to other racks, and to brokers that have few."""
    if factor < 1:
        raise ValueError(f"a partition has one replica or more, not {factor}")
    found = await cluster.topic(topic, fresh=True, timeout_ms=timeout_ms)
    brokers = (await describe_cluster(cluster, timeout_ms=timeout_ms)).brokers
    if factor > len(brokers):
        raise ClientError(
            f"topic {topic!r} cannot have {factor} replicas, as each needs a broker: "
            f"{len(brokers)} {'is' if len(brokers) == 1 else 'are'} alive"
        )
    everything = await cluster.all_topics(timeout_ms=timeout_ms)
    held = Counter(replica for each in everything for partition in each.partitions for replica in partition.replicas)
    present = [partition.replicas for partition in found.partitions]
    racks = {broker.id: broker.rack for broker in brokers}
    return {
        TopicPartition(topic, partition.index): replicas[:factor]
        for partition, replicas in zip(found.partitions, extend(present, factor, racks, held=held), strict=True)
        if replicas[:factor] != partition.replicas
    }
