"""All groups of a partition: what holds for every history, and what a new coordinator finds."""

from collections.abc import Hashable
from random import Random

import pytest

from penstock.machines.groups.changes import Caller, Decision, Instant
from penstock.machines.groups.classic import State
from penstock.machines.groups.records import GroupRecord, GroupStored, OffsetCommitted, decode, encode
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.shard import CHECKED_AT_ONCE, GroupShard
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse
from tests.machines.groups.histories import random_request, seeded
from tests.machines.groups.transcript import check

SETTINGS = GroupSettings(max_size=4, offsets_retention_ms=60_000, offsets_retention_check_interval_ms=20_000)


class History:
    """A shard, and everything that happened to it."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.shard = GroupShard(SETTINGS)
        self.log: list[GroupRecord] = []
        self.now = Instant(5_000, 1_700_000_000_000)
        self.unanswered: set[Hashable] = set()
        self.known_ids: list[str] = []
        self.asked = 0
        self.perform(self.shard.loaded(self.now))

    def step(self) -> None:
        if self.chance.random() < 0.3:
            ms = self.chance.choice([1, 500, 3_000, 7_000, 15_000])
            self.now = Instant(self.now.ms + ms, self.now.wall_ms + ms)
            before = fingerprint(self.shard)
            decisions = self.shard.tick(self.now)
            assert fingerprint(self.shard) == before, "tick changed something"
            for decision in decisions:
                self.perform(decision)
            return
        self.asked += 1
        request = random_request(self.chance, self.shard, self.known_ids)
        caller = Caller(self.asked, self.chance.choice([3, 9]), "c", "/127.0.0.1")
        before = fingerprint(self.shard)
        decision = self.shard.decide(request, caller, self.now, new_member_id=str(self.asked))
        assert fingerprint(self.shard) == before, f"{request} changed something"
        self.unanswered.add(self.asked)
        self.perform(decision)

    def perform(self, decision: Decision) -> None:
        self.log += decision.records
        for change in decision.changes:
            self.shard.apply(change, self.now)
        for reply in decision.replies:
            self.unanswered.remove(reply.token)
            if isinstance(reply.response, JoinGroupResponse) and reply.response.member_id:
                self.known_ids.append(reply.response.member_id)

    def check(self) -> None:
        shard = self.shard
        # Whoever asked was answered once, or waits.
        assert self.unanswered == set(shard.abandon())
        deadlines = [shard._check_at_ms, *(group.next_deadline_ms() for group in shard._groups.values())]
        assert shard.next_deadline() == min(deadline for deadline in deadlines if deadline is not None)
        for group in shard._groups.values():
            assert group.state is not State.EMPTY or not group.members
            assert set(group.sessions) == set(group.members)
            assert set(group.joining) | set(group.syncing) | group.unsynced <= set(group.members)


def fingerprint(shard: GroupShard) -> str:
    return repr((shard._groups, shard._awaited, shard._check_at_ms, shard._to_check))


def assert_same(found: GroupShard, wanted: GroupShard) -> None:
    """Both know the same of what the log keeps: all offsets, and groups that are not in a rebalance."""
    assert found._groups.keys() == wanted._groups.keys()
    for group_id, group in wanted._groups.items():
        assert found._groups[group_id].offsets == group.offsets
        if group.state in (State.EMPTY, State.STABLE):
            assert found._groups[group_id].stored(0) == group.stored(0)


@pytest.mark.parametrize("block", range(10))
def test_a_history_can_be_replayed_and_nobody_is_forgotten(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        with seeded(seed) as chance:
            history = History(chance)
            for _ in range(120):
                history.step()
                history.check()
            replayed = GroupShard(SETTINGS)
            for record in history.log:
                read = decode(*encode(record))
                assert read == record
                replayed.apply(read)
            assert_same(replayed, history.shard)


def test_a_restart_finds_an_empty_group_empty() -> None:
    check(
        """
        > join a v=3
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as a-1, generation 1, leader a-1, range, members a-1
        PreparingRebalance -> CompletingRebalance
        > commit t-0=5 group=other
        log offset other t-0 = 5
        admin: t-0 NONE
        > leave a
        log group g consumer/- generation 2 leader - []
        a: NONE, a-1 NONE
        CompletingRebalance -> Empty
        > restart
        > list
        g consumer Empty classic
        other - Empty classic
        > fetch group=other
        admin: t-0=5
        > join b v=3
        Empty -> PreparingRebalance
        > wait 3s
        b: joined as b-1, generation 3, leader b-1, range, members b-1
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_restart_before_the_first_generation_forgets_who_waited() -> None:
    check(
        """
        > join a
        log group g -/- generation 0 leader - []
        a! MEMBER_ID_REQUIRED a-1
        none -> Empty
        > join a
        Empty -> PreparingRebalance
        > restart
        a: NOT_COORDINATOR
        PreparingRebalance -> Empty
        > join a
        a: UNKNOWN_MEMBER_ID a-1
        """
    )


