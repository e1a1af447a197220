"""Schema tables: streams groups. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class StreamsGroupHeartbeatRequestKeyValue(Message):
    key: str = row("string", "0+", default="")
    value: str = row("string", "0+", default="")


class StreamsGroupHeartbeatRequestTopicInfo(Message):
    name: str = row("string", "0+", default="")
    partitions: int = row("int32", "0+", default=0)
    replication_factor: int = row("int16", "0+", default=0)
    topic_configs: Sequence[StreamsGroupHeartbeatRequestKeyValue] = row(
        [StreamsGroupHeartbeatRequestKeyValue], "0+", default=()
    )


class CopartitionGroup(Message):
    source_topics: Sequence[int] = row(["int16"], "0+", default=())
    source_topic_regex: Sequence[int] = row(["int16"], "0+", default=())
    repartition_source_topics: Sequence[int] = row(["int16"], "0+", default=())


class StreamsGroupHeartbeatRequestSubtopology(Message):
    subtopology_id: str = row("string", "0+", default="")
    source_topics: Sequence[str] = row(["string"], "0+", default=())
    source_topic_regex: Sequence[str] = row(["string"], "0+", default=())
    state_changelog_topics: Sequence[StreamsGroupHeartbeatRequestTopicInfo] = row(
        [StreamsGroupHeartbeatRequestTopicInfo], "0+", default=()
    )
    repartition_sink_topics: Sequence[str] = row(["string"], "0+", default=())
    repartition_source_topics: Sequence[StreamsGroupHeartbeatRequestTopicInfo] = row(
        [StreamsGroupHeartbeatRequestTopicInfo], "0+", default=()
    )
    copartition_groups: Sequence[CopartitionGroup] = row([CopartitionGroup], "0+", default=())


class StreamsGroupHeartbeatRequestTopology(Message):
    epoch: int = row("int32", "0+", default=0)
    subtopologies: Sequence[StreamsGroupHeartbeatRequestSubtopology] = row(
        [StreamsGroupHeartbeatRequestSubtopology], "0+", default=()
    )


class StreamsGroupHeartbeatRequestTaskIds(Message):
    subtopology_id: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class StreamsGroupHeartbeatRequestEndpoint(Message):
    host: str = row("string", "0+", default="")
    port: int = row("uint16", "0+", default=0)


class StreamsGroupHeartbeatRequestTaskOffset(Message):
    subtopology_id: str = row("string", "0+", default="")
    partition: int = row("int32", "0+", default=0)
    offset: int = row("int64", "0+", default=0)


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    member_id: str = row("string", "0+", default="")
    member_epoch: int = row("int32", "0+", default=0)
    endpoint_information_epoch: int = row("int32", "0+", default=0)
    instance_id: str | None = row("string", "0+", default=None, nullable="0+")
    rack_id: str | None = row("string", "0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = row("int32", "0+", default=-1)
    topology: StreamsGroupHeartbeatRequestTopology | None = row(
        StreamsGroupHeartbeatRequestTopology, "0+", default=None, nullable="0+"
    )
    active_tasks: Sequence[StreamsGroupHeartbeatRequestTaskIds] | None = row(
        [StreamsGroupHeartbeatRequestTaskIds], "0+", default=None, nullable="0+"
    )
    standby_tasks: Sequence[StreamsGroupHeartbeatRequestTaskIds] | None = row(
        [StreamsGroupHeartbeatRequestTaskIds], "0+", default=None, nullable="0+"
    )
    warmup_tasks: Sequence[StreamsGroupHeartbeatRequestTaskIds] | None = row(
        [StreamsGroupHeartbeatRequestTaskIds], "0+", default=None, nullable="0+"
    )
    process_id: str | None = row("string", "0+", default=None, nullable="0+")
    user_endpoint: StreamsGroupHeartbeatRequestEndpoint | None = row(
        StreamsGroupHeartbeatRequestEndpoint, "0+", default=None, nullable="0+"
    )
    client_tags: Sequence[StreamsGroupHeartbeatRequestKeyValue] | None = row(
        [StreamsGroupHeartbeatRequestKeyValue], "0+", default=None, nullable="0+"
    )
    task_offsets: Sequence[StreamsGroupHeartbeatRequestTaskOffset] | None = row(
        [StreamsGroupHeartbeatRequestTaskOffset], "0+", default=None, nullable="0+"
    )
    task_end_offsets: Sequence[StreamsGroupHeartbeatRequestTaskOffset] | None = row(
        [StreamsGroupHeartbeatRequestTaskOffset], "0+", default=None, nullable="0+"
    )
    shutdown_application: bool = row("bool", "0+", default=False)


class Status(Message):
    status_code: int = row("int8", "0+", default=0)
    status_detail: str = row("string", "0+", default="")


class StreamsGroupHeartbeatResponseTaskIds(Message):
    subtopology_id: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class StreamsGroupHeartbeatResponseEndpoint(Message):
    host: str = row("string", "0+", default="")
    port: int = row("uint16", "0+", default=0)


class TopicPartition(Message):
    topic: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class EndpointToPartitions(Message):
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = row(
        StreamsGroupHeartbeatResponseEndpoint, "0+", factory=StreamsGroupHeartbeatResponseEndpoint
    )
    active_partitions: Sequence[TopicPartition] = row([TopicPartition], "0+", default=())
    standby_partitions: Sequence[TopicPartition] = row([TopicPartition], "0+", default=())


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    member_id: str = row("string", "0+", default="")
    member_epoch: int = row("int32", "0+", default=0)
    heartbeat_interval_ms: int = row("int32", "0+", default=0)
    acceptable_recovery_lag: int = row("int32", "0+", default=0)
    task_offset_interval_ms: int = row("int32", "0+", default=0)
    status: Sequence[Status] | None = row([Status], "0+", default=(), nullable="0+")
    active_tasks: Sequence[StreamsGroupHeartbeatResponseTaskIds] | None = row(
        [StreamsGroupHeartbeatResponseTaskIds], "0+", default=None, nullable="0+"
    )
    standby_tasks: Sequence[StreamsGroupHeartbeatResponseTaskIds] | None = row(
        [StreamsGroupHeartbeatResponseTaskIds], "0+", default=None, nullable="0+"
    )
    warmup_tasks: Sequence[StreamsGroupHeartbeatResponseTaskIds] | None = row(
        [StreamsGroupHeartbeatResponseTaskIds], "0+", default=None, nullable="0+"
    )
    endpoint_information_epoch: int = row("int32", "0+", default=0)
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = row(
        [EndpointToPartitions], "0+", default=None, nullable="0+"
    )


class StreamsGroupDescribeRequest(Message, key=89, versions="0", flexible="0+"):
    group_ids: Sequence[str] = row(["string"], "0+", default=())
    include_authorized_operations: bool = row("bool", "0+", default=False)


class StreamsGroupDescribeResponseKeyValue(Message):
    key: str = row("string", "0+", default="")
    value: str = row("string", "0+", default="")


class StreamsGroupDescribeResponseTopicInfo(Message):
    name: str = row("string", "0+", default="")
    partitions: int = row("int32", "0+", default=0)
    replication_factor: int = row("int16", "0+", default=0)
    topic_configs: Sequence[StreamsGroupDescribeResponseKeyValue] = row(
        [StreamsGroupDescribeResponseKeyValue], "0+", default=()
    )


class StreamsGroupDescribeResponseSubtopology(Message):
    subtopology_id: str = row("string", "0+", default="")
    source_topics: Sequence[str] = row(["string"], "0+", default=())
    repartition_sink_topics: Sequence[str] = row(["string"], "0+", default=())
    state_changelog_topics: Sequence[StreamsGroupDescribeResponseTopicInfo] = row(
        [StreamsGroupDescribeResponseTopicInfo], "0+", default=()
    )
    repartition_source_topics: Sequence[StreamsGroupDescribeResponseTopicInfo] = row(
        [StreamsGroupDescribeResponseTopicInfo], "0+", default=()
    )


class StreamsGroupDescribeResponseTopology(Message):
    epoch: int = row("int32", "0+", default=0)
    subtopologies: Sequence[StreamsGroupDescribeResponseSubtopology] | None = row(
        [StreamsGroupDescribeResponseSubtopology], "0+", default=None, nullable="0+"
    )


class StreamsGroupDescribeResponseEndpoint(Message):
    host: str = row("string", "0+", default="")
    port: int = row("uint16", "0+", default=0)


class StreamsGroupDescribeResponseTaskOffset(Message):
    subtopology_id: str = row("string", "0+", default="")
    partition: int = row("int32", "0+", default=0)
    offset: int = row("int64", "0+", default=0)


class StreamsGroupDescribeResponseTaskIds(Message):
    subtopology_id: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class Assignment(Message):
    active_tasks: Sequence[StreamsGroupDescribeResponseTaskIds] = row(
        [StreamsGroupDescribeResponseTaskIds], "0+", default=()
    )
    standby_tasks: Sequence[StreamsGroupDescribeResponseTaskIds] = row(
        [StreamsGroupDescribeResponseTaskIds], "0+", default=()
    )
    warmup_tasks: Sequence[StreamsGroupDescribeResponseTaskIds] = row(
        [StreamsGroupDescribeResponseTaskIds], "0+", default=()
    )


class Member(Message):
    member_id: str = row("string", "0+", default="")
    member_epoch: int = row("int32", "0+", default=0)
    instance_id: str | None = row("string", "0+", default=None, nullable="0+")
    rack_id: str | None = row("string", "0+", default=None, nullable="0+")
    client_id: str = row("string", "0+", default="")
    client_host: str = row("string", "0+", default="")
    topology_epoch: int = row("int32", "0+", default=0)
    process_id: str = row("string", "0+", default="")
    user_endpoint: StreamsGroupDescribeResponseEndpoint | None = row(
        StreamsGroupDescribeResponseEndpoint, "0+", default=None, nullable="0+"
    )
    client_tags: Sequence[StreamsGroupDescribeResponseKeyValue] = row(
        [StreamsGroupDescribeResponseKeyValue], "0+", default=()
    )
    task_offsets: Sequence[StreamsGroupDescribeResponseTaskOffset] = row(
        [StreamsGroupDescribeResponseTaskOffset], "0+", default=()
    )
    task_end_offsets: Sequence[StreamsGroupDescribeResponseTaskOffset] = row(
        [StreamsGroupDescribeResponseTaskOffset], "0+", default=()
    )
    assignment: Assignment = row(Assignment, "0+", factory=Assignment)
    target_assignment: Assignment = row(Assignment, "0+", factory=Assignment)
    is_classic: bool = row("bool", "0+", default=False)


class DescribedGroup(Message):
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    group_id: str = row("string", "0+", default="")
    group_state: str = row("string", "0+", default="")
    group_epoch: int = row("int32", "0+", default=0)
    assignment_epoch: int = row("int32", "0+", default=0)
    topology: StreamsGroupDescribeResponseTopology | None = row(
        StreamsGroupDescribeResponseTopology, "0+", default=None, nullable="0+"
    )
    members: Sequence[Member] = row([Member], "0+", default=())
    authorized_operations: int = row("int32", "0+", default=-2147483648)


class StreamsGroupDescribeResponse(Message, key=89, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    groups: Sequence[DescribedGroup] = row([DescribedGroup], "0+", default=())
