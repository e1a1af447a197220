"""Groups as administrators see them."""

import pytest

from tests.machines.groups.transcript import check


def test_a_group_is_described_in_each_of_its_states() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > describe
        admin: NONE Empty -/- []
        > join a
        Empty -> PreparingRebalance
        > describe
        admin: NONE PreparingRebalance consumer/- [a-1 of a/127.0.0.1 says 0 does -]
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > describe
        admin: NONE CompletingRebalance consumer/- [a-1 of a/127.0.0.1 says 0 does -]
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > describe
        admin: NONE Stable consumer/range [a-1 of a/127.0.0.1 says 23 does x]
        """
    )


@pytest.mark.parametrize(("version", "code"), [(0, "NONE"), (5, "NONE"), (6, "GROUP_ID_NOT_FOUND")])
def test_a_group_that_does_not_exist_is_dead(version: int, code: str) -> None:
    check(
        f"""
        > describe v={version}
        admin: {code} Dead -/- []
        """
    )


def test_a_group_is_deleted_only_when_it_is_empty() -> None:
    check(
        """
        > delete
        admin: GROUP_ID_NOT_FOUND
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > delete
        admin: NON_EMPTY_GROUP
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > delete
        admin: NON_EMPTY_GROUP
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > delete
        admin: NON_EMPTY_GROUP
        > commit a t-0=5 t-1=6
        log offset g t-0 = 5
        log offset g t-1 = 6
        a: t-0 NONE t-1 NONE
        > leave a
        log group g consumer/- generation 2 leader - []
        a: NONE, a-1 NONE
        Stable -> Empty
        > delete
        log offset g t-0 gone
        log offset g t-1 gone
        log group g gone
        admin: NONE
        Empty -> none
        > list
        > fetch
        admin: nothing
        """
    )


def test_a_group_that_nobody_coordinates_is_deleted_with_its_offsets() -> None:
    check(
        """
        > commit t-0=5
        log offset g t-0 = 5
        admin: t-0 NONE
        none -> Empty
        > describe
        admin: NONE Empty -/- []
        > delete
        log offset g t-0 gone
        log group g gone
        admin: NONE
        Empty -> none
        > list
        """
    )


def test_an_invitation_to_a_group_that_was_deleted_is_void() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > delete
        log group g gone
        admin: NONE
        Empty -> none
        > join a
        a: UNKNOWN_MEMBER_ID a-1
        > wait 20m
        """
    )


def test_groups_are_listed_with_type_and_state() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > commit t-0=5 group=other
        log offset other t-0 = 5
        admin: t-0 NONE
        > list
        g consumer PreparingRebalance classic
        other - Empty classic
        """
    )
