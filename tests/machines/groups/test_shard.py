"""All groups of a partition: what holds for every history, and what a new coordinator finds."""

from collections.abc import Hashable
from random import Random

import pytest

from penstock.machines.decision_queue import Answer, DecisionQueue
from penstock.machines.groups.bounds import MAX_INVITED, MAX_PROTOCOLS, is_name
from penstock.machines.groups.changes import Caller, Decision, DeleteGroup, DescribeGroup, Instant
from penstock.machines.groups.classic import State
from penstock.machines.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    decode,
    encode,
)
from penstock.machines.groups.responses import Request, refusal
from penstock.machines.groups.settings import GroupSettings
from penstock.machines.groups.shard import CHECKED_AT_ONCE, GroupShard
from penstock.protocol import codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import EncodeError
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetFetchRequestGroup,
)
from penstock.protocol.schemas.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.machines.groups.histories import LENGTHS, poison, random_request, seeded
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
            assert group.log_bytes == sum(member.log_bytes for member in group.members.values())
        invited = {(group.group_id, member) for group in shard._groups.values() for member in group.invited}
        assert set(shard._invitations) == invited


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


class PoisonedHistory:
    """A shard and its log, and requests of which many could not be kept as they are."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.settings = GroupSettings(max_record_bytes=60_000, offset_metadata_max_bytes=100_000)
        self.shard = GroupShard(self.settings)
        self.queue = DecisionQueue(self.shard, encode, max_batch_bytes=self.settings.max_record_bytes)
        self.now = Instant(5_000, 1_700_000_000_000)
        self.known_ids: list[str] = []
        self.asked = self.refused = self.committed = 0
        self.queue.take(self.shard.loaded(self.now), self.now)

    def step(self) -> None:
        ms = self.chance.choice([0, 1, 500, 3_000])
        self.now = Instant(self.now.ms + ms, self.now.wall_ms + ms)
        self.receive(self.queue.tick(self.now))
        request = random_request(self.chance, self.shard, self.known_ids)
        version = 9
        if isinstance(request, Message) and type(request).schema.key is not None:
            versions = type(request).schema.versions
            version = self.chance.randint(max(versions.first, 2) if versions.last else 0, min(versions.last, 9))
            if self.chance.random() < 0.5:
                poison(self.chance, request)
            try:
                request = codec.decode(type(request), version, codec.encode(request, version))
            except EncodeError:
                # The wire does not carry it.
                return
        self.asked += 1
        client_id = "c" * self.chance.choice([1, 1, 1, *(length for length in LENGTHS if length < 0x8000)])
        caller = Caller((self.asked, version), version, client_id, "/127.0.0.1")
        self.receive(self.queue.submit(request, caller, self.now, new_member_id=str(self.asked)))
        while self.queue.has_records:
            records = self.queue.take_records()
            assert sum(len(key) + len(value or b"") for key, value in records) <= self.settings.max_record_bytes
            self.committed += len(records)
            for key, value in records:
                assert decode(key, value) is not None
            self.receive(self.queue.committed(self.now))

    def receive(self, answers: list[Answer]) -> None:
        for token, response in answers:
            assert isinstance(token, tuple)
            if type(response).schema.key is not None:
                codec.encode(response, token[1])
            self.refused += bool(getattr(response, "error_code", 0))
            if isinstance(response, JoinGroupResponse) and response.member_id:
                self.known_ids.append(response.member_id)

    def check(self) -> None:
        for group in self.shard._groups.values():
            assert is_name(group.group_id)
            assert group.log_bytes == sum(member.log_bytes for member in group.members.values())
            assert group.log_bytes <= self.settings.max_record_bytes
            for member in group.members.values():
                assert sum(len(metadata) for _, metadata in member.protocols) <= self.settings.max_record_bytes // 2
                assert len(member.protocols) <= MAX_PROTOCOLS


@pytest.mark.parametrize("block", range(5))
def test_whatever_a_request_says_it_is_decided_and_what_is_decided_can_be_written_and_said(block: int) -> None:
    refused = committed = 0
    for seed in range(block * 12, block * 12 + 12):
        with seeded(seed) as chance:
            history = PoisonedHistory(chance)
            for _ in range(300):
                history.step()
                history.check()
            refused += history.refused
            committed += history.committed
    assert min(refused, committed) > 100


@pytest.mark.parametrize(
    "request_",
    [
        JoinGroupRequest(group_id="g" * 1_025),
        SyncGroupRequest(group_id="g" * 1_025),
        HeartbeatRequest(group_id="g" * 1_025),
        LeaveGroupRequest(group_id="g" * 1_025),
        OffsetCommitRequest(
            group_id="g" * 1_025,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])],
        ),
        OffsetFetchRequestGroup(group_id="g" * 1_025),
        OffsetDeleteRequest(group_id="g" * 1_025),
        DescribeGroup("g" * 1_025),
        DeleteGroup("g" * 1_025),
    ],
    ids=lambda request: type(request).__name__,
)
def test_an_id_that_is_too_long_for_a_group_is_refused_whatever_is_asked(request_: Request) -> None:
    shard = GroupShard(SETTINGS)
    decision = shard.decide(request_, Caller("a", 5, "c", "/127.0.0.1"), Instant(0, 0), new_member_id="1")
    [reply] = decision.replies
    assert not decision.changes
    assert reply.response == refusal(request_, ErrorCode.INVALID_GROUP_ID)


class Invitations:
    """Members that join for the first time and are told to come back."""

    def __init__(self) -> None:
        self.shard = GroupShard(GroupSettings())
        self.now = Instant(5_000, 1_700_000_000_000)
        self.log: list[GroupRecord] = []
        self.count = 0

    def join(self, group: str, member_id: str = "", session_ms: int = 10_000) -> JoinGroupResponse | None:
        self.count += 1
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
        caller = Caller(self.count, 9, "c", "/127.0.0.1")
        return self.perform(self.shard.decide(request, caller, self.now, new_member_id=str(self.count)))

    def perform(self, decision: Decision) -> JoinGroupResponse | None:
        self.log += decision.records
        for change in decision.changes:
            self.shard.apply(change, self.now)
        for reply in decision.replies:
            if reply.token == self.count:
                assert isinstance(reply.response, JoinGroupResponse)
                return reply.response
        return None

    @property
    def invited(self) -> int:
        assert len(self.shard._invitations) == sum(len(group.invited) for group in self.shard._groups.values())
        return len(self.shard._invitations)


def test_beyond_a_number_of_members_that_are_awaited_the_oldest_is_not_awaited_any_longer() -> None:
    it = Invitations()
    first = it.join("first")
    assert first is not None
    for number in range(MAX_INVITED + 500):
        it.join(f"g{number % 700}")
    assert it.invited == MAX_INVITED
    # A group that was there for this member alone is gone with it, also from the log.
    assert "first" not in it.shard._groups
    assert GroupForgotten("first") in it.log
    late = it.join("first", first.member_id)
    assert late is not None
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    # One that comes back soon is let in, and is not among those any more.
    again = it.join("first")
    assert again is not None
    assert it.join("first", again.member_id) is None
    assert it.invited == MAX_INVITED - 1


def test_groups_that_no_member_came_to_are_as_many_as_are_awaited() -> None:
    it = Invitations()
    for number in range(2 * MAX_INVITED):
        it.join(f"g{number}", session_ms=1_800_000 - number)
    assert len(it.shard._groups) == it.invited == MAX_INVITED
    assert len(it.shard._deadlines._not_before) == MAX_INVITED
    it.now = Instant(it.now.ms + 1_800_000, it.now.wall_ms)
    for decision in it.shard.tick(it.now):
        it.perform(decision)
    assert not it.shard._groups
    assert it.invited == 0


def test_a_flood_of_newcomers_to_one_group_costs_its_members_nothing() -> None:
    it = Invitations()
    member = it.join("g")
    assert member is not None
    assert it.join("g", member.member_id) is None
    for _ in range(MAX_INVITED + 10):
        it.join("g")
    group = it.shard._groups["g"]
    assert list(group.members) == list(group.joining) == [member.member_id]
    assert it.invited == MAX_INVITED


def test_an_invitation_that_is_withdrawn_lets_the_others_of_its_group_go_on() -> None:
    it = Invitations()
    joined = it.join("g")
    assert joined is not None
    it.join("g", joined.member_id)
    it.now = Instant(it.now.ms + 3_000, it.now.wall_ms)
    for decision in it.shard.tick(it.now):
        it.perform(decision)
    it.join("g")
    # Its only member comes again, so that the one who is invited is all that is missing.
    other = JoinGroupRequestProtocol(name="range", metadata=b"another")
    request = JoinGroupRequest(
        group_id="g",
        member_id=joined.member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[other],
    )
    it.perform(it.shard.decide(request, Caller("again", 9, "c", "/127.0.0.1"), it.now))
    assert it.shard._groups["g"].generation == 1
    for number in range(MAX_INVITED):
        it.join(f"h{number}")
    assert it.shard._groups["g"].state is State.COMPLETING
    assert it.shard._groups["g"].generation == 2


def test_a_group_that_is_deleted_awaits_nobody() -> None:
    it = Invitations()
    it.join("g")
    it.perform(it.shard.decide(DeleteGroup("g"), Caller("admin", 2, "c", "/127.0.0.1"), it.now))
    assert it.invited == 0
    assert it.shard.next_deadline() is None


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
    assert shard.committed_partitions("g") == {"t": [0]}
    assert shard.committed_partitions("another") == {}


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
