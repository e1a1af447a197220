"""Schema tables: transactions. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class InitProducerIdRequest(Message, key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = row("string", "0+", default="", nullable="0+")
    transaction_timeout_ms: int = row("int32", "0+", default=0)
    producer_id: int = row("int64", "3+", default=-1)
    producer_epoch: int = row("int16", "3+", default=-1)
    enable2_pc: bool = row("bool", "6+", default=False)
    keep_prepared_txn: bool = row("bool", "6+", default=False)


class InitProducerIdResponse(Message, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = row("int32", "0+", default=0, ignorable=True)
    error_code: int = row("int16", "0+", default=0)
    producer_id: int = row("int64", "0+", default=-1)
    producer_epoch: int = row("int16", "0+", default=0)
    ongoing_txn_producer_id: int = row("int64", "6+", default=-1)
    ongoing_txn_producer_epoch: int = row("int16", "6+", default=-1)


class AddPartitionsToTxnTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = row("string", "4+", default="")
    producer_id: int = row("int64", "4+", default=0)
    producer_epoch: int = row("int16", "4+", default=0)
    verify_only: bool = row("bool", "4+", default=False)
    topics: Sequence[AddPartitionsToTxnTopic] = row([AddPartitionsToTxnTopic], "4+", default=())


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    transactions: Sequence[AddPartitionsToTxnTransaction] = row([AddPartitionsToTxnTransaction], "4+", default=())
    v3_and_below_transactional_id: str = row("string", "0-3", default="")
    v3_and_below_producer_id: int = row("int64", "0-3", default=0)
    v3_and_below_producer_epoch: int = row("int16", "0-3", default=0)
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = row([AddPartitionsToTxnTopic], "0-3", default=())


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = row("int32", "0+", default=0)
    partition_error_code: int = row("int16", "0+", default=0)


class AddPartitionsToTxnTopicResult(Message):
    name: str = row("string", "0+", default="")
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = row(
        [AddPartitionsToTxnPartitionResult], "0+", default=()
    )


class AddPartitionsToTxnResult(Message):
    transactional_id: str = row("string", "4+", default="")
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = row([AddPartitionsToTxnTopicResult], "4+", default=())


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "4+", default=0, ignorable=True)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = row([AddPartitionsToTxnResult], "4+", default=())
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = row(
        [AddPartitionsToTxnTopicResult], "0-3", default=()
    )


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = row("string", "0+", default="")
    producer_id: int = row("int64", "0+", default=0)
    producer_epoch: int = row("int16", "0+", default=0)
    group_id: str = row("string", "0+", default="")


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = row("string", "0+", default="")
    producer_id: int = row("int64", "0+", default=0)
    producer_epoch: int = row("int16", "0+", default=0)
    committed: bool = row("bool", "0+", default=False)


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    producer_id: int = row("int64", "5+", default=-1, ignorable=True)
    producer_epoch: int = row("int16", "5+", default=-1, ignorable=True)


class WritableTxnMarkerTopic(Message):
    name: str = row("string", "0+", default="")
    partition_indexes: Sequence[int] = row(["int32"], "0+", default=())


class WritableTxnMarker(Message):
    producer_id: int = row("int64", "0+", default=0)
    producer_epoch: int = row("int16", "0+", default=0)
    transaction_result: bool = row("bool", "0+", default=False)
    topics: Sequence[WritableTxnMarkerTopic] = row([WritableTxnMarkerTopic], "0+", default=())
    coordinator_epoch: int = row("int32", "0+", default=0)
    transaction_version: int = row("int8", "2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    markers: Sequence[WritableTxnMarker] = row([WritableTxnMarker], "0+", default=())


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)


class WritableTxnMarkerTopicResult(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[WritableTxnMarkerPartitionResult] = row([WritableTxnMarkerPartitionResult], "0+", default=())


class WritableTxnMarkerResult(Message):
    producer_id: int = row("int64", "0+", default=0)
    topics: Sequence[WritableTxnMarkerTopicResult] = row([WritableTxnMarkerTopicResult], "0+", default=())


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    markers: Sequence[WritableTxnMarkerResult] = row([WritableTxnMarkerResult], "0+", default=())


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    committed_offset: int = row("int64", "0+", default=0)
    committed_leader_epoch: int = row("int32", "2+", default=-1, ignorable=True)
    committed_metadata: str | None = row("string", "0+", default="", nullable="0+")


class TxnOffsetCommitRequestTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[TxnOffsetCommitRequestPartition] = row([TxnOffsetCommitRequestPartition], "0+", default=())


class TxnOffsetCommitRequest(Message, key=28, versions="0-5", flexible="3+"):
    transactional_id: str = row("string", "0+", default="")
    group_id: str = row("string", "0+", default="")
    producer_id: int = row("int64", "0+", default=0)
    producer_epoch: int = row("int16", "0+", default=0)
    generation_id: int = row("int32", "3+", default=-1)
    member_id: str = row("string", "3+", default="")
    group_instance_id: str | None = row("string", "3+", default=None, nullable="3+")
    topics: Sequence[TxnOffsetCommitRequestTopic] = row([TxnOffsetCommitRequestTopic], "0+", default=())


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)


class TxnOffsetCommitResponseTopic(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[TxnOffsetCommitResponsePartition] = row([TxnOffsetCommitResponsePartition], "0+", default=())


class TxnOffsetCommitResponse(Message, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    topics: Sequence[TxnOffsetCommitResponseTopic] = row([TxnOffsetCommitResponseTopic], "0+", default=())


class TopicRequest(Message):
    name: str = row("string", "0+", default="")
    partition_indexes: Sequence[int] = row(["int32"], "0+", default=())


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    topics: Sequence[TopicRequest] = row([TopicRequest], "0+", default=())


class ProducerState(Message):
    producer_id: int = row("int64", "0+", default=0)
    producer_epoch: int = row("int32", "0+", default=0)
    last_sequence: int = row("int32", "0+", default=-1)
    last_timestamp: int = row("int64", "0+", default=-1)
    coordinator_epoch: int = row("int32", "0+", default=0)
    current_txn_start_offset: int = row("int64", "0+", default=-1)


class PartitionResponse(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    error_message: str | None = row("string", "0+", default=None, nullable="0+")
    active_producers: Sequence[ProducerState] = row([ProducerState], "0+", default=())


class TopicResponse(Message):
    name: str = row("string", "0+", default="")
    partitions: Sequence[PartitionResponse] = row([PartitionResponse], "0+", default=())


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    topics: Sequence[TopicResponse] = row([TopicResponse], "0+", default=())


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    transactional_ids: Sequence[str] = row(["string"], "0+", default=())


class TopicData(Message):
    topic: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class DescribeTransactionsResponseTransactionState(Message):
    error_code: int = row("int16", "0+", default=0)
    transactional_id: str = row("string", "0+", default="")
    transaction_state: str = row("string", "0+", default="")
    transaction_timeout_ms: int = row("int32", "0+", default=0)
    transaction_start_time_ms: int = row("int64", "0+", default=0)
    producer_id: int = row("int64", "0+", default=0)
    producer_epoch: int = row("int16", "0+", default=0)
    topics: Sequence[TopicData] = row([TopicData], "0+", default=())


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    transaction_states: Sequence[DescribeTransactionsResponseTransactionState] = row(
        [DescribeTransactionsResponseTransactionState], "0+", default=()
    )


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    state_filters: Sequence[str] = row(["string"], "0+", default=())
    producer_id_filters: Sequence[int] = row(["int64"], "0+", default=())
    duration_filter: int = row("int64", "1+", default=-1)
    transactional_id_pattern: str | None = row("string", "2+", default=None, nullable="2+")


class ListTransactionsResponseTransactionState(Message):
    transactional_id: str = row("string", "0+", default="")
    producer_id: int = row("int64", "0+", default=0)
    transaction_state: str = row("string", "0+", default="")


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    unknown_state_filters: Sequence[str] = row(["string"], "0+", default=())
    transaction_states: Sequence[ListTransactionsResponseTransactionState] = row(
        [ListTransactionsResponseTransactionState], "0+", default=()
    )
