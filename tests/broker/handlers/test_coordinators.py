"""FindCoordinator tells where groups are coordinated, and what there is not."""

import asyncio

import pytest

from penstock.machines.groups.sharding import OFFSETS_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import FindCoordinatorRequest
from tests.broker.harness import in_loop, running

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(kind: int, version: int, *keys: str) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
    return FindCoordinatorRequest(key=keys[0], key_type=kind) if version else FindCoordinatorRequest(key=keys[0])


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_coordinator_of_a_group(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running({"node.id": "7"}) as node:
            response = await (await node.connect()).ask(find(GROUP, version, "g", "h"), version)
            if version < 4:
                found = [(response.error_code, response.node_id, response.host, response.port)]
            else:
                assert [item.key for item in response.coordinators] == ["g", "h"]
                found = [(item.error_code, item.node_id, item.host, item.port) for item in response.coordinators]
            assert set(found) == {(ErrorCode.NONE, 7, *node.broker.address)}

    run()


@in_loop
async def test_many_who_ask_first_make_one_topic() -> None:
    async with running() as node:
        clients = [await node.connect() for _ in range(5)]
        assert OFFSETS_TOPIC not in node.broker.services.image.topics
        responses = await asyncio.gather(*[client.ask(find(GROUP, 6, "g"), 6) for client in clients])
        assert [response.coordinators[0].error_code for response in responses] == [ErrorCode.NONE] * 5
        assert set(node.broker.services.image.topics) == {OFFSETS_TOPIC}


@in_loop
async def test_replicas_that_are_asked_for_and_cannot_be_had_leave_groups_without_a_coordinator() -> None:
    async with running({"offsets.topic.replication.factor": "3"}) as node:
        response = await (await node.connect()).ask(find(GROUP, 6, "g", "h"), 6)
        for found in response.coordinators:
            assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            assert "replication factor 3" in found.error_message
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE.retriable


@pytest.mark.parametrize("kind", [TRANSACTION, SHARE, 9])
@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_what_is_not_built_is_refused_for_good(kind: int, version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            response = await (await node.connect()).ask(find(kind, version, "x"), version)
            answer = response if version < 4 else response.coordinators[0]
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert not ErrorCode(answer.error_code).retriable
            assert answer.error_message
            assert OFFSETS_TOPIC not in node.broker.services.image.topics

    run()


@in_loop
async def test_the_message_names_what_is_missing() -> None:
    async with running() as node:
        client = await node.connect()
        for kind, words in [(TRANSACTION, "transactions"), (SHARE, "share groups")]:
            response = await client.ask(find(kind, 6, "x"), 6)
            assert words in response.coordinators[0].error_message


@in_loop
async def test_a_group_that_is_named_twice_is_told_once() -> None:
    async with running() as node:
        response = await (await node.connect()).ask(find(GROUP, 6, "g", "h", "g"), 6)
        assert [item.key for item in response.coordinators] == ["g", "h"]
