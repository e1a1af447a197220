"""Schema tables: log dirs. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class AlterReplicaLogDirTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class AlterReplicaLogDir(Message):
    path: str = row("string", "0+", default="")
    topics: Sequence[AlterReplicaLogDirTopic] = row([AlterReplicaLogDirTopic], "0+", default=())


class AlterReplicaLogDirsRequest(Message, key=34, versions="1-2", flexible="2+"):
    dirs: Sequence[AlterReplicaLogDir] = row([AlterReplicaLogDir], "0+", default=())


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)


class AlterReplicaLogDirTopicResult(Message):
    topic_name: str = row("string", "0+", default="")
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = row([AlterReplicaLogDirPartitionResult], "0+", default=())


class AlterReplicaLogDirsResponse(Message, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    results: Sequence[AlterReplicaLogDirTopicResult] = row([AlterReplicaLogDirTopicResult], "0+", default=())


class DescribableLogDirTopic(Message):
    topic: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class DescribeLogDirsRequest(Message, key=35, versions="1-4", flexible="2+"):
    topics: Sequence[DescribableLogDirTopic] | None = row([DescribableLogDirTopic], "0+", default=(), nullable="0+")
    compaction: bool = row("bool", "2+", default=False, tag=20000, tagged="2+", ignorable=True)


class DescribeLogDirsPartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    partition_size: int = row("int64", "0+", default=0)
    offset_lag: int = row("int64", "0+", default=0)
    is_future_key: bool = row("bool", "0+", default=False)
    clean_bytes: int = row("int64", "2+", default=-1, tag=20000, tagged="2+", ignorable=True)
    dirty_bytes: int = row("int64", "2+", default=-1, tag=20001, tagged="2+", ignorable=True)


class DescribeLogDirsTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[DescribeLogDirsPartition] = row([DescribeLogDirsPartition], "0+", default=())


class DescribeLogDirsResult(Message):
    error_code: int = row("int16", "0+", default=0)
    log_dir: str = row("string", "0+", default="")
    topics: Sequence[DescribeLogDirsTopic] = row([DescribeLogDirsTopic], "0+", default=())
    total_bytes: int = row("int64", "4+", default=-1, ignorable=True)
    usable_bytes: int = row("int64", "4+", default=-1, ignorable=True)


class DescribeLogDirsResponse(Message, key=35, versions="1-4", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "3+", default=0, ignorable=True)
    results: Sequence[DescribeLogDirsResult] = row([DescribeLogDirsResult], "0+", default=())
