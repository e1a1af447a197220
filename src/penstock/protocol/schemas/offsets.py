"""Schema tables: offsets. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class ListOffsetsPartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    current_leader_epoch: int = row("int32", "4+", default=-1, ignorable=True)
    timestamp: int = row("int64", "0+", default=0)


class ListOffsetsTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[ListOffsetsPartition] = row([ListOffsetsPartition], "0+", default=())


class ListOffsetsRequest(Message, key=2, versions="1-11", flexible="6+"):
    replica_id: int = row("int32", "0+", default=0)
    isolation_level: int = row("int8", "2+", default=0)
    topics: Sequence[ListOffsetsTopic] = row([ListOffsetsTopic], "0+", default=())
    timeout_ms: int = row("int32", "10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    timestamp: int = row("int64", "1+", default=-1)
    offset: int = row("int64", "1+", default=-1)
    leader_epoch: int = row("int32", "4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[ListOffsetsPartitionResponse] = row([ListOffsetsPartitionResponse], "0+", default=())


class ListOffsetsResponse(Message, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = row("int32", "2+", default=0, ignorable=True)
    topics: Sequence[ListOffsetsTopicResponse] = row([ListOffsetsTopicResponse], "0+", default=())


class OffsetForLeaderPartition(Message):
    partition: int = row("int32", "0+", default=0)
    current_leader_epoch: int = row("int32", "2+", default=-1, ignorable=True)
    leader_epoch: int = row("int32", "0+", default=0)


class OffsetForLeaderTopic(Message):
    topic: str = row("string", "0+", default="")
    partitions: Sequence[OffsetForLeaderPartition] = row([OffsetForLeaderPartition], "0+", default=())


class OffsetForLeaderEpochRequest(Message, key=23, versions="2-4", flexible="4+"):
    replica_id: int = row("int32", "3+", default=-2, ignorable=True)
    topics: Sequence[OffsetForLeaderTopic] = row([OffsetForLeaderTopic], "0+", default=())


class EpochEndOffset(Message):
    error_code: int = row("int16", "0+", default=0)
    partition: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "1+", default=-1, ignorable=True)
    end_offset: int = row("int64", "0+", default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = row("string", "0+", default="")
    partitions: Sequence[EpochEndOffset] = row([EpochEndOffset], "0+", default=())


class OffsetForLeaderEpochResponse(Message, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = row("int32", "2+", default=0, ignorable=True)
    topics: Sequence[OffsetForLeaderTopicResult] = row([OffsetForLeaderTopicResult], "0+", default=())
