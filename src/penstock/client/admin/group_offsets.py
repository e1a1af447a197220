"""These functions read, commit and delete the offsets of groups.

OffsetFetch is sent up to version 7 and OffsetCommit up to version 9: OffsetFetch takes several groups from version 8 on
(KIP-709), and both name topics by id from version 10 on, but every broker still speaks the older versions.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.client.admin.groups import with_near_names
from penstock.client.cluster.cluster import Cluster, Terms
from penstock.client.errors import ClientError, UnknownGroupError, broker_error, unanswered
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

_COMMIT_VERSIONS: Final = Versions(2, 9)
# These codes stand beside single partitions but concern the whole request: another broker has to be asked, or this one
# later.
COORDINATION: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class CommittedOffset(NamedTuple):
    """An offset that a group has committed, or is to commit; `leader_epoch` is -1 if it is not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Offsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]


class Identity(NamedTuple):
    """The member that commits; the defaults are those of a client that is not a member."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


async def group_offsets(
    cluster: Cluster, groups: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
    """All offsets that each group has committed; a group that does not exist has none."""

    def read(
        response: OffsetFetchResponse, names: Sequence[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
        (group,) = names
        return {group: _read_fetched(response, group)}

    return await cluster.request_to_coordinators(
        groups,
        lambda names: OffsetFetchRequest(group_id=names[0], topics=None),
        read,
        one_by_one=True,
        terms=Terms(versions=Versions(2, 7), timeout_ms=timeout_ms),
    )


async def fetch_offsets(
    cluster: Cluster,
    group: str,
    partitions: Collection[TopicPartition],
    *,
    stable: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, CommittedOffset | None]:
    """The offsets that a group has committed in some partitions. With `stable` the broker refuses while a transaction
    that commits other ones is open (KIP-447)."""
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=[key.partition for key in keys])
            for topic, keys in sorted(_by_topic(partitions).items())
        ],
        require_stable=stable,
    )

    def read(response: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
        found = _read_fetched(response, group)
        if isinstance(found, ClientError):
            raise found
        return found

    terms = Terms(versions=Versions(7 if stable else 1, 7), timeout_ms=timeout_ms)
    found = await cluster.request_to_coordinator(group, request, read, terms=terms)
    return {key: found.get(key) for key in partitions}


async def commit_as(cluster: Cluster, group: str, offsets: Offsets, identity: Identity) -> dict[TopicPartition, int]:
    """Commit as a member of the group; returns the error code of each partition that the broker has answered for."""
    request = _commit_request(group, offsets, identity)

    def read(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
        return _checked(_codes(response), group)

    return await cluster.request_to_coordinator(group, request, read, terms=Terms(versions=_COMMIT_VERSIONS))


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Offsets, *, timeout_ms: int | None = None
) -> dict[TopicPartition, ClientError | None]:
    """Move a group that has no members; a group that does not exist is created by it."""
    request = _commit_request(group, offsets, Identity())
    terms = Terms(versions=_COMMIT_VERSIONS, repeatable=False, timeout_ms=timeout_ms)
    return await _change_offsets(cluster, group, request, _codes, partitions=offsets, terms=terms)


async def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
) -> dict[TopicPartition, ClientError | None]:
    """Delete a group's offsets in partitions of topics that none of its members reads."""
    wanted = list(partitions)
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=key.partition) for key in keys]
            )
            for topic, keys in _by_topic(wanted).items()
        ],
    )

    def read(response: OffsetDeleteResponse) -> dict[TopicPartition, int]:
        if response.error_code:
            return dict.fromkeys(wanted, response.error_code)
        return _codes(response)

    terms = Terms(repeatable=False, timeout_ms=timeout_ms)
    return await _change_offsets(cluster, group, request, read, partitions=wanted, terms=terms)


async def _change_offsets(
    cluster: Cluster,
    group: str,
    request: OffsetCommitRequest | OffsetDeleteRequest,
    read: Callable[..., dict[TopicPartition, int]],
    *,
    partitions: Iterable[TopicPartition],
    terms: Terms,
) -> dict[TopicPartition, ClientError | None]:
    """`read` returns the error code of each partition."""

    def checked(response: OffsetCommitResponse | OffsetDeleteResponse) -> dict[TopicPartition, int]:
        return _checked(read(response), group)

    keys = list(partitions)
    try:
        codes = await cluster.request_to_coordinator(group, request, checked, terms=terms)
    except ClientError as error:
        return dict.fromkeys(keys, error)
    outcomes: dict[TopicPartition, ClientError | None] = {}
    for key in keys:
        about = f"the offset of group {group!r} in {key}"
        code = codes.get(key)
        if code is None:
            outcomes[key] = unanswered(about)
        elif code == ErrorCode.GROUP_ID_NOT_FOUND:
            outcomes[key] = UnknownGroupError(group)
        else:
            outcomes[key] = broker_error(code, about) if code else None
    return await with_near_names(cluster, outcomes)


def _commit_request(group: str, offsets: Offsets, identity: Identity) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=key.partition,
                        committed_offset=offsets[key].offset,
                        committed_leader_epoch=offsets[key].leader_epoch,
                        committed_metadata=offsets[key].metadata,
                    )
                    for key in keys
                ],
            )
            for topic, keys in _by_topic(offsets).items()
        ],
    )


def _codes(response: OffsetCommitResponse | OffsetDeleteResponse) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, answer.partition_index): answer.error_code
        for topic in response.topics
        for answer in topic.partitions
    }


def _checked(codes: dict[TopicPartition, int], group: str) -> dict[TopicPartition, int]:
    for code in codes.values():
        if code in COORDINATION:
            raise broker_error(code, f"group {group!r}")
    return codes


def _read_fetched(response: OffsetFetchResponse, group: str) -> dict[TopicPartition, CommittedOffset] | ClientError:
    if response.error_code:
        return broker_error(response.error_code, f"the offsets of group {group!r}")
    found = {}
    for topic in response.topics:
        for answer in topic.partitions:
            key = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                return broker_error(answer.error_code, f"the offset of group {group!r} in {key}")
            if answer.committed_offset >= 0:
                found[key] = CommittedOffset(
                    answer.committed_offset, answer.committed_leader_epoch, answer.metadata or ""
                )
    return found


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for key in partitions:
        topics.setdefault(key.topic, []).append(key)
    return topics
