"""How members leave."""

import sys

import pytest

from penstock.machines.groups.bounds import MAX_LEAVING
from penstock.machines.groups.changes import Caller, Instant
from penstock.machines.groups.records import GroupStored, StoredMember
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.shard import GroupShard
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tests.machines.groups.transcript import check


def test_who_leaves_a_stable_group_begins_a_rebalance() -> None:
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
        > leave b
        b: NONE, b-1 NONE
        Stable -> PreparingRebalance
        > beat a
        a! REBALANCE_IN_PROGRESS
        > join a
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        """
    )


@pytest.mark.parametrize("version", range(6))
def test_when_the_last_member_leaves_the_group_is_stored_as_empty(version: int) -> None:
    answer = "a: NONE" if version < 3 else "a: NONE, a-1 NONE"
    check(
        f"""
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > leave a v={version}
        log group g consumer/- generation 2 leader - []
        {answer}
        CompletingRebalance -> Empty
        """
    )


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
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
        > leave b
        b: UNKNOWN_MEMBER_ID
        b: NONE, b-1 NONE
        CompletingRebalance -> PreparingRebalance
        > join a
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > join b id=
        b! MEMBER_ID_REQUIRED b-2
        > join b
        CompletingRebalance -> PreparingRebalance
        > leave b
        b: UNKNOWN_MEMBER_ID
        b: NONE, b-2 NONE
        > leave a
        log group g consumer/- generation 3 leader - []
        a: NONE, a-1 NONE
        PreparingRebalance -> Empty
        """
    )


def test_many_members_leave_at_once_and_each_is_answered() -> None:
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
        > sync a plan=a:x,b:y
        log group g consumer/range generation 1 leader a-1 [a-1:x b-1:y c-1:]
        a: plan x
        CompletingRebalance -> Stable
        > leave a b stranger
        a: NONE, a-1 NONE, b-1 NONE, stranger UNKNOWN_MEMBER_ID
        Stable -> PreparingRebalance
        > join c
        c: joined as c-1, generation 2, leader c-1, range, members c-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_static_member_is_removed_by_its_instance_id() -> None:
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
        > leave instance=two
        admin: NONE, two NONE
        Stable -> PreparingRebalance
        > leave instance=two
        admin: NONE, two UNKNOWN_MEMBER_ID
        > leave instance=one id=old
        admin: NONE, old FENCED_INSTANCE_ID
        > leave instance=one id=one-1
        log group g consumer/- generation 2 leader - []
        admin: NONE, one-1 NONE
        PreparingRebalance -> Empty
        """
    )


def test_who_was_only_invited_leaves_without_a_rebalance() -> None:
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
        > leave b
        b: NONE, b-1 NONE
        > beat a
        a! NONE
        > join b
        b: UNKNOWN_MEMBER_ID b-1
        """
    )


def test_a_rebalance_does_not_wait_for_an_invited_member_that_leaves() -> None:
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
        > join a
        Stable -> PreparingRebalance
        > leave b
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        b: NONE, b-1 NONE
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_strangers_cannot_leave() -> None:
    check(
        """
        > leave a group=
        a! INVALID_GROUP_ID
        > leave a
        a: NONE, a UNKNOWN_MEMBER_ID
        > leave a v=2
        a: UNKNOWN_MEMBER_ID
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > leave b
        b: NONE, b UNKNOWN_MEMBER_ID
        > leave b v=0
        b: UNKNOWN_MEMBER_ID
        > leave
        admin: NONE
        """
    )


def test_a_new_group_that_everybody_leaves_is_empty_again_after_its_delay() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join a
        Empty -> PreparingRebalance
        > leave a
        a: UNKNOWN_MEMBER_ID
        a: NONE, a-1 NONE
        > wait 3s
        log group g consumer/- generation 1 leader - []
        PreparingRebalance -> Empty
        """
    )


def test_a_group_that_its_only_newcomer_leaves_before_it_came_is_gone() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > leave a
        log group g gone
        a: NONE, a-1 NONE
        Empty -> none
        """
    )


def test_one_request_names_no_more_members_than_a_group_has() -> None:
    shard = GroupShard(GroupSettings())
    for count, code in ((MAX_LEAVING, ErrorCode.NONE), (MAX_LEAVING + 1, ErrorCode.INVALID_REQUEST)):
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")] * count)
        [reply] = shard.decide(request, Caller("a", 5, "c", "/127.0.0.1"), Instant(0, 0)).replies
        assert isinstance(reply.response, LeaveGroupResponse)
        assert reply.response.error_code == code
        assert len(reply.response.members) == (0 if code else count)


def test_thousands_who_leave_at_once_are_not_each_looked_at_for_each() -> None:
    """Each of them is looked at a few times, whatever their number: what is counted is calls of functions."""
    calls = []
    for count in (200, 400):
        shard, now = GroupShard(GroupSettings()), Instant(0, 0)
        members = tuple(
            StoredMember(f"c-{number}", None, "c", "/127.0.0.1", 60_000, 10_000, b"", b"") for number in range(count)
        )
        shard.apply(GroupStored("g", "consumer", 1, "range", "c-0", 0, members))
        for change in shard.loaded(now).changes:
            shard.apply(change, now)
        leaving = [MemberIdentity(member_id=f"c-{number}") for number in range(count)]
        decision = shard.decide(
            LeaveGroupRequest(group_id="g", members=leaving), Caller("admin", 5, "c", "/127.0.0.1"), now
        )
        asked = 0

        def count_calls(frame: object, event: str, argument: object) -> None:
            nonlocal asked
            asked += event == "call"

        sys.setprofile(count_calls)
        for change in decision.changes:
            shard.apply(change, now)
        sys.setprofile(None)
        assert not shard._groups["g"].members
        calls.append(asked)
    assert calls[1] < 2.5 * calls[0]
