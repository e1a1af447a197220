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
