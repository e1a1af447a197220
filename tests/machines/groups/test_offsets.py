"""Committed offsets: who may commit, what is read back, and when it is gone."""

import pytest

from penstock.machines.groups.changes import Caller, DeleteGroup, Instant
from penstock.machines.groups.records import OffsetCommitted, OffsetForgotten
from penstock.machines.groups.responses import commit_refusal
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.shard import GroupShard
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.machines.groups.transcript import WALL, check

CALLER = Caller("admin", 9, "c", "/127.0.0.1")
NOW = Instant(0, WALL)


@pytest.mark.parametrize("version", range(2, 10))
def test_a_member_commits_and_everybody_reads(version: int) -> None:
    epoch = "@4" if version >= 6 else ""
    check(
        f"""
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
        > commit a t-0=5 t-1=7 u-3=0 epoch=4 meta=hello v={version}
        log offset g t-0 = 5
        log offset g t-1 = 7
        log offset g u-3 = 0
        a: t-0 NONE t-1 NONE u-3 NONE
        > fetch t-0 t-2 w-0
        admin: t-0=5{epoch}(hello) t-2=-1 w-0=-1
        > fetch
        admin: t-0=5{epoch}(hello) t-1=7{epoch}(hello) u-3=0{epoch}(hello)
        """
    )


def test_only_a_member_of_the_present_generation_commits() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > commit a t-0=1 gen=0
        a: t-0 UNKNOWN_MEMBER_ID
        > join a
        Empty -> PreparingRebalance
        > commit a t-0=1 gen=0
        log offset g t-0 = 1
        a: t-0 NONE
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > commit a t-0=2
        a: t-0 REBALANCE_IN_PROGRESS
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=3 gen=0
        a: t-0 ILLEGAL_GENERATION
        > commit a t-0=3 gen=2
        a: t-0 ILLEGAL_GENERATION
        > commit a t-0=3 id=stranger
        a: t-0 UNKNOWN_MEMBER_ID
        > commit a t-0=3 instance=one
        a: t-0 UNKNOWN_MEMBER_ID
        > commit a t-0=3
        log offset g t-0 = 3
        a: t-0 NONE
        > commit t-0=4
        admin: t-0 UNKNOWN_MEMBER_ID
        > commit a t-0=4 gen=-1
        a: t-0 ILLEGAL_GENERATION
        > join b v=3
        Stable -> PreparingRebalance
        > commit a t-0=5
        log offset g t-0 = 5
        a: t-0 NONE
        > fetch t-0
        admin: t-0=5
        """
    )


def test_a_static_member_that_was_replaced_does_not_commit() -> None:
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
        > commit a t-0=5
        a: t-0 FENCED_INSTANCE_ID
        > commit b t-0=6
        log offset g t-0 = 6
        b: t-0 NONE
        """
    )


def test_somebody_without_a_group_commits_while_it_is_empty() -> None:
    check(
        """
        > commit t-0=5
        log offset g t-0 = 5
        admin: t-0 NONE
        none -> Empty
        > commit t-0=6
        log offset g t-0 = 6
        admin: t-0 NONE
        > fetch t-0
        admin: t-0=6
        > list
        g - Empty classic
        > join a v=3
        Empty -> PreparingRebalance
        > commit t-0=7
        admin: t-0 UNKNOWN_MEMBER_ID
        """
    )


