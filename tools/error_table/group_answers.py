"""What the coordinator of a group answers while the topic of offsets, which wants two replicas in sync, has enough of
them or too few."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from penstock.client.admin.configs import ConfigChange, Resource, ResourceType, alter_configs
from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.connection import Connection
from penstock.client.errors import unwrap
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from penstock.protocol.schemas.groups import (
    Coordinator,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tools.clients.processes import OutsideError
from tools.error_table.cells import topic_of
from tools.error_table.wire import connected

OFFSETS = "__consumer_offsets"
MIN_ISR = 2
SESSION_MS = 300_000
WAIT_SECONDS = 60
LOOK_SECONDS = 0.02
# A coordinator that has just taken over says these, and a moment later something else.
PASSING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
# With topics by their names.
BY_NAME = Versions(2, 7)


async def prepare_offsets(bootstrap: str) -> None:
    """Have the topic of offsets made, and set how many replicas of it have to be in sync."""
    await _find(bootstrap, "group")
    async with Cluster(bootstrap) as cluster:
        wanted = {Resource(ResourceType.TOPIC, OFFSETS): [ConfigChange("min.insync.replicas", str(MIN_ISR))]}
        unwrap(await alter_configs(cluster, wanted))


class Member(NamedTuple):
    group: str
    member_id: str
    generation: int


async def join(bootstrap: str) -> Member:
    """A member of a group that stays in it from one state to the next."""
    found = await _find(bootstrap, "steady")
    async with connected(found.host, found.port) as coordinator:
        await _settled(lambda: _fetch_offsets(coordinator, "steady"))
        new = await _join(coordinator, "steady", "")
        joined = await _join(coordinator, "steady", new.member_id)
        member = Member("steady", joined.member_id, joined.generation_id)
        synced = await _sync(coordinator, member)
    if synced != ErrorCode.NONE.name:
        raise OutsideError(f"a member could not join: {synced}")
    return member


async def ask_coordinator(bootstrap: str, up: int, member: Member) -> dict[str, str]:
    found = await _find(bootstrap, member.group)
    answers = {"FindCoordinator": ErrorCode(found.error_code).name}
    async with connected(found.host, found.port) as coordinator:
        answers["OffsetFetch"] = await _settled(lambda: _fetch_offsets(coordinator, member.group))
        answers["OffsetCommit of a member"] = await _commit(coordinator, member)
        answers["OffsetCommit of no member"] = await _commit(coordinator, Member(f"alone-{up}", "", -1))
        new = await _join(coordinator, f"new-{up}", "")
        answers["JoinGroup of a new member, first"] = ErrorCode(new.error_code).name
        joined = await _join(coordinator, f"new-{up}", new.member_id)
        answers["JoinGroup of a new member"] = ErrorCode(joined.error_code).name
        if joined.error_code == ErrorCode.NONE:
            another = Member(f"new-{up}", joined.member_id, joined.generation_id)
            answers["SyncGroup of a new member"] = await _sync(coordinator, another)
    return answers


async def _find(bootstrap: str, group: str) -> Coordinator:
    """The coordinator, once there is one."""
    host, _, port = bootstrap.rpartition(":")
    async with asyncio.timeout(WAIT_SECONDS), connected(host, int(port)) as connection:
        while True:
            answer = await connection.request(FindCoordinatorRequest(coordinator_keys=[group]))
            found: Coordinator = answer.coordinators[0]
            if found.error_code == ErrorCode.NONE:
                return found
            await asyncio.sleep(LOOK_SECONDS)


async def _settled(ask: Callable[[], Awaitable[str]]) -> str:
    async with asyncio.timeout(WAIT_SECONDS):
        while (answer := await ask()) in {code.name for code in PASSING}:
            await asyncio.sleep(LOOK_SECONDS)
    return answer


async def _fetch_offsets(coordinator: Connection, group: str) -> str:
    answer = await coordinator.request(OffsetFetchRequest(group_id=group, topics=None), versions=BY_NAME)
    return ErrorCode(answer.error_code).name


async def _commit(coordinator: Connection, member: Member) -> str:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic_of(1), partitions=[partition])],
    )
    answer = await coordinator.request(request, versions=BY_NAME)
    return ErrorCode(answer.topics[0].partitions[0].error_code).name


async def _join(coordinator: Connection, group: str, member: str) -> Any:
    return await coordinator.request(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0")],
        )
    )


async def _sync(coordinator: Connection, member: Member) -> str:
    answer = await coordinator.request(
        SyncGroupRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"")],
        )
    )
    return ErrorCode(answer.error_code).name
