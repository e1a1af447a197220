"""Metadata 0 to 13, DescribeTopicPartitions 0, DescribeCluster 0 to 2: who is there, what exists, who leads it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.broker.call import Call
from penstock.broker.router import Router
from penstock.machines.cluster import PartitionImage, TopicImage
from penstock.machines.decisions import Refused
from penstock.machines.topic_names import INTERNAL
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID, Message
from penstock.protocol.schemas.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from penstock.protocol.schemas.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()
_MAX_DESCRIBED_PARTITIONS = 2000


@router.handles(MetadataRequest, versions=(0, 13))
async def metadata(broker: "Broker", call: Call, request: MetadataRequest) -> Message:
    # In version 0 no topics means all of them; later null does, and an empty list means none.
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        topics = [_topic(topic) for topic in broker.image.topics.values()]
    else:
        assert request.topics is not None
        may_create = request.allow_auto_topic_creation if call.version >= 4 else True
        topics = [
            await _asked_topic(broker, topic.name, topic.topic_id, may_create=may_create) for topic in request.topics
        ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.advertised_brokers(call)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
    )


async def _asked_topic(
    broker: "Broker", name: str | None, topic_id: bytes, *, may_create: bool
) -> MetadataResponseTopic:
    if name is None:
        known = broker.image.topics_by_id.get(topic_id)
        if known is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return _topic(known)
    known = broker.image.topics.get(name)
    may_create = may_create and name not in INTERNAL and broker.config.boolean("auto.create.topics.enable")
    if known is None and may_create:
        outcome = await broker.create_topic(name)
        if isinstance(outcome, Refused) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            return MetadataResponseTopic(error_code=outcome.code, name=name)
        known = broker.image.topics.get(name)
    if known is None:
        refusal = broker.check_topic_name(name)
        return MetadataResponseTopic(error_code=refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
    return _topic(known)


def _topic(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=_offline(partition),
            )
            for partition in topic.partitions
        ],
    )


def _offline(partition: PartitionImage) -> Sequence[int]:
    return partition.replicas if partition.leader < 0 else ()


@router.handles(DescribeTopicPartitionsRequest, versions=(0, 0))
def describe_topic_partitions(broker: "Broker", call: Call, request: DescribeTopicPartitionsRequest) -> Message:
    names = sorted({topic.name for topic in request.topics}) if request.topics else sorted(broker.image.topics)
    limit = min(request.response_partition_limit, _MAX_DESCRIBED_PARTITIONS)
    if limit <= 0:
        limit = _MAX_DESCRIBED_PARTITIONS
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        first = request.cursor.partition_index if names and names[0] == request.cursor.topic_name else 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if limit == 0:
            return _described_up_to(topics, name, first)
        topic = broker.image.topics.get(name)
        if topic is None:
            code = broker.check_topic_name(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID))
            continue
        shown = topic.partitions[max(first, 0) : max(first, 0) + limit]
        topics.append(_described(topic, shown))
        limit -= len(shown)
        behind = max(first, 0) + len(shown)
        first = 0
        if behind < len(topic.partitions):
            return _described_up_to(topics, name, behind)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


def _described_up_to(
    topics: list[DescribeTopicPartitionsResponseTopic], name: str, partition: int
) -> DescribeTopicPartitionsResponse:
    cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=partition)
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _described(topic: TopicImage, partitions: Iterable[PartitionImage]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                # Java's admin client does not take null for these two.
                eligible_leader_replicas=partition.elr,
                last_known_elr=(),
                offline_replicas=_offline(partition),
            )
            for partition in partitions
        ],
    )


@router.handles(DescribeClusterRequest, versions=(0, 2))
def describe_cluster(broker: "Broker", call: Call, request: DescribeClusterRequest) -> Message:
    if request.endpoint_type != 1:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker: ask for endpoint type 1",
            endpoint_type=request.endpoint_type,
        )
    return DescribeClusterResponse(
        endpoint_type=1,
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.advertised_brokers(call)
        ],
    )
