"""Clients that send to groups what cannot be kept, beside members of the same shard and of the same group."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.machines.groups import bounds, listing, shard
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
)
from penstock.protocol.schemas.groups import (
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.broker.harness import Client, in_loop
from tests.broker.members import AT_ONCE, Member, commit, committed, lone_member
from tests.hostile.stage import HONEST_TOPIC, Stage, beside_an_honest_client, scale

ONE_SHARD = AT_ONCE | {"offsets.topic.num.partitions": "1"}
LONG = "x" * 40_000
MOST = 0x7FFF_FFFF_FFFF_FFFF


@asynccontextmanager
async def with_one_shard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, Counter[str]]]:
    """A broker whose groups all share one coordinator, and how often that was loaded."""
    loads: Counter[str] = Counter()
    activate = Coordinator._activate

    def counted(coordinator: Coordinator[shard.GroupShard], machine: shard.GroupShard) -> None:
        loads[coordinator.partition.name] += 1
        activate(coordinator, machine)

    monkeypatch.setattr(Coordinator, "_activate", counted)
    # Members send no heartbeats during an attack, which may take longer than a session usually is.
    monkeypatch.setattr(Member, "session_ms", 1_800_000)
    async with beside_an_honest_client(ONE_SHARD) as stage:
        yield stage, loads


def join(group: str, **fields: object) -> JoinGroupRequest:
    asked = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    for name, value in fields.items():
        setattr(asked, name, value)
    return asked


def commit_once(group: str, partition: int = 0, **fields: object) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)]
    asked = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=HONEST_TOPIC, partitions=partitions)]
    )
    for name, value in fields.items():
        setattr(asked, name, value)
    return asked


def poisons(group: str) -> Iterator[tuple[Message, int, ErrorCode]]:
    """Requests with their version, and what they are answered with. The group is one that honest members are in."""
    yield join(LONG), 9, ErrorCode.INVALID_GROUP_ID
    yield join(group, group_instance_id=LONG), 9, ErrorCode.INVALID_REQUEST
    yield join("other", group_instance_id=LONG), 9, ErrorCode.INVALID_REQUEST
    yield join("other", protocol_type=LONG), 9, ErrorCode.INVALID_REQUEST
    yield join(group, protocols=[JoinGroupRequestProtocol(name=LONG)]), 9, ErrorCode.INVALID_REQUEST
    large = JoinGroupRequestProtocol(name="range", metadata=bytes(600_000))
    yield join(group, protocols=[large]), 9, ErrorCode.INVALID_REQUEST
    many = [JoinGroupRequestProtocol(name="range")] * 1_000
    yield join(group, protocols=many), 9, ErrorCode.INVALID_REQUEST
    yield join(group, member_id=LONG), 9, ErrorCode.UNKNOWN_MEMBER_ID
    yield SyncGroupRequest(group_id=LONG), 5, ErrorCode.INVALID_GROUP_ID
    yield SyncGroupRequest(group_id=group, member_id=LONG), 5, ErrorCode.UNKNOWN_MEMBER_ID
    yield HeartbeatRequest(group_id=LONG), 4, ErrorCode.INVALID_GROUP_ID
    yield HeartbeatRequest(group_id=group, member_id=LONG), 4, ErrorCode.UNKNOWN_MEMBER_ID
    yield LeaveGroupRequest(group_id=LONG), 5, ErrorCode.INVALID_GROUP_ID
    leaving = [MemberIdentity(member_id="nobody")] * 11_000
    yield LeaveGroupRequest(group_id=group, members=leaving), 5, ErrorCode.INVALID_REQUEST
    yield commit_once(LONG), 9, ErrorCode.INVALID_GROUP_ID
    for version in (2, 3, 4):
        yield commit_once("other", retention_time_ms=MOST), version, ErrorCode.NONE
        yield commit_once("another", retention_time_ms=-MOST), version, ErrorCode.NONE
    for partition in (-1, 1, 0x7FFF_FFFF):
        yield commit_once("nowhere", partition), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    yield DeleteGroupsRequest(groups_names=[LONG]), 2, ErrorCode.INVALID_GROUP_ID
    yield OffsetDeleteRequest(group_id="x" * 32_767), 0, ErrorCode.INVALID_GROUP_ID


async def poison(attacker: Client, group: str) -> int:
    """Send each of them; returns how many that were."""
    count = 0
    for request, version, wanted in poisons(group):
        response = await attacker.ask(request, version)
        match request:
            case OffsetCommitRequest():
                code = response.topics[0].partitions[0].error_code
            case DeleteGroupsRequest():
                code = response.results[0].error_code
            case _:
                code = response.error_code
        assert code == wanted, (type(request).__name__, version, ErrorCode(code).name)
        count += 1
    return count


def test_requests_that_cannot_be_kept_cost_members_neither_their_plan_nor_a_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @in_loop
    async def run() -> None:
        async with with_one_shard(monkeypatch) as (stage, loads):
            leader = await lone_member(stage.node)
            attacker = await stage.attacker()
            sent = 0
            other = Member(await stage.node.connect())
            await other.get_id()
            sent += await poison(attacker, "g")
            other.send_join()
            while await leader.heartbeat() == ErrorCode.NONE:
                pass
            # Both joins, and then one sync, wait for somebody while poison arrives.
            sent += await poison(attacker, "g")
            leader.send_join()
            for member in (leader, other):
                assert member.take_joined(await member.client.reply()).error_code == ErrorCode.NONE
            other.client.send(other.sync_request(), 5)
            for _ in range(scale(5, soak=100)):
                sent += await poison(attacker, "g")
            synced = await leader.sync({leader.member_id: b"left", other.member_id: b"right"})
            assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"left")
            assert (await other.client.reply()).assignment == b"right"
            assert leader.generation == other.generation == 2
            sent += await poison(attacker, "g")
            for member in (leader, other):
                assert await member.heartbeat() == ErrorCode.NONE
                assert await member.commit(HONEST_TOPIC, 5) == ErrorCode.NONE
            assert sent >= 200
            assert loads == {"__consumer_offsets-0": 1}

    run()


def test_a_client_id_of_the_longest_makes_no_member_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_loop
    async def run() -> None:
        async with with_one_shard(monkeypatch) as (stage, loads):
            honest = await lone_member(stage.node)
            odd = Member(await stage.attacker(client_id="c" * 32_767), "other")
            assert (await odd.join()).error_code == ErrorCode.NONE
            assert (await odd.sync({odd.member_id: b"all"})).assignment == b"all"
            assert len(odd.member_id) < 300
            assert await honest.heartbeat() == ErrorCode.NONE
            assert loads == {"__consumer_offsets-0": 1}

    run()


def test_a_group_that_outgrows_its_record_harms_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_loop
    async def run() -> None:
        async with with_one_shard(monkeypatch) as (stage, loads):
            honest = await lone_member(stage.node)
            large = [JoinGroupRequestProtocol(name="range", metadata=bytes(400_000))]
            first = Member(await stage.attacker(), "large")
            first.take_joined(await first.ask(join("large", protocols=large), 3))
            assert first.generation == 1
            for version in (3, 9):
                refused = await (await stage.attacker()).ask(join("large", protocols=large), version)
                assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
            plan = SyncGroupRequest(
                group_id="large",
                generation_id=1,
                member_id=first.member_id,
                assignments=[SyncGroupRequestAssignment(member_id=first.member_id, assignment=bytes(700_000))],
            )
            assert (await first.ask(plan, 3)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            plan.assignments[0].assignment = bytes(500_000)
            assert len((await first.ask(plan, 3)).assignment) == 500_000
            assert await honest.heartbeat() == ErrorCode.NONE
            log = stage.node.partition("__consumer_offsets").log
            assert max(header.size for header in log.headers(0)) <= 1_048_588
            assert loads == {"__consumer_offsets-0": 1}

    run()


def test_a_commit_of_more_offsets_than_a_batch_holds_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    @in_loop
    async def run() -> None:
        async with with_one_shard(monkeypatch) as (stage, loads):
            honest = await lone_member(stage.node)
            attacker = await stage.attacker()
            request = commit_once("other")
            request.topics[0].partitions = list(request.topics[0].partitions) * 18_000
            response = await attacker.ask(request, 9)
            assert {item.error_code for item in response.topics[0].partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
            assert await honest.commit(HONEST_TOPIC, 1) == ErrorCode.NONE
            assert await committed(attacker, "other") == {}
            assert loads == {"__consumer_offsets-0": 1}

    run()


def test_newcomers_that_never_come_back_are_forgotten_and_the_groups_that_they_made_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @in_loop
    async def run() -> None:
        most = scale(50, soak=bounds.MAX_INVITED)
        monkeypatch.setattr(shard, "MAX_INVITED", most)
        async with with_one_shard(monkeypatch) as (stage, loads):
            honest = await lone_member(stage.node)
            attacker = await stage.attacker()
            for number in range(4 * most):
                asked = join(f"empty {number}", session_timeout_ms=1_800_000)
                assert (await attacker.ask(asked, 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED
                assert (await attacker.ask(join("g"), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED
            [coordinator] = stage.node.broker.services.groups.shards()
            assert coordinator.machine is not None
            assert len(coordinator.machine._invitations) == most
            assert len(coordinator.machine._groups) <= most + 1
            assert await honest.heartbeat() == ErrorCode.NONE
            assert honest.generation == 1
            # A newcomer who comes back at once is let in among all that.
            late = Member(await stage.node.connect(), "late")
            assert (await late.join()).error_code == ErrorCode.NONE
            assert loads == {"__consumer_offsets-0": 1}

    run()


def test_a_bug_that_one_request_meets_is_that_requests_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(listing, "delete", broken)

    @in_loop
    async def run() -> None:
        async with with_one_shard(monkeypatch) as (stage, loads):
            honest = await lone_member(stage.node)
            attacker = await stage.attacker()
            with caplog.at_level(logging.CRITICAL):
                for _ in range(20):
                    [result] = (await attacker.ask(DeleteGroupsRequest(groups_names=["g"]), 2)).results
                    assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
                    assert await honest.heartbeat() == ErrorCode.NONE
            assert await commit(attacker, "other", {(HONEST_TOPIC, 0): 1}) == {ErrorCode.NONE}
            assert loads == {"__consumer_offsets-0": 1}

    run()
