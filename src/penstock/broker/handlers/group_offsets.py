"""Handlers of OffsetCommit 2 to 10 and OffsetDelete 0 store and delete how far groups are.

OffsetCommit drops the retention time in version 5 (KIP-211), and adds the leader's epoch in 6 (KIP-320), the instance
id in 7 (KIP-345), members of the new protocol in 9 and topics by id in 10 (both KIP-848).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.broker.network.call import Call
from penstock.broker.pacing import Pace
from penstock.broker.router import LATER, Router
from penstock.broker.services import Services
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

router = Router()


# OffsetCommit


@router.handles(OffsetCommitRequest, versions=(2, 10))
def offset_commit(services: Services, call: Call, request: OffsetCommitRequest) -> object:
    known, unknown = _fill_in(services, request.topics, by_id=call.version >= 10)
    code = ErrorCode.UNKNOWN_TOPIC_ID if call.version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = [_uncommitted(topic, topic.partitions, code) for topic in unknown]
    for topic in known:
        topic.partitions, missing = _existing(services, topic.name, topic.partitions)
        if missing:
            refused.append(_uncommitted(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    request.topics = [topic for topic in known if topic.partitions]
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    waiter = _WithRefused(call, refused) if refused else None
    services.groups.submit(request.group_id, request, call, waiter=waiter)
    return LATER


def _fill_in(
    services: Services, topics: Sequence[OffsetCommitRequestTopic], *, by_id: bool
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitRequestTopic]]:
    """Give topics the name or the id that they came without; returns those that exist and those that do not."""
    image = services.image
    found: list[OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitRequestTopic] = []
    for topic in topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None:
            unknown.append(topic)
        else:
            topic.name, topic.topic_id = known.name, known.topic_id
            found.append(topic)
    return found, unknown


def _existing(
    services: Services, topic: str, partitions: Sequence[OffsetCommitRequestPartition]
) -> tuple[Sequence[OffsetCommitRequestPartition], Sequence[OffsetCommitRequestPartition]]:
    """The partitions of a topic that exist, and those that do not."""
    count = len(services.image.topics[topic].partitions)
    missing = [partition for partition in partitions if not 0 <= partition.partition_index < count]
    if not missing:
        return partitions, ()
    return [partition for partition in partitions if 0 <= partition.partition_index < count], missing


def _uncommitted(
    topic: OffsetCommitRequestTopic, partitions: Sequence[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in partitions
        ],
    )


@dataclass(slots=True, eq=False)
class _WithRefused:
    """Adds the topics and partitions that were refused at once to the reply that comes for the others."""

    call: Call
    refused: list[Any]

    def reply(self, response: Message) -> None:
        assert isinstance(response, OffsetCommitResponse | OffsetDeleteResponse)
        # An OffsetDelete that failed as a whole names no topics.
        if isinstance(response, OffsetCommitResponse) or not response.error_code:
            answered = {topic.name for topic in response.topics}
            missing: dict[str, list[Any]] = {}
            for topic in self.refused:
                if topic.name in answered:
                    missing.setdefault(topic.name, []).extend(topic.partitions)
            for topic in response.topics:
                topic.partitions = [*topic.partitions, *missing.pop(topic.name, ())]
            response.topics = [*response.topics, *(topic for topic in self.refused if topic.name not in answered)]
        self.call.reply(response)

    def when_gone(self, forget: Callable[[Any], None]) -> None:
        """Nothing to do: the request waits for the log alone."""


# OffsetDelete


@router.handles(OffsetDeleteRequest, versions=(0, 0))
async def offset_delete(services: Services, call: Call, request: OffsetDeleteRequest) -> object:
    request.topics, refused = await _each_once(services, request.topics, services.pacing.pace(call))
    if refused and not request.topics:
        return OffsetDeleteResponse(topics=refused)
    waiter = _WithRefused(call, refused) if refused else None
    services.groups.submit(request.group_id, request, call, waiter=waiter)
    return LATER


async def _each_once(
    services: Services, topics: Sequence[OffsetDeleteRequestTopic], pace: Pace
) -> tuple[list[OffsetDeleteRequestTopic], list[OffsetDeleteResponseTopic]]:
    """Each partition once, however often it is named: those that exist, and the refusals of those that do not."""
    existing: dict[str, list[OffsetDeleteRequestPartition]] = {}
    refused: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for name, index in await pace.count(
        (topic.name, asked.partition_index) for topic in topics for asked in topic.partitions
    ):
        known = services.image.topics.get(name)
        if known is not None and 0 <= index < len(known.partitions):
            existing.setdefault(name, []).append(OffsetDeleteRequestPartition(partition_index=index))
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.setdefault(name, []).append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        await pace.spend()
    return (
        [OffsetDeleteRequestTopic(name=name, partitions=found) for name, found in existing.items()],
        [OffsetDeleteResponseTopic(name=name, partitions=found) for name, found in refused.items()],
    )
