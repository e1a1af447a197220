"""Who may join a group, under which name, and what the answer is."""

import pytest

from penstock.machines.groups.settings import GroupSettings
from tests.machines.groups.transcript import Player, check


def test_a_dynamic_member_is_given_an_id_and_joins_with_it() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join a
        Empty -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        """
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_member_joins_without_an_id(version: int) -> None:
    check(
        f"""
        > join a v={version}
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_version_0_has_one_timeout_for_session_and_rebalance() -> None:
    check(
        """
        > join a v=0 session=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > join b v=0 session=6s
        Stable -> PreparingRebalance
        > wait 9s
        > beat a
        a! REBALANCE_IN_PROGRESS
        > wait 1s
        b: joined as b-1, generation 2, leader b-1, range, members b-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_all_members_are_told_but_only_the_leader_what_they_said() -> None:
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
        """
    )


def test_an_id_that_was_given_out_expires() -> None:
    check(
        """
        > join a session=10s
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > wait 11s
        log group g gone
        Empty -> none
        > join a
        a: UNKNOWN_MEMBER_ID a-1
        """
    )


def test_an_unknown_id_is_refused_and_makes_no_group() -> None:
    check(
        """
        > join a id=stranger
        a: UNKNOWN_MEMBER_ID stranger
        > list
        > join a
        a: UNKNOWN_MEMBER_ID stranger
        > join b id=stranger
        b: UNKNOWN_MEMBER_ID stranger
        """
    )


def test_a_group_needs_a_name() -> None:
    check(
        """
        > join a group=
        a! INVALID_GROUP_ID
        """
    )


def test_a_session_timeout_has_limits() -> None:
    check(
        """
        > join a session=5s
        a! INVALID_SESSION_TIMEOUT
        > join a session=31m
        a! INVALID_SESSION_TIMEOUT
        > join a session=30m
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-3
        none -> Empty
        """
    )


def test_members_must_have_a_protocol_in_common() -> None:
    check(
        """
        > join a v=3 protocols=
        a: INCONSISTENT_GROUP_PROTOCOL
        > join a v=3 type=
        a: INCONSISTENT_GROUP_PROTOCOL
        > join a v=3 protocols=range,sticky
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 protocols=roundrobin
        b: INCONSISTENT_GROUP_PROTOCOL
        > join b v=3 type=connect protocols=range
        b: INCONSISTENT_GROUP_PROTOCOL
        > join b v=3 protocols=roundrobin,sticky
        > join c v=3 protocols=range
        c: INCONSISTENT_GROUP_PROTOCOL
        > wait 6s
        a: joined as a-3, generation 1, leader a-3, sticky, members a-3 b-3
        b: joined as b-3, generation 1, leader a-3, sticky
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_the_protocol_that_most_members_prefer_is_chosen() -> None:
    check(
        """
        > join a v=3 protocols=range,sticky
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 protocols=sticky,range
        > join c v=3 protocols=sticky,range
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, sticky, members a-1 b-1 c-1
        b: joined as b-1, generation 1, leader a-1, sticky
        c: joined as c-1, generation 1, leader a-1, sticky
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_protocol_that_not_all_speak_is_never_chosen() -> None:
    check(
        """
        > join a v=3 protocols=fancy,range
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3 protocols=fancy,range
        > join c v=3 protocols=range
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1 c-1
        b: joined as b-1, generation 1, leader a-1, range
        c: joined as c-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_full_group_takes_nobody_else() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b v=3
        > join c v=3
        c: GROUP_MAX_SIZE_REACHED
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > join c v=3
        c: GROUP_MAX_SIZE_REACHED
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > join c v=3
        c: GROUP_MAX_SIZE_REACHED
        > join a
        Stable -> PreparingRebalance
        > join b
        a: joined as a-1, generation 2, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 2, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        """,
        max_size=2,
    )


def test_of_too_many_invited_the_last_is_turned_away() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join b
        b! MEMBER_ID_REQUIRED b-1
        > join a
        Empty -> PreparingRebalance
        > join b
        b: GROUP_MAX_SIZE_REACHED
        > wait 10s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        """,
        max_size=1,
    )


def test_a_member_that_missed_its_reply_is_told_again() -> None:
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
        > join a
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        > join b
        b: joined as b-1, generation 1, leader a-1, range
        """
    )


