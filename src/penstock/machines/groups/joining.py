"""Decides a JoinGroup: whether the member may join, under which name, and whether that begins a rebalance."""

from dataclasses import replace
from typing import Final

from penstock.machines.groups.bounds import CLIENT_ID_CHARACTERS, join_error, may_say
from penstock.machines.groups.changes import (
    Caller,
    Decision,
    Instant,
    MemberInvited,
    MemberJoined,
    MemberRejoined,
    StaticMemberReplaced,
)
from penstock.machines.groups.classic import ClassicGroup, State
from penstock.machines.groups.draft import Draft, answered
from penstock.machines.groups.members import Member
from penstock.machines.groups.rebalancing import complete_if_all_joined, rebalance, remove
from penstock.machines.groups.records import GroupStored
from penstock.machines.groups.responses import join_refusal, joined
from penstock.machines.groups.settings import GroupSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60_000
"""How long a member's first join may wait. Clients of old versions have no id yet, and if they lose the connection they
come back as another member."""


def join(
    group: ClassicGroup | None,
    request: JoinGroupRequest,
    caller: Caller,
    now: Instant,
    settings: GroupSettings,
    *,
    new_member_id: str,
) -> Decision:
    """`group` is None if there is none yet. `new_member_id` is a UUID."""
    if not request.group_id:
        return _refused(caller, ErrorCode.INVALID_GROUP_ID, request.member_id)
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return _refused(caller, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
    if (code := join_error(request, settings.max_record_bytes)) is not None:
        return _refused(caller, code, request.member_id)
    joiner = _Joiner(group, request, caller, now, settings)
    if request.member_id:
        return joiner.join_again() if group is not None else joiner.refused(ErrorCode.UNKNOWN_MEMBER_ID)
    name = request.group_instance_id or caller.client_id[:CLIENT_ID_CHARACTERS]
    return joiner.join_first(f"{name}-{new_member_id}")


class _Joiner:
    """One join request on its way."""

    def __init__(
        self,
        group: ClassicGroup | None,
        request: JoinGroupRequest,
        caller: Caller,
        now: Instant,
        settings: GroupSettings,
    ) -> None:
        self.request = request
        self.caller = caller
        self.now = now
        self.protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
        self.draft = Draft(group or ClassicGroup(request.group_id), now, settings)
        self.is_new_group = group is None

    @property
    def group(self) -> ClassicGroup:
        return self.draft.group

    def join_first(self, member_id: str) -> Decision:
        """Decide the join of a member without an id."""
        if not self._has_room():
            return self.refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not self.group.speaks(self.request.protocol_type, self.protocols):
            return self.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        instance_id = self.request.group_instance_id
        replaced_id = self.group.instances.get(instance_id) if instance_id is not None else None
        if not self._may_say_this(member_id, replaced_id):
            return self.refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if self.is_new_group:
            self.draft.store(GroupStored(self.request.group_id, "", 0, None, None, self.now.wall_ms, ()))
        if replaced_id is not None:
            self._replace_static_member(replaced_id, member_id)
        elif instance_id is None and self.caller.version >= 4:
            self._invite(member_id)
        else:
            self._add(member_id)
        return self.draft.decision()

    def join_again(self) -> Decision:
        """Decide the join of a member with an id, which an invitation or an earlier join gave it."""
        group, member_id = self.group, self.request.member_id
        if not self._has_room():
            return self._turn_away(member_id)
        if not group.speaks(self.request.protocol_type, self.protocols):
            return self.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_invited = member_id in group.invited and self.request.group_instance_id is None
        code = None if is_invited else group.identity_error(member_id, self.request.group_instance_id)
        if code is not None:
            return self.refused(code)
        if not self._may_say_this(member_id, member_id):
            return self.refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if is_invited:
            self._add(member_id)
            return self.draft.decision()
        member = group.members[member_id]
        is_unchanged = member.protocols == self.protocols
        if is_unchanged and group.state is State.COMPLETING:
            # It missed the reply to its join, or the request came twice.
            self._reply(joined(group, member_id))
        elif is_unchanged and group.state is State.STABLE and group.leader != member_id:
            self._reply(joined(group, member_id))
        else:
            self._rejoin(member)
        return self.draft.decision()

    def refused(self, code: ErrorCode) -> Decision:
        return answered(self.caller.token, join_refusal(self.caller.version, code, self.request.member_id))

    def _has_room(self) -> bool:
        group, most = self.group, self.draft.settings.max_size
        match group.state:
            case State.PREPARING:
                return self.request.member_id in group.joining or len(group.joining) < most
            case State.COMPLETING | State.STABLE:
                return self.request.member_id in group.members or len(group.members) < most
            case _:
                return True

    def _may_say_this(self, member_id: str, replaced_id: str | None) -> bool:
        """Whether the group's record keeps room for a plan. What is no more than before may always be said."""
        known = self.group.members.get(replaced_id) if replaced_id is not None else None
        added = self._member(member_id).log_bytes - (known.log_bytes if known is not None else 0)
        return added <= 0 or may_say(self.group.log_bytes + added, self.draft.settings.max_record_bytes)

    def _turn_away(self, member_id: str) -> Decision:
        if member_id in self.group.members or member_id in self.group.invited:
            remove(self.draft, member_id)
            complete_if_all_joined(self.draft)
        self._reply(join_refusal(self.caller.version, ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        return self.draft.decision()

    def _member(self, member_id: str) -> Member:
        request = self.request
        return Member(
            member_id,
            request.group_instance_id,
            self.caller.client_id,
            self.caller.client_host,
            # Version 0 knows one timeout, which is both.
            max(0, request.rebalance_timeout_ms) if self.caller.version >= 1 else request.session_timeout_ms,
            request.session_timeout_ms,
            self.protocols,
        )

    def _invite(self, member_id: str) -> None:
        """Have it join with an id from the start: should this reply be lost, no unknown member is left in the group."""
        until_ms = self.now.ms + self.request.session_timeout_ms
        self.draft.event(MemberInvited(self.group.group_id, member_id, until_ms))
        response = join_refusal(self.caller.version, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        self.draft.reply(self.caller.token, response, after_commit=False)

    def _add(self, member_id: str) -> None:
        self.draft.event(
            MemberJoined(
                self.group.group_id,
                self.request.protocol_type,
                replace(self._member(member_id), is_new=True),
                self.caller.waiter,
                self.now.ms + NEW_MEMBER_TIMEOUT_MS,
            )
        )
        rebalance(self.draft)

    def _rejoin(self, member: Member) -> None:
        if replaced := self.group.joining.get(member.member_id):
            refusal = join_refusal(replaced.version, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.draft.answer(replaced, refusal)
        changed = replace(
            self._member(member.member_id),
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
            assignment=member.assignment,
            is_new=member.is_new,
        )
        self.draft.event(MemberRejoined(self.group.group_id, changed, self.caller.waiter))
        rebalance(self.draft)

    def _replace_static_member(self, replaced_id: str, member_id: str) -> None:
        """A static member came back without its id. A client that uses the old id is fenced from now on. If the group
        is stable and the choice of protocol stays what it is, there is no rebalance."""
        group, draft = self.group, self.draft
        if waiter := group.joining.get(replaced_id):
            draft.answer(waiter, join_refusal(waiter.version, ErrorCode.FENCED_INSTANCE_ID, replaced_id))
        draft.answer(group.syncing.get(replaced_id), SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        old_leader = group.leader
        member = replace(self._member(member_id), assignment=group.members[replaced_id].assignment)
        until_ms = self.now.ms + member.session_timeout_ms
        event = StaticMemberReplaced(group.group_id, replaced_id, member, None, until_ms)
        if group.state is State.STABLE and self._protocol_with(event) == group.protocol:
            draft.event(event)
            draft.store(group.stored(self.now.wall_ms))
            # Before version 9 a reply cannot ask the leader to skip the assignment, so the reply names another leader.
            leader = old_leader if self.caller.version < 9 else None
            self._reply(joined(group, member_id, leader=leader, skip=True))
        else:
            draft.event(replace(event, waiter=self.caller.waiter))
            rebalance(draft)

    def _protocol_with(self, event: StaticMemberReplaced) -> str:
        tried = self.group.draft()
        tried.apply(event)
        return tried.elected_protocol()

    def _reply(self, response: JoinGroupResponse) -> None:
        self.draft.reply(self.caller.token, response)


def _refused(caller: Caller, code: ErrorCode, member_id: str) -> Decision:
    return answered(caller.token, join_refusal(caller.version, code, member_id), after_commit=False)
