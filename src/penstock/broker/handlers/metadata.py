"""Handlers of Metadata 0 to 13, DescribeTopicPartitions 0 and DescribeCluster 0 to 2 report brokers and topics.

Metadata may ask not to create topics from version 4 on, and adds offline replicas in 5 (KIP-112), the leader's epoch in
7 (KIP-320), topics by id in 10 to 12 (KIP-516), and an error for the whole in 13 (KIP-1102). DescribeTopicPartitions
has pages (KIP-966). DescribeCluster adds the type of endpoint in 1 (KIP-919) and fenced brokers in 2 (KIP-1073).
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.broker.cluster.metadata_pieces import Piece, flawed, make_piece, write_reply
from penstock.broker.network.call import Call
from penstock.broker.pacing import Pace, ReplyTooLargeError, Written
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines.cluster import PartitionImage, TopicImage
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
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

router = Router()
# Topics that one request creates. The next one creates more: clients ask again about topics that are missing.
MAX_CREATED_TOPICS: Final = 100
_MAX_DESCRIBED_PARTITIONS: Final = 2000
# Versions 10 and 11 have ids of topics in requests, too, which clients may not use yet.
FIRST_VERSION_BY_ID: Final = 12


@router.handles(MetadataRequest, versions=(0, 13))
async def metadata(services: Services, call: Call, request: MetadataRequest) -> Message | Written:
    pace = services.pacing.pace(call)
    # In version 0 no topics means all of them; later null does, and an empty list means none.
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    topics = _Topics(services, call, pace)
    if not wants_all and call.version < FIRST_VERSION_BY_ID and any(map(_goes_by_id, request.topics or ())):
        # Kafka answers none either: these versions have no null for a name.
        for name, _ in await pace.count((topic.name, topic.topic_id) for topic in request.topics or ()):
            await topics.refuse(MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name or ""))
    elif wants_all:
        for known in list(services.image.topics.values()):
            await topics.add(known)
    else:
        assert request.topics is not None
        creation = _Creation(services, allowed=request.allow_auto_topic_creation if call.version >= 4 else True)
        # A topic that is named twice is answered once, as by Kafka.
        for name, topic_id in await pace.count((topic.name, topic.topic_id) for topic in request.topics):
            await _add_asked(services, name, topic_id, creation, topics)
            await pace.spend()
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in services.advertised_brokers(call)
        ],
        cluster_id=services.cluster_id,
        controller_id=services.controller_id,
    )
    chunks = write_reply(call, response, topics.pieces)
    response.topics = flawed(topics.pieces)
    return Written(response, chunks)


class _Topics:
    """What a reply says of topics, in the making."""

    def __init__(self, services: Services, call: Call, pace: Pace) -> None:
        self._kept = services.metadata_pieces
        self._version = call.version
        self._pace = pace
        self._max_bytes = services.pacing.max_reply_bytes
        self._bytes = 0
        self.pieces: list[Piece] = []

    async def add(self, topic: TopicImage) -> None:
        """Say what there is to say of a topic that exists."""
        kept = self._kept
        piece = kept.get(topic.topic_id, self._version)
        if piece is None:
            drops = kept.drops
            piece = await self._make(await _topic(topic, self._pace))
            kept.keep(topic.topic_id, self._version, piece, drops=drops)
        self._take(piece)
        await self._pace.spend()

    async def refuse(self, topic: MetadataResponseTopic) -> None:
        self._take(await self._make(topic))

    async def _make(self, topic: MetadataResponseTopic) -> Piece:
        steps = make_piece(topic, self._version)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                piece: Piece = end.value
                return piece
            await self._pace.turn()

    def _take(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self._bytes += len(piece.data)
        if self._bytes > self._max_bytes:
            raise ReplyTooLargeError(
                f"a reply to Metadata would have more than {self._max_bytes} bytes (penstock.reply.max.bytes): ask "
                "about fewer things at a time"
            )


def _goes_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or topic.topic_id != ZERO_UUID


class _Creation:
    """Makes topics that a request asks for and that do not exist, up to a number."""

    def __init__(self, services: Services, *, allowed: bool) -> None:
        self._services = services
        self._left = MAX_CREATED_TOPICS if allowed and services.config.boolean("auto.create.topics.enable") else 0

    async def create(self, name: str) -> ErrorCode | None:
        """Create a topic if it may be; returns the error if that failed."""
        if name in INTERNAL or self._left == 0 or self._services.check_topic_name(name):
            return None
        self._left -= 1
        outcome = await self._services.create_topic(name)
        return None if outcome is None or outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS else outcome.code


async def _add_asked(
    services: Services, name: str | None, topic_id: bytes, creation: _Creation, topics: _Topics
) -> None:
    if name is None:
        known = services.image.topics_by_id.get(topic_id)
        if known is None:
            unknown = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
            await topics.refuse(unknown)
        else:
            await topics.add(known)
        return
    code = None if name in services.image.topics else await creation.create(name)
    known = services.image.topics.get(name)
    if known is None:
        code = code or services.check_topic_name(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await topics.refuse(MetadataResponseTopic(error_code=code, name=name))
    else:
        await topics.add(known)


async def _topic(topic: TopicImage, pace: Pace) -> MetadataResponseTopic:
    partitions = []
    for partition in topic.partitions:
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=_offline(partition),
            )
        )
        await pace.spend()
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.name in INTERNAL, partitions=partitions
    )


def _offline(partition: PartitionImage) -> Sequence[int]:
    return partition.replicas if partition.leader < 0 else ()


@router.handles(DescribeTopicPartitionsRequest, versions=(0, 0))
async def describe_topic_partitions(
    services: Services, call: Call, request: DescribeTopicPartitionsRequest
) -> Message | Written:
    pace = services.pacing.pace(call)
    asked = await pace.count(topic.name for topic in request.topics) if request.topics else services.image.topics
    names = sorted(asked)
    limit = min(request.response_partition_limit, _MAX_DESCRIBED_PARTITIONS)
    if limit <= 0:
        limit = _MAX_DESCRIBED_PARTITIONS
    first = 0
    if request.cursor is not None:
        del names[: bisect_left(names, request.cursor.topic_name)]
        first = request.cursor.partition_index if names and names[0] == request.cursor.topic_name else 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if limit == 0:
            return await pace.reply(_described_up_to(topics, name, first))
        await pace.spend()
        topic = services.image.topics.get(name)
        if topic is None:
            code = services.check_topic_name(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID))
            continue
        shown = topic.partitions[max(first, 0) : max(first, 0) + limit]
        topics.append(_described(topic, shown))
        await pace.spend(len(shown))
        limit -= len(shown)
        behind = max(first, 0) + len(shown)
        first = 0
        if behind < len(topic.partitions):
            return await pace.reply(_described_up_to(topics, name, behind))
    return await pace.reply(DescribeTopicPartitionsResponse(topics=topics, next_cursor=None))


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
def describe_cluster(services: Services, call: Call, request: DescribeClusterRequest) -> Message:
    if request.endpoint_type != 1:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker: ask for endpoint type 1",
            endpoint_type=request.endpoint_type,
        )
    return DescribeClusterResponse(
        endpoint_type=1,
        cluster_id=services.cluster_id,
        controller_id=services.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack, is_fenced=not node.is_alive
            )
            for node in services.advertised_brokers(call, also_fenced=request.include_fenced_brokers)
        ],
    )
