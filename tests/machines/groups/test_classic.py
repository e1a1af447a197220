"""One group, change by change."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from penstock.machines.groups import classic
from penstock.machines.groups.changes import (
    Event,
    GenerationBegun,
    LeaderElected,
    MemberInvited,
    MemberJoined,
    MemberLeft,
    MemberRejoined,
    OffsetsChecked,
    PlanAwaited,
    PlanSpread,
    RebalanceBegun,
    SessionExtended,
    SessionsBegun,
    StaticMemberReplaced,
)
from penstock.machines.groups.classic import ClassicGroup, State
from penstock.machines.groups.members import Member, Waiter
from penstock.protocol.error_codes import ErrorCode

ONE = Member("one-1", "one", "c", "/h", 60_000, 10_000, (("range", b"r"), ("sticky", b"s")), is_new=True)
TWO = Member("two", None, "c", "/h", 90_000, 20_000, (("sticky", b"s"),), is_new=True)


def group(*events: Event) -> ClassicGroup:
    made = ClassicGroup("g")
    for event in events:
        made.apply(event)
    return made


def joined(member: Member, until_ms: int = 300_000) -> MemberJoined:
    return MemberJoined("g", "consumer", member, Waiter(member.member_id, 9), until_ms)


TWO_JOINED = (joined(ONE), RebalanceBegun("g", 0, 3_000, 60_000), joined(TWO))
TWO_BEGUN = (*TWO_JOINED, GenerationBegun("g", 1, "sticky", 5_000, 95_000))


def test_the_first_member_leads_and_gives_the_group_its_type() -> None:
    made = group(joined(ONE))
    assert (made.leader, made.protocol_type, made.instances) == ("one-1", "consumer", {"one": "one-1"})
    assert made.has_all_joined


def test_who_comes_later_is_a_newcomer_to_the_first_rebalance() -> None:
    assert not group(*TWO_JOINED[:2]).newcomers
    assert group(*TWO_JOINED).newcomers


def test_a_protocol_is_spoken_if_all_members_speak_it() -> None:
    made = group(*TWO_JOINED)
    assert made.elected_protocol() == "sticky"
    assert made.speaks("consumer", (("sticky", b""),))
    assert not made.speaks("consumer", (("range", b""),))
    assert not made.speaks("connect", (("sticky", b""),))
    made.apply(MemberLeft("g", "two"))
    assert made.speaks("consumer", (("range", b""),))
    assert made.elected_protocol() == "range"


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    twice = replace(ONE, protocols=(("range", b"1"), ("range", b"2")))
    made = group(joined(twice))
    assert made.spoken == {"range": 1}
    made.apply(MemberLeft("g", "one-1"))
    assert made.spoken == {}


def test_a_member_that_rejoins_is_counted_by_what_it_says_now() -> None:
    made = group(*TWO_JOINED)
    changed = replace(ONE, protocols=(("sticky", b"new"),), session_timeout_ms=5)
    made.apply(MemberRejoined("g", changed, Waiter("again", 9)))
    assert made.spoken == {"sticky": 2}
    assert made.members["one-1"] is changed
    assert made.joining["one-1"].token == "again"


def test_a_generation_makes_members_of_newcomers_and_starts_their_sessions() -> None:
    made = group(*TWO_BEGUN)
    assert made.state is State.COMPLETING
    assert not any(member.is_new for member in made.members.values())
    assert made.sessions == {"one-1": 15_000, "two": 25_000}
    assert made.unsynced == {"one-1", "two"}
    assert (made.joining, made.join_until_ms, made.initial_until_ms) == ({}, None, None)
    assert made.next_deadline_ms() == 15_000


def test_a_deadline_of_nobody_who_waits_for_us() -> None:
    made = group(*TWO_BEGUN, PlanAwaited("g", "one-1", Waiter("x", 5)))
    assert made.next_deadline_ms() == 25_000
    made.apply(PlanSpread("g", 20_000))
    assert made.sessions["one-1"] == 30_000
    assert made.syncing == {}


def test_the_end_of_the_sync_phase_matters_only_while_somebody_is_missing() -> None:
    made = group(*TWO_BEGUN, SessionExtended("g", "one-1", 200_000), SessionExtended("g", "two", 200_000))
    assert made.next_deadline_ms() == 95_000
    for member_id in ("one-1", "two"):
        made.apply(PlanAwaited("g", member_id, Waiter(member_id, 5)))
    made.apply(PlanSpread("g", 190_000))
    assert made.next_deadline_ms() == 200_000


def test_a_rebalance_takes_back_a_plan_that_nobody_has_seen() -> None:
    made = group(*TWO_BEGUN)
    made.members["two"] = replace(made.members["two"], assignment=b"plan")
    made.apply(RebalanceBegun("g", 6_000, 66_000, None))
    assert made.members["two"].assignment == b""
    assert made.unsynced == set()


def test_when_the_leader_goes_the_oldest_member_leads() -> None:
    made = group(*TWO_JOINED, MemberLeft("g", "one-1"))
    assert (made.leader, made.instances, list(made.joining)) == ("two", {}, ["two"])
    made.apply(MemberLeft("g", "two"))
    assert made.leader is None


def test_a_static_member_that_is_replaced_leaves_nothing_behind() -> None:
    made = group(*TWO_BEGUN, LeaderElected("g", "one-1"))
    made.apply(StaticMemberReplaced("g", "one-1", replace(ONE, member_id="one-2"), None, 77))
    assert list(made.members) == ["one-2", "two"]
    assert (made.leader, made.instances) == ("one-2", {"one": "one-2"})
    assert made.unsynced == {"one-2", "two"}
    assert made.sessions == {"one-2": 77, "two": 25_000}
    assert made.spoken == {"range": 1, "sticky": 2}


@pytest.mark.parametrize(
    ("member_id", "instance_id", "code"),
    [
        ("one-1", None, None),
        ("one-1", "one", None),
        ("two", None, None),
        ("two", "one", ErrorCode.FENCED_INSTANCE_ID),
        ("one-0", "one", ErrorCode.FENCED_INSTANCE_ID),
        ("one-1", "three", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_is_known_by_its_id_and_its_instance(
    member_id: str, instance_id: str | None, code: ErrorCode | None
) -> None:
    assert group(*TWO_JOINED).identity_error(member_id, instance_id) == code


def test_a_group_is_restored_from_what_was_stored() -> None:
    made = group(*TWO_BEGUN)
    record = made.stored(1_700_000_000_000)
    restored = ClassicGroup("g")
    restored.restore(record)
    assert restored.state is State.STABLE
    assert restored.stored(1_700_000_000_000) == record
    assert restored.instances == {"one": "one-1"}
    assert restored.spoken == {"sticky": 2}
    assert restored.next_deadline_ms() is None
    restored.apply(SessionsBegun("g", 1_000))
    assert restored.sessions == {"one-1": 11_000, "two": 21_000}


def test_a_later_record_replaces_what_an_earlier_one_said() -> None:
    first = group(*TWO_BEGUN).stored(1)
    second = replace(
        first,
        generation=2,
        protocol="range",
        leader="two",
        members=(replace(first.members[1], subscription=b"changed", session_timeout_ms=1),),
    )
    restored = ClassicGroup("g")
    restored.restore(first)
    restored.restore(second)
    assert restored.stored(1) == second
    assert restored.spoken == {"range": 1}
    restored.restore(replace(second, protocol=None, leader=None, members=()))
    assert (restored.state, restored.members, restored.spoken) == (State.EMPTY, {}, {})


def test_what_a_living_group_knows_of_its_members_survives_a_record() -> None:
    made = group(*TWO_BEGUN)
    made.restore(made.stored(1))
    assert made.members["one-1"].protocols == ONE.protocols
    assert made.sessions == {"one-1": 15_000, "two": 25_000}


def test_all_deadlines_are_shifted() -> None:
    made = group(*TWO_JOINED, MemberInvited("g", "three", 70))
    made.shift_deadlines(1_000)
    assert made.sessions == {"one-1": 301_000, "two": 301_000}
    assert (made.invited, made.join_until_ms, made.initial_until_ms) == ({"three": 1_070}, 4_000, 61_000)
    begun = group(*TWO_BEGUN)
    begun.shift_deadlines(1_000)
    assert begun.sync_until_ms == 96_000


def test_a_caller_that_is_gone_is_forgotten_but_not_its_member() -> None:
    made = group(*TWO_JOINED)
    assert not made.forget_waiter("nobody")
    assert made.forget_waiter("two")
    assert made.joining["two"] == Waiter(None, 9)
    assert made.has_all_joined


def test_a_group_knows_only_its_own_events() -> None:
    with pytest.raises(AssertionError, match="no event of a classic group"):
        group(OffsetsChecked("g", (), 0))


def test_what_members_subscribe_to_is_read_once_until_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[list[bytes | None]] = []

    def counted(metadata: Iterable[bytes | None]) -> frozenset[str]:
        reads.append(list(metadata))
        return frozenset("t")

    monkeypatch.setattr(classic, "subscribed_topics", counted)
    made = group(*TWO_BEGUN)
    assert made.subscribed_topics() == made.subscribed_topics() == made.draft().subscribed_topics() == frozenset("t")
    assert reads == [[b"s", b"s"]]
    made.restore(replace(made.stored(0), protocol="range"))
    made.subscribed_topics()
    made.apply(MemberLeft("g", "two"))
    made.subscribed_topics()
    assert len(reads) == 3
    begun = group(*TWO_BEGUN, RebalanceBegun("g", 6_000, 9_000, None))
    begun.subscribed_topics()
    begun.apply(GenerationBegun("g", 2, "range", 7_000, 95_000))
    begun.subscribed_topics()
    assert reads[-1] == [b"r", None]
