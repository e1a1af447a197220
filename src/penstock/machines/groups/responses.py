"""Builds the responses that refuse, and the parts that several others have in common."""

from penstock.machines.groups.changes import DeleteGroup, DescribeGroup
from penstock.machines.groups.classic import ClassicGroup
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from penstock.protocol.schemas.groups import (
    DeletableGroupResult,
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

Request = (
    JoinGroupRequest
    | SyncGroupRequest
    | HeartbeatRequest
    | LeaveGroupRequest
    | OffsetCommitRequest
    | OffsetFetchRequestGroup
    | OffsetDeleteRequest
    | DescribeGroup
    | DeleteGroup
)
"""What a shard of groups can be asked."""


def refusal(request: Request, code: ErrorCode) -> Message:
    """The response that says that nothing was done, and why."""
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        # That is for producers. These are Kafka's codes for a coordinator's own records.
        is_commit = isinstance(request, OffsetCommitRequest)
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else ErrorCode.UNKNOWN_SERVER_ERROR
    match request:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=code, member_id=request.member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            # A member cannot know that its coordinator is still loading, and need not: as in Kafka, the reply says that
            # all is well, since its session begins when the group is loaded.
            loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case OffsetCommitRequest():
            return commit_refusal(request, code)
        case OffsetFetchRequestGroup():
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=code)
        case DescribeGroup():
            return DescribedGroup(group_id=request.group_id, error_code=code)
        case DeleteGroup():
            return DeletableGroupResult(group_id=request.group_id, error_code=code)


def commit_refusal(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Has no place for an error but with each partition."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def join_refusal(version: int, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    """There is no generation and no protocol; the member id is what the client is to call itself."""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None if version >= 7 else "")


def joined(group: ClassicGroup, member_id: str, *, leader: str | None = None, skip: bool = False) -> JoinGroupResponse:
    """The member is in the generation. Its leader gets what all members said, to make the plan from it.

    `leader`: whom to name instead of the leader that the group has, to keep the member from thinking it is the leader.
    `skip`: the plan is made already (KIP-814).
    """
    leads = leader is None and member_id == group.leader
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader or group.leader or "",
        skip_assignment=skip and leads,
        member_id=member_id,
        members=_what_members_say(group) if leads else (),
    )


def synced(group: ClassicGroup, member_id: str) -> SyncGroupResponse:
    """The member's part of the plan."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=group.members[member_id].assignment,
    )


def _what_members_say(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol) or b"",
        )
        for member in group.members.values()
    ]
