"""Groups are listed, described and deleted over the wire."""

import pytest

from penstock.broker.coordinators import coordinator
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)
from tests.broker.harness import Client, in_loop, running
from tests.broker.members import (
    AT_ONCE,
    SESSION_MS,
    Member,
    commit,
    commit_request,
    committed,
    lone_member,
    with_groups,
)


async def listed(client: Client, version: int = 5, **filters: list[str]) -> set[str]:
    response = await client.ask(ListGroupsRequest(**filters), version)
    assert response.error_code == ErrorCode.NONE
    return {group.group_id for group in response.groups}


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_the_groups_of_all_shards(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running(AT_ONCE) as node:
            client = await with_groups(node)
            await client.create_topic("t")
            assert await listed(client, version) == set()
            names = {f"g{number}" for number in range(30)}
            for name in names:
                await commit(client, name, {("t", 0): 1})
            await lone_member(node, "live")
            response = await client.ask(ListGroupsRequest(), version)
            found = {group.group_id: group for group in response.groups}
            assert found.keys() == names | {"live"}
            live, idle = found["live"], found["g0"]
            assert (live.protocol_type, idle.protocol_type) == ("consumer", "")
            if version >= 4:
                assert (live.group_state, idle.group_state) == ("Stable", "Empty")
            if version >= 5:
                assert (live.group_type, idle.group_type) == ("classic", "classic")

    run()


@in_loop
async def test_a_list_can_be_limited_to_states_and_types() -> None:
    async with running(AT_ONCE) as node:
        client = await with_groups(node)
        await client.create_topic("t")
        await commit(client, "idle", {("t", 0): 1})
        await lone_member(node, "live")
        assert await listed(client, states_filter=["Stable"]) == {"live"}
        assert await listed(client, states_filter=["stable", "empty"]) == {"live", "idle"}
        assert await listed(client, states_filter=["Dead"]) == set()
        assert await listed(client, types_filter=["Classic"]) == {"live", "idle"}
        assert await listed(client, types_filter=["consumer"]) == set()


@in_loop
async def test_there_is_no_list_while_groups_are_missing_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "RECORDS_AT_ONCE", 1)
    async with running(AT_ONCE) as node:
        client = await with_groups(node)
        await client.create_topic("t", 500)
        await commit(client, "g", {("t", partition): 1 for partition in range(500)})
        await node.crash()
        assert node.broker.services.groups.is_loading
        client = await node.connect()
        seen = set()
        while True:
            response = await client.ask(ListGroupsRequest(), 5)
            seen.add(response.error_code)
            if response.error_code == ErrorCode.NONE:
                break
            assert not response.groups
        assert seen == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE}
        assert {group.group_id for group in response.groups} == {"g"}


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes_groups_and_says_what_there_is_not(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running(AT_ONCE) as node:
            member = await lone_member(node, "live")
            request = DescribeGroupsRequest(groups=["live", "unheard of"])
            live, unknown = (await member.client.ask(request, version)).groups
            assert (live.error_code, live.group_id, live.group_state) == (ErrorCode.NONE, "live", "Stable")
            assert (live.protocol_type, live.protocol_data) == ("consumer", "range")
            [described] = live.members
            assert described.member_id == member.member_id
            assert (described.client_id, described.client_host) == ("test", "/127.0.0.1")
            assert described.member_assignment == b"all"
            assert (unknown.group_id, unknown.group_state) == ("unheard of", "Dead")
            assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)

    run()


@pytest.mark.parametrize("version", range(3))
def test_every_version_deletes_groups_without_members(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running(AT_ONCE) as node:
            member = await lone_member(node, "live")
            client = member.client
            await client.create_topic("t")
            await commit(client, "idle", {("t", 0): 1})
            names = ["idle", "live", "unheard of", "idle"]
            response = await client.ask(DeleteGroupsRequest(groups_names=names), version)
            codes = {result.group_id: result.error_code for result in response.results}
            assert codes == {
                "idle": ErrorCode.NONE,
                "live": ErrorCode.NON_EMPTY_GROUP,
                "unheard of": ErrorCode.GROUP_ID_NOT_FOUND,
            }
            assert await listed(client) == {"live"}
            assert await committed(client, "idle") == {}
            await node.crash()
            client = await node.connect()
            while (await client.ask(ListGroupsRequest(), 5)).error_code:
                pass
            assert await listed(client) == {"live"}

    run()


@in_loop
async def test_a_group_may_be_of_another_kind_than_consumers() -> None:
    async with running(AT_ONCE) as node:
        client = await with_groups(node)
        request = JoinGroupRequest(
            group_id="workers",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="connect",
            protocols=[JoinGroupRequestProtocol(name="sessioned", metadata=b"anything")],
        )
        assert (await client.ask(request, 3)).protocol_name == "sessioned"
        [group] = (await client.ask(DescribeGroupsRequest(groups=["workers"]), 5)).groups
        assert (group.protocol_type, group.group_state) == ("connect", "CompletingRebalance")


@in_loop
async def test_a_group_that_is_named_twice_is_described_once() -> None:
    async with running(AT_ONCE) as node:
        member = await lone_member(node, "live")
        request = DescribeGroupsRequest(groups=["live", "none", "live", "none", "live"])
        described = (await member.client.ask(request, 6)).groups
        assert [group.group_id for group in described] == ["live", "none"]


@in_loop
async def test_groups_that_have_no_room_in_the_reply_are_refused_and_others_are_described() -> None:
    async with running({**AT_ONCE, "penstock.reply.max.bytes": str(1 << 20)}) as node:
        for group in ("a", "b", "c"):
            member = Member(await with_groups(node, group), group)
            await member.join()
            assert (await member.sync({member.member_id: bytes(400_000)})).error_code == ErrorCode.NONE
        small = await lone_member(node, "d")
        described = (await small.client.ask(DescribeGroupsRequest(groups=["a", "b", "c", "d"]), 6)).groups
        codes = {group.group_id: (group.error_code, len(group.members)) for group in described}
        assert codes == {
            "a": (ErrorCode.NONE, 1),
            "b": (ErrorCode.NONE, 1),
            "c": (ErrorCode.POLICY_VIOLATION, 0),
            "d": (ErrorCode.NONE, 1),
        }
        assert "describe fewer groups at a time" in described[2].error_message


@in_loop
async def test_a_list_of_many_groups_is_whole_though_groups_come_and_go_meanwhile() -> None:
    async with running() as node:
        client, other = await with_groups(node), await node.connect()
        await client.create_topic("t")
        names = {f"g{number}" for number in range(1000)}
        for name in names:
            client.send(commit_request(name, {("t", 0): 1}), 9)
        for _ in names:
            await client.reply()
        client.send(ListGroupsRequest(), 5)
        await commit(other, "late", {("t", 0): 1})
        await other.ask(DeleteGroupsRequest(groups_names=["g7"]), 2)
        listing = {group.group_id for group in (await client.reply()).groups}
        assert names - {"g7"} <= listing <= names | {"late"}
