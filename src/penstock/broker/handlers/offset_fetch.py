"""The handler of OffsetFetch 1 to 10 reports how far groups are.

Version 2 may ask for all topics, 5 adds the leader's epoch (KIP-320), 7 may ask to wait for transactions (KIP-447), 8
asks about many groups (KIP-709), 9 adds members of the new protocol and 10 topics by id (both KIP-848).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.broker.network.call import Call
from penstock.broker.pacing import Pace, Room, Written
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines.cluster import ClusterImage
from penstock.machines.groups.responses import Request
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID, Message
from penstock.protocol.schemas.group_offsets import (
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

router = Router()
NO_OFFSET: Final = -1
# Offsets that a group is asked for in one step. A longer request sees what was committed between its steps.
PARTITIONS_AT_ONCE: Final = 500
# Bytes that an offset and a topic take in a reply, beside the metadata and the name.
_PARTITION_BYTES: Final = 32
_TOPIC_BYTES: Final = 32


@dataclass(slots=True)
class _Asked:
    """What a request wants to know of a group: of each partition once, however often it names it."""

    wants_all: bool = False
    topics: dict[str, dict[int, None]] = field(default_factory=dict)
    unknown_ids: dict[bytes, dict[int, None]] = field(default_factory=dict)


@router.handles(OffsetFetchRequest, versions=(1, 10))
async def offset_fetch(services: Services, call: Call, request: OffsetFetchRequest) -> Message | Written:
    pace = services.pacing.pace(call)
    asked = await _each_once(services, call, request, pace)
    answers = await _ask(services, call, asked, pace)
    room = Room(services.pacing.max_reply_bytes)
    for group_id, group in asked.items():
        answer = answers[group_id]
        if call.version >= 10 and not answer.error_code:
            answer.topics = _with_ids(services.image, answer.topics)
            for topic_id, partitions in group.unknown_ids.items():
                answer.topics.append(_refused_topic("", topic_id, partitions, ErrorCode.UNKNOWN_TOPIC_ID))
                await pace.spend(1 + len(partitions))
        if not room.take(await _size(answer, pace)):
            answers[group_id] = OffsetFetchResponseGroup(group_id=group_id, error_code=ErrorCode.POLICY_VIOLATION)
    if call.version >= 8:
        return await pace.reply(OffsetFetchResponse(groups=list(answers.values())))
    [(group_id, answer)] = answers.items()
    return await pace.reply(await _old_response(call, asked[group_id], answer, pace))


async def _each_once(services: Services, call: Call, request: OffsetFetchRequest, pace: Pace) -> dict[str, _Asked]:
    asked: dict[str, _Asked] = {}
    for group in request.groups if call.version >= 8 else [_as_group(request)]:
        known = asked.setdefault(group.group_id, _Asked())
        known.wants_all |= group.topics is None
        for topic in group.topics or ():
            image = services.image.topics_by_id.get(topic.topic_id) if call.version >= 10 else None
            if call.version >= 10 and image is None:
                partitions = known.unknown_ids.setdefault(topic.topic_id, {})
            else:
                # A name that is no topic's is asked about all the same: it has no offsets, and that is no error.
                partitions = known.topics.setdefault(topic.name if image is None else image.name, {})
            indexes = topic.partition_indexes
            for begin in range(0, len(indexes), PARTITIONS_AT_ONCE):
                partitions |= dict.fromkeys(indexes[begin : begin + PARTITIONS_AT_ONCE])
                await pace.spend()
            await pace.spend()
    return asked


async def _ask(
    services: Services, call: Call, asked: dict[str, _Asked], pace: Pace
) -> dict[str, OffsetFetchResponseGroup]:
    """Ask the groups for what they have committed."""
    pieces: list[tuple[str, Request]] = []
    partitions = 0
    for group_id, group in asked.items():
        topics: Mapping[str, Sequence[int]] | None = {name: list(found) for name, found in group.topics.items()}
        if group.wants_all:
            topics = services.groups.committed_partitions(group_id)
        if topics is None:
            # The group is unknown now: the answer says why.
            pieces.append((group_id, OffsetFetchRequestGroup(group_id=group_id, topics=None)))
        else:
            for piece in _pieces(services.image, topics):
                pieces.append((group_id, OffsetFetchRequestGroup(group_id=group_id, topics=piece)))
                await pace.spend()
            partitions += sum(map(len, topics.values()))
        await pace.spend()
    answers = {group_id: _Answer() for group_id in asked}
    for part in await services.groups.ask_each(pieces, call, pace, items=1 + partitions // max(1, len(pieces))):
        answers[part.group_id].add(part)
        await pace.spend()
    return {
        group_id: answer.response(group_id, only_committed=asked[group_id].wants_all)
        for group_id, answer in answers.items()
    }


class _Answer:
    """What has been found of one group in the steps so far."""

    def __init__(self) -> None:
        self._code = 0
        self._topics: dict[str, list[OffsetFetchResponsePartitions]] = {}

    def add(self, part: OffsetFetchResponseGroup) -> None:
        self._code = self._code or part.error_code
        for topic in part.topics:
            self._topics.setdefault(topic.name, []).extend(topic.partitions)

    def response(self, group_id: str, *, only_committed: bool) -> OffsetFetchResponseGroup:
        """`only_committed`: what was forgotten between two steps is left out, as it was not asked for by its name."""
        if self._code:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=self._code)
        topics = self._topics
        if only_committed:
            topics = {name: [it for it in found if it.committed_offset != NO_OFFSET] for name, found in topics.items()}
        return OffsetFetchResponseGroup(
            group_id=group_id,
            topics=[
                OffsetFetchResponseTopics(name=name, partitions=found)
                for name, found in topics.items()
                if found or not only_committed
            ],
        )


def _pieces(image: ClusterImage, topics: Mapping[str, Sequence[int]]) -> Iterator[list[OffsetFetchRequestTopics]]:
    """The steps of a request, one at least, as the group is asked in any case."""
    piece: list[OffsetFetchRequestTopics] = []
    count = 0
    for name, indexes in topics.items():
        known = image.topics.get(name)
        for begin in range(0, len(indexes) or 1, PARTITIONS_AT_ONCE):
            part = indexes[begin : begin + PARTITIONS_AT_ONCE]
            if count + len(part) + 1 > PARTITIONS_AT_ONCE and piece:
                yield piece
                piece, count = [], 0
            topic_id = ZERO_UUID if known is None else known.topic_id
            piece.append(OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=part))
            count += len(part) + 1
    yield piece


def _with_ids(image: ClusterImage, topics: Sequence[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
    """Give topics their ids; a deleted topic has none, and is left out."""
    named = [(topic, image.topics.get(topic.name)) for topic in topics]
    for topic, known in named:
        if known is not None:
            topic.topic_id = known.topic_id
    return [topic for topic, known in named if known is not None]


async def _size(answer: OffsetFetchResponseGroup, pace: Pace) -> int:
    """About the bytes that an answer takes in a reply."""
    size = _TOPIC_BYTES + len(answer.group_id)
    for topic in answer.topics:
        size += _TOPIC_BYTES + len(topic.name)
        for partition in topic.partitions:
            size += _PARTITION_BYTES + len(partition.metadata or "")
            await pace.spend()
        await pace.spend()
    return size


# Versions 1 to 7


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """A request about one group, as later versions ask about each of many."""
    if request.topics is None:
        return OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=[
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ],
    )


async def _old_response(call: Call, asked: _Asked, answer: OffsetFetchResponseGroup, pace: Pace) -> OffsetFetchResponse:
    found, code = answer.topics, answer.error_code
    if code and call.version < 2:
        # These versions have a place for the error only beside each offset.
        found = [_refused_topic(name, ZERO_UUID, partitions, code) for name, partitions in asked.topics.items()]
    topics = []
    for topic in found:
        partitions = []
        for partition in topic.partitions:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
            )
            await pace.spend()
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=topics, error_code=code)


def _refused_topic(name: str, topic_id: bytes, partitions: Iterable[int], code: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=code)
            for index in partitions
        ],
    )
