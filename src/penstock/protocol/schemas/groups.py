"""Schema tables: groups. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    key: str = row("string", "0-3", default="")
    key_type: int = row("int8", "1+", default=0)
    coordinator_keys: Sequence[str] = row(["string"], "4+", default=())


class Coordinator(Message):
    key: str = row("string", "4+", default="")
    node_id: int = row("int32", "4+", default=0)
    host: str = row("string", "4+", default="")
    port: int = row("int32", "4+", default=0)
    error_code: int = row("int16", "4+", default=0)
    error_message: str | None = row("string", "4+", default="", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    error_code: int = row("int16", "0-3", default=0)
    error_message: str | None = row("string", "1-3", default="", nullable="1-3", ignorable=True)
    node_id: int = row("int32", "0-3", default=0)
    host: str = row("string", "0-3", default="")
    port: int = row("int32", "0-3", default=0)
    coordinators: Sequence[Coordinator] = row([Coordinator], "4+", default=())


class JoinGroupRequestProtocol(Message):
    name: str = row("string", "0+", default="")
    metadata: bytes = row("bytes", "0+", default=b"")


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    group_id: str = row("string", "0+", default="")
    session_timeout_ms: int = row("int32", "0+", default=0)
    rebalance_timeout_ms: int = row("int32", "1+", default=-1, ignorable=True)
    member_id: str = row("string", "0+", default="")
    group_instance_id: str | None = row("string", "5+", default=None, nullable="5+")
    protocol_type: str = row("string", "0+", default="")
    protocols: Sequence[JoinGroupRequestProtocol] = row([JoinGroupRequestProtocol], "0+", default=())
    reason: str | None = row("string", "8+", default=None, nullable="8+", ignorable=True)


class JoinGroupResponseMember(Message):
    member_id: str = row("string", "0+", default="")
    group_instance_id: str | None = row("string", "5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = row("bytes", "0+", default=b"")


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = row("int32", "2+", default=0, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    generation_id: int = row("int32", "0+", default=-1)
    protocol_type: str | None = row("string", "7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = row("string", "0+", default="", nullable="7+")
    leader: str = row("string", "0+", default="")
    skip_assignment: bool = row("bool", "9+", default=False)
    member_id: str = row("string", "0+", default="")
    members: Sequence[JoinGroupResponseMember] = row([JoinGroupResponseMember], "0+", default=())


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    group_id: str = row("string", "0+", default="")
    generation_id: int = row("int32", "0+", default=0)
    member_id: str = row("string", "0+", default="")
    group_instance_id: str | None = row("string", "3+", default=None, nullable="3+")


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    error_code: int = row("int16", "0+", default=0)


class MemberIdentity(Message):
    member_id: str = row("string", "3+", default="")
    group_instance_id: str | None = row("string", "3+", default=None, nullable="3+")
    reason: str | None = row("string", "5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    group_id: str = row("string", "0+", default="")
    member_id: str = row("string", "0-2", default="")
    members: Sequence[MemberIdentity] = row([MemberIdentity], "3+", default=())


class MemberResponse(Message):
    member_id: str = row("string", "3+", default="")
    group_instance_id: str | None = row("string", "3+", default="", nullable="3+")
    error_code: int = row("int16", "3+", default=0)


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    members: Sequence[MemberResponse] = row([MemberResponse], "3+", default=())


class SyncGroupRequestAssignment(Message):
    member_id: str = row("string", "0+", default="")
    assignment: bytes = row("bytes", "0+", default=b"")


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    group_id: str = row("string", "0+", default="")
    generation_id: int = row("int32", "0+", default=0)
    member_id: str = row("string", "0+", default="")
    group_instance_id: str | None = row("string", "3+", default=None, nullable="3+")
    protocol_type: str | None = row("string", "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = row("string", "5+", default=None, nullable="5+", ignorable=True)
    assignments: Sequence[SyncGroupRequestAssignment] = row([SyncGroupRequestAssignment], "0+", default=())


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    protocol_type: str | None = row("string", "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = row("string", "5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = row("bytes", "0+", default=b"")


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    groups: Sequence[str] = row(["string"], "0+", default=())
    include_authorized_operations: bool = row("bool", "3+", default=False)


class DescribedGroupMember(Message):
    member_id: str = row("string", "0+", default="")
    group_instance_id: str | None = row("string", "4+", default=None, nullable="4+", ignorable=True)
    client_id: str = row("string", "0+", default="")
    client_host: str = row("string", "0+", default="")
    member_metadata: bytes = row("bytes", "0+", default=b"")
    member_assignment: bytes = row("bytes", "0+", default=b"")


class DescribedGroup(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "6+", default=None, nullable="6+")
    group_id: str = row("string", "0+", default="")
    group_state: str = row("string", "0+", default="")
    protocol_type: str = row("string", "0+", default="")
    protocol_data: str = row("string", "0+", default="")
    members: Sequence[DescribedGroupMember] = row([DescribedGroupMember], "0+", default=())
    authorized_operations: int = row("int32", "3+", default=-2147483648)


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    groups: Sequence[DescribedGroup] = row([DescribedGroup], "0+", default=())


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    states_filter: Sequence[str] = row(["string"], "4+", default=())
    types_filter: Sequence[str] = row(["string"], "5+", default=())


class ListedGroup(Message):
    group_id: str = row("string", "0+", default="")
    protocol_type: str = row("string", "0+", default="")
    group_state: str = row("string", "4+", default="", ignorable=True)
    group_type: str = row("string", "5+", default="", ignorable=True)


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    groups: Sequence[ListedGroup] = row([ListedGroup], "0+", default=())


class DeleteGroupsRequest(Message, key=42, versions="0-2", flexible="2+"):
    groups_names: Sequence[str] = row(["string"], "0+", default=())


class DeletableGroupResult(Message):
    group_id: str = row("string", "0+", default="")
    error_code: int = row("int16", "0+", default=0)


class DeleteGroupsResponse(Message, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    results: Sequence[DeletableGroupResult] = row([DeletableGroupResult], "0+", default=())
