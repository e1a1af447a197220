"""Plain produce: one batch to one partition by each call. Batching over time is another module's work."""

import time
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from penstock.client.cluster import Cluster, Target, Terms
from penstock.client.errors import BadReplyError, ClientError, UnsendableError, broker_error
from penstock.client.metadata import TopicPartition
from penstock.protocol.compression import Codec
from penstock.protocol.errors import EncodeError
from penstock.protocol.framing import DEFAULT_LIMIT
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

# No broker takes a larger request, and the rest of the request needs some room too.
MAX_BATCH_BYTES = DEFAULT_LIMIT - 64 * 1024


class Acks(IntEnum):
    """What a produce waits for: nothing at all, the leader's log, or all in-sync replicas."""

    NONE = 0
    LEADER = 1
    ALL = -1


async def produce(
    cluster: Cluster,
    topic: str,
    partition: int,
    records: Iterable[NewRecord],
    *,
    acks: Acks = Acks.ALL,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timeout_ms: int | None = None,
) -> int:
    """Append the records, as one batch, and return the offset of the first (-1 with `Acks.NONE`, which tells nothing).
    A record without a timestamp gets the present one.

    The batch is never written twice: when it is unknown whether a broker has written it, the error says so
    (`outcome_unknown`) and the caller decides.
    """
    key = TopicPartition(topic, partition)
    batch = _build(key, records, codec, level)
    wait_ms = min(cluster.request_timeout_ms, cluster.timeout_ms if timeout_ms is None else timeout_ms)

    def request(target: Target) -> ProduceRequest:
        data = PartitionProduceData(index=target.partition, records=batch)
        to = TopicProduceData(name=target.topic, topic_id=target.topic_id, partition_data=[data])
        return ProduceRequest(acks=acks, timeout_ms=wait_ms, topic_data=[to])

    def read(response: ProduceResponse | None, _: Target) -> int:
        return -1 if response is None else _read(response, key)

    terms = Terms(repeatable=False, hold_ms=wait_ms, timeout_ms=timeout_ms)
    return await cluster.request_to_leader(key, request, read, terms=terms)


def _build(key: TopicPartition, records: Iterable[NewRecord], codec: Codec, level: int | None) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    stamped = [record if record.timestamp >= 0 else record._replace(timestamp=now_ms) for record in records]
    if not stamped:
        raise ValueError(f"there are no records to produce to {key}: a batch has one at least")
    try:
        batch = build(stamped, codec=codec, level=level)
    except EncodeError as error:
        raise UnsendableError(f"{key}: the records cannot be written as a batch: {error}") from error
    if len(batch) > MAX_BATCH_BYTES:
        raise UnsendableError(
            f"{key}: a batch of {len(batch)} bytes is over {MAX_BATCH_BYTES}: send fewer records at once"
        )
    return batch


def _read(response: ProduceResponse, key: TopicPartition) -> int:
    answers = [answer for topic in response.responses for answer in topic.partition_responses]
    if len(answers) != 1 or answers[0].index != key.partition:
        raise BadReplyError(f"{key}: the broker answered for other partitions", outcome_unknown=True)
    if answers[0].error_code:
        raise _refusal(answers[0], key)
    return answers[0].base_offset


def _refusal(answer: PartitionProduceResponse, key: TopicPartition) -> ClientError:
    told: list[Any] = [answer.error_message]
    told += [f"record {each.batch_index}: {each.batch_index_error_message}" for each in answer.record_errors]
    # An error with an offset comes from a leader that had written the batch when it lost its office: whether the next
    # leader has the batch too, only that one knows.
    was_written = answer.base_offset >= 0
    if was_written:
        told.append("the broker had written it before it failed: look before you send it again")
    message = "; ".join(filter(None, told)) or None
    return broker_error(answer.error_code, str(key), message, outcome_unknown=was_written)
