"""Decisions and what is in them."""

from penstock.machines.groups.changes import DURABLE, Caller, Decision, Event, MemberLeft, SessionExtended
from penstock.machines.groups.members import Waiter
from penstock.machines.groups.records import GroupForgotten, GroupRecord, OffsetForgotten


def test_only_records_are_appended_and_in_their_order() -> None:
    first, second = OffsetForgotten("g", "t", 0), GroupForgotten("g")
    decision = Decision((SessionExtended("g", "m", 5), first, MemberLeft("g", "m"), second))
    assert decision.records == (first, second)
    assert Decision().records == ()


def test_every_record_is_durable_and_no_event_is() -> None:
    assert set(DURABLE) == set(GroupRecord.__args__)
    assert not any(issubclass(kind, Event) for kind in DURABLE)


def test_a_caller_waits_under_its_token_and_version() -> None:
    assert Caller("token", 7, "client", "/127.0.0.1").waiter == Waiter("token", 7)