@pytest.mark.parametrize(
    ("version", "answer"), [(2, "ILLEGAL_GENERATION"), (8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")]
)
def test_a_member_of_a_group_that_does_not_exist_does_not_commit(version: int, answer: str) -> None:
    check(
        f"""
        > commit a t-0=5 gen=1 id=a-1 v={version}
        a: t-0 {answer}
        > list
        """
    )


def test_an_empty_group_takes_offsets_of_nobody_but_not_of_former_members() -> None:
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
        > commit a t-0=5
        a: t-0 UNKNOWN_MEMBER_ID
        > commit t-0=6
        log offset g t-0 = 6
        admin: t-0 NONE
        > commit t-0=7 id=a-1
        log offset g t-0 = 7
        admin: t-0 NONE
        """
    )


def test_metadata_has_a_limit_in_utf_16_units() -> None:
    check(
        """
        > commit t-0=5 meta=12345
        admin: t-0 OFFSET_METADATA_TOO_LARGE
        > commit t-0=6 meta=ab😀
        log offset g t-0 = 6
        admin: t-0 NONE
        none -> Empty
        > commit t-0=7 meta=abc😀
        admin: t-0 OFFSET_METADATA_TOO_LARGE
        > fetch t-0
        admin: t-0=6(ab😀)
        """,
        offset_metadata_max_bytes=4,
    )


def test_a_commit_counts_as_a_sign_of_life() -> None:
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
        > commit a t-0=5
        log offset g t-0 = 5
        a: t-0 NONE
        > wait 9s
        > beat a
        a! NONE
        """
    )


def test_old_clients_say_how_long_an_offset_is_kept() -> None:
    check(
        """
        > commit t-0=5 keep=1h v=4
        log offset g t-0 = 5 until +3600000ms
        admin: t-0 NONE
        none -> Empty
        > commit t-1=5
        log offset g t-1 = 5
        admin: t-1 NONE
        > wait 59m
        > fetch
        admin: t-0=5 t-1=5
        > wait 20m
        log offset g t-0 gone
        > fetch
        admin: t-1=5
        """
    )


def test_nothing_was_committed_by_a_group_that_does_not_exist() -> None:
    check(
        """
        > fetch
        admin: nothing
        > fetch t-0
        admin: t-0=-1
        > list
        """
    )


def test_offsets_are_deleted_unless_the_group_reads_the_topic() -> None:
    check(
        """
        > delete-offsets t-0 group=
        admin! INVALID_GROUP_ID
        > delete-offsets t-0
        admin: GROUP_ID_NOT_FOUND
        > join a v=3 topics=t
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=5 u-0=6 u-1=7
        log offset g t-0 = 5
        log offset g u-0 = 6
        log offset g u-1 = 7
        a: t-0 NONE u-0 NONE u-1 NONE
        > delete-offsets t-0 u-0 u-5
        log offset g u-0 gone
        admin: NONE, t-0 GROUP_SUBSCRIBED_TO_TOPIC, u-0 NONE, u-5 NONE
        > fetch
        admin: t-0=5 u-1=7
        > wait 10s
        log group g consumer/- generation 2 leader - []
        Stable -> Empty
        > delete-offsets t-0
        log offset g t-0 gone
        admin: NONE, t-0 NONE
        > fetch
        admin: u-1=7
        """
    )


def test_while_members_are_not_understood_any_topic_may_be_in_use() -> None:
    check(
        """
        > join a v=3 raw=?
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=5
        log offset g t-0 = 5
        a: t-0 NONE
        > delete-offsets t-0
        admin: NONE, t-0 GROUP_SUBSCRIBED_TO_TOPIC
        """
    )


def test_offsets_of_other_kinds_of_groups_are_deleted_only_when_they_are_empty() -> None:
    check(
        """
        > join a v=3 type=connect
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g connect/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=5
        log offset g t-0 = 5
        a: t-0 NONE
        > delete-offsets t-0
        admin: NON_EMPTY_GROUP
        > leave a
        log group g connect/- generation 2 leader - []
        a: NONE, a-1 NONE
        Stable -> Empty
        > delete-offsets t-0
        log offset g t-0 gone
        admin: NONE, t-0 NONE
        """
    )


def test_offsets_of_an_empty_group_expire_when_it_has_been_empty_for_long() -> None:
    check(
        """
        > join a v=3 session=30m
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=5
        log offset g t-0 = 5
        a: t-0 NONE
        > leave a
        log group g consumer/- generation 2 leader - []
        a: NONE, a-1 NONE
        Stable -> Empty
        > wait 6d
        > commit t-1=6
        log offset g t-1 = 6
        admin: t-1 NONE
        > wait 23h
        > wait 70m
        log offset g t-0 gone
        log offset g t-1 gone
        log group g gone
        Empty -> none
        > list
        """
    )


def test_offsets_of_a_group_that_nobody_coordinates_expire_by_their_own_age() -> None:
    check(
        """
        > commit t-0=5
        log offset g t-0 = 5
        admin: t-0 NONE
        none -> Empty
        > wait 6d
        > commit t-1=6
        log offset g t-1 = 6
        admin: t-1 NONE
        > wait 2d
        log offset g t-0 gone
        > fetch
        admin: t-1=6
        > wait 5d
        log offset g t-1 gone
        log group g gone
        Empty -> none
        > list
        """
    )


def test_offsets_of_topics_that_a_stable_group_does_not_read_expire() -> None:
    check(
        """
        > join a v=3 session=30m topics=t
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=5 u-0=6
        log offset g t-0 = 5
        log offset g u-0 = 6
        a: t-0 NONE u-0 NONE
        > wait 29m
        > beat a
        a! NONE
        > wait 29m
        > beat a
        a! NONE
        > wait 12m
        log offset g u-0 gone
        > fetch
        admin: t-0=5
        """,
        offsets_retention_ms=3_600_000,
    )


def test_offsets_of_a_group_in_a_rebalance_do_not_expire() -> None:
    check(
        """
        > join a v=3 session=30m rebalance=5h topics=t
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader a-1 [a-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=5 u-0=6
        log offset g t-0 = 5
        log offset g u-0 = 6
        a: t-0 NONE u-0 NONE
        > join b session=30m rebalance=5h
        b! MEMBER_ID_REQUIRED b-1
        > join a session=30m rebalance=5h topics=t,w
        Stable -> PreparingRebalance
        > wait 29m
        > fetch
        admin: t-0=5 u-0=6
        """,
        offsets_retention_ms=60_000,
    )


def test_offsets_of_a_topic_that_is_deleted_are_gone() -> None:
    check(
        """
        > commit t-0=5 t-1=6 u-0=7
        log offset g t-0 = 5
        log offset g t-1 = 6
        log offset g u-0 = 7
        admin: t-0 NONE t-1 NONE u-0 NONE
        none -> Empty
        > drop-topic t
        log offset g t-0 gone
        log offset g t-1 gone
        > fetch
        admin: u-0=7
        """
    )


def test_a_commit_that_is_kept_for_ever_is_kept_until_the_end_of_time_and_one_for_no_time_is_over_at_once() -> None:
    """The largest number that the wire has, and a negative one that is not -1."""
    end = 0x7FFF_FFFF_FFFF_FFFF
    check(
        f"""
        > commit v=4 t-0=5 keep={end}ms
        log offset g t-0 = 5 until +{end - WALL}ms
        admin: t-0 NONE
        none -> Empty
        > commit v=2 t-1=5 keep=-{end}ms
        log offset g t-1 = 5 until +0ms
        admin: t-1 NONE
        > wait 10m
        log offset g t-1 gone
        > fetch t-0 t-1
        admin: t-0=5 t-1=-1
        """
    )


def test_metadata_has_to_fit_every_version_of_a_reply_whatever_the_broker_allows() -> None:
    check(
        f"""
        > commit v=9 t-0=5 meta={"m" * 32_768}
        admin: t-0 OFFSET_METADATA_TOO_LARGE
        > commit v=9 t-0=5 meta={"m" * 32_767}
        log offset g t-0 = 5
        admin: t-0 NONE
        none -> Empty
        """,
        offset_metadata_max_bytes=100_000,
    )


def test_a_negative_offset_is_kept_as_kafka_keeps_it() -> None:
    check(
        """
        > commit t-0=-5
        log offset g t-0 = -5
        admin: t-0 NONE
        none -> Empty
        """
    )


def test_more_offsets_than_any_batch_holds_are_refused_without_a_look_at_each() -> None:
    partitions = [OffsetCommitRequestPartition()] * 1_001
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    shard = GroupShard(GroupSettings(max_record_bytes=58_000))
    decision = shard.decide(request, CALLER, NOW)
    assert not decision.changes
    assert decision.replies[0].response == commit_refusal(request, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    request.topics[0].partitions = partitions[1:]
    assert len(shard.decide(request, CALLER, NOW).changes) == 1_000


@pytest.mark.parametrize("by", ["offset delete", "group delete"])
def test_offsets_that_are_deleted_need_not_fit_one_batch(by: str) -> None:
    shard = GroupShard(GroupSettings())
    for index in range(3):
        shard.apply(OffsetCommitted("g", "t", index, 5, -1, "", WALL))
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(3)]
    topic = OffsetDeleteRequestTopic(name="t", partitions=partitions)
    request = OffsetDeleteRequest(group_id="g", topics=[topic]) if by == "offset delete" else DeleteGroup("g")
    decision = shard.decide(request, CALLER, NOW)
    assert decision.may_be_split
    # The group itself goes last, so that what is done of it can be done again.
    assert decision.changes[:3] == tuple(OffsetForgotten("g", "t", index) for index in range(3))
