"""A member's requests: what they say, and that they find the coordinator."""

import pytest

from penstock.client.admin.group_offsets import Identity
from penstock.client.cluster.cluster import Cluster
from penstock.client.group.requests import GRACE_MS, LANE, GroupRequests
from penstock.client.settings import ConsumerSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.client.peer import Peer, peer
from tests.waiting import in_loop

SETTINGS = ConsumerSettings(group_id="g", group_instance_id="one", session_timeout_ms=9_000, max_poll_interval_ms=700)
ME = Identity("me", 5, "one")


def coordinate(broker: Peer) -> None:
    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        told = [Coordinator(key=key, node_id=0, host="127.0.0.1", port=broker.port) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=told)

    broker.answers[FindCoordinatorRequest] = find


@in_loop
async def test_a_join_says_how_long_all_may_take() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinate(broker)
        broker.answers[JoinGroupRequest] = lambda _: JoinGroupResponse(generation_id=5, member_id="me")
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"x")
        joined = await GroupRequests(cluster, "g", SETTINGS).join("me", [protocol])
        assert (joined.generation_id, joined.member_id) == (5, "me")
        [request] = broker.requests(JoinGroupRequest)
        assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "me", "one")
        assert (request.session_timeout_ms, request.rebalance_timeout_ms, request.protocol_type) == (
            9000,
            700,
            "consumer",
        )
        assert [(each.name, each.metadata) for each in request.protocols] == [("range", b"x")]


@in_loop
async def test_a_join_waits_on_a_connection_of_its_own() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinate(broker)
        requests = GroupRequests(cluster, "g", SETTINGS)
        broker.answers[HeartbeatRequest] = lambda _: HeartbeatResponse()

        async def hold(_: JoinGroupRequest) -> JoinGroupResponse:
            # Nothing waits behind it.
            assert await requests.beat(ME) == ErrorCode.NONE
            return JoinGroupResponse()

        broker.answers[JoinGroupRequest] = hold
        await requests.join("", [])
        assert (requests._patient.lane, requests._patient.hold_ms) == (LANE, 700 + GRACE_MS)


@in_loop
async def test_the_leader_brings_the_plan() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinate(broker)
        broker.answers[SyncGroupRequest] = lambda _: SyncGroupResponse(assignment=b"mine")
        plan = [SyncGroupRequestAssignment(member_id="me", assignment=b"mine")]
        assert (await GroupRequests(cluster, "g", SETTINGS).sync(ME, "range", plan)).assignment == b"mine"
        [request] = broker.requests(SyncGroupRequest)
        assert (request.generation_id, request.member_id, request.group_instance_id) == (5, "me", "one")
        assert (request.protocol_type, request.protocol_name) == ("consumer", "range")
        assert list(request.assignments) == plan


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID])
@in_loop
async def test_what_the_coordinator_answers_is_for_the_member_to_judge(code: ErrorCode) -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinate(broker)
        broker.answers[HeartbeatRequest] = lambda _: HeartbeatResponse(error_code=code)
        assert await GroupRequests(cluster, "g", SETTINGS).beat(ME) == code
        assert len(broker.requests(HeartbeatRequest)) == 1


@in_loop
async def test_who_does_not_coordinate_the_group_is_not_asked_again() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinate(broker)
        codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
        broker.answers[HeartbeatRequest] = lambda _: HeartbeatResponse(error_code=codes.pop(0))
        assert await GroupRequests(cluster, "g", SETTINGS).beat(ME) == ErrorCode.NONE
        assert len(broker.requests(FindCoordinatorRequest)) > 1


@in_loop
async def test_to_leave_may_fail() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        coordinate(broker)
        codes = [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE]
        broker.answers[LeaveGroupRequest] = lambda _: LeaveGroupResponse(error_code=codes.pop(0))
        for _ in range(2):
            await GroupRequests(cluster, "g", SETTINGS).leave("me", "it is late")
        assert [each.members[0].member_id for each in broker.requests(LeaveGroupRequest)] == ["me", "me"]
        assert broker.requests(LeaveGroupRequest)[0].members[0].reason == "it is late"
