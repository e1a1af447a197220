"""Plain fetch reads partitions from given offsets on, without sessions or groups."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from penstock.client.cluster.cluster import Cluster, Target, Terms
from penstock.client.corruption import (
    WHOLE_RECORDS,
    PassedOver,
    corrupt_batch,
    end_of_batch,
    has_right_crc,
    split_damaged,
)
from penstock.client.errors import ClientError, CorruptBatchError, broker_error, unwrap
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import BatchHeader, split, verify, whole_batches
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
    """What was fetched of one partition. Its records stay bytes until they are asked for."""

    partition: TopicPartition
    offset: int
    """The offset that was asked for; the first batch may begin before it."""
    high_watermark: int
    log_start_offset: int
    """-1 from brokers that do not report it."""
    batches: Sequence[tuple[BatchHeader, memoryview]]
    """Whole batches, headers and bytes; one that was cut off at the end is left out."""
    aborted: Sequence[AbortedTransaction] = ()
    """With `read_committed`: transactions whose records among these are to be left out."""

    @property
    def next_offset(self) -> int:
        """The offset to fetch from next. After compaction it can be further than one after the last record."""
        return max(self.offset, self.batches[-1][0].next_offset) if self.batches else self.offset

    def records(self, passed_over: PassedOver | None = None) -> Iterator[Record]:
        """The records from the offset on, each decoded when it is asked for. Control records, which are not the user's,
        are left out. CorruptBatchError at a batch that cannot be read, unless it is for `passed_over` to count."""
        for index, (header, view) in enumerate(self.batches):
            if header.is_control or header.last_offset < self.offset:
                continue
            records: Iterable[Record]
            try:
                verify(header, view)
                records = iterate(view)
                if header.record_count <= WHOLE_RECORDS:
                    records = list(records)
                for record in records:
                    if record.offset >= self.offset:
                        yield record
            except DecodeError as error:
                damage = self._damage(index, error)
                if passed_over is None or damage.next_offset is None:
                    raise damage from error
                passed_over.note(damage)

    def _damage(self, index: int, error: DecodeError) -> CorruptBatchError:
        header, view = self.batches[index]
        end = end_of_batch(
            header,
            is_intact=has_right_crc(header, view),
            position=self.offset,
            following=self.batches[index + 1][0] if index + 1 < len(self.batches) else None,
            log_end=self.high_watermark,
        )
        return corrupt_batch(self.partition, header.base_offset, end, error)


class WantedPartition(NamedTuple):
    """A partition to fetch, and the offset to fetch from."""

    target: Target
    offset: int
    last_fetched_epoch: int = -1
    """Brokers compare it with their log, and report where the logs diverge (KIP-595); -1 asks for no comparison."""


def fetch_request(
    wanted: Iterable[WantedPartition],
    *,
    max_bytes: int,
    partition_max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    read_committed: bool,
    rack_id: str = "",
) -> FetchRequest:
    """The request for some partitions that one broker has, grouped by topic and in the order in which they are given.
    The broker waits up to `max_wait_ms` until it has `min_bytes`."""
    topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
    for target, offset, epoch in wanted:
        topics.setdefault((target.topic, target.topic_id), []).append(
            FetchPartition(
                partition=target.partition,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=epoch,
                partition_max_bytes=min(partition_max_bytes, max_bytes),
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=[FetchTopic(topic=name, topic_id=id, partitions=each) for (name, id), each in topics.items()],
        rack_id=rack_id,
    )


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
    """As `fetch`, for several partitions, with one request to each of their leaders. One busy partition could fill
    every answer: give the offsets in another order each time. With `read_committed` records of open transactions are
    left out by the broker; those of aborted ones are not left out here."""
    # A reply over the frame limit would close the connection.
    max_bytes = min(max_bytes, DEFAULT_LIMIT // 2)

    def request(targets: Sequence[Target]) -> FetchRequest:
        return fetch_request(
            [WantedPartition(target, offsets[target.key]) for target in targets],
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            read_committed=read_committed,
        )

    def read(response: FetchResponse, targets: Sequence[Target]) -> dict[TopicPartition, Fetched | ClientError]:
        return _read(response, targets, offsets)

    # The time that the broker was asked to wait does not count.
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
        batches = split(view[: whole_batches(view)[0]])
    except DecodeError:
        # What comes before the damage first: the next fetch begins with it.
        pieces = split_damaged(view)
        batches = [(header, each) for header, each, _ in takewhile(lambda piece: piece[2] is None, pieces)]
        if not batches:
            end = pieces[1][0].base_offset if len(pieces) > 1 and pieces[1][2] is None else None
            return corrupt_batch(key, offset, end, pieces[0][2])
    aborted = tuple(data.aborted_transactions or ())
    return Fetched(key, offset, data.high_watermark, data.log_start_offset, batches, aborted)
