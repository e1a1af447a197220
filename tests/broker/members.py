"""Members of consumer groups by hand, for tests: each has a connection, and sends what it is told to."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.protocol.schemas.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.broker.harness import Client, FakeClock, Node, until

AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}
"""A broker whose groups do not wait for more members before they begin."""

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Member:
    """Knows who it is and in which generation, as clients do."""

    session_ms = SESSION_MS

    def __init__(self, client: Client, group: str = "g", *, instance: str | None = None) -> None:
        self.client = client
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    async def ask(self, request: Message, version: int | None = None) -> Any:
        return await self.client.ask(request, version)

    def join_request(self, *, session_ms: int | None = None, version: int = 9) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms if session_ms is None else session_ms,
            rebalance_timeout_ms=REBALANCE_MS if version >= 1 else -1,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01" + bytes(8))],
        )

    def send_join(self, version: int = 9) -> None:
        """Join without waiting for the answer; the member must have its id."""
        self.client.send(self.join_request(version=version), version)

    def take_joined(self, response: JoinGroupResponse) -> JoinGroupResponse:
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
            self.generation = response.generation_id
        self.joined = response
        return response

    async def get_id(self) -> None:
        """As everybody does who joins for the first time (KIP-394)."""
        response = await self.ask(self.join_request(), 9)
        assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(response.error_code).name
        self.take_joined(response)

    async def join(self, version: int = 9) -> JoinGroupResponse:
        response = await self.ask(self.join_request(version=version), version)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.take_joined(response)
            response = await self.ask(self.join_request(version=version), version)
        return self.take_joined(response)

    @property
    def leads(self) -> bool:
        return self.joined is not None and self.joined.leader == self.member_id

    def sync_request(self, assignments: Mapping[str, bytes] | None = None, *, version: int = 5) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )

    async def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> Any:
        return await self.ask(self.sync_request(assignments, version=version), version)

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )

    async def heartbeat(self, version: int = 4) -> ErrorCode:
        return ErrorCode((await self.ask(self.heartbeat_request(), version)).error_code)

    async def leave(self, version: int = 5) -> ErrorCode:
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            return ErrorCode((await self.ask(request, version)).error_code)
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        response = await self.ask(LeaveGroupRequest(group_id=self.group, members=[identity]), version)
        assert response.error_code == ErrorCode.NONE
        return ErrorCode(response.members[0].error_code)

    async def commit(self, topic: str, offset: int, partition: int = 0, version: int = 9) -> ErrorCode:
        request = commit_request(
            self.group,
            {(topic, partition): offset},
            generation=self.generation,
            member_id=self.member_id,
            instance=self.instance,
        )
        response = await self.ask(request, version)
        return ErrorCode(response.topics[0].partitions[0].error_code)


async def with_groups(node: Node, group: str = "g") -> Client:
    """A client of a broker that can coordinate: somebody has asked for a coordinator."""
    client = await node.connect()
    response = await client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 6)
    [found] = response.coordinators
    assert found.error_code == ErrorCode.NONE, found
    return client


async def pass_time(node: Node, clock: FakeClock, milliseconds: int) -> None:
    """Move the broker's clock, at a moment at which no log is to blame for it."""
    await until(lambda: not any(shard.uncommitted for shard in node.broker.services.groups.shards()))
    clock.advance(milliseconds)
    node.broker.services.groups.clock_moved()


async def lone_member(node: Node, group: str = "g", *, instance: str | None = None) -> Member:
    """The only member of a stable group."""
    member = Member(await with_groups(node, group), group, instance=instance)
    assert (await member.join()).error_code == ErrorCode.NONE
    assert (await member.sync({member.member_id: b"all"})).error_code == ErrorCode.NONE
    return member


def commit_request(
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    metadata: str = "",
    ids: Mapping[str, bytes] | None = None,
) -> OffsetCommitRequest:
    """`ids` are those of the topics, for versions in which they go by id."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[
            OffsetCommitRequestTopic(name="", topic_id=ids[name], partitions=partitions)
            if ids
            else OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


async def commit(client: Client, group: str, offsets: Mapping[tuple[str, int], int], version: int = 9) -> set[int]:
    """As a consumer that is in no group; returns the error codes there were."""
    response = await client.ask(commit_request(group, offsets), version)
    return {partition.error_code for topic in response.topics for partition in topic.partitions}


async def committed(client: Client, group: str, topics: Mapping[str, Sequence[int]] | None = None) -> dict[Any, int]:
    """Offsets by topic and partition; None asks for all that there are."""
    wanted = (
        None
        if topics is None
        else [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    )
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
    [answer] = (await client.ask(request, 9)).groups
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }
