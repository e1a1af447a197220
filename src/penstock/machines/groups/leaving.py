"""Decides a LeaveGroup: members go, one or many at once, by their id or by their instance id."""

from collections.abc import Sequence

from penstock.machines.groups.bounds import MAX_LEAVING
from penstock.machines.groups.changes import Caller, Decision, Instant, MemberLeft
from penstock.machines.groups.classic import ClassicGroup
from penstock.machines.groups.draft import Draft, answered
from penstock.machines.groups.rebalancing import complete_if_all_joined, rebalance, remove
from penstock.machines.groups.settings import GroupSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse


def leave(
    group: ClassicGroup | None, request: LeaveGroupRequest, caller: Caller, now: Instant, settings: GroupSettings
) -> Decision:
    """Each member is answered for itself, and those that went cause one rebalance together."""
    if not request.group_id:
        return answered(caller.token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID), after_commit=False)
    if len(request.members) > MAX_LEAVING:
        return answered(caller.token, LeaveGroupResponse(error_code=ErrorCode.INVALID_REQUEST), after_commit=False)
    leaving = request.members if caller.version >= 3 else (MemberIdentity(member_id=request.member_id),)
    if group is None:
        codes = [ErrorCode.UNKNOWN_MEMBER_ID for _ in leaving]
        return answered(caller.token, _response(caller.version, leaving, codes))
    draft = Draft(group, now, settings)
    codes = [_leave(draft, identity) for identity in leaving]
    if len(draft.group.members) < len(group.members):
        rebalance(draft)
    else:
        complete_if_all_joined(draft)
    draft.forget_if_unused()
    draft.reply(caller.token, _response(caller.version, leaving, codes))
    return draft.decision()


def _leave(draft: Draft, identity: MemberIdentity) -> ErrorCode:
    group, member_id = draft.group, identity.member_id
    if not member_id:
        # An administrator removes a static member by its instance id alone.
        holder = group.instances.get(identity.group_instance_id) if identity.group_instance_id is not None else None
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        remove(draft, holder)
    elif member_id in group.invited:
        draft.event(MemberLeft(group.group_id, member_id))
    elif (code := group.identity_error(member_id, identity.group_instance_id)) is not None:
        return code
    else:
        remove(draft, member_id)
    return ErrorCode.NONE


def _response(version: int, leaving: Sequence[MemberIdentity], codes: list[ErrorCode]) -> LeaveGroupResponse:
    if version < 3:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
            for identity, code in zip(leaving, codes, strict=True)
        ]
    )
