"""Administration of consumer groups: these functions list, describe and delete them.

Functions that take several groups report the outcome of each, and a request that changes a group is never sent twice.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.client.admin.brokers import describe_cluster
from penstock.client.assignments import CONSUMER, read_assignment
from penstock.client.cluster.cluster import NEAR_NAMES_TIMEOUT_MS, Cluster, Terms
from penstock.client.errors import BrokerError, ClientError, UnknownGroupError, broker_error, group_outcome
from penstock.client.metadata import Broker, TopicPartition, near_names
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Versions
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


@dataclass(slots=True, frozen=True)
class GroupListing:
    """A group in a list. State and type are empty if the broker does not report them (before Kafka 2.6 and 3.8)."""

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
    """None if the assignment was not written by a consumer: its bytes are in `assignment`."""
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
        """The member that has each partition."""
        return {key: member for member in self.members for key in member.partitions or ()}


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
    """The groups that all brokers have listed, by name; a group that is moving may have been listed by two of them."""
    told = [each for groups in listed.values() if not isinstance(groups, ClientError) for each in groups]
    return sorted({each.group: each for each in told}.values(), key=lambda each: each.group)


async def describe_groups(
    cluster: Cluster, groups: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, GroupDescription | ClientError]:
    """The members of each group, and the partitions that each member has."""

    def read(response: DescribeGroupsResponse, _: Sequence[str]) -> dict[str, GroupDescription | ClientError]:
        return {told.group_id: _read_description(told) for told in response.groups}

    described = await cluster.request_to_coordinators(
        groups, lambda names: DescribeGroupsRequest(groups=names), read, terms=Terms(timeout_ms=timeout_ms)
    )
    return await with_near_names(cluster, described)


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
    return await with_near_names(cluster, deleted)


async def with_near_names(cluster: Cluster, outcomes: dict[K, V | ClientError]) -> dict[K, V | ClientError]:
    """Adds to each error about an unknown group the names that look like it, or says that the group exists and is of
    another type, which is asked for by other means."""
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
