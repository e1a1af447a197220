"""Decides a SyncGroup, by which the leader's plan reaches all members, and a Heartbeat, by which a member shows that it
lives."""

from dataclasses import replace
from typing import Final

from penstock.machines.groups.bounds import plan_fits
from penstock.machines.groups.changes import (
    Caller,
    Decision,
    Instant,
    PlanAwaited,
    PlanFetched,
    PlanSpread,
    Reply,
    SessionExtended,
)
from penstock.machines.groups.classic import ClassicGroup, State
from penstock.machines.groups.draft import Draft, answered
from penstock.machines.groups.responses import synced
from penstock.machines.groups.settings import GroupSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse, SyncGroupRequest, SyncGroupResponse

# These say nothing about what the log may not keep.
_TOLD_AT_ONCE: Final = (ErrorCode.INVALID_GROUP_ID, ErrorCode.REBALANCE_IN_PROGRESS)


def sync(
    group: ClassicGroup | None, request: SyncGroupRequest, caller: Caller, now: Instant, settings: GroupSettings
) -> Decision:
    """The leader brings the plan, and every member gets its part of it, once it is stored."""
    code = _sync_error(group, request)
    if group is None or code is not None:
        refusal = SyncGroupResponse(error_code=code or ErrorCode.UNKNOWN_MEMBER_ID)
        return answered(caller.token, refusal, after_commit=code not in _TOLD_AT_ONCE)
    if not plan_fits(group.log_bytes, (part.assignment for part in request.assignments), settings.max_record_bytes):
        # The others go on waiting. A leader that brings nothing better in time is taken for one that brought nothing.
        return answered(caller.token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    draft = Draft(group, now, settings)
    if group.state is State.STABLE:
        if request.member_id in group.unsynced:
            draft.event(PlanFetched(group.group_id, request.member_id))
        draft.reply(caller.token, synced(group, request.member_id))
        return draft.decision()
    if replaced := group.syncing.get(request.member_id):
        draft.answer(replaced, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    draft.event(PlanAwaited(group.group_id, request.member_id, caller.waiter))
    if request.member_id == group.leader:
        _spread(draft, {part.member_id: part.assignment for part in request.assignments})
    return draft.decision()


def heartbeat(group: ClassicGroup | None, request: HeartbeatRequest, caller: Caller, now: Instant) -> Decision:
    """A member lives, and learns whether it has to join again. A reply that it need not leaves at once."""
    if not request.group_id:
        return answered(caller.token, HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID), after_commit=False)
    if group is None:
        return answered(caller.token, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    if (code := group.identity_error(request.member_id, request.group_instance_id)) is not None:
        return answered(caller.token, HeartbeatResponse(error_code=code))
    if request.generation_id != group.generation:
        return answered(caller.token, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    code = ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE
    return Decision(
        (session_extended(group, request.member_id, now),),
        (Reply(caller.token, HeartbeatResponse(error_code=code), after_commit=False),),
    )


def session_extended(group: ClassicGroup, member_id: str, now: Instant) -> SessionExtended:
    """The member was heard of."""
    return SessionExtended(group.group_id, member_id, now.ms + group.members[member_id].session_timeout_ms)


def _sync_error(group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode | None:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state is State.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if (code := group.identity_error(request.member_id, request.group_instance_id)) is not None:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else None


def _differ(said: str | None, known: str | None) -> bool:
    """Older versions of the request say nothing."""
    return said is not None and known is not None and said != known


def _spread(draft: Draft, plan: dict[str, bytes]) -> None:
    """Store the plan and answer all members that wait for it. A member that is not in it gets nothing to do."""
    group = draft.group
    record = group.stored(draft.now.wall_ms)
    members = tuple(replace(member, assignment=plan.get(member.member_id, b"")) for member in record.members)
    waiting = group.syncing.copy()
    draft.store(replace(record, members=members))
    draft.event(PlanSpread(group.group_id, draft.now.ms))
    for member_id, waiter in waiting.items():
        draft.answer(waiter, synced(group, member_id))
