"""How the plan gets from the leader to everybody, and what heartbeats are told."""

import pytest

from tests.machines.groups.transcript import check


def test_followers_wait_for_the_leaders_plan() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3
        > join c v=3
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1 c-1
        b: joined as b-1, generation 1, leader a-1, range
        c: joined as c-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync b
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y c-1:]
        b: plan y
        a: plan x
        CompletingRebalance -> Stable
        > sync c
        c: plan -
        """
    )


def test_only_the_leaders_plan_counts() -> None:
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
        > sync b plan=a:all,b:all
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        b: plan y
        a: plan x
        CompletingRebalance -> Stable
        > sync a plan=a:all
        a: plan x
        > sync b
        b: plan y
        """
    )


def test_a_plan_for_strangers_is_not_stored() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,stranger:y
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        """
    )


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_is_served(version: int) -> None:
    check(
        f"""
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x v={version}
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        """
    )


def test_a_sync_must_fit_the_group() -> None:
    check(
        """
        > sync a group=
        a! INVALID_GROUP_ID
        > sync a gen=1 id=a-1
        a: UNKNOWN_MEMBER_ID
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > sync a gen=0
        a: UNKNOWN_MEMBER_ID
        > join a
        Empty -> PreparingRebalance
        > sync a gen=0
        a! REBALANCE_IN_PROGRESS
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a gen=2
        a: ILLEGAL_GENERATION
        > sync a id=stranger
        a: UNKNOWN_MEMBER_ID
        > sync a type=connect
        a: INCONSISTENT_GROUP_PROTOCOL
        > sync a protocol=sticky
        a: INCONSISTENT_GROUP_PROTOCOL
        > sync a type=consumer protocol=range instance=one
        a: UNKNOWN_MEMBER_ID
        > sync a type=consumer protocol=range plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > join b v=3
        Stable -> PreparingRebalance
        > sync a
        a! REBALANCE_IN_PROGRESS
        """
    )


def test_a_sync_that_waits_is_answered_when_the_member_syncs_again() -> None:
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
        > sync b
        > sync b
        b: REBALANCE_IN_PROGRESS
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        b: plan y
        a: plan x
        CompletingRebalance -> Stable
        """
    )


def test_who_waits_for_a_plan_is_told_when_there_will_be_none() -> None:
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
        > sync b
        > join c v=3
        b: REBALANCE_IN_PROGRESS
        CompletingRebalance -> PreparingRebalance
        """
    )


def test_a_heartbeat_is_told_what_to_do() -> None:
    check(
        """
        > beat a group=
        a! INVALID_GROUP_ID
        > beat a id=a-1
        a: UNKNOWN_MEMBER_ID
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > beat a gen=0
        a: UNKNOWN_MEMBER_ID
        > join a
        Empty -> PreparingRebalance
        > beat a gen=0
        a! REBALANCE_IN_PROGRESS
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > beat a
        a! NONE
        > beat a gen=0
        a: ILLEGAL_GENERATION
        > beat a id=stranger
        a: UNKNOWN_MEMBER_ID
        > beat a instance=one
        a: UNKNOWN_MEMBER_ID
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > beat a
        a! NONE
        > join b v=3
        Stable -> PreparingRebalance
        > beat a
        a! REBALANCE_IN_PROGRESS
        """
    )


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat_is_served(version: int) -> None:
    check(
        f"""
        > beat a gen=0 id=a-1 v={version}
        a: UNKNOWN_MEMBER_ID
        """
    )


def test_a_heartbeat_keeps_the_session_alive() -> None:
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
        > beat a
        a! NONE
        > wait 9s
        > beat a
        a! NONE
        > wait 10s
        log group g consumer/- generation 2 leader - []
        Stable -> Empty
        > beat a
        a: UNKNOWN_MEMBER_ID
        """
    )


def test_an_empty_group_knows_no_member() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > leave a
        log group g consumer/- generation 2 leader - []
        a: NONE, a-1 NONE
        CompletingRebalance -> Empty
        > beat a
        a: UNKNOWN_MEMBER_ID
        > sync a
        a: UNKNOWN_MEMBER_ID
        """
    )


def test_a_plan_that_the_groups_record_does_not_hold_is_refused_and_its_leader_may_bring_another() -> None:
    check(
        f"""
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync b
        > sync a plan=a:{"x" * 6_000},b:{"y" * 6_000}
        a: UNKNOWN_SERVER_ERROR
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        b: plan y
        a: plan x
        CompletingRebalance -> Stable
        """,
        max_record_bytes=10_000,
    )


def test_a_leader_that_brings_no_plan_that_fits_goes_in_the_end() -> None:
    check(
        f"""
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync b
        > sync a plan=b:{"y" * 12_000}
        a: UNKNOWN_SERVER_ERROR
        > beat a
        a! NONE
        > wait 11s
        b: REBALANCE_IN_PROGRESS
        CompletingRebalance -> PreparingRebalance
        > join b
        b: joined as b-1, generation 2, leader b-1, range, members b-1
        PreparingRebalance -> CompletingRebalance
        """,
        max_record_bytes=10_000,
    )


def test_a_follower_cannot_have_a_large_plan_kept_while_it_waits() -> None:
    check(
        f"""
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync b plan=nobody:{"x" * 12_000}
        b: UNKNOWN_SERVER_ERROR
        """,
        max_record_bytes=10_000,
    )
