"""Schema tables: metadata. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, row


class MetadataRequestTopic(Message):
    topic_id: bytes = row("uuid", "10+", default=ZERO_UUID, ignorable=True)
    name: str | None = row("string", "0+", default="", nullable="10+")


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    topics: Sequence[MetadataRequestTopic] | None = row([MetadataRequestTopic], "0+", default=(), nullable="1+")
    allow_auto_topic_creation: bool = row("bool", "4+", default=True)
    include_cluster_authorized_operations: bool = row("bool", "8-10", default=False)
    include_topic_authorized_operations: bool = row("bool", "8+", default=False)


class MetadataResponseBroker(Message):
    node_id: int = row("int32", "0+", default=0)
    host: str = row("string", "0+", default="")
    port: int = row("int32", "0+", default=0)
    rack: str | None = row("string", "1+", default=None, nullable="1+", ignorable=True)


class MetadataResponsePartition(Message):
    error_code: int = row("int16", "0+", default=0)
    partition_index: int = row("int32", "0+", default=0)
    leader_id: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "7+", default=-1, ignorable=True)
    replica_nodes: Sequence[int] = row(["int32"], "0+", default=())
    isr_nodes: Sequence[int] = row(["int32"], "0+", default=())
    offline_replicas: Sequence[int] = row(["int32"], "5+", default=(), ignorable=True)


class MetadataResponseTopic(Message):
    error_code: int = row("int16", "0+", default=0)
    name: str | None = row("string", "0+", default="", nullable="12+")
    topic_id: bytes = row("uuid", "10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = row("bool", "1+", default=False, ignorable=True)
    partitions: Sequence[MetadataResponsePartition] = row([MetadataResponsePartition], "0+", default=())
    topic_authorized_operations: int = row("int32", "8+", default=-2147483648)


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = row("int32", "3+", default=0, ignorable=True)
    brokers: Sequence[MetadataResponseBroker] = row([MetadataResponseBroker], "0+", default=())
    cluster_id: str | None = row("string", "2+", default=None, nullable="2+", ignorable=True)
    controller_id: int = row("int32", "1+", default=-1, ignorable=True)
    topics: Sequence[MetadataResponseTopic] = row([MetadataResponseTopic], "0+", default=())
    cluster_authorized_operations: int = row("int32", "8-10", default=-2147483648)
    error_code: int = row("int16", "13+", default=0, ignorable=True)


class TopicRequest(Message):
    name: str = row("string", "0+", default="")


class DescribeTopicPartitionsRequestCursor(Message):
    topic_name: str = row("string", "0+", default="")
    partition_index: int = row("int32", "0+", default=0)


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    topics: Sequence[TopicRequest] = row([TopicRequest], "0+", default=())
    response_partition_limit: int = row("int32", "0+", default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = row(
        DescribeTopicPartitionsRequestCursor, "0+", default=None, nullable="0+"
    )


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = row("int16", "0+", default=0)
    partition_index: int = row("int32", "0+", default=0)
    leader_id: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=-1, ignorable=True)
    replica_nodes: Sequence[int] = row(["int32"], "0+", default=())
    isr_nodes: Sequence[int] = row(["int32"], "0+", default=())
    eligible_leader_replicas: Sequence[int] | None = row(["int32"], "0+", default=None, nullable="0+")
    last_known_elr: Sequence[int] | None = row(["int32"], "0+", default=None, nullable="0+")
    offline_replicas: Sequence[int] = row(["int32"], "0+", default=(), ignorable=True)


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = row("int16", "0+", default=0)
    name: str | None = row("string", "0+", default="", nullable="0+")
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = row("bool", "0+", default=False, ignorable=True)
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = row(
        [DescribeTopicPartitionsResponsePartition], "0+", default=()
    )
    topic_authorized_operations: int = row("int32", "0+", default=-2147483648)


class DescribeTopicPartitionsResponseCursor(Message):
    topic_name: str = row("string", "0+", default="")
    partition_index: int = row("int32", "0+", default=0)


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0, ignorable=True)
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = row(
        [DescribeTopicPartitionsResponseTopic], "0+", default=()
    )
    next_cursor: DescribeTopicPartitionsResponseCursor | None = row(
        DescribeTopicPartitionsResponseCursor, "0+", default=None, nullable="0+"
    )
