"""Administration of consumer groups: who is in them, how far they are, and moving and deleting them.

As in `admin`, functions that take many things tell the outcome of each, and what changes a group is never sent twice.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from penstock.client.admin import describe_cluster
from penstock.client.assignments import CONSUMER, read_assignment
from penstock.client.cluster import NEAR_NAMES_TIMEOUT_MS, Cluster, Terms
from penstock.client.errors import (
    BrokerError,
    ClientError,
    UnknownGroupError,
    broker_error,
    group_outcome,
    unanswered,
)
from penstock.client.metadata import Broker, TopicPartition, near_names
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
    OffsetFetchResponse,
)
from penstock.protocol.schemas.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

K = TypeVar("K")
V = TypeVar("V")

EMPTY: Final = "Empty"
"""The state of a group that has offsets and no members."""
_DEAD: Final = "Dead"
_CLASSIC: Final = "classic"
# Whatever they are said about, they concern the whole request: another broker has to be asked, or the same one later.
_COORDINATION: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


@dataclass(slots=True, frozen=True)
class GroupListing:
    """A group in the list of all. State and type are empty from brokers that do not tell (before Kafka 2.6 and 3.8)."""

    group: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@dataclass(slots=True, frozen=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] | None
    """None if the assignment is none of a consumer: it may be read from `assignment`."""
    assignment: bytes
    metadata: bytes


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """`protocol` is what the members agreed on, for consumers the name of their assignor."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]

    def owners(self) -> dict[TopicPartition, GroupMember]:
        """Who has which partition."""
        return {key: member for member in self.members for key in member.partitions or ()}


