"""ListGroups 0 to 5, DescribeGroups 0 to 6, DeleteGroups 0 to 2: what administrators ask about groups."""

from typing import TYPE_CHECKING, Any

from penstock.broker.call import Call
from penstock.broker.coordinator import State
from penstock.broker.router import LATER, Router
from penstock.machines.groups.changes import DeleteGroup, DescribeGroup
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()


@router.handles(ListGroupsRequest, versions=(0, 5))
def list_groups(broker: "Broker", call: Call, request: ListGroupsRequest) -> Message:
    """Those that this broker coordinates; who wants all asks all brokers."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups = []
    for shard in broker.groups.shards():
        machine = shard.machine
        if machine is None:
            if shard.state is State.STOPPED:
                continue
            # Better no list than one that lacks groups.
            return ListGroupsResponse(error_code=shard.refusal)
        groups += [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.type,
            )
            for group in machine.groups()
            if (not states or group.state.lower() in states) and (not types or group.type.lower() in types)
        ]
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)


@router.handles(DescribeGroupsRequest, versions=(0, 6))
def describe_groups(broker: "Broker", call: Call, request: DescribeGroupsRequest) -> object:
    def finish(described: list[Any]) -> None:
        call.reply(DescribeGroupsResponse(groups=described))

    broker.groups.submit_each([(group, DescribeGroup(group)) for group in request.groups], call, finish)
    return LATER


@router.handles(DeleteGroupsRequest, versions=(0, 2))
def delete_groups(broker: "Broker", call: Call, request: DeleteGroupsRequest) -> object:
    def finish(deleted: list[Any]) -> None:
        call.reply(DeleteGroupsResponse(results=deleted))

    # A group that is named twice can be deleted once.
    names = dict.fromkeys(request.groups_names)
    broker.groups.submit_each([(group, DeleteGroup(group)) for group in names], call, finish)
    return LATER
