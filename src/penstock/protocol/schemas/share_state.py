"""Schema tables: share state. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, row


class InitializeShareGroupStateRequestPartitionData(Message):
    partition: int = row("int32", "0+", default=0)
    state_epoch: int = row("int32", "0+", default=0)
    start_offset: int = row("int64", "0+", default=0)


class InitializeStateData(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[InitializeShareGroupStateRequestPartitionData] = row(
        [InitializeShareGroupStateRequestPartitionData], "0+", default=()
    )


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[InitializeStateData] = row([InitializeStateData], "0+", default=())


class InitializeShareGroupStateResponsePartitionResult(Message):
    partition: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class InitializeStateResult(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[InitializeShareGroupStateResponsePartitionResult] = row(
        [InitializeShareGroupStateResponsePartitionResult], "0+", default=()
    )


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    results: Sequence[InitializeStateResult] = row([InitializeStateResult], "0+", default=())


class ReadShareGroupStateRequestPartitionData(Message):
    partition: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)


class ReadStateData(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[ReadShareGroupStateRequestPartitionData] = row(
        [ReadShareGroupStateRequestPartitionData], "0+", default=()
    )


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[ReadStateData] = row([ReadStateData], "0+", default=())


class ReadShareGroupStateResponseStateBatch(Message):
    first_offset: int = row("int64", "0+", default=0)
    last_offset: int = row("int64", "0+", default=0)
    delivery_state: int = row("int8", "0+", default=0)
    delivery_count: int = row("int16", "0+", default=0)


class ReadShareGroupStateResponsePartitionResult(Message):
    partition: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    state_epoch: int = row("int32", "0+", default=0)
    start_offset: int = row("int64", "0+", default=0)
    state_batches: Sequence[ReadShareGroupStateResponseStateBatch] = row(
        [ReadShareGroupStateResponseStateBatch], "0+", default=()
    )


class ReadStateResult(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[ReadShareGroupStateResponsePartitionResult] = row(
        [ReadShareGroupStateResponsePartitionResult], "0+", default=()
    )


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    results: Sequence[ReadStateResult] = row([ReadStateResult], "0+", default=())


class WriteShareGroupStateRequestStateBatch(Message):
    first_offset: int = row("int64", "0+", default=0)
    last_offset: int = row("int64", "0+", default=0)
    delivery_state: int = row("int8", "0+", default=0)
    delivery_count: int = row("int16", "0+", default=0)


class WriteShareGroupStateRequestPartitionData(Message):
    partition: int = row("int32", "0+", default=0)
    state_epoch: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)
    start_offset: int = row("int64", "0+", default=0)
    delivery_complete_count: int = row("int32", "1+", default=-1, ignorable=True)
    state_batches: Sequence[WriteShareGroupStateRequestStateBatch] = row(
        [WriteShareGroupStateRequestStateBatch], "0+", default=()
    )


class WriteStateData(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[WriteShareGroupStateRequestPartitionData] = row(
        [WriteShareGroupStateRequestPartitionData], "0+", default=()
    )


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[WriteStateData] = row([WriteStateData], "0+", default=())


class WriteShareGroupStateResponsePartitionResult(Message):
    partition: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class WriteStateResult(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[WriteShareGroupStateResponsePartitionResult] = row(
        [WriteShareGroupStateResponsePartitionResult], "0+", default=()
    )


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    results: Sequence[WriteStateResult] = row([WriteStateResult], "0+", default=())


class DeleteShareGroupStateRequestPartitionData(Message):
    partition: int = row("int32", "0+", default=0)


class DeleteStateData(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[DeleteShareGroupStateRequestPartitionData] = row(
        [DeleteShareGroupStateRequestPartitionData], "0+", default=()
    )


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[DeleteStateData] = row([DeleteStateData], "0+", default=())


class DeleteShareGroupStateResponsePartitionResult(Message):
    partition: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")


class DeleteStateResult(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[DeleteShareGroupStateResponsePartitionResult] = row(
        [DeleteShareGroupStateResponsePartitionResult], "0+", default=()
    )


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    results: Sequence[DeleteStateResult] = row([DeleteStateResult], "0+", default=())


class ReadShareGroupStateSummaryRequestPartitionData(Message):
    partition: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)


class ReadStateSummaryData(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[ReadShareGroupStateSummaryRequestPartitionData] = row(
        [ReadShareGroupStateSummaryRequestPartitionData], "0+", default=()
    )


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    group_id: str = row("string", "0+", default="")
    topics: Sequence[ReadStateSummaryData] = row([ReadStateSummaryData], "0+", default=())


class ReadShareGroupStateSummaryResponsePartitionResult(Message):
    partition: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    state_epoch: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)
    start_offset: int = row("int64", "0+", default=0)
    delivery_complete_count: int = row("int32", "1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Message):
    topic_id: bytes = row("uuid", "0+", default=ZERO_UUID)
    partitions: Sequence[ReadShareGroupStateSummaryResponsePartitionResult] = row(
        [ReadShareGroupStateSummaryResponsePartitionResult], "0+", default=()
    )


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    results: Sequence[ReadStateSummaryResult] = row([ReadStateSummaryResult], "0+", default=())
