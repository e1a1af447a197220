"""A classic group has a state and members, and knows what each change does to it.

    Empty ──member joins──► PreparingRebalance ──all joined──► CompletingRebalance ──leader's plan──► Stable
      ▲                        │  ▲  ▲                                 │                                │
      └────nobody is left──────┘  │  └──a member comes, goes or changes┘                                │
                                  └──a member comes, goes or changes────────────────────────────────────┘

What the log keeps of it comes as records: a group without members is empty, one with members is stable.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from penstock.machines.groups.changes import (
    Event,
    GenerationBegun,
    LeaderElected,
    MemberInvited,
    MemberJoined,
    MemberLeft,
    MemberRejoined,
    PlanAwaited,
    PlanFetched,
    PlanSpread,
    RebalanceBegun,
    RebalancePutOff,
    SessionExtended,
    SessionsBegun,
    StaticMemberReplaced,
)
from penstock.machines.groups.members import Member, Waiter
from penstock.machines.groups.records import GroupStored, OffsetCommitted
from penstock.machines.groups.subscription import CONSUMER, subscribed_topics
from penstock.protocol.error_codes import ErrorCode


class State(Enum):
    """The values are Kafka's names, which clients see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """Only ever said of a group that does not exist."""


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.PREPARING, State.STABLE}),
    State.STABLE: frozenset({State.PREPARING}),
}


