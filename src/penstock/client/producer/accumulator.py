"""The accumulator holds what waits to be sent: records in batches, batches in the queue of their partition, and the
memory they take.

It is pure: it is given the time, and never waits. What an answer means to a batch is in `sequencing`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from penstock.client.producer.deliveries import Outcome
from penstock.client.producer.record_writer import HEADER_BYTES, Record, stamp_header, stamp_producer, write_records
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import NewRecord, build, iterate

# Records that are written at a time: enough to be quick, few enough not to hold up the event loop.
CHUNK_RECORDS: Final = 128
# What a batch costs besides its bytes, so that many tiny ones do not take more memory than is allowed.
BATCH_COST_BYTES: Final = 1024
SEQUENCES: Final = 0x8000_0000
_LAST_EPOCH: Final = 0x7FFF
_ranks = count()


def next_rank() -> int:
    """A rank, higher than all before it; batches are ordered by it."""
    return next(_ranks)


class Batch(Outcome):
    """Records of one partition that are sent, and settled, together. It is open until it is closed, then it is sent,
    again and again if need be."""

    __slots__ = (
        "rank",
        "count",
        "size",
        "limit",
        "data",
        "created_at",
        "is_closed",
        "is_due",
        "is_compressing",
        "codec",
        "tries",
        "in_doubt",
        "last_error",
        "producer",
        "sequence",
        "records",
        "headers",
        "base_timestamp",
        "max_timestamp",
    )

    def __init__(self, topic: str, partition: int, created_at: float) -> None:
        super().__init__(topic, partition)
        self.rank = next_rank()
        """Its place among the batches of its partition."""
        self.count = 0
        self.size = HEADER_BYTES
        self.limit = 0
        """Bytes up to which it takes records."""
        self.data: bytearray | memoryview = bytearray(HEADER_BYTES)
        self.created_at = created_at
        self.is_closed = False
        self.is_due = False
        """Whether it may be sent though it is not full."""
        self.is_compressing = False
        self.codec = Codec.NONE
        self.tries = 0
        self.in_doubt = False
        """Whether a broker may have written it though it did not say so."""
        self.last_error: Exception | None = None
        self.producer: tuple[int, int] | None = None
        self.sequence = -1
        # Records that are not written yet.
        self.records: list[Record] = []
        self.headers: dict[int, bytes] = {}
        self.base_timestamp = -1
        self.max_timestamp = -1

    @classmethod
    def of(cls, topic: str, partition: int, data: memoryview | bytearray, count: int, created_at: float) -> "Batch":
        """A batch that is written already, except for its producer."""
        self = cls(topic, partition, created_at)
        self.data, self.count, self.size = data, count, len(data)
        self.is_closed = True
        return self

    def append(self, key: bytes | None, value: bytes | None, stamp: int, headers: bytes | None, size: int) -> int:
        """Append a record; returns its place in the batch."""
        index = self.count
        self.count = index + 1
        self.size += size
        self.records.append((key, value, stamp))
        if headers is not None:
            self.headers[index] = headers
        if not self.count % CHUNK_RECORDS:
            self._write()
        return index

    def close(self) -> None:
        """Close the batch: it takes no more records."""
        if not self.is_closed:
            self._write()
            self.limit = 0
            assert isinstance(self.data, bytearray)
            stamp_header(
                self.data,
                codec=Codec.NONE,
                count=self.count,
                base_timestamp=self.base_timestamp,
                max_timestamp=self.max_timestamp,
            )
            self.is_closed = True

    def compress(self, codec: Codec, level: int | None) -> None:
        """Compress the batch, once it is closed; may be called in a thread."""
        data = bytearray(HEADER_BYTES) + compress(codec, memoryview(self.data)[HEADER_BYTES:], level)
        stamp_header(
            data,
            codec=codec,
            count=self.count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
        )
        self.data = data
        self.codec = codec

    def stamp(self, producer: tuple[int, int], sequence: int) -> None:
        """Write the producer's id and epoch and the sequence number; all are -1 without idempotence."""
        if self.producer != producer or self.sequence != sequence:
            self.producer, self.sequence = producer, sequence
            stamp_producer(self.data, *producer, sequence)

    def parts(self, indices: Sequence[Sequence[int]], level: int | None = None) -> list["Batch"]:
        """New closed batches, each of some of the records."""
        records = [NewRecord(each.value, each.key, each.headers, each.timestamp) for each in iterate(self.data)]
        made = []
        for some in indices:
            data = build([records[index] for index in some], codec=self.codec, level=level)
            part = Batch.of(self.topic, self.partition, data, len(some), self.created_at)
            part.codec = self.codec
            part.rank, part.is_due = self.rank, True
            part.tries, part.in_doubt, part.last_error = self.tries, self.in_doubt, self.last_error
            made.append(part)
        return made

    def _write(self) -> None:
        records = self.records
        if not records:
            return
        if self.base_timestamp < 0:
            self.base_timestamp = records[0][2]
        assert isinstance(self.data, bytearray), "a batch that was written elsewhere takes no more records"
        written, latest = write_records(
            records, self.headers, first=self.count - len(records), base_timestamp=self.base_timestamp
        )
        self.data += written
        self.max_timestamp = max(self.max_timestamp, latest)
        self.records = []
        if self.headers:
            self.headers = {}


