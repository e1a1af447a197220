"""Plain fetch: what a broker has of some partitions from given offsets on, without sessions or groups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.client.cluster import Cluster, Target, Terms
from penstock.client.errors import ClientError, CorruptBatchError, broker_error, unwrap
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import HEADER, BatchHeader, read_header, split, verify
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.framing import DEFAULT_LIMIT
from penstock.protocol.records import Record, iterate
from penstock.protocol.schemas.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

# Kafka's fetch.max.bytes, max.partition.fetch.bytes and fetch.max.wait.ms.
MAX_BYTES = 50 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
MAX_WAIT_MS = 500


@dataclass(slots=True, frozen=True, eq=False)
class Fetched:
    """What came of one partition. Its records stay bytes until they are asked for."""

    partition: TopicPartition
    offset: int
    """The offset that was asked for; the first batch may begin before it."""
    high_watermark: int
    log_start_offset: int
    """-1 from brokers that do not tell."""
    batches: Sequence[tuple[BatchHeader, memoryview]]
    """Whole batches, headers and bytes; one that was cut off at the end is left out."""
    aborted: Sequence[AbortedTransaction] = ()
    """With `read_committed`: transactions whose records among these do not count."""

    @property
    def next_offset(self) -> int:
        """Where to fetch from next. After compaction that can be further than one behind the last record."""
        return max(self.offset, self.batches[-1][0].next_offset) if self.batches else self.offset

    def records(self) -> Iterator[Record]:
        """The records from the offset on, each decoded when it is asked for; CorruptBatchError at a damaged batch.
        Control records, which are not the user's, are left out."""
        for header, view in self.batches:
            if header.is_control or header.last_offset < self.offset:
                continue
            try:
                verify(header, view)
                for record in iterate(view):
                    if record.offset >= self.offset:
                        yield record
            except DecodeError as error:
                raise _corrupt(self.partition, header.base_offset, error) from error


async def fetch(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int = PARTITION_MAX_BYTES,
    max_wait_ms: int = MAX_WAIT_MS,
    min_bytes: int = 1,
    timeout_ms: int | None = None,
) -> Fetched:
    """What one partition has from `offset` on: up to about `max_bytes`, and one batch at least if there is one. The
    broker waits up to `max_wait_ms` for `min_bytes` to be there."""
    key = TopicPartition(topic, partition)
    fetched = await fetch_many(
        cluster,
        {key: offset},
        max_bytes=max_bytes,
        partition_max_bytes=max_bytes,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        timeout_ms=timeout_ms,
    )
    return unwrap(fetched)[key]


async def fetch_many(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, int],
    *,
    max_bytes: int = MAX_BYTES,
    partition_max_bytes: int = PARTITION_MAX_BYTES,
    max_wait_ms: int = MAX_WAIT_MS,
    min_bytes: int = 1,
    read_committed: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Fetched | ClientError]:
    """The same for many partitions, with one request to each of their leaders. To begin elsewhere each time keeps one
    busy partition from filling every answer: give the offsets in another order. With `read_committed` nothing comes of
    transactions that are open; what comes of aborted ones is not sorted out here."""
    # A reply over the frame limit would close the connection.
    max_bytes = min(max_bytes, DEFAULT_LIMIT // 2)

    def request(targets: Sequence[Target]) -> FetchRequest:
        wanted: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for target in targets:
            wanted.setdefault((target.topic, target.topic_id), []).append(
                FetchPartition(
                    partition=target.partition,
                    current_leader_epoch=target.leader_epoch,
                    fetch_offset=offsets[target.key],
                    partition_max_bytes=min(partition_max_bytes, max_bytes),
                )
            )
        topics = [FetchTopic(topic=name, topic_id=id, partitions=each) for (name, id), each in wanted.items()]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            topics=topics,
        )

    def read(response: FetchResponse, targets: Sequence[Target]) -> dict[TopicPartition, Fetched | ClientError]:
        return _read(response, targets, offsets)

    # The time that the broker was asked to wait is nobody's delay.
    total_ms = (cluster.timeout_ms if timeout_ms is None else timeout_ms) + max_wait_ms
    terms = Terms(polling=True, hold_ms=max_wait_ms, timeout_ms=total_ms)
    return await cluster.request_to_leaders(offsets, request, read, terms=terms)


def _read(
    response: FetchResponse, targets: Sequence[Target], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Fetched | ClientError]:
    if response.error_code:
        raise broker_error(response.error_code, f"a fetch of {', '.join(str(target.key) for target in targets)}")
    # The reply names its topics as the request did: by id from version 13 on, by name before.
    names = {target.topic_id: target.topic for target in targets}
    found: dict[TopicPartition, Fetched | ClientError] = {}
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id, "")
        for data in topic.partitions:
            key = TopicPartition(name, data.partition_index)
            if key in offsets:
                found[key] = _read_partition(data, key, offsets[key])
    return found


def _read_partition(data: PartitionData, key: TopicPartition, offset: int) -> Fetched | ClientError:
    if data.error_code:
        about = f"offset {offset} of {key}" if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE else str(key)
        return broker_error(data.error_code, about)
    view = memoryview(data.records if data.records is not None else b"")  # type: ignore[arg-type]
    try:
        batches = split(view[: whole_bytes(view)])
    except DecodeError as error:
        return _corrupt(key, offset, error)
    aborted = tuple(data.aborted_transactions or ())
    return Fetched(key, offset, data.high_watermark, data.log_start_offset, batches, aborted)


def whole_bytes(view: memoryview) -> int:
    """How many of the bytes to read: a broker may cut the last batch off where the reply got too long, though never the
    first (KIP-74). What cannot be a batch is left for `split` to refuse."""
    position = 0
    while len(view) - position >= HEADER.size:
        size = read_header(view, position).size
        if size < HEADER.size:
            return len(view)
        if size > len(view) - position:
            break
        position += size
    return position or len(view)


def _corrupt(key: TopicPartition, offset: int, error: DecodeError) -> CorruptBatchError:
    return CorruptBatchError(
        f"{key}: what was fetched from offset {offset} on is damaged ({error}); fetch again, and if it stays so, the "
        "broker's disk is to blame: restore the partition, or go on behind the batch"
    )
