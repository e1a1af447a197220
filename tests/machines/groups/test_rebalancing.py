"""Every way from one state of a group to the next, and what time does to a group."""

import pytest

from penstock.machines.groups.classic import TRANSITIONS, State
from penstock.machines.groups.settings import GroupSettings
from tests.machines.groups.transcript import Player, check


def test_a_new_group_waits_for_more_members_as_long_as_they_come() -> None:
    check(
        """
        > join a v=3 rebalance=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 2s
        > join b v=3
        > wait 1s
        > wait 2s
        > join c v=3
        > wait 3s
        > wait 1s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1 c-1
        b: joined as b-1, generation 1, leader a-1, range
        c: joined as c-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_but_no_longer_than_the_rebalance_timeout() -> None:
    check(
        """
        > join a v=3 rebalance=5s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 2s
        > join b v=3 rebalance=5s
        > wait 2s
        > join c v=3 rebalance=5s
        > wait 1s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1 c-1
        b: joined as b-1, generation 1, leader a-1, range
        c: joined as c-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_without_a_delay_the_first_member_is_alone_in_the_first_generation() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join b
        b! MEMBER_ID_REQUIRED b-1
        > join a
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        Empty -> CompletingRebalance
        > join b
        CompletingRebalance -> PreparingRebalance
        > join a
        b: joined as b-1, generation 2, leader a-1, range
        a: joined as a-1, generation 2, leader a-1, range, members a-1 b-1
        PreparingRebalance -> CompletingRebalance
        """,
        initial_rebalance_delay_ms=0,
    )


def test_a_rebalance_waits_for_all_members_and_those_who_were_invited() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > join b
        b! MEMBER_ID_REQUIRED b-1
        > join c v=3
        Stable -> PreparingRebalance
        > join a
        > join b
        c: joined as c-1, generation 2, leader a-1, range
        a: joined as a-1, generation 2, leader a-1, range, members a-1 c-1 b-1
        b: joined as b-1, generation 2, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_rebalance_does_not_wait_for_an_invitation_that_ran_out() -> None:
    check(
        """
        > join a v=3 session=30s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > join b session=10s
        b! MEMBER_ID_REQUIRED b-1
        > join a session=30s
        Stable -> PreparingRebalance
        > wait 10s
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_who_does_not_join_again_in_time_is_out() -> None:
    check(
        """
        > join a v=3 rebalance=20s session=30s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 rebalance=20s session=30s
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > join c v=3 rebalance=20s session=30s
        Stable -> PreparingRebalance
        > join b rebalance=20s session=30s
        > wait 20s
        c: joined as c-1, generation 2, leader b-1, range
        b: joined as b-1, generation 2, leader b-1, range, members b-1 c-1
        PreparingRebalance -> CompletingRebalance
        > beat a
        a: UNKNOWN_MEMBER_ID
        """
    )


def test_a_static_member_that_does_not_join_again_stays() -> None:
    check(
        """
        > join a instance=one rebalance=20s session=60s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 rebalance=20s session=60s
        > wait 6s
        a: joined as one-1, generation 1, leader one-1, range, members one-1 b-1
        b: joined as b-1, generation 1, leader one-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader one-1 [one-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > join c v=3 rebalance=20s session=60s
        Stable -> PreparingRebalance
        > join b rebalance=20s session=60s
        > wait 20s
        c: joined as c-1, generation 2, leader b-1, range
        b: joined as b-1, generation 2, leader b-1, range, members one-1 b-1 c-1
        PreparingRebalance -> CompletingRebalance
        > sync c
        > sync b plan=a:x,b:y,c:z
        log group g consumer/range generation 2 leader b-1 [one-1:x b-1:y c-1:z]
        c: plan z
        b: plan y
        CompletingRebalance -> Stable
        > beat a gen=2
        a! NONE
        """
    )


def test_a_rebalance_for_which_only_static_members_are_left_is_put_off() -> None:
    check(
        """
        > join a instance=one rebalance=20s session=60s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 rebalance=20s session=60s
        > wait 6s
        a: joined as one-1, generation 1, leader one-1, range, members one-1 b-1
        b: joined as b-1, generation 1, leader one-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader one-1 [one-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > leave b
        b: NONE, b-1 NONE
        Stable -> PreparingRebalance
        > wait 20s
        > wait 19s
        > join a
        a: joined as one-1, generation 2, leader one-1, range, members one-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_silent_member_of_a_stable_group_is_removed() -> None:
    check(
        """
        > join a v=3 session=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 session=30s
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > sync b
        b: plan y
        > wait 9s
        > beat b
        b! NONE
        > wait 1s
        Stable -> PreparingRebalance
        > beat b
        b! REBALANCE_IN_PROGRESS
        > join b
        b: joined as b-1, generation 2, leader b-1, range, members b-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_silent_member_is_removed_while_the_plan_is_awaited() -> None:
    check(
        """
        > join a v=3 session=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 session=10s
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync b
        > wait 10s
        b: REBALANCE_IN_PROGRESS
        CompletingRebalance -> PreparingRebalance
        """
    )


def test_a_silent_member_is_removed_during_a_rebalance() -> None:
    check(
        """
        > join a v=3 session=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 session=10s
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > join b topics=u
        Stable -> PreparingRebalance
        > wait 10s
        b: joined as b-1, generation 2, leader b-1, range, members b-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_who_waits_for_a_rebalance_need_not_send_heartbeats() -> None:
    check(
        """
        > join a v=3 session=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 session=30s
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > sync b
        b: plan y
        > join a session=10s
        Stable -> PreparingRebalance
        > wait 20s
        > join b session=30s
        a: joined as a-1, generation 2, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 2, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_when_all_are_silent_the_group_is_empty() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > sync b
        b: plan y
        > wait 10s
        log group g consumer/- generation 2 leader - []
        Stable -> Empty
        """
    )


def test_who_never_asks_for_the_plan_is_out() -> None:
    check(
        """
        > join a v=3 rebalance=20s session=30s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 rebalance=20s session=30s
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > wait 10s
        > beat b
        b! NONE
        > wait 9s
        > wait 1s
        Stable -> PreparingRebalance
        > beat b
        b: UNKNOWN_MEMBER_ID
        > join a
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_leader_that_never_brings_the_plan_is_out() -> None:
    check(
        """
        > join a v=3 rebalance=20s session=30s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 rebalance=20s session=30s
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync b
        > wait 20s
        b: REBALANCE_IN_PROGRESS
        CompletingRebalance -> PreparingRebalance
        > join b
        b: joined as b-1, generation 2, leader b-1, range, members b-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_member_that_is_silent_in_its_first_join_goes_after_five_minutes() -> None:
    check(
        """
        > join a v=3 rebalance=10m session=30m
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > join b v=3 rebalance=10m session=30m
        Stable -> PreparingRebalance
        > wait 299s
        > wait 1s
        b: UNKNOWN_MEMBER_ID
        """
    )


def test_a_caller_that_is_gone_keeps_its_members_place() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3
        > hang-up a
        > wait 6s
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > wait 10s
        log group g consumer/- generation 2 leader - []
        CompletingRebalance -> Empty
        """
    )


def test_nobody_loses_by_a_stall() -> None:
    check(
        """
        > join a v=3 session=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > wait 9s
        > join b session=10s
        b! MEMBER_ID_REQUIRED b-1
        > stall 60s
        > wait 999ms
        > beat a
        a! NONE
        > join b
        Stable -> PreparingRebalance
        > beat a
        a! REBALANCE_IN_PROGRESS
        > stall 600s
        > wait 9s
        > join a
        b: joined as b-1, generation 2, leader a-1, range
        a: joined as a-1, generation 2, leader a-1, range, members a-1 b-1
        PreparingRebalance -> CompletingRebalance
        > stall 600s
        > sync a plan=a:x,b:y
        log group g consumer/range generation 2 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        """
    )


WAYS: dict[tuple[State, State], str] = {
    (State.EMPTY, State.PREPARING): "> join a",
    (State.PREPARING, State.EMPTY): "> leave a\n> wait 10s",
    (State.PREPARING, State.COMPLETING): "> wait 10s",
    (State.COMPLETING, State.PREPARING): "> join c v=3",
    (State.COMPLETING, State.STABLE): "> sync a plan=a:x",
    (State.STABLE, State.PREPARING): "> join c v=3",
}
WAYS_TO: dict[State, str] = {
    State.EMPTY: "> join a",
    State.PREPARING: "> join a\n> join a",
    State.COMPLETING: "> join a v=3\n> wait 3s",
    State.STABLE: "> join a v=3\n> wait 3s\n> sync a plan=a:x",
}


def test_the_table_of_states_is_complete() -> None:
    assert {(before, after) for before, following in TRANSITIONS.items() for after in following} == set(WAYS)


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_each_transition_of_the_table_happens(before: State, after: State) -> None:
    player = Player(GroupSettings())
    for line in WAYS_TO[before].splitlines():
        player.play(line)
    assert player.state() == before.value
    for line in WAYS[before, after].splitlines():
        player.play(line)
    assert player.state() == after.value
