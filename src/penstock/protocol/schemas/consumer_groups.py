"""Schema tables: consumer groups. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, row


class ConsumerGroupHeartbeatRequestTopicPartitions(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ConsumerGroupHeartbeatRequest(Message, key=68, versions="0-1", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    member_id: str = row("string", "0+", default="")
    member_epoch: int = row("int32", "0+", default=0)
    instance_id: str | None = row("string", "0+", default=None, nullable="0+")
    rack_id: str | None = row("string", "0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = row("int32", "0+", default=-1)
    subscribed_topic_names: Sequence[str] | None = row(["string"], "0+", default=None, nullable="0+")
    subscribed_topic_regex: str | None = row("string", "1+", default=None, nullable="1+")
    server_assignor: str | None = row("string", "0+", default=None, nullable="0+")
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequestTopicPartitions] | None = row(
        [ConsumerGroupHeartbeatRequestTopicPartitions], "0+", default=None, nullable="0+"
    )


class ConsumerGroupHeartbeatResponseTopicPartitions(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ConsumerGroupHeartbeatResponseAssignment(Message):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartitions] = row(
        [ConsumerGroupHeartbeatResponseTopicPartitions], "0+", default=()
    )


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    member_id: str | None = row("string", "0+", default=None, nullable="0+")
    member_epoch: int = row("int32", "0+", default=0)
    heartbeat_interval_ms: int = row("int32", "0+", default=0)
    assignment: ConsumerGroupHeartbeatResponseAssignment | None = row(
        ConsumerGroupHeartbeatResponseAssignment, "0+", default=None, nullable="0+"
    )


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    group_ids: Sequence[str] = row(["string"], "0+", default=())
    include_authorized_operations: bool = row("bool", "0+", default=False)


class ConsumerGroupDescribeResponseTopicPartitions(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    topic_name: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ConsumerGroupDescribeResponseAssignment(Message):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartitions] = row(
        [ConsumerGroupDescribeResponseTopicPartitions], "0+", default=()
    )


class Member(Message):
    member_id: str = row("string", "0+", default="")
    instance_id: str | None = row("string", "0+", default=None, nullable="0+")
    rack_id: str | None = row("string", "0+", default=None, nullable="0+")
    member_epoch: int = row("int32", "0+", default=0)
    client_id: str = row("string", "0+", default="")
    client_host: str = row("string", "0+", default="")
    subscribed_topic_names: Sequence[str] = row(["string"], "0+", default=())
    subscribed_topic_regex: str | None = row("string", "0+", default=None, nullable="0+")
    assignment: ConsumerGroupDescribeResponseAssignment = row(
        ConsumerGroupDescribeResponseAssignment, "0+", factory=ConsumerGroupDescribeResponseAssignment
    )
    target_assignment: ConsumerGroupDescribeResponseAssignment = row(
        ConsumerGroupDescribeResponseAssignment, "0+", factory=ConsumerGroupDescribeResponseAssignment
    )
    member_type: int = row("int8", "1+", default=-1, ignorable=True)


class DescribedGroup(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    group_id: str = row("string", "0+", default="")
    group_state: str = row("string", "0+", default="")
    group_epoch: int = row("int32", "0+", default=0)
    assignment_epoch: int = row("int32", "0+", default=0)
    assignor_name: str = row("string", "0+", default="")
    members: Sequence[Member] = row([Member], "0+", default=())
    authorized_operations: int = row("int32", "0+", default=-2147483648)


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    groups: Sequence[DescribedGroup] = row([DescribedGroup], "0+", default=())
