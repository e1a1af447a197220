"""Decides about the committed offsets of a group: OffsetCommit, OffsetFetch, OffsetDelete, and when they expire."""

from collections.abc import Iterator
from typing import Final

from penstock.machines.groups.bounds import STRING_BYTES, fits
from penstock.machines.groups.changes import Caller, Change, Decision, Instant, Reply
from penstock.machines.groups.classic import ClassicGroup, State
from penstock.machines.groups.draft import answered
from penstock.machines.groups.records import GroupForgotten, OffsetCommitted, OffsetForgotten
from penstock.machines.groups.responses import commit_refusal
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.syncing import session_extended
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

# A record of an offset takes more than this: a request for more of them than a batch holds need not be looked into.
_LEAST_RECORD_BYTES: Final = 58
_LATEST_MS: Final = 0x7FFF_FFFF_FFFF_FFFF


def commit(
    group: ClassicGroup | None, request: OffsetCommitRequest, caller: Caller, now: Instant, settings: GroupSettings
) -> Decision:
    """Only a member of the present generation may commit, or, while the group has no members, a client that is none."""
    if (code := _commit_error(group, request, caller.version)) is not None:
        return answered(caller.token, commit_refusal(request, code))
    if sum(len(topic.partitions) for topic in request.topics) * _LEAST_RECORD_BYTES > settings.max_record_bytes:
        return answered(caller.token, commit_refusal(request, ErrorCode.INVALID_COMMIT_OFFSET_SIZE))
    changes: list[Change] = []
    if group is not None and group.state is not State.EMPTY:
        changes.append(session_extended(group, request.member_id, now))
    expire_ms = _expiry(request.retention_time_ms, now)
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            code = ErrorCode.NONE
            if _length(metadata) > settings.offset_metadata_max_bytes or not fits(metadata, STRING_BYTES):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                changes.append(
                    OffsetCommitted(
                        request.group_id,
                        topic.name,
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                        now.wall_ms,
                        expire_ms,
                        topic.topic_id,
                    )
                )
            partitions.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return Decision(tuple(changes), (Reply(caller.token, OffsetCommitResponse(topics=topics), after_commit=True),))


def fetch(group: ClassicGroup | None, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """What was committed: of the topics asked for, where -1 is no offset, or of all."""
    offsets = {} if group is None else group.offsets
    if request.topics is not None:
        topics = [_fetched(offsets.get(topic.name, {}), topic) for topic in request.topics]
    else:
        topics = [
            OffsetFetchResponseTopics(name=name, partitions=[_committed(offset) for offset in committed.values()])
            for name, committed in offsets.items()
        ]
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def delete(group: ClassicGroup | None, request: OffsetDeleteRequest, caller: Caller) -> Decision:
    """Offsets go on request, but not those of topics that the group is reading."""
    if not request.group_id:
        return answered(caller.token, OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID), after_commit=False)
    if group is None:
        return answered(caller.token, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    if group.state is not State.EMPTY and not group.is_consumer_group:
        return answered(caller.token, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))
    records: list[Change] = []
    topics = []
    subscribed = group.subscribed_topics()
    for topic in request.topics:
        is_subscribed = _reads(group, subscribed, topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        asked = [partition.partition_index for partition in topic.partitions]
        if not is_subscribed:
            committed = group.offsets.get(topic.name, {})
            records += [OffsetForgotten(group.group_id, topic.name, index) for index in asked if index in committed]
        partitions = [OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in asked]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    reply = Reply(caller.token, OffsetDeleteResponse(topics=topics), after_commit=True)
    return Decision(tuple(records), (reply,), may_be_split=True)


def expired(group: ClassicGroup, now: Instant, settings: GroupSettings) -> Iterator[OffsetForgotten | GroupForgotten]:
    """What is not kept any longer (KIP-211): offsets of a group that has been empty for the retention, of topics that a
    stable group does not read any more, and of a group that never had members, whose age only commits show. A group
    that has neither offsets nor members goes as a whole."""
    kept = False
    subscribed = group.subscribed_topics()
    for topic, committed in group.offsets.items():
        if _never_expires(group) or _reads(group, subscribed, topic):
            kept = True
            continue
        for partition, offset in committed.items():
            if _has_expired(group, offset, now, settings):
                yield OffsetForgotten(group.group_id, topic, partition)
            else:
                kept = True
    if not kept and group.state is State.EMPTY and not group.invited:
        yield GroupForgotten(group.group_id)


def forgotten(group: ClassicGroup) -> Iterator[OffsetForgotten | GroupForgotten]:
    """All there is of a group goes."""
    for topic, committed in group.offsets.items():
        for partition in committed:
            yield OffsetForgotten(group.group_id, topic, partition)
    yield GroupForgotten(group.group_id)


def _commit_error(group: ClassicGroup | None, request: OffsetCommitRequest, version: int) -> ErrorCode | None:
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return None
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.state is State.EMPTY:
        return None
    # A caller that has neither a generation nor a name is no member, which the check of its name says too.
    if (code := group.identity_error(request.member_id, request.group_instance_id)) is not None:
        return code
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.COMPLETING else None


def _expiry(retention_ms: int, now: Instant) -> int:
    """-1 is no retention of the request's own. One that has passed already is over now, an endless one never is."""
    return -1 if retention_ms == -1 else min(now.wall_ms + max(retention_ms, 0), _LATEST_MS)


def _length(metadata: str) -> int:
    """As Java counts: in UTF-16 units."""
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le", "surrogatepass")) // 2


def _fetched(committed: dict[int, OffsetCommitted], topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    partitions = []
    for index in topic.partition_indexes:
        offset = committed.get(index)
        if offset is None or _is_of_another_topic(offset.topic_id, topic.topic_id):
            partitions.append(OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1))
        else:
            partitions.append(_committed(offset))
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _committed(offset: OffsetCommitted) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=offset.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _is_of_another_topic(committed: bytes, asked: bytes) -> bool:
    """Whether the topic was deleted and created again under its name since."""
    return ZERO_UUID not in (committed, asked) and committed != asked


def _reads(group: ClassicGroup, subscribed: frozenset[str] | None, topic: str) -> bool:
    """Whether the group reads a topic. If its members are not understood, a consumer group may read any."""
    return group.is_consumer_group if subscribed is None else topic in subscribed


def _never_expires(group: ClassicGroup) -> bool:
    if group.protocol_type is None or group.state is State.EMPTY:
        return False
    return group.state is not State.STABLE or not group.is_consumer_group


def _has_expired(group: ClassicGroup, offset: OffsetCommitted, now: Instant, settings: GroupSettings) -> bool:
    if offset.expire_timestamp_ms != -1:
        return now.wall_ms >= offset.expire_timestamp_ms
    begin_ms = offset.commit_timestamp_ms
    if group.protocol_type is not None and group.state is State.EMPTY and group.state_timestamp_ms != -1:
        begin_ms = group.state_timestamp_ms
    return now.wall_ms - begin_ms >= settings.offsets_retention_ms
