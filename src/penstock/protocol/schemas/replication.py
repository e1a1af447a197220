"""Schema tables: replication. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, row


class BrokerState(Message):
    broker_id: int = row("int32", "3+", default=0)
    broker_epoch: int = row("int64", "3+", default=-1)


class AlterPartitionRequestPartitionData(Message):
    partition_index: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)
    new_isr: Sequence[int] = row(["int32"], "0-2", default=())
    new_isr_with_epochs: Sequence[BrokerState] = row([BrokerState], "3+", default=())
    leader_recovery_state: int = row("int8", "1+", default=0)
    partition_epoch: int = row("int32", "0+", default=0)


class AlterPartitionRequestTopicData(Message):
    topic_id: bytes = row("uuid", "2+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[AlterPartitionRequestPartitionData] = row(
        [AlterPartitionRequestPartitionData], "0+", default=()
    )


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="0+"):
    broker_id: int = row("int32", "0+", default=0)
    broker_epoch: int = row("int64", "0+", default=-1)
    topics: Sequence[AlterPartitionRequestTopicData] = row([AlterPartitionRequestTopicData], "0+", default=())


class AlterPartitionResponsePartitionData(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    leader_id: int = row("int32", "0+", default=0)
    leader_epoch: int = row("int32", "0+", default=0)
    isr: Sequence[int] = row(["int32"], "0+", default=())
    leader_recovery_state: int = row("int8", "1+", default=0, ignorable=True)
    partition_epoch: int = row("int32", "0+", default=0)


class AlterPartitionResponseTopicData(Message):
    topic_id: bytes = row("uuid", "2+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[AlterPartitionResponsePartitionData] = row(
        [AlterPartitionResponsePartitionData], "0+", default=()
    )


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    topics: Sequence[AlterPartitionResponseTopicData] = row([AlterPartitionResponseTopicData], "0+", default=())


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    request_data: bytes = row("bytes", "0+", default=b"")
    request_principal: bytes | None = row("bytes", "0+", default=b"", nullable="0+")
    client_host_address: bytes = row("bytes", "0+", default=b"")
    listener_name: str = row("string", "0+", default="", tag=20000, tagged="0+", ignorable=True)
    of_broker: bool = row("bool", "0+", default=False, tag=20001, tagged="0+", ignorable=True)


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = row("bytes", "0+", default=None, nullable="0+")
    error_code: int = row("int16", "0+", default=0)
    metadata_index: int = row("int64", "0+", default=0, tag=20000, tagged="0+", ignorable=True)


class BrokerHeartbeatRequest(Message, key=63, versions="0-1", flexible="0+"):
    broker_id: int = row("int32", "0+", default=0)
    broker_epoch: int = row("int64", "0+", default=-1)
    current_metadata_offset: int = row("int64", "0+", default=0)
    want_fence: bool = row("bool", "0+", default=False)
    want_shut_down: bool = row("bool", "0+", default=False)
    offline_log_dirs: Sequence[bytes] = row(["uuid"], "1+", default=(), tag=0, tagged="1+")


class BrokerHeartbeatResponse(Message, key=63, versions="0-1", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    is_caught_up: bool = row("bool", "0+", default=False)
    is_fenced: bool = row("bool", "0+", default=True)
    should_shut_down: bool = row("bool", "0+", default=False)


class AllocateProducerIdsRequest(Message, key=67, versions="0", flexible="0+"):
    broker_id: int = row("int32", "0+", default=0)
    broker_epoch: int = row("int64", "0+", default=-1)


class AllocateProducerIdsResponse(Message, key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    producer_id_start: int = row("int64", "0+", default=0)
    producer_id_len: int = row("int32", "0+", default=0)
