"""Schema tables: reassignments. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class ReassignablePartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    replicas: Sequence[int] | None = row(["int32"], "0+", default=None, nullable="0+")


class ReassignableTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[ReassignablePartition] = row([ReassignablePartition], "0+", default=())


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = row("int32", "0+", default=60000)
    allow_replication_factor_change: bool = row("bool", "1+", default=True)
    topics: Sequence[ReassignableTopic] = row([ReassignableTopic], "0+", default=())


class ReassignablePartitionResponse(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")


class ReassignableTopicResponse(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[ReassignablePartitionResponse] = row([ReassignablePartitionResponse], "0+", default=())


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    allow_replication_factor_change: bool = row("bool", "1+", default=True, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    responses: Sequence[ReassignableTopicResponse] = row([ReassignableTopicResponse], "0+", default=())


class ListPartitionReassignmentsTopics(Message):
    name: str = row("string", "0+", default="")
    partition_indexes: Sequence[int] = row(["int32"], "0+", default=())


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    timeout_ms: int = row("int32", "0+", default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = row(
        [ListPartitionReassignmentsTopics], "0+", default=None, nullable="0+"
    )


class OngoingPartitionReassignment(Message):
    partition_index: int = row("int32", "0+", default=0)
    replicas: Sequence[int] = row(["int32"], "0+", default=())
    adding_replicas: Sequence[int] = row(["int32"], "0+", default=())
    removing_replicas: Sequence[int] = row(["int32"], "0+", default=())


class OngoingTopicReassignment(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[OngoingPartitionReassignment] = row([OngoingPartitionReassignment], "0+", default=())


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")
    topics: Sequence[OngoingTopicReassignment] = row([OngoingTopicReassignment], "0+", default=())
