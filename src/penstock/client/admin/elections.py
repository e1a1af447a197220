"""`elect_leaders` has the controller give partitions another leader: the preferred one, or with no other left one that
may lack committed records. `eligible_leaders` reports the replicas that may lead though they are not in sync."""

from collections.abc import Iterable

from penstock.client.admin.topics import wait_ms_for
from penstock.client.cluster.cluster import Cluster, Route, Terms
from penstock.client.errors import ClientError, UnsendableError, broker_error, outcome, unanswered
from penstock.client.metadata import TopicPartition, read_topic
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)
from penstock.protocol.schemas.topics import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

_PREFERRED = 0
_UNCLEAN = 1


async def elect_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    unclean: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, bool | ClientError]:
    """Let the first replica of each partition lead if it is in sync; `unclean`, and where there is no leader, any that
    is alive. Returns whether each has another leader now. None stands for all partitions, of which those that keep
    their leader are left out."""
    wanted: dict[str, list[int]] = {}
    for key in dict.fromkeys(partitions or ()):
        wanted.setdefault(key.topic, []).append(key.partition)
    request = ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=None
        if partitions is None
        else [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in wanted.items()],
        timeout_ms=wait_ms_for(cluster, timeout_ms),
    )
    # Only version 0 has no type of election.
    versions = Versions(1, 2) if unclean else None
    hold_ms = wait_ms_for(cluster, timeout_ms)
    terms = Terms(versions=versions, repeatable=False, hold_ms=hold_ms, timeout_ms=timeout_ms)
    told = await cluster.request(request, _read_elections, to=Route.CONTROLLER, terms=terms)
    for topic, numbers in wanted.items():
        for number in numbers:
            key = TopicPartition(topic, number)
            told.setdefault(key, unanswered(f"partition {key}"))
    return told


async def leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int]:
    """The leaders of these partitions by what the controller knows, whose elections are in it at once; -1 is none."""
    wanted = list(partitions)
    topics = [MetadataRequestTopic(name=name) for name in dict.fromkeys(key.topic for key in wanted)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response: MetadataResponse = await cluster.request(request, to=Route.CONTROLLER, terms=Terms(timeout_ms=timeout_ms))
    told = {topic.name: {each.index: each.leader for each in read_topic(topic).partitions} for topic in response.topics}
    return {key: told.get(key.topic, {}).get(key.partition, -1) for key in wanted}


async def eligible_leaders(
    cluster: Cluster, topics: Iterable[str] | None = None, *, timeout_ms: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas that are not in sync and have all committed records nevertheless (KIP-966), of each partition of
    these topics, or of all, that has some. Brokers that do not know the request know no such replicas either."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    names = [TopicRequest(name=name) for name in sorted(topics or ())]
    if topics is not None and not names:
        return found
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(topics=names, cursor=cursor)
        try:
            response: DescribeTopicPartitionsResponse = await cluster.request(
                request, terms=Terms(timeout_ms=timeout_ms)
            )
        except UnsendableError:
            return {}
        for topic in response.topics:
            for each in topic.partitions:
                if each.eligible_leader_replicas:
                    key = TopicPartition(topic.name or "", each.partition_index)
                    found[key] = tuple(each.eligible_leader_replicas)
        if (after := response.next_cursor) is None:
            return found
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=after.topic_name, partition_index=after.partition_index
        )


def _read_elections(response: ElectLeadersResponse) -> dict[TopicPartition, bool | ClientError]:
    if response.error_code and not response.replica_election_results:
        raise broker_error(response.error_code, "the election")
    told: dict[TopicPartition, bool | ClientError] = {}
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            key = TopicPartition(topic.topic, each.partition_id)
            if each.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                told[key] = False
            else:
                told[key] = outcome(each.error_code, f"partition {key}", each.error_message, True)
    return told
