"""What members of a group send, over the wire: together they get a plan, and learn when it does not hold any more."""

import pytest

from penstock.machines.groups.sharding import OFFSETS_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import JoinGroupRequest
from tests.broker.harness import FakeClock, GatedFiles, in_loop, running, turns, until
from tests.broker.members import AT_ONCE, REBALANCE_MS, SESSION_MS, Member, lone_member, pass_time, with_groups


async def pair(first: Member, second: Member) -> tuple[Member, Member]:
    """A stable member and a new one become a group of two; the leader comes first."""
    await second.get_id()
    second.send_join()
    await until_rebalance(first)
    first.send_join()
    for member in (first, second):
        response = member.take_joined(await member.client.reply())
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
    leader, other = (first, second) if first.leads else (second, first)
    other.client.send(other.sync_request(), 5)
    plan = {leader.member_id: b"left half", other.member_id: b"right half"}
    assert (await leader.sync(plan)).assignment == b"left half"
    assert (await other.client.reply()).assignment == b"right half"
    return leader, other


async def until_rebalance(member: Member) -> None:
    while (code := await member.heartbeat()) != ErrorCode.REBALANCE_IN_PROGRESS:
        assert code == ErrorCode.NONE


@in_loop
async def test_two_members_share_and_one_that_leaves_is_replaced() -> None:
    async with running(AT_ONCE) as node:
        first = await lone_member(node)
        assert (first.generation, first.leads) == (1, True)
        leader, other = await pair(first, Member(await node.connect()))
        assert leader.generation == other.generation == 2
        assert leader.joined is not None
        assert {member.member_id for member in leader.joined.members} == {leader.member_id, other.member_id}
        assert other.joined is not None
        assert not other.joined.members

        assert await leader.leave() == ErrorCode.NONE
        await until_rebalance(other)
        assert (await other.join()).generation_id == 3
        assert other.leads
        assert (await other.sync({other.member_id: b"all"})).assignment == b"all"
        assert await other.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group_lets_a_member_in(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running(AT_ONCE) as node:
            member = Member(await with_groups(node))
            response = await member.join(version)
            assert response.error_code == ErrorCode.NONE
            assert response.generation_id == 1
            assert response.protocol_name == "range"
            assert response.protocol_type == ("consumer" if version >= 7 else None)
            assert response.leader == member.member_id
            assert [item.member_id for item in response.members] == [member.member_id]

    run()


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_group_gives_the_plan(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running(AT_ONCE) as node:
            member = Member(await with_groups(node))
            await member.join()
            response = await member.sync({member.member_id: b"all"}, version)
            assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"all")
            assert response.protocol_name == ("range" if version >= 5 else None)

    run()


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat_says_that_all_is_well_or_who_is_unknown(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running(AT_ONCE) as node:
            member = await lone_member(node)
            assert await member.heartbeat(version) == ErrorCode.NONE
            member.generation += 1
            assert await member.heartbeat(version) == ErrorCode.ILLEGAL_GENERATION
            member.member_id = "somebody else"
            assert await member.heartbeat(version) == ErrorCode.UNKNOWN_MEMBER_ID

    run()


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leave_group_lets_a_member_go(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running(AT_ONCE) as node:
            member = await lone_member(node)
            assert await member.leave(version) == ErrorCode.NONE
            assert await member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
            assert await member.leave(version) == ErrorCode.UNKNOWN_MEMBER_ID

    run()


@in_loop
async def test_a_new_member_is_told_its_name_before_it_may_join() -> None:
    async with running(AT_ONCE) as node:
        client = await with_groups(node)
        names = set()
        for _ in range(3):
            member = Member(client)
            await member.get_id()
            assert member.member_id.startswith("test-")
            names.add(member.member_id)
        assert len(names) == 3


@in_loop
async def test_a_join_that_waits_holds_up_nobody_on_other_connections_and_replies_keep_their_order() -> None:
    async with running(AT_ONCE) as node:
        first = await lone_member(node)
        second = Member(await node.connect())
        await second.get_id()
        second.send_join()
        # Behind the join on its own connection; read and decided at once, answered in its turn.
        second.client.send(second.heartbeat_request(), 4)
        await until_rebalance(first)
        assert (await first.join()).generation_id == 2
        second.take_joined(await second.client.reply())
        assert second.generation == 2
        assert (await second.client.reply()).error_code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.NONE)


@in_loop
async def test_the_first_generation_waits_for_more_members() -> None:
    clock = FakeClock()
    async with running({"group.initial.rebalance.delay.ms": "3000"}, clock=clock) as node:
        members = [Member(await with_groups(node)) for _ in range(2)]
        for member in members:
            await member.get_id()
            member.send_join()
        await until(lambda: sum(shard.parked for shard in node.broker.services.groups.shards()) == 2)
        # Each that comes within the delay has it begin anew, up to the rebalance timeout.
        for _ in range(2):
            await pass_time(node, clock, 3000)
        generations = [member.take_joined(await member.client.reply()).generation_id for member in members]
        assert generations == [1, 1]


@in_loop
async def test_a_member_that_falls_silent_is_out_when_its_session_ends() -> None:
    clock = FakeClock()
    async with running(AT_ONCE, clock=clock) as node:
        leader, other = await pair(await lone_member(node), Member(await node.connect()))
        await pass_time(node, clock, SESSION_MS - 1)
        assert await leader.heartbeat() == ErrorCode.NONE
        await pass_time(node, clock, 1)
        assert await leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert await other.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_a_rebalance_waits_for_a_member_no_longer_than_its_timeout() -> None:
    clock = FakeClock()
    async with running(AT_ONCE, clock=clock) as node:
        first = await lone_member(node)
        second = Member(await node.connect())
        await second.get_id()
        second.send_join()
        await until_rebalance(first)
        passed = 0
        while passed < REBALANCE_MS:
            # It lives, and does not join.
            assert await first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            await pass_time(node, clock, 5000)
            passed += 5000
        second.take_joined(await second.client.reply())
        assert (second.generation, second.leads) == (2, True)
        assert await first.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


@in_loop
async def test_the_timer_notices_by_itself_that_a_session_has_ended() -> None:
    async with running({**AT_ONCE, "group.min.session.timeout.ms": "50"}) as node:
        member = Member(await with_groups(node))
        await member.get_id()
        response = await member.ask(member.join_request(session_ms=100), 9)
        member.take_joined(response)
        await member.sync({member.member_id: b"all"})
        [shard] = [
            shard for shard in node.broker.services.groups.shards() if shard.machine and list(shard.machine.groups())
        ]
        await until(lambda: shard.machine and [group.state for group in shard.machine.groups()] == ["Empty"])


@in_loop
async def test_a_plan_is_told_only_when_it_is_durable() -> None:
    files = GatedFiles()
    async with running(AT_ONCE, files=files) as node:
        member = Member(await with_groups(node))
        await member.join()
        files.gate.clear()
        member.client.send(member.sync_request({member.member_id: b"all"}), 5)
        await until(lambda: files.waiting)
        other = Member(await node.connect())
        other.member_id, other.generation = member.member_id, member.generation
        assert await other.heartbeat() == ErrorCode.NONE
        files.gate.set()
        assert (await member.client.reply()).assignment == b"all"


@in_loop
async def test_a_connection_that_goes_away_is_waited_for_by_nobody() -> None:
    async with running(AT_ONCE) as node:
        first = await lone_member(node)
        second = Member(await node.connect())
        await second.get_id()
        second.send_join()
        await until_rebalance(first)
        assert sum(shard.parked for shard in node.broker.services.groups.shards()) == 1
        second.client.abort()
        await until(lambda: sum(shard.parked for shard in node.broker.services.groups.shards()) == 0)
        # The member itself lives on until its session ends, as it may come back by another connection.
        assert (await first.join()).generation_id == 2
        assert first.joined is not None
        assert second.member_id in {member.member_id for member in first.joined.members}


@in_loop
async def test_a_stop_answers_the_joins_that_wait() -> None:
    async with running(AT_ONCE) as node:
        first = await lone_member(node)
        second = Member(await node.connect())
        await second.get_id()
        second.send_join()
        await until_rebalance(first)
        broker, node._broker = node.broker, None
        await broker.stop()
        assert (await second.client.reply()).error_code == ErrorCode.NOT_COORDINATOR


@in_loop
async def test_a_group_outlives_the_broker_that_coordinates_it() -> None:
    async with running(AT_ONCE) as node:
        member = await lone_member(node)
        await node.crash()
        member.client = await node.connect()
        while (code := await member.heartbeat()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await turns(1)
        assert code == ErrorCode.NONE
        assert (await member.sync()).assignment == b"all"


@in_loop
async def test_a_static_member_that_restarts_keeps_its_place() -> None:
    async with running(AT_ONCE) as node:
        before = await lone_member(node, instance="one")
        again = Member(await node.connect(), instance="one")
        response = await again.join()
        assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
        assert again.member_id != before.member_id
        assert (await again.sync()).assignment == b"all"
        assert await before.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@in_loop
async def test_before_anybody_has_looked_for_a_coordinator_there_is_none() -> None:
    async with running(AT_ONCE) as node:
        member = Member(await node.connect())
        assert (await member.join()).error_code == ErrorCode.NOT_COORDINATOR
        assert await member.heartbeat() == ErrorCode.NOT_COORDINATOR
        assert (await member.sync()).error_code == ErrorCode.NOT_COORDINATOR
        assert OFFSETS_TOPIC not in node.broker.services.image.topics


@in_loop
async def test_what_makes_no_sense_is_refused_at_once() -> None:
    async with running(AT_ONCE) as node:
        client = await with_groups(node)
        member = Member(client, "")
        assert (await member.join()).error_code == ErrorCode.INVALID_GROUP_ID
        member = Member(client)
        short = member.join_request(session_ms=1)
        assert (await client.ask(short, 9)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        nothing = JoinGroupRequest(group_id="g", session_timeout_ms=SESSION_MS, protocol_type="consumer")
        assert (await client.ask(nothing, 9)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
