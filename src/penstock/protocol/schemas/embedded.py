"""Schema tables: embedded. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import Message, row


class ConsumerProtocolSubscriptionTopicPartition(Message):
    topic: str = row("string", "1+", default="")
    partitions: Sequence[int] = row(["int32"], "1+", default=())


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    topics: Sequence[str] = row(["string"], "0+", default=())
    user_data: bytes | None = row("bytes", "0+", default=None, nullable="0+")
    owned_partitions: Sequence[ConsumerProtocolSubscriptionTopicPartition] = row(
        [ConsumerProtocolSubscriptionTopicPartition], "1+", default=(), ignorable=True
    )
    generation_id: int = row("int32", "2+", default=-1, ignorable=True)
    rack_id: str | None = row("string", "3+", default=None, nullable="3+", ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Message):
    topic: str = row("string", "0+", default="")
    partitions: Sequence[int] = row(["int32"], "0+", default=())


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    assigned_partitions: Sequence[ConsumerProtocolAssignmentTopicPartition] = row(
        [ConsumerProtocolAssignmentTopicPartition], "0+", default=()
    )
    user_data: bytes | None = row("bytes", "0+", default=None, nullable="0+")


class EndTxnMarker(Message, versions="0", flexible="none"):
    coordinator_epoch: int = row("int32", "0+", default=0)
