"""Lists, describes and deletes groups, for administrators."""

from typing import Final, NamedTuple

from penstock.machines.groups.changes import Caller, Decision, DeleteGroup, DescribeGroup, Reply
from penstock.machines.groups.classic import ClassicGroup, State
from penstock.machines.groups.draft import answered
from penstock.machines.groups.members import Member
from penstock.machines.groups.offsets import forgotten
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import DeletableGroupResult, DescribedGroup, DescribedGroupMember

CLASSIC: Final = "classic"


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    """`Empty`, `PreparingRebalance`, `CompletingRebalance` or `Stable`."""
    type: str
    """`classic`"""


def listing(group: ClassicGroup) -> GroupListing:
    """One line of the list of groups."""
    return GroupListing(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)


def describe(group: ClassicGroup | None, request: DescribeGroup, version: int) -> DescribedGroup:
    """All about a group. What members said is only shown while it is what the plan was made from."""
    if group is None:
        described = DescribedGroup(group_id=request.group_id, group_state=State.DEAD.value)
        if version >= 6:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"there is no group {request.group_id!r}"
        return described
    protocol = group.protocol if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_described(member, protocol) for member in group.members.values()],
    )


def delete(group: ClassicGroup | None, request: DeleteGroup, caller: Caller) -> Decision:
    """A group without members goes, and its offsets with it."""
    result = DeletableGroupResult(group_id=request.group_id)
    if group is None:
        result.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        return answered(caller.token, result)
    if group.state is not State.EMPTY:
        result.error_code = ErrorCode.NON_EMPTY_GROUP
        return answered(caller.token, result)
    return Decision(tuple(forgotten(group)), (Reply(caller.token, result, after_commit=True),), may_be_split=True)


def _described(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) or b"",
        member_assignment=member.assignment,
    )
