"""`fetch_chunk` fetches the bytes of a range of offsets for a task, one answer at a time, of one topic id alone."""

from dataclasses import dataclass
from typing import Final

from penstock.client.cluster.cluster import Cluster, Target, Terms
from penstock.client.errors import ClientError, broker_error
from penstock.client.metadata import TopicPartition
from penstock.client.plain.fetch import WantedPartition, fetch_request
from penstock.protocol.batch import NO_END, whole_batches
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import DEFAULT_LIMIT
from penstock.protocol.schemas.fetch import FetchRequest, FetchResponse
from penstock.spark.offsets import id_text, is_remade

MAX_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one fetch unless the user says otherwise: some thousand records of a kilobyte."""
MAX_WAIT_MS: Final = 500


class RemadeTopicError(ClientError):
    """The topic was deleted and made again since the batch was planned."""


@dataclass(slots=True, frozen=True, eq=False)
class Chunk:
    """Whole batches of one partition."""

    data: memoryview
    next_offset: int
    """Where to fetch from next; the offset asked for if nothing came."""
    last_stable_offset: int
    """The offset after the last record that may be read."""
    aborted: tuple[tuple[int, int], ...]
    """Producer ids and first offsets of aborted transactions, for the decoder."""


async def fetch_chunk(
    cluster: Cluster,
    key: TopicPartition,
    topic_id: str,
    offset: int,
    *,
    end: int = NO_END,
    max_bytes: int = MAX_BYTES,
    read_committed: bool = True,
) -> Chunk:
    """What a partition has from `offset` on, in one answer, without batches that begin at `end` or later; waited for a
    little if there is nothing."""
    most = min(max_bytes, DEFAULT_LIMIT // 2)

    def build(target: Target) -> FetchRequest:
        if is_remade(topic_id, now := id_text(target.topic_id)):
            raise RemadeTopicError(
                f"topic {key.topic!r} was deleted and made again: its id was {topic_id} and is {now}"
            )
        return fetch_request(
            [WantedPartition(target, offset)],
            max_bytes=most,
            partition_max_bytes=most,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            read_committed=read_committed,
        )

    def read(response: FetchResponse, _: Target) -> Chunk:
        return _read(response, key, offset, end)

    terms = Terms(polling=True, hold_ms=MAX_WAIT_MS, timeout_ms=cluster.timeout_ms + MAX_WAIT_MS)
    try:
        return await cluster.request_to_leader(key, build, read, terms=terms)
    except RemadeTopicError:
        # What this process remembers of the topic may be older than the plan: only what brokers say now is believed.
        await cluster.topic(key.topic, fresh=True)
        return await cluster.request_to_leader(key, build, read, terms=terms)


def _read(response: FetchResponse, key: TopicPartition, offset: int, end: int = NO_END) -> Chunk:
    if response.error_code:
        raise broker_error(response.error_code, f"a fetch of {key}")
    for topic in response.responses:
        for data in topic.partitions:
            if data.partition_index != key.partition:
                continue
            if data.error_code:
                about = f"offset {offset} of {key}" if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE else str(key)
                raise broker_error(data.error_code, about)
            view = memoryview(data.records if data.records is not None else b"")  # type: ignore[arg-type]
            size, next_offset = whole_batches(view, offset, end)
            stable = data.last_stable_offset if data.last_stable_offset >= 0 else data.high_watermark
            aborted = tuple((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())
            return Chunk(view[:size], next_offset, stable, aborted)
    # An answer without the partition, as one within a session could be, has nothing of it.
    return Chunk(memoryview(b""), offset, -1, ())
