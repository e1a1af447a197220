"""Schema tables: produce. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, Records, row


class PartitionProduceData(Message):
    index: int = row("int32", "0+", default=0)
    records: Records | None = row("records", "0+", default=None, nullable="0+")


class TopicProduceData(Message):
    name: str = row("string", "0-12", default="", ignorable=True)
    topic_id: bytes = row("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partition_data: Sequence[PartitionProduceData] = row([PartitionProduceData], "0+", default=())


class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = row("string", "3+", default=None, nullable="3+")
    acks: int = row("int16", "0+", default=0)
    timeout_ms: int = row("int32", "0+", default=0)
    topic_data: Sequence[TopicProduceData] = row([TopicProduceData], "0+", default=())


class BatchIndexAndErrorMessage(Message):
    batch_index: int = row("int32", "8+", default=0)
    batch_index_error_message: str | None = row("string", "8+", default=None, nullable="8+")


class LeaderIdAndEpoch(Message):
    leader_id: int = row("int32", "10+", default=-1)
    leader_epoch: int = row("int32", "10+", default=-1)


class PartitionProduceResponse(Message):
    index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    base_offset: int = row("int64", "0+", default=0)
    log_append_time_ms: int = row("int64", "2+", default=-1, ignorable=True)
    log_start_offset: int = row("int64", "5+", default=-1, ignorable=True)
    record_errors: Sequence[BatchIndexAndErrorMessage] = row(
        [BatchIndexAndErrorMessage], "8+", default=(), ignorable=True
    )
    error_message: str | None = row("string", "8+", default=None, nullable="8+", ignorable=True)
    current_leader: LeaderIdAndEpoch = row(LeaderIdAndEpoch, "10+", factory=LeaderIdAndEpoch, tag=0, tagged="10+")


class TopicProduceResponse(Message):
    name: str = row("string", "0-12", default="", ignorable=True)
    topic_id: bytes = row("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partition_responses: Sequence[PartitionProduceResponse] = row([PartitionProduceResponse], "0+", default=())


class NodeEndpoint(Message):
    node_id: int = row("int32", "10+", default=0)
    host: str = row("string", "10+", default="")
    port: int = row("int32", "10+", default=0)
    rack: str | None = row("string", "10+", default=None, nullable="10+")


class ProduceResponse(Message, key=0, versions="3-13", flexible="9+"):
    responses: Sequence[TopicProduceResponse] = row([TopicProduceResponse], "0+", default=())
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    node_endpoints: Sequence[NodeEndpoint] = row([NodeEndpoint], "10+", default=(), tag=0, tagged="10+")
