"""FindCoordinator says honestly what there is not: to wait for, or for good."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import FindCoordinatorRequest
from tests.broker.harness import in_loop, running

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(kind: int, version: int, *keys: str) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=keys, key_type=kind)
    return FindCoordinatorRequest(key=keys[0], key_type=kind) if version else FindCoordinatorRequest(key=keys[0])


@pytest.mark.parametrize("version", range(7))
def test_a_group_may_wait_for_its_coordinator(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            response = await (await node.connect()).ask(find(GROUP, version, "g", "h"), version)
            if version < 4:
                found = [(response.error_code, response.node_id, response.host, response.port)]
            else:
                assert [item.key for item in response.coordinators] == ["g", "h"]
                found = [(item.error_code, item.node_id, item.host, item.port) for item in response.coordinators]
            assert set(found) == {(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)}
            assert ErrorCode.COORDINATOR_NOT_AVAILABLE.retriable

    run()


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

    run()


@in_loop
async def test_the_message_names_what_is_missing() -> None:
    async with running() as node:
        client = await node.connect()
        for kind, words in [(GROUP, "consumer groups"), (TRANSACTION, "transactions"), (SHARE, "share groups")]:
            response = await client.ask(find(kind, 6, "x"), 6)
            assert words in response.coordinators[0].error_message
