"""Groups for the command line to look at: with offsets, and with members who are there and do nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import FindCoordinatorRequest
from tests.broker.harness import Client
from tests.broker.members import Member
from tests.broker.members import commit as commit_alone
from tests.cli.conftest import Running
from tests.client.test_assignments import assignment

# Nobody sends heartbeats.
SESSION_MS = 600_000


def commit(broker: Running, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """As a consumer that is in no group."""

    async def work(client: Client) -> None:
        assert await commit_alone(client, group, offsets) == {0}

    _run(broker, group, work)


@contextmanager
def member_of(
    broker: Running,
    group: str,
    topics: Mapping[str, list[int]] | None = None,
    *,
    raw: bytes | None = None,
    client_id: str = "worker",
) -> Iterator[Member]:
    """The only member of a group, with these partitions, or with an assignment of its own kind."""
    joined: list[Member] = []

    async def join(client: Client) -> None:
        member = Member(client, group)
        for expected in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE):
            response = member.take_joined(await member.ask(member.join_request(session_ms=SESSION_MS), 9))
            assert response.error_code == expected
        given = assignment(1, **(topics or {})) if raw is None else raw
        assert (await member.sync({member.member_id: given})).error_code == ErrorCode.NONE
        joined.append(member)

    async def leave(client: Client) -> None:
        member.client = client
        await member.leave()

    _run(broker, group, join, client_id)
    (member,) = joined
    yield member
    _run(broker, group, leave)


def _run(
    broker: Running, group: str, work: Callable[[Client], Coroutine[Any, Any, None]], client_id: str = "worker"
) -> None:
    async def connected() -> None:
        async with _connection(broker, group, client_id) as client:
            await work(client)

    asyncio.run(connected())


@asynccontextmanager
async def _connection(broker: Running, group: str, client_id: str) -> AsyncIterator[Client]:
    host, _, port = broker.address.partition(":")
    client = await Client.open((host, int(port)), client_id=client_id)
    try:
        await client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 6)
        yield client
    finally:
        client.close()
        await client._writer.wait_closed()
