"""Schema tables: topics. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, row


class CreatableReplicaAssignment(Message):
    partition_index: int = row("int32", "0+", default=0)
    broker_ids: Sequence[int] = row(["int32"], "0+", default=())


class CreatableTopicConfig(Message):
    name: str = row("string", "0+", default="")
    value: str | None = row("string", "0+", default="", nullable="0+")


class CreatableTopic(Message):
    name: str = row("string", "0+", default="")
    num_partitions: int = row("int32", "0+", default=0)
    replication_factor: int = row("int16", "0+", default=0)
    assignments: Sequence[CreatableReplicaAssignment] = row([CreatableReplicaAssignment], "0+", default=())
    configs: Sequence[CreatableTopicConfig] = row([CreatableTopicConfig], "0+", default=())


class CreateTopicsRequest(Message, key=19, versions="2-7", flexible="5+"):
    topics: Sequence[CreatableTopic] = row([CreatableTopic], "0+", default=())
    timeout_ms: int = row("int32", "0+", default=60000)
    validate_only: bool = row("bool", "1+", default=False)


class CreatableTopicConfigs(Message):
    name: str = row("string", "5+", default="")
    value: str | None = row("string", "5+", default="", nullable="5+")
    read_only: bool = row("bool", "5+", default=False)
    config_source: int = row("int8", "5+", default=-1, ignorable=True)
    is_sensitive: bool = row("bool", "5+", default=False)


class CreatableTopicResult(Message):
    name: str = row("string", "0+", default="")
    topic_id: bytes = row("uuid", "7+", default=ZERO_UUID, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "1+", default="", nullable="0+", ignorable=True)
    topic_config_error_code: int = row("int16", "5+", default=0, tag=0, tagged="5+", ignorable=True)
    num_partitions: int = row("int32", "5+", default=-1, ignorable=True)
    replication_factor: int = row("int16", "5+", default=-1, ignorable=True)
    configs: Sequence[CreatableTopicConfigs] | None = row(
        [CreatableTopicConfigs], "5+", default=(), nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = row("int32", "2+", default=0, ignorable=True)
    topics: Sequence[CreatableTopicResult] = row([CreatableTopicResult], "0+", default=())


class DeleteTopicState(Message):
    name: str | None = row("string", "6+", default=None, nullable="6+")
    topic_id: bytes = row("uuid", "6+", default=ZERO_UUID)


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    topics: Sequence[DeleteTopicState] = row([DeleteTopicState], "6+", default=())
    topic_names: Sequence[str] = row(["string"], "0-5", default=(), ignorable=True)
    timeout_ms: int = row("int32", "0+", default=0)


class DeletableTopicResult(Message):
    name: str | None = row("string", "0+", default="", nullable="6+")
    topic_id: bytes = row("uuid", "6+", default=ZERO_UUID, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "5+", default=None, nullable="5+", ignorable=True)


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    responses: Sequence[DeletableTopicResult] = row([DeletableTopicResult], "0+", default=())


class CreatePartitionsAssignment(Message):
    broker_ids: Sequence[int] = row(["int32"], "0+", default=())


class CreatePartitionsTopic(Message):
    name: str = row("string", "0+", default="")
    count: int = row("int32", "0+", default=0)
    assignments: Sequence[CreatePartitionsAssignment] | None = row(
        [CreatePartitionsAssignment], "0+", default=(), nullable="0+"
    )


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    topics: Sequence[CreatePartitionsTopic] = row([CreatePartitionsTopic], "0+", default=())
    timeout_ms: int = row("int32", "0+", default=0)
    validate_only: bool = row("bool", "0+", default=False)


class CreatePartitionsTopicResult(Message):
    name: str = row("string", "0+", default="")
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    results: Sequence[CreatePartitionsTopicResult] = row([CreatePartitionsTopicResult], "0+", default=())


class DeleteRecordsPartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    offset: int = row("int64", "0+", default=0)


class DeleteRecordsTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[DeleteRecordsPartition] = row([DeleteRecordsPartition], "0+", default=())


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    topics: Sequence[DeleteRecordsTopic] = row([DeleteRecordsTopic], "0+", default=())
    timeout_ms: int = row("int32", "0+", default=0)


class DeleteRecordsPartitionResult(Message):
    partition_index: int = row("int32", "0+", default=0)
    low_watermark: int = row("int64", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)


class DeleteRecordsTopicResult(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[DeleteRecordsPartitionResult] = row([DeleteRecordsPartitionResult], "0+", default=())


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    topics: Sequence[DeleteRecordsTopicResult] = row([DeleteRecordsTopicResult], "0+", default=())


class TopicPartitions(Message):
    topic: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    election_type: int = row("int8", "1+", default=0)
    topic_partitions: Sequence[TopicPartitions] | None = row([TopicPartitions], "0+", default=(), nullable="0+")
    timeout_ms: int = row("int32", "0+", default=60000)


class PartitionResult(Message):
    partition_id: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default="", nullable="0+")


class ReplicaElectionResult(Message):
    topic: str = row("string", "0+", default="")
    partition_result: Sequence[PartitionResult] = row([PartitionResult], "0+", default=())


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "1+", default=0)
    replica_election_results: Sequence[ReplicaElectionResult] = row([ReplicaElectionResult], "0+", default=())
