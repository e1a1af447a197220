"""Every request can be refused, in every version."""

import pytest

from penstock.machines.groups.changes import DeleteGroup, DescribeGroup
from penstock.machines.groups.responses import Request, join_refusal, refusal
from penstock.protocol import codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchRequestGroup,
)
from penstock.protocol.schemas.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)

CODE = ErrorCode.NOT_COORDINATOR
REQUESTS: list[Request] = [
    JoinGroupRequest(group_id="g", member_id="m"),
    SyncGroupRequest(group_id="g"),
    HeartbeatRequest(group_id="g"),
    LeaveGroupRequest(group_id="g"),
    OffsetCommitRequest(group_id="g"),
    OffsetFetchRequestGroup(group_id="g"),
    OffsetDeleteRequest(group_id="g"),
    DescribeGroup("g"),
    DeleteGroup("g"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_every_request_can_be_refused(request_: Request) -> None:
    response = refusal(request_, CODE)
    if not isinstance(request_, OffsetCommitRequest):
        assert getattr(response, "error_code") == CODE  # noqa: B009
    if type(response).schema.key is not None:
        for version in range(type(response).schema.versions.first, type(response).schema.versions.last + 1):
            codec.encode(response, version)


def test_a_refused_commit_says_so_for_each_partition() -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=1), OffsetCommitRequestPartition(partition_index=2)]
    topic = OffsetCommitRequestTopic(name="t", topic_id=bytes(range(16)), partitions=partitions)
    response = refusal(OffsetCommitRequest(group_id="g", topics=[topic]), CODE)
    assert isinstance(response, OffsetCommitResponse)
    assert [(part.partition_index, part.error_code) for part in response.topics[0].partitions] == [(1, CODE), (2, CODE)]
    assert (response.topics[0].name, response.topics[0].topic_id) == ("t", bytes(range(16)))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_what_the_log_has_no_room_for_has_kafkas_codes(request_: Request) -> None:
    if isinstance(request_, OffsetCommitRequest):
        request_.topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition()])]
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    else:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    assert refusal(request_, ErrorCode.MESSAGE_TOO_LARGE) == refusal(request_, code)


def test_while_groups_are_loading_a_heartbeat_is_told_that_all_is_well() -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert refusal(HeartbeatRequest(group_id="g"), loading) == HeartbeatResponse(error_code=ErrorCode.NONE)


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_can_be_said_in_every_version(version: int) -> None:
    sent = codec.encode(join_refusal(version, CODE, "m"), version)
    read = codec.decode(JoinGroupResponse, version, sent)
    assert (read.error_code, read.member_id, read.generation_id) == (CODE, "m", -1)
    assert read.protocol_name == (None if version >= 7 else "")