class CommittedOffset(NamedTuple):
    """`leader_epoch` is -1 if nobody knows."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


async def list_groups(
    cluster: Cluster, *, states: Sequence[str] = (), types: Sequence[str] = (), timeout_ms: int | None = None
) -> dict[int, list[GroupListing] | ClientError]:
    """The groups that each broker coordinates: all, or those in some states and of some types (KIP-518, KIP-848)."""
    # A broker that cannot choose would be taken to have chosen.
    versions = Versions(5, 5) if types else Versions(4, 5) if states else None
    terms = Terms(versions=versions, timeout_ms=timeout_ms)
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    async def ask(broker: Broker) -> list[GroupListing] | ClientError:
        def read(response: ListGroupsResponse) -> list[GroupListing]:
            if response.error_code:
                raise broker_error(response.error_code, f"the groups of broker {broker.id}")
            return [
                GroupListing(told.group_id, told.protocol_type, told.group_state, told.group_type, broker.id)
                for told in sorted(response.groups, key=lambda told: told.group_id)
            ]

        try:
            return await cluster.request(request, read, to=broker.id, terms=terms)
        except ClientError as error:
            return error

    brokers = (await describe_cluster(cluster, timeout_ms=timeout_ms)).brokers
    async with asyncio.TaskGroup() as tasks:
        asked = {broker.id: tasks.create_task(ask(broker)) for broker in brokers}
    return {number: task.result() for number, task in asked.items()}


def all_listed(listed: Mapping[int, list[GroupListing] | ClientError]) -> list[GroupListing]:
    """What all brokers together have told, by name; a group that is just moving may have been told by two."""
    told = [each for groups in listed.values() if not isinstance(groups, ClientError) for each in groups]
    return sorted({each.group: each for each in told}.values(), key=lambda each: each.group)


async def describe_groups(
    cluster: Cluster, groups: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, GroupDescription | ClientError]:
    """Who is in each group, and which partitions each member has."""

    def read(response: DescribeGroupsResponse, _: Sequence[str]) -> dict[str, GroupDescription | ClientError]:
        return {told.group_id: _read_description(told) for told in response.groups}

    described = await cluster.request_to_coordinators(
        groups, lambda names: DescribeGroupsRequest(groups=names), read, terms=Terms(timeout_ms=timeout_ms)
    )
    return await _with_near_names(cluster, described)


async def delete_groups(
    cluster: Cluster, groups: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, ClientError | None]:
    """Delete groups without members, and the offsets that they have committed."""

    def read(response: DeleteGroupsResponse, _: Sequence[str]) -> dict[str, ClientError | None]:
        return {told.group_id: group_outcome(told.group_id, told.error_code, None, None) for told in response.results}

    deleted = await cluster.request_to_coordinators(
        groups,
        lambda names: DeleteGroupsRequest(groups_names=names),
        read,
        terms=Terms(repeatable=False, timeout_ms=timeout_ms),
    )
    return await _with_near_names(cluster, deleted)


async def group_offsets(
    cluster: Cluster, groups: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
    """All offsets that each group has committed; of a group that does not exist there are none."""

    def read(
        response: OffsetFetchResponse, names: Sequence[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | ClientError]:
        (group,) = names
        if response.error_code:
            return {group: broker_error(response.error_code, f"the offsets of group {group!r}")}
        for topic in response.topics:
            for told in topic.partitions:
                if told.error_code:
                    about = f"the offset of group {group!r} in {topic.name}-{told.partition_index}"
                    return {group: broker_error(told.error_code, about)}
        return {
            group: {
                TopicPartition(topic.name, told.partition_index): CommittedOffset(
                    told.committed_offset, told.committed_leader_epoch, told.metadata or ""
                )
                for topic in response.topics
                for told in topic.partitions
                if told.committed_offset >= 0
            }
        }

    return await cluster.request_to_coordinators(
        groups,
        lambda names: OffsetFetchRequest(group_id=names[0], topics=None),
        read,
        one_by_one=True,
        # Later versions take many groups, but every broker still speaks these; and from 10 on topics go by id.
        terms=Terms(versions=Versions(2, 7), timeout_ms=timeout_ms),
    )


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, timeout_ms: int | None = None
) -> dict[TopicPartition, ClientError | None]:
    """Move a group that has no members; a group that does not exist is made by it."""
    request = OffsetCommitRequest(
        group_id=group,
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

    def read(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
        return {
            TopicPartition(topic.name, told.partition_index): told.error_code
            for topic in response.topics
            for told in topic.partitions
        }

    # In version 10 topics go by id.
    terms = Terms(versions=Versions(2, 9), repeatable=False, timeout_ms=timeout_ms)
    return await _change_offsets(cluster, group, request, read, partitions=offsets, terms=terms)


async def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
) -> dict[TopicPartition, ClientError | None]:
    """Forget how far a group is in partitions of topics that none of its members reads."""
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
        return {
            TopicPartition(topic.name, told.partition_index): told.error_code
            for topic in response.topics
            for told in topic.partitions
        }

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
    """`read` tells the error code of each partition."""

    def checked(response: OffsetCommitResponse | OffsetDeleteResponse) -> dict[TopicPartition, int]:
        codes = read(response)
        for code in codes.values():
            if code in _COORDINATION:
                raise broker_error(code, f"group {group!r}")
        return codes

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
    return await _with_near_names(cluster, outcomes)


async def _with_near_names(cluster: Cluster, outcomes: dict[K, V | ClientError]) -> dict[K, V | ClientError]:
    """The same outcomes, in which the error about an unknown group says which names look like it; or that the group is
    there and of another type, which is asked for by other means."""
    unknown = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, UnknownGroupError)}
    if unknown:
        try:
            listed = await list_groups(cluster, timeout_ms=NEAR_NAMES_TIMEOUT_MS)
        except ClientError:
            return outcomes
        types = {each.group: each.type for each in all_listed(listed)}
        for key, error in unknown.items():
            if types.get(error.group, _CLASSIC) in ("", _CLASSIC):
                outcomes[key] = UnknownGroupError(error.group, near_names(error.group, types.keys() - {error.group}))
            else:
                message = f"it is a group of type {types[error.group]!r}, and only classic ones are understood here"
                outcomes[key] = BrokerError(error.code, error.about, message)
    return outcomes


def _read_description(told: DescribedGroup) -> GroupDescription | ClientError:
    # Until version 5 a group that does not exist is called dead.
    code = told.error_code or (ErrorCode.GROUP_ID_NOT_FOUND if told.group_state == _DEAD else ErrorCode.NONE)
    members = tuple(_read_member(each, told.protocol_type) for each in told.members)
    description = GroupDescription(
        told.group_id,
        told.group_state,
        told.protocol_type,
        told.protocol_data,
        tuple(sorted(members, key=lambda member: (member.client_id, member.member_id))),
    )
    return group_outcome(told.group_id, code, told.error_message, description)


def _read_member(told: DescribedGroupMember, protocol_type: str) -> GroupMember:
    return GroupMember(
        told.member_id,
        told.group_instance_id,
        told.client_id,
        # Java writes addresses so, and a name would come before the slash.
        told.client_host.removeprefix("/"),
        read_assignment(told.member_assignment) if protocol_type == CONSUMER else None,
        told.member_assignment,
        told.member_metadata,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for key in partitions:
        topics.setdefault(key.topic, []).append(key)
    return topics
