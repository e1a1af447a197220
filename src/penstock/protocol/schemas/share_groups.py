"""Schema tables: share groups. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, Records, row


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    member_id: str = row("string", "0+", default="")
    member_epoch: int = row("int32", "0+", default=0)
    rack_id: str | None = row("string", "0+", default=None, nullable="0+")
    subscribed_topic_names: Sequence[str] | None = row(["string"], "0+", default=None, nullable="0+")


class ShareGroupHeartbeatResponseTopicPartitions(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ShareGroupHeartbeatResponseAssignment(Message):
    topic_partitions: Sequence[ShareGroupHeartbeatResponseTopicPartitions] = row(
        [ShareGroupHeartbeatResponseTopicPartitions], "0+", default=()
    )


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    member_id: str | None = row("string", "0+", default=None, nullable="0+")
    member_epoch: int = row("int32", "0+", default=0)
    heartbeat_interval_ms: int = row("int32", "0+", default=0)
    assignment: ShareGroupHeartbeatResponseAssignment | None = row(
        ShareGroupHeartbeatResponseAssignment, "0+", default=None, nullable="0+"
    )


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="0+"):
    group_ids: Sequence[str] = row(["string"], "0+", default=())
    include_authorized_operations: bool = row("bool", "0+", default=False)


class ShareGroupDescribeResponseTopicPartitions(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    topic_name: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ShareGroupDescribeResponseAssignment(Message):
    topic_partitions: Sequence[ShareGroupDescribeResponseTopicPartitions] = row(
        [ShareGroupDescribeResponseTopicPartitions], "0+", default=()
    )


class Member(Message):
    member_id: str = row("string", "0+", default="")
    rack_id: str | None = row("string", "0+", default=None, nullable="0+")
    member_epoch: int = row("int32", "0+", default=0)
    client_id: str = row("string", "0+", default="")
    client_host: str = row("string", "0+", default="")
    subscribed_topic_names: Sequence[str] = row(["string"], "0+", default=())
    assignment: ShareGroupDescribeResponseAssignment = row(
        ShareGroupDescribeResponseAssignment, "0+", factory=ShareGroupDescribeResponseAssignment
    )


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


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    groups: Sequence[DescribedGroup] = row([DescribedGroup], "0+", default=())


class ShareFetchRequestAcknowledgementBatch(Message):
    first_offset: int = row("int64", "0+", default=0)
    last_offset: int = row("int64", "0+", default=0)
    acknowledge_types: Sequence[int] = row(["int8"], "0+", default=())


class FetchPartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    partition_max_bytes: int = row("int32", "0", default=0)
    acknowledgement_batches: Sequence[ShareFetchRequestAcknowledgementBatch] = row(
        [ShareFetchRequestAcknowledgementBatch], "0+", default=()
    )


class FetchTopic(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[FetchPartition] = row([FetchPartition], "0+", default=())


class ForgottenTopic(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="0+"):
    group_id: str | None = row("string", "0+", default=None, nullable="0+")
    member_id: str | None = row("string", "0+", default="", nullable="0+")
    share_session_epoch: int = row("int32", "0+", default=0)
    max_wait_ms: int = row("int32", "0+", default=0)
    min_bytes: int = row("int32", "0+", default=0)
    max_bytes: int = row("int32", "0+", default=2147483647)
    max_records: int = row("int32", "1+", default=0)
    batch_size: int = row("int32", "1+", default=0)
    share_acquire_mode: int = row("int8", "2+", default=0, ignorable=True)
    is_renew_ack: bool = row("bool", "2+", default=False)
    topics: Sequence[FetchTopic] = row([FetchTopic], "0+", default=())
    forgotten_topics_data: Sequence[ForgottenTopic] = row([ForgottenTopic], "0+", default=())


class ShareFetchResponseLeaderIdAndEpoch(Message):
    leader_id: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)


class AcquiredRecords(Message):
    first_offset: int = row("int64", "0+", default=0)
    last_offset: int = row("int64", "0+", default=0)
    delivery_count: int = row("int16", "0+", default=0)


class ShareFetchResponsePartitionData(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    acknowledge_error_code: int = row("int16", "0+", default=0)
    acknowledge_error_message: str | None = row("string", "0+", default=None, nullable="0+")
    current_leader: ShareFetchResponseLeaderIdAndEpoch = row(
        ShareFetchResponseLeaderIdAndEpoch, "0+", factory=ShareFetchResponseLeaderIdAndEpoch
    )
    records: Records | None = row("records", "0+", default=None, nullable="0")
    acquired_records: Sequence[AcquiredRecords] = row([AcquiredRecords], "0+", default=())


class ShareFetchableTopicResponse(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[ShareFetchResponsePartitionData] = row([ShareFetchResponsePartitionData], "0+", default=())


class ShareFetchResponseNodeEndpoint(Message):
    node_id: int = row("int32", "0+", default=0)
    host: str = row("string", "0+", default="")
    port: int = row("int32", "0+", default=0)
    rack: str | None = row("string", "0+", default=None, nullable="0+")


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = row("int32", "1+", default=0)
    responses: Sequence[ShareFetchableTopicResponse] = row([ShareFetchableTopicResponse], "0+", default=())
    node_endpoints: Sequence[ShareFetchResponseNodeEndpoint] = row([ShareFetchResponseNodeEndpoint], "0+", default=())


class ShareAcknowledgeRequestAcknowledgementBatch(Message):
    first_offset: int = row("int64", "0+", default=0)
    last_offset: int = row("int64", "0+", default=0)
    acknowledge_types: Sequence[int] = row(["int8"], "0+", default=())


class AcknowledgePartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    acknowledgement_batches: Sequence[ShareAcknowledgeRequestAcknowledgementBatch] = row(
        [ShareAcknowledgeRequestAcknowledgementBatch], "0+", default=()
    )


class AcknowledgeTopic(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[AcknowledgePartition] = row([AcknowledgePartition], "0+", default=())


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="0+"):
    group_id: str | None = row("string", "0+", default=None, nullable="0+")
    member_id: str | None = row("string", "0+", default="", nullable="0+")
    share_session_epoch: int = row("int32", "0+", default=0)
    is_renew_ack: bool = row("bool", "2+", default=False)
    topics: Sequence[AcknowledgeTopic] = row([AcknowledgeTopic], "0+", default=())


class ShareAcknowledgeResponseLeaderIdAndEpoch(Message):
    leader_id: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)


class ShareAcknowledgeResponsePartitionData(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    current_leader: ShareAcknowledgeResponseLeaderIdAndEpoch = row(
        ShareAcknowledgeResponseLeaderIdAndEpoch, "0+", factory=ShareAcknowledgeResponseLeaderIdAndEpoch
    )


class ShareAcknowledgeTopicResponse(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[ShareAcknowledgeResponsePartitionData] = row(
        [ShareAcknowledgeResponsePartitionData], "0+", default=()
    )


class ShareAcknowledgeResponseNodeEndpoint(Message):
    node_id: int = row("int32", "0+", default=0)
    host: str = row("string", "0+", default="")
    port: int = row("int32", "0+", default=0)
    rack: str | None = row("string", "0+", default=None, nullable="0+")


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    acquisition_lock_timeout_ms: int = row("int32", "2+", default=0, ignorable=True)
    responses: Sequence[ShareAcknowledgeTopicResponse] = row([ShareAcknowledgeTopicResponse], "0+", default=())
    node_endpoints: Sequence[ShareAcknowledgeResponseNodeEndpoint] = row(
        [ShareAcknowledgeResponseNodeEndpoint], "0+", default=()
    )


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = row(
        [DescribeShareGroupOffsetsRequestTopic], "0+", default=(), nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = row(
        [DescribeShareGroupOffsetsRequestGroup], "0+", default=()
    )


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    start_offset: int = row("int64", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)
    lag: int = row("int64", "1+", default=-1, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str = row("string", "0+", default="")
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = row(
        [DescribeShareGroupOffsetsResponsePartition], "0+", default=()
    )


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = row(
        [DescribeShareGroupOffsetsResponseTopic], "0+", default=()
    )
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = row(
        [DescribeShareGroupOffsetsResponseGroup], "0+", default=()
    )


class AlterShareGroupOffsetsRequestPartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    start_offset: int = row("int64", "0+", default=0)


class AlterShareGroupOffsetsRequestTopic(Message):
    topic_name: str = row("string", "0+", default="")
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = row(
        [AlterShareGroupOffsetsRequestPartition], "0+", default=()
    )


class AlterShareGroupOffsetsRequest(Message, key=91, versions="0", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = row([AlterShareGroupOffsetsRequestTopic], "0+", default=())


class AlterShareGroupOffsetsResponsePartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class AlterShareGroupOffsetsResponseTopic(Message):
    topic_name: str = row("string", "0+", default="")
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = row(
        [AlterShareGroupOffsetsResponsePartition], "0+", default=()
    )


class AlterShareGroupOffsetsResponse(Message, key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = row(
        [AlterShareGroupOffsetsResponseTopic], "0+", default=()
    )


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = row("string", "0+", default="")


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[DeleteShareGroupOffsetsRequestTopic] = row([DeleteShareGroupOffsetsRequestTopic], "0+", default=())


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = row("string", "0+", default="")
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    responses: Sequence[DeleteShareGroupOffsetsResponseTopic] = row(
        [DeleteShareGroupOffsetsResponseTopic], "0+", default=()
    )