def test_a_restart_while_the_plan_is_awaited_goes_back_to_the_generation_before() -> None:
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
        > join b v=3
        Stable -> PreparingRebalance
        > join a
        b: joined as b-1, generation 2, leader a-1, range
        a: joined as a-1, generation 2, leader a-1, range, members a-1 b-1
        PreparingRebalance -> CompletingRebalance
        > sync b
        > restart
        b: NOT_COORDINATOR
        CompletingRebalance -> Stable
        > describe
        admin: NONE Stable consumer/range [a-1 of a/127.0.0.1 says 23 does x]
        > sync b
        b: UNKNOWN_MEMBER_ID
        > sync a plan=a:x
        a: ILLEGAL_GENERATION
        > beat a
        a: ILLEGAL_GENERATION
        > join a
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        Stable -> CompletingRebalance
        """
    )


def test_a_restart_in_a_rebalance_finds_the_group_stable() -> None:
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
        > join b v=3
        Stable -> PreparingRebalance
        > restart
        b: NOT_COORDINATOR
        PreparingRebalance -> Stable
        > beat a
        a! NONE
        > sync a
        a: plan x
        """
    )


def test_a_restart_finds_a_stable_group_and_gives_its_members_a_new_session() -> None:
    check(
        """
        > join a instance=one session=10s
        log group g -/- generation 0 leader - []
        none -> PreparingRebalance
        > wait 3s
        a: joined as one-1, generation 1, leader one-1, range, members one-1
        PreparingRebalance -> CompletingRebalance
        > sync a plan=a:x
        log group g consumer/range generation 1 leader one-1 [one-1:x]
        a: plan x
        CompletingRebalance -> Stable
        > commit a t-0=5
        log offset g t-0 = 5
        a: t-0 NONE
        > wait 9s
        > restart
        > wait 9s
        > beat a
        a! NONE
        > fetch
        admin: t-0=5
        > join b id= instance=one
        log group g consumer/range generation 1 leader one-2 [one-2:x]
        b: joined as one-2, generation 1, leader one-2, range, members one-2, skip assignment
        > wait 10s
        log group g consumer/- generation 2 leader - []
        Stable -> Empty
        """
    )


def test_a_group_that_is_too_large_when_it_is_loaded_rebalances() -> None:
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
        > limit max_size=1
        > restart
        Stable -> PreparingRebalance
        > join a
        > join b
        a: joined as a-1, generation 2, leader a-1, range, members a-1
        b: GROUP_MAX_SIZE_REACHED
        PreparingRebalance -> CompletingRebalance
        """
    )


def test_a_refused_request_changes_nothing() -> None:
    request = HeartbeatRequest(group_id="g")
    response = GroupShard(SETTINGS).refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert response == HeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_offsets_are_looked_at_for_expiry_in_slices() -> None:
    shard = GroupShard(SETTINGS)
    now = Instant(0, 1_700_000_000_000)
    groups = 3 * CHECKED_AT_ONCE
    for number in range(groups):
        shard.apply(OffsetCommitted(f"g{number}", "t", 0, 1, -1, "", now.wall_ms))
    for change in shard.loaded(now).changes:
        shard.apply(change, now)
    later = Instant(100_000, now.wall_ms + 100_000)
    turns = 0
    while (deadline_ms := shard.next_deadline()) is not None and deadline_ms <= later.ms:
        (decision,) = shard.tick(later)
        assert len(decision.records) <= 2 * CHECKED_AT_ONCE
        for change in decision.changes:
            shard.apply(change, later)
        turns += 1
    assert turns >= 3
    assert list(shard.groups()) == []


def test_a_group_whose_tombstone_is_older_than_its_offsets_keeps_them() -> None:
    """As the log may say after it was compacted."""
    shard = GroupShard(SETTINGS)
    shard.apply(OffsetCommitted("g", "t", 0, 5, -1, "", 1))
    shard.apply(GroupStored("g", "consumer", 3, None, None, 1, ()))
    record = decode(encode(GroupStored("g", "", 0, None, None, 1, ()))[0], None)
    assert record is not None
    shard.apply(record)
    assert shard.committed("g")["t", 0].offset == 5
    assert shard.committed_offset("g", "t", 0) == shard.committed("g")["t", 0]
    assert shard.committed_offset("g", "t", 1) is None
    assert [listed.protocol_type for listed in shard.groups()] == [""]


def test_nothing_is_committed_by_a_stranger() -> None:
    assert GroupShard(SETTINGS).committed("g") == {}
    assert GroupShard(SETTINGS).committed_offset("g", "t", 0) is None


def test_groups_do_not_know_each_other() -> None:
    shard = GroupShard(SETTINGS)
    now = Instant(0, 0)
    for group_id in ("g", "h"):
        request = JoinGroupRequest(group_id=group_id, session_timeout_ms=10_000)
        caller = Caller(group_id, 9, "c", "/127.0.0.1")
        assert not shard.decide(request, caller, now, new_member_id="1").changes
    assert list(shard.groups()) == []