def test_a_follower_that_joins_a_stable_group_unchanged_changes_nothing() -> None:
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
        > join b
        b: joined as b-1, generation 1, leader a-1, range
        > sync b
        b: plan y
        """
    )


def test_a_leader_that_joins_a_stable_group_begins_a_rebalance() -> None:
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
        > join a
        Stable -> PreparingRebalance
        > beat b
        b! REBALANCE_IN_PROGRESS
        > join b
        a: joined as a-1, generation 2, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 2, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_member_that_changes_what_it_says_begins_a_rebalance() -> None:
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
        > join b topics=t,u
        CompletingRebalance -> PreparingRebalance
        > join a
        b: joined as b-1, generation 2, leader a-1, range
        a: joined as a-1, generation 2, leader a-1, range, members a-1 b-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 2 leader a-1 [a-1:x b-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > join b topics=u
        Stable -> PreparingRebalance
        """
    )


def test_a_join_that_waits_is_answered_when_the_member_joins_again() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join a
        Empty -> PreparingRebalance
        > join a
        a: REBALANCE_IN_PROGRESS a-1
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_static_member_needs_no_id_to_begin_with() -> None:
    check(
        """
        > join a instance=one
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as one-1, generation 1, leader one-1, range, members one-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    check(
        """
        > join a instance=one
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b instance=two
        > wait 6s
        a: joined as one-1, generation 1, leader one-1, range, members one-1 two-1
        b: joined as two-1, generation 1, leader one-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader one-1 [one-1:x two-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > sync b
        b: plan y
        > join b id= instance=two
        log group g consumer/range generation 1 leader one-1 [one-1:x two-2:y]
        b: joined as two-2, generation 1, leader one-1, range
        > sync b
        b: plan y
        > beat b id=two-1
        b: FENCED_INSTANCE_ID
        > beat a
        a! NONE
        > describe
        admin: NONE Stable consumer/range [one-1 of a/127.0.0.1 says 23 does x, two-2 of b/127.0.0.1 says 23 does y]
        """
    )


def test_a_static_leader_that_comes_back_need_not_make_a_plan() -> None:
    check(
        """
        > join a instance=one
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b instance=two
        > wait 6s
        a: joined as one-1, generation 1, leader one-1, range, members one-1 two-1
        b: joined as two-1, generation 1, leader one-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader one-1 [one-1:x two-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > join a id= instance=one
        log group g consumer/range generation 1 leader one-2 [one-2:x two-1:y]
        a: joined as one-2, generation 1, leader one-2, range, members one-2 two-1, skip assignment
        > sync a
        a: plan x
        """
    )


def test_before_version_9_a_static_leader_that_comes_back_is_told_that_another_leads() -> None:
    check(
        """
        > join a instance=one
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b instance=two
        > wait 6s
        a: joined as one-1, generation 1, leader one-1, range, members one-1 two-1
        b: joined as two-1, generation 1, leader one-1, range
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader one-1 [one-1:x two-1:y]
        a: plan x
        CompletingRebalance -> Stable
        > join a id= instance=one v=8
        log group g consumer/range generation 1 leader one-2 [one-2:x two-1:y]
        a: joined as one-2, generation 1, leader one-1, range
        > sync a
        a: plan x
        """
    )


def test_a_static_member_that_comes_back_with_another_choice_of_protocol_begins_a_rebalance() -> None:
    check(
        """
        > join a instance=one protocols=range,sticky
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as one-1, generation 1, leader one-1, range, members one-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader one-1 [one-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > join a id= instance=one protocols=sticky,range
        a: joined as one-2, generation 2, leader one-2, sticky, members one-2
        Stable -> CompletingRebalance
        """
    )


def test_a_static_member_that_comes_back_during_a_rebalance_fences_the_one_that_waits() -> None:
    check(
        """
        > join a instance=one
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b instance=two
        > join c id= instance=one
        a: FENCED_INSTANCE_ID one-1
        > wait 6s
        b: joined as two-1, generation 1, leader one-2, range
        c: joined as one-2, generation 1, leader one-2, range, members one-2 two-1
        PreparingRebalance -> CompletingRebalance
        > sync b
        > join d id= instance=two
        b: FENCED_INSTANCE_ID
        CompletingRebalance -> PreparingRebalance
        """
    )


def test_a_static_member_with_an_old_id_is_fenced() -> None:
    check(
        """
        > join a instance=one
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as one-1, generation 1, leader one-1, range, members one-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader one-1 [one-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > join b id= instance=one
        log group g consumer/range generation 1 leader one-2 [one-2:x]
        b: joined as one-2, generation 1, leader one-2, range, members one-2, skip assignment
        > join a
        a: FENCED_INSTANCE_ID one-1
        > join c id=stranger instance=three
        c: UNKNOWN_MEMBER_ID stranger
        """
    )


def test_an_invitation_is_not_for_a_static_member() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join a instance=one
        a: UNKNOWN_MEMBER_ID a-1
        """
    )


def test_protocol_types_other_than_consumer_are_served_alike() -> None:
    check(
        """
        > join a type=connect protocols=sessioned v=6
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join a type=connect protocols=sessioned v=6
        Empty -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, sessioned, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:connectors type=connect protocol=sessioned
        log group g connect/sessioned generation 1 leader a-1 [a-1:connectors]
        a: plan connectors
        CompletingRebalance -> Stable
        > list
        g connect Stable classic
        """
    )


LONG = "n" * 1_025


@pytest.mark.parametrize(
    "said",
    [f"instance={LONG}", f"type={LONG}", f"protocols={LONG}", f"protocols={'range,' * 17}", f"raw={'x' * 5_001}"],
)
def test_what_the_log_could_not_keep_of_a_member_is_refused_at_the_door(said: str) -> None:
    check(
        f"""
        > join a {said}
        a! INVALID_REQUEST
        > list
        """,
        max_record_bytes=10_000,
    )


def test_a_client_id_of_any_length_makes_a_member_id_that_can_be_kept() -> None:
    client = "c" * 32_767
    name = "c" * 249
    check(
        f"""
        > join {client} v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        {client}: joined as {name}-1, generation 1, leader {name}-1, range, members {name}-1
        PreparingRebalance -> CompletingRebalance
        > sync {client} plan={client}:all
        log group g consumer/range generation 1 leader {name}-1 [{name}-1:all]
        {client}: plan all
        CompletingRebalance -> Stable
        """
    )


def test_a_member_that_says_more_than_the_groups_record_holds_is_refused_and_the_others_notice_nothing() -> None:
    check(
        f"""
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b raw={"x" * 4_000} v=3
        > wait 6s
        a: joined as a-1, generation 1, leader a-1, range, members a-1 b-1
        b: joined as b-1, generation 1, leader a-1, range
        PreparingRebalance -> CompletingRebalance
        > sync b
        > join c raw={"x" * 4_000} v=3
        c: GROUP_MAX_SIZE_REACHED
        > join c raw={"x" * 4_000}
        c: GROUP_MAX_SIZE_REACHED
        > join c instance=one raw={"x" * 4_000}
        c: GROUP_MAX_SIZE_REACHED
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y]
        b: plan y
        a: plan x
        CompletingRebalance -> Stable
        > join a raw={"x" * 4_000}
        a: GROUP_MAX_SIZE_REACHED a-1
        > beat b
        b! NONE
        """,
        max_record_bytes=10_000,
    )


def test_a_member_that_says_no_more_than_before_may_say_it_however_low_the_limit_is_now() -> None:
    check(
        f"""
        > join a raw={"x" * 4_000} v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > limit max_record_bytes=1000
        > join a raw={"x" * 500}
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        """,
        max_record_bytes=10_000,
    )


def test_an_invited_member_is_measured_when_it_comes() -> None:
    check(
        f"""
        > join a v=3 raw={"x" * 4_000}
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > join b
        b! MEMBER_ID_REQUIRED b-1
        > join b raw={"x" * 4_000}
        b: GROUP_MAX_SIZE_REACHED b-1
        > join b raw={"x" * 3_000}
        """,
        max_record_bytes=10_000,
    )


def test_a_negative_rebalance_timeout_is_no_time_at_all() -> None:
    player = Player(GroupSettings(initial_rebalance_delay_ms=0))
    player.play("> join a v=3 rebalance=-5s")
    [member] = player.shard._groups["g"].members.values()
    assert member.rebalance_timeout_ms == 0
    player.play("> sync a plan=a:all")
    assert player.lines[-2:] == ["a: plan all", "CompletingRebalance -> Stable"]
