"""A shard is all groups that one partition of `__consumer_offsets` holds, as a fold over its records."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from penstock.machines.groups import joining, leaving, listing, offsets, syncing
from penstock.machines.groups.bounds import MAX_INVITED, is_name
from penstock.machines.groups.changes import (
    Caller,
    Change,
    Decision,
    DeleteGroup,
    DescribeGroup,
    Event,
    Instant,
    MemberInvited,
    MemberJoined,
    MemberLeft,
    OffsetsChecked,
    SessionExtended,
    SessionsBegun,
)
from penstock.machines.groups.classic import ClassicGroup
from penstock.machines.groups.deadlines import Deadlines
from penstock.machines.groups.draft import Draft, answered
from penstock.machines.groups.listing import GroupListing
from penstock.machines.groups.rebalancing import begin, time_passed, withdraw
from penstock.machines.groups.records import GroupForgotten, GroupStored, OffsetCommitted, OffsetForgotten
from penstock.machines.groups.responses import Request, refusal
from penstock.machines.groups.settings import GroupSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequestGroup
from penstock.protocol.schemas.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

CHECKED_AT_ONCE: Final = 200
"""How many offsets are looked at for expiry in one turn; a group is not split."""


class GroupShard:
    """Ask `decide`, append the records of the decision, `apply` its changes, then send its replies."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self._groups: dict[str, ClassicGroup] = {}
        self._deadlines = Deadlines(self._deadline_of)
        # Groups in which a caller waits for an answer.
        self._awaited: set[str] = set()
        # Groups and members that were invited and have not come, the oldest invitation first.
        self._invitations: dict[tuple[str, str], None] = {}
        self._check_at_ms: int | None = None
        self._to_check: tuple[str, ...] = ()

    def decide(self, request: Request, caller: Caller, now: Instant, *, new_member_id: str = "") -> Decision:
        """What the request leads to; changes nothing. `new_member_id` is a UUID, in case the member needs a name."""
        if not is_name(request.group_id):
            return answered(caller.token, refusal(request, ErrorCode.INVALID_GROUP_ID), after_commit=False)
        group = self._groups.get(request.group_id)
        match request:
            case HeartbeatRequest():
                return syncing.heartbeat(group, request, caller, now)
            case OffsetCommitRequest():
                return offsets.commit(group, request, caller, now, self.settings)
            case OffsetFetchRequestGroup():
                return answered(caller.token, offsets.fetch(group, request))
            case JoinGroupRequest():
                decision = joining.join(group, request, caller, now, self.settings, new_member_id=new_member_id)
                return self._make_room(decision, now) if len(self._invitations) >= MAX_INVITED else decision
            case SyncGroupRequest():
                return syncing.sync(group, request, caller, now, self.settings)
            case LeaveGroupRequest():
                return leaving.leave(group, request, caller, now, self.settings)
            case OffsetDeleteRequest():
                return offsets.delete(group, request, caller)
            case DescribeGroup():
                return answered(caller.token, listing.describe(group, request, caller.version))
            case DeleteGroup():
                return listing.delete(group, request, caller)

    @staticmethod
    def refuse(request: Request, code: ErrorCode) -> Message:
        """The response that says that nothing was done."""
        return refusal(request, code)

    def apply(self, change: Change, now: Instant | None = None) -> None:
        """Make a change that was decided or, without `now`, that the log holds. Nothing else changes the groups."""
        match change:
            case OffsetCommitted(group=group_id, topic=topic, partition=partition):
                self._group(group_id).offsets.setdefault(topic, {})[partition] = change
            case OffsetForgotten(group=group_id, topic=topic, partition=partition):
                self._forget_offset(group_id, topic, partition)
            case GroupStored(group=group_id):
                self._group(group_id).restore(change)
            case GroupForgotten(group=group_id):
                self._forget_group(group_id)
            case OffsetsChecked(remaining=remaining, until_ms=until_ms):
                self._to_check, self._check_at_ms = remaining, until_ms
            case SessionExtended(group=group_id, until_ms=until_ms):
                self._groups[group_id].apply(change)
                self._deadlines.note(group_id, until_ms)
            case MemberInvited(group=group_id, member_id=member_id, until_ms=until_ms):
                self._groups[group_id].apply(change)
                self._deadlines.note(group_id, until_ms)
                self._invitations[group_id, member_id] = None
            case MemberLeft(group=group_id, member_id=member_id):
                # No deadline comes earlier by this, so that it costs the same in a group of thousands.
                self._groups[group_id].apply(change)
                self._invitations.pop((group_id, member_id), None)
                self._note_waiters(group_id)
            case Event(group=group_id):
                group = self._groups[group_id]
                group.apply(change)
                self._deadlines.note(group_id, group.next_deadline_ms())
                if isinstance(change, MemberJoined):
                    self._invitations.pop((group_id, change.member.member_id), None)
                self._note_waiters(group_id)

    def loaded(self, now: Instant) -> Decision:
        """The whole log is applied: from now on members have to show that they live."""
        changes: list[Change] = [OffsetsChecked("", (), now.ms + self.settings.offsets_retention_check_interval_ms)]
        for group in self._groups.values():
            if not group.members:
                continue
            draft = Draft(group, now, self.settings)
            draft.event(SessionsBegun(group.group_id, now.ms))
            if len(group.members) > self.settings.max_size:
                # The limit was lowered: have all join again, and those above the limit are turned away.
                begin(draft)
            changes += draft.decision().changes
        return Decision(tuple(changes))

    def tick(self, now: Instant) -> list[Decision]:
        """What time has brought about, in decisions that do not depend on each other; changes nothing."""
        decisions = []
        for group_id in self._deadlines.due(now.ms):
            draft = Draft(self._groups[group_id], now, self.settings)
            time_passed(draft)
            decisions.append(draft.decision())
        if self._check_at_ms is not None and self._check_at_ms <= now.ms:
            decisions.append(self._check_offsets(now))
        return decisions

    def next_deadline(self) -> int | None:
        """When `tick` has something to say, on the monotonic clock."""
        deadlines = (self._deadlines.earliest(), self._check_at_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def shift_deadlines(self, by_ms: int) -> None:
        """No member could be heard during this time: none loses by it."""
        for group in self._groups.values():
            group.shift_deadlines(by_ms)
        self._deadlines.shift(by_ms)

    def forget_waiter(self, token: Hashable) -> None:
        """The caller is gone, so its answer is not wanted. The member lives until its session ends."""
        for group_id in self._awaited:
            if self._groups[group_id].forget_waiter(token):
                return

    def abandon(self) -> list[Hashable]:
        """Another broker takes over. Returns the tokens of all callers that wait."""
        return [
            waiter.token
            for group_id in self._awaited
            for waiting in (self._groups[group_id].joining, self._groups[group_id].syncing)
            for waiter in waiting.values()
            if waiter.token is not None
        ]

    def topic_deleted(self, topic: str, now: Instant) -> Decision:
        """Forget what was committed for a topic that is gone."""
        return Decision(
            tuple(
                OffsetForgotten(group.group_id, topic, partition)
                for group in self._groups.values()
                for partition in group.offsets.get(topic, ())
            )
        )

    def groups(self) -> Iterator[GroupListing]:
        """All groups, for a listing. It may be made while groups come and go."""
        return (listing.listing(group) for group in tuple(self._groups.values()))

    def committed(self, group_id: str) -> Mapping[tuple[str, int], OffsetCommitted]:
        """What a group has committed, by topic and partition."""
        group = self._groups.get(group_id)
        if group is None:
            return {}
        return {
            (topic, partition): offset
            for topic, committed in group.offsets.items()
            for partition, offset in committed.items()
        }

    def committed_partitions(self, group_id: str) -> dict[str, list[int]]:
        """What a group has committed offsets of, by topic."""
        group = self._groups.get(group_id)
        return {} if group is None else {topic: list(committed) for topic, committed in group.offsets.items()}

    def committed_offset(self, group_id: str, topic: str, partition: int) -> OffsetCommitted | None:
        """What a group has committed for one partition."""
        group = self._groups.get(group_id)
        return None if group is None else group.offsets.get(topic, {}).get(partition)

    def _make_room(self, decision: Decision, now: Instant) -> Decision:
        """If the decision is an invitation, the oldest one is not valid any longer."""
        invited = next((change for change in decision.changes if isinstance(change, MemberInvited)), None)
        if invited is None:
            return decision
        group_id, member_id = next(iter(self._invitations))
        draft = Draft(self._groups[group_id], now, self.settings)
        if group_id == invited.group:
            # Whatever this group waits for, it now waits for the new one too.
            draft.event(MemberLeft(group_id, member_id))
        else:
            withdraw(draft, member_id)
            draft.forget_if_unused()
        withdrawn = draft.decision()
        return Decision(withdrawn.changes + decision.changes, withdrawn.replies + decision.replies)

    def _note_waiters(self, group_id: str) -> None:
        group = self._groups[group_id]
        if group.joining or group.syncing:
            self._awaited.add(group_id)
        else:
            self._awaited.discard(group_id)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id)
        return group

    def _deadline_of(self, group_id: str) -> int | None:
        group = self._groups.get(group_id)
        return None if group is None else group.next_deadline_ms()

    def _forget_offset(self, group_id: str, topic: str, partition: int) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        committed = group.offsets.get(topic, {})
        committed.pop(partition, None)
        if not committed:
            group.offsets.pop(topic, None)

    def _forget_group(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        self._awaited.discard(group_id)
        self._deadlines.drop(group_id)
        for member_id in group.invited if group is not None else ():
            self._invitations.pop((group_id, member_id), None)
        if group is not None and group.offsets:
            # Its offsets have tombstones of their own; until then it is a group without members.
            self._group(group_id).offsets = group.offsets

    def _check_offsets(self, now: Instant) -> Decision:
        remaining = self._to_check or tuple(self._groups)
        changes: list[Change] = []
        looked_at = count = 0
        for group_id in remaining:
            if looked_at >= CHECKED_AT_ONCE:
                break
            count += 1
            group = self._groups.get(group_id)
            if group is not None:
                looked_at += 1 + sum(map(len, group.offsets.values()))
                changes += offsets.expired(group, now, self.settings)
        remaining = remaining[count:]
        until_ms = now.ms if remaining else now.ms + self.settings.offsets_retention_check_interval_ms
        return Decision((*changes, OffsetsChecked("", remaining, until_ms)))