@dataclass(slots=True)
class ClassicGroup:
    """The first fields are what the log keeps; the others are bookkeeping of the coordinator."""

    group_id: str
    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int = -1
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[str, dict[int, OffsetCommitted]] = field(default_factory=dict)

    state: State = State.EMPTY
    instances: dict[str, str] = field(default_factory=dict)
    """Member ids of static members, by instance id."""
    spoken: dict[str, int] = field(default_factory=dict)
    """By how many members each protocol is spoken."""
    log_bytes: int = 0
    """What all members take in the log without their assignments, at the most."""
    reads: tuple[frozenset[str] | None] | None = field(default=None, repr=False, compare=False)
    """The topics that members subscribe to, once they were asked for: what thousands of members say is long to read."""
    invited: dict[str, int] = field(default_factory=dict)
    """Ids that were given out and not used yet, with the end of their validity."""
    joining: dict[str, Waiter] = field(default_factory=dict)
    """Members that have joined the rebalance under way."""
    syncing: dict[str, Waiter] = field(default_factory=dict)
    """Members that wait for the plan."""
    unsynced: set[str] = field(default_factory=set)
    """Members of this generation that have not asked for the plan."""
    sessions: dict[str, int] = field(default_factory=dict)
    join_until_ms: int | None = None
    sync_until_ms: int | None = None
    initial_until_ms: int | None = None
    newcomers: bool = False
    """Whether a member joined since the first rebalance was last put off."""

    def draft(self) -> "ClassicGroup":
        """A copy to try changes on. Members are values, so that only the containers are copied; offsets are not, as
        no decision about members touches them."""
        return replace(
            self,
            members=self.members.copy(),
            instances=self.instances.copy(),
            spoken=self.spoken.copy(),
            invited=self.invited.copy(),
            joining=self.joining.copy(),
            syncing=self.syncing.copy(),
            unsynced=self.unsynced.copy(),
            sessions=self.sessions.copy(),
        )

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def is_initial_rebalance(self) -> bool:
        return self.initial_until_ms is not None

    @property
    def has_all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.invited

    @property
    def is_unused(self) -> bool:
        """Whether the group is there for an invitation only that was not taken up."""
        return self.state is State.EMPTY and not (self.generation or self.invited or self.offsets)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def speaks(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether a member that speaks these could be one of the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.spoken.get(name, 0) == everybody for name, _ in protocols
        )

    def identity_error(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why this is no member: another member has taken its place, or it is not known."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is not None and holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def elected_protocol(self) -> str:
        """Each member votes for the first of its protocols that all speak."""
        everybody = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.spoken.get(name) == everybody:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def subscribed_topics(self) -> frozenset[str] | None:
        """None: not known, as the group is no consumer group or its members are not understood."""
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.reads is None:
            self.reads = (subscribed_topics(member.metadata(self.protocol) for member in self.members.values()),)
        return self.reads[0]

    def is_excused(self, member_id: str) -> bool:
        """Whether a member need not show that it lives, as the answer that it waits for is ours to give."""
        return not self.members[member_id].is_new and (member_id in self.joining or member_id in self.syncing)

    def next_deadline_ms(self) -> int | None:
        """When something happens to the group by itself."""
        deadlines = [until for member_id, until in self.sessions.items() if not self.is_excused(member_id)]
        deadlines += self.invited.values()
        if self.join_until_ms is not None:
            deadlines.append(self.join_until_ms)
        if self.sync_until_ms is not None and self.unsynced:
            deadlines.append(self.sync_until_ms)
        return min(deadlines, default=None)

    def shift_deadlines(self, by_ms: int) -> None:
        """All deadlines move by this time."""
        for deadlines in (self.sessions, self.invited):
            for name in deadlines:
                deadlines[name] += by_ms
        if self.join_until_ms is not None:
            self.join_until_ms += by_ms
        if self.sync_until_ms is not None:
            self.sync_until_ms += by_ms
        if self.initial_until_ms is not None:
            self.initial_until_ms += by_ms

    def forget_waiter(self, token: object) -> bool:
        """Keep the place of a caller that is gone, but not the caller. Whether it was one of ours."""
        for waiting in (self.joining, self.syncing):
            for member_id, waiter in waiting.items():
                if waiter.token == token:
                    waiting[member_id] = replace(waiter, token=None)
                    return True
        return False

    def stored(self, timestamp_ms: int) -> GroupStored:
        """The group as the log is to keep it."""
        return GroupStored(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            timestamp_ms,
            tuple(member.stored(self.protocol) for member in self.members.values()),
        )

    def restore(self, record: GroupStored) -> None:
        """Become what the log keeps. Of members that are known more is known than that: they only get their part."""
        # The log holds no states in between, so that any of the two may follow any state.
        self.state = State.STABLE if record.members else State.EMPTY
        self.protocol_type = record.protocol_type or None
        self.generation = record.generation
        self.protocol = record.protocol
        self.leader = record.leader
        self.state_timestamp_ms = record.state_timestamp_ms
        self.join_until_ms = self.initial_until_ms = None
        self.newcomers = False
        members = {}
        for stored in record.members:
            known = self.members.get(stored.member_id)
            if known is not None and replace(known.stored(record.protocol), assignment=stored.assignment) == stored:
                members[stored.member_id] = replace(known, assignment=stored.assignment)
            else:
                members[stored.member_id] = Member.restored(stored, record.protocol)
        self.members = members
        self.instances = {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
        self.spoken = {}
        self.log_bytes = 0
        self.reads = None
        for member in members.values():
            self._count(member, 1)

    def apply(self, event: Event) -> None:
        """Make an event true."""
        match event:
            case SessionExtended(member_id=member_id, until_ms=until_ms):
                self.sessions[member_id] = until_ms
            case SessionsBegun(at_ms=at_ms):
                self._extend(self.members, at_ms)
            case MemberInvited(member_id=member_id, until_ms=until_ms):
                self.invited[member_id] = until_ms
            case MemberJoined():
                self._joined(event)
            case MemberRejoined(member=member, waiter=waiter):
                self._rejoined(member, waiter)
            case StaticMemberReplaced():
                self._static_member_replaced(event)
            case MemberLeft(member_id=member_id):
                self._left(member_id)
            case LeaderElected(member_id=member_id):
                self.leader = member_id
            case RebalanceBegun():
                self._rebalance_begun(event)
            case RebalancePutOff(until_ms=until_ms):
                self.join_until_ms = until_ms
                self.newcomers = False
            case GenerationBegun():
                self._generation_begun(event)
            case PlanAwaited(member_id=member_id, waiter=waiter):
                self.syncing[member_id] = waiter
                self.unsynced.discard(member_id)
            case PlanFetched(member_id=member_id):
                self.unsynced.discard(member_id)
            case PlanSpread(at_ms=at_ms):
                self._spread(at_ms)
            case _:
                raise AssertionError(f"{event} is no event of a classic group")

    def _joined(self, event: MemberJoined) -> None:
        member = event.member
        if not self.members:
            self.protocol_type = event.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.invited.pop(member.member_id, None)
        self.joining[member.member_id] = event.waiter
        self.sessions[member.member_id] = event.until_ms
        self.newcomers = self.state is State.PREPARING

    def _rejoined(self, member: Member, waiter: Waiter) -> None:
        self._count(self.members[member.member_id], -1)
        self._count(member, 1)
        self.members[member.member_id] = member
        self.joining[member.member_id] = waiter

    def _static_member_replaced(self, event: StaticMemberReplaced) -> None:
        member, replaced_id = event.member, event.replaced_id
        self._count(self.members[replaced_id], -1)
        self._count(member, 1)
        # The new member takes the place of the old one everywhere, also in the order of members.
        self.members = {
            (member.member_id if known_id == replaced_id else known_id): (member if known_id == replaced_id else known)
            for known_id, known in self.members.items()
        }
        assert member.instance_id is not None
        self.instances[member.instance_id] = member.member_id
        if self.leader == replaced_id:
            self.leader = member.member_id
        if replaced_id in self.unsynced:
            self.unsynced.remove(replaced_id)
            self.unsynced.add(member.member_id)
        self._forget(replaced_id)
        self.sessions[member.member_id] = event.until_ms
        if event.waiter is not None:
            self.joining[member.member_id] = event.waiter

    def _left(self, member_id: str) -> None:
        self._forget(member_id)
        self.invited.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def _rebalance_begun(self, event: RebalanceBegun) -> None:
        if self.state is State.COMPLETING:
            self.members = {name: replace(member, assignment=b"") for name, member in self.members.items()}
        self._move_to(State.PREPARING)
        self._spread(event.at_ms)
        self.unsynced.clear()
        self.sync_until_ms = None
        self.join_until_ms = event.until_ms
        self.initial_until_ms = event.initial_until_ms
        self.newcomers = False

    def _generation_begun(self, event: GenerationBegun) -> None:
        self._move_to(State.COMPLETING)
        self.generation = event.generation
        self.protocol = event.protocol
        self.reads = None
        self.joining.clear()
        self.members = {
            name: replace(member, is_new=False) if member.is_new else member for name, member in self.members.items()
        }
        self.unsynced = set(self.members)
        self._extend(self.members, event.at_ms)
        self.join_until_ms = self.initial_until_ms = None
        self.sync_until_ms = event.until_ms

    def _spread(self, at_ms: int) -> None:
        """A member that waited for the plan is answered, and has to show again that it lives."""
        self._extend(self.syncing, at_ms)
        self.syncing.clear()

    def _extend(self, member_ids: Iterable[str], at_ms: int) -> None:
        for member_id in member_ids:
            self.sessions[member_id] = at_ms + self.members[member_id].session_timeout_ms

    def _forget(self, member_id: str) -> None:
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        self.sessions.pop(member_id, None)
        self.unsynced.discard(member_id)

    def _count(self, member: Member, by: int) -> None:
        self.log_bytes += by * member.log_bytes
        self.reads = None
        for name in {name for name, _ in member.protocols}:
            self.spoken[name] = self.spoken.get(name, 0) + by
            if not self.spoken[name]:
                del self.spoken[name]

    def _move_to(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.group_id} goes from {self.state} to {state}"
        self.state = state
