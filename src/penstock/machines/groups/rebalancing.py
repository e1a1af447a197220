"""Decides how a group goes from one generation to the next, and what time does to it."""

from dataclasses import replace
from typing import Final

from penstock.machines.groups.changes import (
    GenerationBegun,
    LeaderElected,
    MemberLeft,
    RebalanceBegun,
    RebalancePutOff,
)
from penstock.machines.groups.classic import State
from penstock.machines.groups.draft import Draft
from penstock.machines.groups.responses import join_refusal, joined
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import SyncGroupResponse

CALM: Final = (State.EMPTY, State.COMPLETING, State.STABLE)
"""The states in which a rebalance may begin."""


def rebalance(draft: Draft) -> None:
    """A member came, changed or went: begin a rebalance, or see whether all members have joined the one under way."""
    if draft.group.state in CALM:
        begin(draft)
    else:
        complete_if_all_joined(draft)


def begin(draft: Draft) -> None:
    """All members have to join again. A group that was empty waits a while for more members to come."""
    group, now_ms = draft.group, draft.now.ms
    for waiter in group.syncing.values():
        draft.answer(waiter, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    timeout_ms, delay_ms = group.rebalance_timeout_ms, draft.settings.initial_rebalance_delay_ms
    if group.state is not State.EMPTY:
        draft.event(RebalanceBegun(group.group_id, now_ms, now_ms + timeout_ms, None))
        complete_if_all_joined(draft)
        return
    draft.event(RebalanceBegun(group.group_id, now_ms, now_ms + delay_ms, now_ms + max(delay_ms, timeout_ms)))
    if delay_ms <= 0:
        complete(draft)


def complete_if_all_joined(draft: Draft) -> None:
    """Waiting longer makes no sense, unless the group is new and more members may come."""
    group = draft.group
    if group.state is State.PREPARING and not group.is_initial_rebalance and group.has_all_joined:
        complete(draft)


def complete(draft: Draft) -> None:
    """Begin the next generation with the members that joined. Static members stay in it though they did not come back
    yet."""
    group = draft.group
    late = [
        member.member_id
        for member in group.members.values()
        if member.member_id not in group.joining and member.instance_id is None
    ]
    for member_id in late:
        draft.event(MemberLeft(group.group_id, member_id))
    if not group.members:
        draft.store(replace(group.stored(draft.now.wall_ms), generation=group.generation + 1, protocol=None))
        return
    if group.leader not in group.joining:
        if not group.joining:
            draft.event(RebalancePutOff(group.group_id, draft.now.ms + group.rebalance_timeout_ms))
            return
        leader = next(member_id for member_id in group.members if member_id in group.joining)
        draft.event(LeaderElected(group.group_id, leader))
    waiting = group.joining.copy()
    draft.event(
        GenerationBegun(
            group.group_id,
            group.generation + 1,
            group.elected_protocol(),
            draft.now.ms,
            draft.now.ms + group.rebalance_timeout_ms,
        )
    )
    for member_id, waiter in waiting.items():
        draft.answer(waiter, joined(group, member_id))


def remove(draft: Draft, member_id: str) -> None:
    """A member goes. If it waits for a reply, the reply says that it is no member any more."""
    group = draft.group
    if waiter := group.joining.get(member_id):
        draft.answer(waiter, join_refusal(waiter.version, ErrorCode.UNKNOWN_MEMBER_ID, ""))
    if waiter := group.syncing.get(member_id):
        draft.answer(waiter, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    draft.event(MemberLeft(group.group_id, member_id))


def time_passed(draft: Draft) -> None:
    """Invitations, sessions and rebalances that ran out."""
    group, now_ms = draft.group, draft.now.ms
    for member_id in [invited for invited, until_ms in group.invited.items() if until_ms <= now_ms]:
        withdraw(draft, member_id)
    for member_id in [member_id for member_id, until_ms in group.sessions.items() if until_ms <= now_ms]:
        # What happened to the members before may have extended this one's session.
        if group.sessions.get(member_id, now_ms + 1) <= now_ms and not group.is_excused(member_id):
            remove(draft, member_id)
            if group.state is State.PREPARING:
                _complete_if_nobody_is_missing(draft)
            else:
                begin(draft)
    if group.join_until_ms is not None and group.join_until_ms <= now_ms:
        _join_phase_ran_out(draft)
    if group.sync_until_ms is not None and group.sync_until_ms <= now_ms and group.unsynced:
        for member_id in sorted(group.unsynced):
            remove(draft, member_id)
        begin(draft)
    draft.forget_if_unused()


def withdraw(draft: Draft, member_id: str) -> None:
    """An invitation is not valid any longer."""
    draft.event(MemberLeft(draft.group.group_id, member_id))
    _complete_if_nobody_is_missing(draft)


def _complete_if_nobody_is_missing(draft: Draft) -> None:
    if draft.group.state is State.PREPARING and draft.group.has_all_joined:
        complete(draft)


def _join_phase_ran_out(draft: Draft) -> None:
    group, now_ms = draft.group, draft.now.ms
    latest_ms = group.initial_until_ms
    if latest_ms is not None and group.newcomers and now_ms < latest_ms:
        until_ms = min(now_ms + draft.settings.initial_rebalance_delay_ms, latest_ms)
        draft.event(RebalancePutOff(group.group_id, until_ms))
    else:
        complete(draft)
