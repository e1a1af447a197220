"""Handlers of ListGroups 0 to 5, DescribeGroups 0 to 6 and DeleteGroups 0 to 2 serve administrators of groups.

ListGroups filters by state from version 4 on (KIP-518) and by type from 5 on (KIP-848). DescribeGroups says what the
client may do from 3 on (KIP-430), adds instance ids in 4 (KIP-345) and GROUP_ID_NOT_FOUND in 6 (KIP-1043).
"""

from typing import Final

from penstock.broker.coordinators.coordinator import State
from penstock.broker.network.call import Call
from penstock.broker.pacing import Room, Written
from penstock.broker.router import Router
from penstock.broker.services import Services
from penstock.machines.groups.changes import DeleteGroup, DescribeGroup
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

router = Router()
# Bytes that a group and a member take in a reply beside what members sent.
_GROUP_BYTES: Final = 200
_MEMBER_BYTES: Final = 300


@router.handles(ListGroupsRequest, versions=(0, 5))
async def list_groups(services: Services, call: Call, request: ListGroupsRequest) -> Message | Written:
    """List the groups that this broker coordinates; a client that wants all asks all brokers."""
    pace = services.pacing.pace(call)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups = []
    for shard in list(services.groups.shards()):
        machine = shard.machine
        if machine is None:
            if shard.state is State.STOPPED:
                continue
            # An error is better than a list that lacks groups.
            return ListGroupsResponse(error_code=shard.refusal)
        for group in machine.groups():
            if (not states or group.state.lower() in states) and (not types or group.type.lower() in types):
                groups.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=group.state,
                        group_type=group.type,
                    )
                )
            await pace.spend()
    return await pace.reply(ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups))


@router.handles(DescribeGroupsRequest, versions=(0, 6))
async def describe_groups(services: Services, call: Call, request: DescribeGroupsRequest) -> Message | Written:
    pace = services.pacing.pace(call)
    # A group that is named twice is answered once.
    wanted = [(group, DescribeGroup(group)) for group in await pace.count(request.groups)]
    described: list[DescribedGroup] = await services.groups.ask_each(wanted, call, pace)
    room = Room(services.pacing.max_reply_bytes)
    for number, group in enumerate(described):
        if not room.take(_size(group)):
            described[number] = _too_large(group)
        await pace.spend(1 + len(group.members))
    return await pace.reply(DescribeGroupsResponse(groups=described))


def _size(group: DescribedGroup) -> int:
    members = sum(
        _MEMBER_BYTES + len(member.member_metadata) + len(member.member_assignment) for member in group.members
    )
    return _GROUP_BYTES + len(group.group_id) + members


def _too_large(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.POLICY_VIOLATION,
        error_message="the reply would be larger than penstock.reply.max.bytes; describe fewer groups at a time",
    )


@router.handles(DeleteGroupsRequest, versions=(0, 2))
async def delete_groups(services: Services, call: Call, request: DeleteGroupsRequest) -> Message | Written:
    pace = services.pacing.pace(call, to_the_end=True)
    # A group that is named twice can be deleted once.
    wanted = [(group, DeleteGroup(group)) for group in await pace.count(request.groups_names)]
    return await pace.reply(DeleteGroupsResponse(results=await services.groups.ask_each(wanted, call, pace)))
