"""Schema tables: group offsets. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, row


class OffsetCommitRequestPartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    committed_offset: int = row("int64", "0+", default=0)
    committed_leader_epoch: int = row("int32", "6+", default=-1, ignorable=True)
    committed_metadata: str | None = row("string", "0+", default="", nullable="0+")


class OffsetCommitRequestTopic(Message):
    name: str = row("string", "0-9", default="", ignorable=True)
    topic_id: bytes = row("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitRequestPartition] = row([OffsetCommitRequestPartition], "0+", default=())


class OffsetCommitRequest(Message, key=8, versions="2-10", flexible="8+"):
    group_id: str = row("string", "0+", default="")
    generation_id_or_member_epoch: int = row("int32", "1+", default=-1, ignorable=True)
    member_id: str = row("string", "1+", default="", ignorable=True)
    group_instance_id: str | None = row("string", "7+", default=None, nullable="7+")
    retention_time_ms: int = row("int64", "2-4", default=-1, ignorable=True)
    topics: Sequence[OffsetCommitRequestTopic] = row([OffsetCommitRequestTopic], "0+", default=())


class OffsetCommitResponsePartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)


class OffsetCommitResponseTopic(Message):
    name: str = row("string", "0-9", default="", ignorable=True)
    topic_id: bytes = row("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitResponsePartition] = row([OffsetCommitResponsePartition], "0+", default=())


class OffsetCommitResponse(Message, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = row("int32", "3+", default=0, ignorable=True)
    topics: Sequence[OffsetCommitResponseTopic] = row([OffsetCommitResponseTopic], "0+", default=())


class OffsetFetchRequestTopic(Message):
    name: str = row("string", "0-7", default="")
    partition_indexes: Sequence[int] = row(["int32"], "0-7", default=())


class OffsetFetchRequestTopics(Message):
    name: str = row("string", "8-9", default="", ignorable=True)
    topic_id: bytes = row("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: Sequence[int] = row(["int32"], "8+", default=())


class OffsetFetchRequestGroup(Message):
    group_id: str = row("string", "8+", default="")
    member_id: str | None = row("string", "9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = row("int32", "9+", default=-1, ignorable=True)
    topics: Sequence[OffsetFetchRequestTopics] | None = row([OffsetFetchRequestTopics], "8+", default=(), nullable="8+")


class OffsetFetchRequest(Message, key=9, versions="1-10", flexible="6+"):
    group_id: str = row("string", "0-7", default="")
    topics: Sequence[OffsetFetchRequestTopic] | None = row([OffsetFetchRequestTopic], "0-7", default=(), nullable="2-7")
    groups: Sequence[OffsetFetchRequestGroup] = row([OffsetFetchRequestGroup], "8+", default=())
    require_stable: bool = row("bool", "7+", default=False)


class OffsetFetchResponsePartition(Message):
    partition_index: int = row("int32", "0-7", default=0)
    committed_offset: int = row("int64", "0-7", default=0)
    committed_leader_epoch: int = row("int32", "5-7", default=-1, ignorable=True)
    metadata: str | None = row("string", "0-7", default="", nullable="0-7")
    error_code: int = row("int16", "0-7", default=0)


class OffsetFetchResponseTopic(Message):
    name: str = row("string", "0-7", default="")
    partitions: Sequence[OffsetFetchResponsePartition] = row([OffsetFetchResponsePartition], "0-7", default=())


class OffsetFetchResponsePartitions(Message):
    partition_index: int = row("int32", "8+", default=0)
    committed_offset: int = row("int64", "8+", default=0)
    committed_leader_epoch: int = row("int32", "8+", default=-1, ignorable=True)
    metadata: str | None = row("string", "8+", default="", nullable="8+")
    error_code: int = row("int16", "8+", default=0)


class OffsetFetchResponseTopics(Message):
    name: str = row("string", "8-9", default="", ignorable=True)
    topic_id: bytes = row("uuid", "10+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[OffsetFetchResponsePartitions] = row([OffsetFetchResponsePartitions], "8+", default=())


class OffsetFetchResponseGroup(Message):
    group_id: str = row("string", "8+", default="")
    topics: Sequence[OffsetFetchResponseTopics] = row([OffsetFetchResponseTopics], "8+", default=())
    error_code: int = row("int16", "8+", default=0)


class OffsetFetchResponse(Message, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = row("int32", "3+", default=0, ignorable=True)
    topics: Sequence[OffsetFetchResponseTopic] = row([OffsetFetchResponseTopic], "0-7", default=())
    error_code: int = row("int16", "2-7", default=0, ignorable=True)
    groups: Sequence[OffsetFetchResponseGroup] = row([OffsetFetchResponseGroup], "8+", default=())


class OffsetDeleteRequestPartition(Message):
    partition_index: int = row("int32", "0+", default=0)


class OffsetDeleteRequestTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[OffsetDeleteRequestPartition] = row([OffsetDeleteRequestPartition], "0+", default=())


class OffsetDeleteRequest(Message, key=47, versions="0", flexible="none"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[OffsetDeleteRequestTopic] = row([OffsetDeleteRequestTopic], "0+", default=())


class OffsetDeleteResponsePartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)


class OffsetDeleteResponseTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[OffsetDeleteResponsePartition] = row([OffsetDeleteResponsePartition], "0+", default=())


class OffsetDeleteResponse(Message, key=47, versions="0", flexible="none"):
    error_code: int = row("int16", "0+", default=0)
    throttle_time_ms: int = row("int32", "0+", default=0, ignorable=True)
    topics: Sequence[OffsetDeleteResponseTopic] = row([OffsetDeleteResponseTopic], "0+", default=())
