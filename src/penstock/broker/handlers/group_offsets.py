"""OffsetCommit 2 to 10, OffsetFetch 1 to 10, OffsetDelete 0: how far groups are.

From version 10 on topics come by id. Until version 7 an OffsetFetch asks about one group, from 8 on about many.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.broker.call import Call
from penstock.broker.router import LATER, Router
from penstock.machines.groups.responses import Request
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()
NO_OFFSET: Final = -1
T = TypeVar("T", OffsetCommitRequestTopic, OffsetFetchRequestTopics)


# OffsetCommit


@router.handles(OffsetCommitRequest, versions=(2, 10))
def offset_commit(broker: "Broker", call: Call, request: OffsetCommitRequest) -> object:
    request.topics, unknown = _fill_in(broker, request.topics, by_id=call.version >= 10)
    code = ErrorCode.UNKNOWN_TOPIC_ID if call.version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = [_uncommitted(topic, code) for topic in unknown]
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    waiter = _WithRefused(call, refused) if refused else None
    broker.groups.submit(request.group_id, request, call, waiter=waiter)
    return LATER


def _fill_in(broker: "Broker", topics: Sequence[T], *, by_id: bool) -> tuple[list[T], list[T]]:
    """Give topics the name or the id that they came without; returns those that exist and those that do not."""
    image = broker.image
    found: list[T] = []
    unknown: list[T] = []
    for topic in topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None:
            unknown.append(topic)
        else:
            topic.name, topic.topic_id = known.name, known.topic_id
            found.append(topic)
    return found, unknown


def _uncommitted(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )


@dataclass(slots=True, eq=False)
class _WithRefused:
    """Adds the topics that were refused at once to the reply that comes for the others."""

    call: Call
    refused: list[Any]

    def reply(self, response: Message) -> None:
        assert isinstance(response, OffsetCommitResponse | OffsetDeleteResponse)
        # An OffsetDelete that failed as a whole names no topics.
        if isinstance(response, OffsetCommitResponse) or not response.error_code:
            response.topics = [*response.topics, *self.refused]
        self.call.reply(response)

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        """It waits for the log alone."""


# OffsetFetch


@router.handles(OffsetFetchRequest, versions=(1, 10))
def offset_fetch(broker: "Broker", call: Call, request: OffsetFetchRequest) -> object:
    if call.version < 8:
        group = _as_group(request)
        _fill_in(broker, group.topics or (), by_id=False)
        broker.groups.submit(group.group_id, group, call, waiter=_OldFetch(call, group))
        return LATER
    by_id = call.version >= 10
    unknown: list[list[OffsetFetchRequestTopics]] = []
    submitted: list[tuple[str, Request]] = []
    for group in request.groups:
        missing: list[OffsetFetchRequestTopics] = []
        if group.topics is not None:
            known, missing = _fill_in(broker, group.topics, by_id=by_id)
            # A name that is no topic's is asked about all the same: it has no offsets, and that is no error.
            group.topics = known if by_id else group.topics
        unknown.append(missing if by_id else [])
        submitted.append((group.group_id, group))

    def finish(groups: list[Any]) -> None:
        for group, missing in zip(groups, unknown, strict=True):
            if by_id:
                group.topics = _with_ids(broker, group.topics)
            if missing and not group.error_code:
                group.topics = [*group.topics, *map(_unknown_topic, missing)]
        call.reply(OffsetFetchResponse(groups=groups))

    broker.groups.submit_each(submitted, call, finish)
    return LATER


def _with_ids(broker: "Broker", topics: Sequence[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """A topic without an id, since it is gone, cannot be told of."""
    named = [(topic, broker.image.topics.get(topic.name)) for topic in topics]
    for topic, known in named:
        if known is not None:
            topic.topic_id = known.topic_id
    return [topic for topic, known in named if known is not None]


def _unknown_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in topic.partition_indexes
        ],
    )


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """A request about one group, as later versions ask about each of many."""
    topics = request.topics
    if topics is None:
        return OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=[
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics
        ],
    )


@dataclass(slots=True, eq=False)
class _OldFetch:
    """Puts the reply about a group into the form of versions 1 to 7."""

    call: Call
    asked: OffsetFetchRequestGroup

    def reply(self, response: Message) -> None:
        assert isinstance(response, OffsetFetchResponseGroup)
        code = response.error_code
        if code and self.call.version < 2:
            # There is no place for it but beside each offset.
            topics = [
                OffsetFetchResponseTopic(
                    name=topic.name, partitions=[_old_partition(index, code) for index in topic.partition_indexes]
                )
                for topic in self.asked.topics or ()
            ]
        else:
            topics = [
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=partition.partition_index,
                            committed_offset=partition.committed_offset,
                            committed_leader_epoch=partition.committed_leader_epoch,
                            metadata=partition.metadata,
                            error_code=partition.error_code,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in response.topics
            ]
        self.call.reply(OffsetFetchResponse(topics=topics, error_code=code))

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        """It waits for the log alone."""


def _old_partition(index: int, code: int) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)


# OffsetDelete


@router.handles(OffsetDeleteRequest, versions=(0, 0))
def offset_delete(broker: "Broker", call: Call, request: OffsetDeleteRequest) -> object:
    refused = [_undeleted(topic) for topic in request.topics if topic.name not in broker.image.topics]
    request.topics = [topic for topic in request.topics if topic.name in broker.image.topics]
    if refused and not request.topics:
        return OffsetDeleteResponse(topics=refused)
    waiter = _WithRefused(call, refused) if refused else None
    broker.groups.submit(request.group_id, request, call, waiter=waiter)
    return LATER


def _undeleted(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for partition in topic.partitions
        ],
    )
