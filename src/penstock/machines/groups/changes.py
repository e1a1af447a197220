"""Defines what goes into a shard of groups, callers and instants, and what comes out of it, changes and replies.

A change is a record, which is persisted and from which the groups are rebuilt, or an event: sessions, callers that
wait, a rebalance under way. Events are lost with the coordinator, and members then begin again from what was stored.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.machines.groups.members import Member, Waiter
from penstock.machines.groups.records import GroupForgotten, GroupRecord, GroupStored, OffsetCommitted, OffsetForgotten
from penstock.protocol.schema import Message


class Instant(NamedTuple):
    """One moment on both clocks."""

    ms: int
    """Monotonic: sessions and timeouts go by it."""
    wall_ms: int
    """What is persisted: commit timestamps, retention."""


@dataclass(slots=True, frozen=True)
class Caller:
    """The caller of a request."""

    token: Hashable
    """Opaque here: the runtime finds the waiting request by it."""
    version: int
    """The version of the request."""
    client_id: str
    client_host: str
    """As Kafka shows it: `/127.0.0.1`."""

    @property
    def waiter(self) -> Waiter:
        return Waiter(self.token, self.version)


@dataclass(slots=True, frozen=True)
class DescribeGroup:
    """One of the groups of a DescribeGroups request; answered with a DescribedGroup."""

    group_id: str


@dataclass(slots=True, frozen=True)
class DeleteGroup:
    """One of the groups of a DeleteGroups request; answered with a DeletableGroupResult."""

    group_id: str


@dataclass(slots=True, frozen=True)
class Event:
    """A change that is not persisted. Times in it are monotonic."""

    group: str


@dataclass(slots=True, frozen=True)
class MemberInvited(Event):
    """A dynamic member was given an id and asked to come back with it (KIP-394)."""

    member_id: str
    until_ms: int


@dataclass(slots=True, frozen=True)
class MemberJoined(Event):
    """A member is new, or has come as invited, and waits for the rebalance."""

    protocol_type: str
    member: Member
    waiter: Waiter
    until_ms: int


@dataclass(slots=True, frozen=True)
class MemberRejoined(Event):
    """A member has come to the rebalance, with what it says this time."""

    member: Member
    waiter: Waiter


@dataclass(slots=True, frozen=True)
class StaticMemberReplaced(Event):
    """A static member came back under a new id (KIP-345) and either waits for a rebalance or needs none."""

    replaced_id: str
    member: Member
    waiter: Waiter | None
    until_ms: int


@dataclass(slots=True, frozen=True)
class MemberLeft(Event):
    """It left, was silent for too long, or was invited and did not come."""

    member_id: str


@dataclass(slots=True, frozen=True)
class LeaderElected(Event):
    member_id: str


@dataclass(slots=True, frozen=True)
class RebalanceBegun(Event):
    """All members have to join again; those that waited for a plan wait no more."""

    at_ms: int
    until_ms: int
    initial_until_ms: int | None
    """Of a group that was empty: how long newcomers may put off its first rebalance."""


@dataclass(slots=True, frozen=True)
class RebalancePutOff(Event):
    until_ms: int


@dataclass(slots=True, frozen=True)
class GenerationBegun(Event):
    """All members of the generation are informed, and the leader is to make the plan."""

    generation: int
    protocol: str
    at_ms: int
    until_ms: int
    """The time by which all members must ask for their part of the plan."""


@dataclass(slots=True, frozen=True)
class PlanAwaited(Event):
    """A member asked for its part before the leader brought the plan."""

    member_id: str
    waiter: Waiter


@dataclass(slots=True, frozen=True)
class PlanFetched(Event):
    """A member asked for its part and got it."""

    member_id: str


@dataclass(slots=True, frozen=True)
class PlanSpread(Event):
    """The leader brought the plan, and all members that waited were answered."""

    at_ms: int


@dataclass(slots=True, frozen=True)
class SessionExtended(Event):
    member_id: str
    until_ms: int


@dataclass(slots=True, frozen=True)
class SessionsBegun(Event):
    """The group was loaded from the log: its members are taken to live."""

    at_ms: int


@dataclass(slots=True, frozen=True)
class OffsetsChecked(Event):
    """Offsets of some groups (of none in particular: `group` is empty) were looked at for expiry."""

    remaining: tuple[str, ...]
    """Groups that are still to be looked at in this round."""
    until_ms: int


Change = GroupRecord | Event

DURABLE: Final = (OffsetCommitted, OffsetForgotten, GroupStored, GroupForgotten)


@dataclass(slots=True, frozen=True)
class Reply:
    token: Hashable
    response: Message
    after_commit: bool
    """Leaves when everything applied up to and with this decision is committed; else at once."""


@dataclass(slots=True, frozen=True)
class Decision:
    changes: tuple[Change, ...] = ()
    replies: tuple[Reply, ...] = ()
    may_be_split: bool = False
    """Whether any first part of the records is true by itself, so that they need not be in one batch."""

    @property
    def records(self) -> tuple[GroupRecord, ...]:
        """What is appended to the log, in this order."""
        return tuple(change for change in self.changes if isinstance(change, DURABLE))