_NO_BATCH: Final = Batch("", -1, 0.0)


@dataclass(slots=True)
class Memory:
    """The bytes that waiting messages take, and their limit."""

    limit: int
    used: int = 0


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """What goes to one partition: its batches in their order, those that are on their way, and its sequence numbers."""

    topic: str
    partition: int
    leader: int = -1
    largest: int = 0x7FFF_FFFF
    """Bytes that a batch may have, as far as is known."""
    waiting: deque[Batch] = field(default_factory=deque)
    last: Batch = _NO_BATCH
    """The batch that was made last, which takes records up to its limit."""
    in_flight: list[Batch] = field(default_factory=list)
    sent_to: int = -1
    """The broker that has the batches in flight."""
    retry_at: float = 0.0
    failures: int = 0
    """Failed tries in a row."""
    producer: tuple[int, int] | None = None
    """The id and epoch under which its batches are numbered."""
    next_sequence: int = 0
    last_numbered: int = -1
    """The rank of the last batch that was given numbers."""
    gap: int | None = None
    """The rank from which on batches cannot be written under the present numbers: see `leave_gap`."""
    spent_id: int = -1
    """A producer id that has no epochs left."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def first_sendable(self, now: float) -> Batch | None:
        """The batch that may be sent now. One that was sent before goes alone: so order is kept, and so is the window
        in which brokers recognise duplicates."""
        if not self.waiting or self.retry_at > now:
            return None
        batch = self.waiting[0]
        if not (batch.is_closed or batch.is_due) or batch.is_compressing:
            return None
        if self.in_flight and (batch.tries or self.sent_to != self.leader):
            return None
        if self.gap is not None and not self._is_past_gap(batch):
            return None
        return batch

    def send(self, batch: Batch, identity: tuple[int, int] | None) -> None:
        """The first batch goes out. With an identity, a producer's id and epoch, it is numbered."""
        sent = self.waiting.popleft()
        assert sent is batch, "batches are sent in order"
        batch.tries += 1
        self.in_flight.append(batch)
        self.sent_to = self.leader
        if identity is None:
            batch.stamp((-1, -1), -1)
        elif batch.sequence < 0:
            if self.producer is None:
                self.producer = identity
            batch.stamp(self.producer, self.next_sequence)
            self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES
            self.last_numbered = batch.rank

    def put_back(self, *batches: Batch) -> None:
        """Put batches back to where they were in the queue."""
        rank = batches[0].rank
        position = next((place for place, each in enumerate(self.waiting) if each.rank >= rank), len(self.waiting))
        for batch in reversed(batches):
            self.waiting.insert(position, batch)

    def is_first(self, batch: Batch) -> bool:
        """Whether everything that was sent before it is settled."""
        earlier = [each for each in (*self.in_flight, *self.waiting) if each.sequence >= 0 and each is not batch]
        return all(each.rank > batch.rank for each in earlier)

    def leave_gap(self, batch: Batch, *, is_refused: bool) -> None:
        """A numbered batch will not be sent again under its numbers. The next ones begin at 0 in a new epoch (KIP-360).

        If it was refused, nothing after it can be written: all of that gets new numbers once none of it is in flight.
        If it may be written, so may what was sent after it, which keeps its numbers until its outcome is known. In both
        cases batches before it keep theirs.
        """
        if batch.sequence >= 0:
            begins = batch.rank if is_refused else self.last_numbered + 1
            self.gap = begins if self.gap is None else min(self.gap, begins)

    def _is_past_gap(self, batch: Batch) -> bool:
        assert self.gap is not None
        if batch.rank < self.gap:
            return True
        if self.in_flight:
            return False
        self._begin_epoch()
        return True

    def _begin_epoch(self) -> None:
        assert self.producer is not None
        producer_id, epoch = self.producer
        self.producer = (producer_id, epoch + 1)
        if epoch >= _LAST_EPOCH:
            self.producer, self.spent_id = None, producer_id
        self.next_sequence = 0
        self.gap = None
        for batch in self.waiting:
            batch.sequence = -1
