"""Idempotent producers of one partition: which of their batches are new, which were seen, which come out of order.

Its state is a fold over batch headers. For each producer it remembers the last five batches, as many as a client keeps
in flight, so that a retry is answered with the offsets of the original.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode

WINDOW: Final = 5
SNAPSHOT_VERSION: Final = 1
_SEQUENCES: Final = 0x8000_0000
_NO_END: Final = 0x7FFF_FFFF_FFFF_FFFF
_ENTRY: Final = Struct("<qhqB")
_BATCH: Final = Struct("<iiqq")


@dataclass(slots=True, frozen=True)
class AppendedBatch:
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    epoch: int
    last_used_ms: int
    batches: list[AppendedBatch] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class Duplicate:
    """The batch is there already."""

    base_offset: int
    timestamp: int


@dataclass(slots=True, frozen=True)
class Rejected:
    code: ErrorCode
    message: str


class Producers:
    """Ask `check` before an append and tell `appended` after it."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> Duplicate | Rejected | None:
        """None: append it. Batches without a producer id are never looked at."""
        producer = self._producers.get(header.producer_id)
        # Of a producer that is not known, because it is new or its batches are deleted, any sequence is taken.
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            return Rejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {producer.epoch}, the batch has {header.producer_epoch}",
            )
        if header.producer_epoch > producer.epoch:
            if header.base_sequence != 0:
                return Rejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"a new epoch of producer {header.producer_id} begins with sequence 0, not {header.base_sequence}",
                )
            return None
        last_sequence = _last_sequence(header)
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return Duplicate(batch.base_offset, batch.timestamp)
        expected = (producer.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            return Rejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} where {expected} comes next",
            )
        return None

    def appended(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """The batch lies in the log at `base_offset`."""
        # A control batch with a sequence is what compaction leaves of a producer's last batch.
        if header.producer_id < 0 or (header.is_control and header.base_sequence < 0):
            return
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch, now_ms)
        producer.last_used_ms = now_ms
        producer.batches.append(
            AppendedBatch(header.base_sequence, _last_sequence(header), base_offset, header.max_timestamp)
        )
        del producer.batches[:-WINDOW]

    def fold(self, headers: Iterable[BatchHeader], now_ms: int) -> None:
        """Learn from a log what was appended to it."""
        for header in headers:
            self.appended(header, header.base_offset, now_ms)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for long."""
        silent = [
            number for number, producer in self._producers.items() if now_ms - producer.last_used_ms > expiration_ms
        ]
        for number in silent:
            del self._producers[number]

    def snapshot(self, end_offset: int = _NO_END) -> bytes:
        """What is known of batches before an offset. Of a producer that has five behind it nothing is told, and nothing
        is missed: it has answers to all that came before them.

        Version 1, little-endian. Each producer: i64 id, i16 epoch, i64 last used ms, u8 batches; each batch of it:
        i32 first sequence, i32 last sequence, i64 base offset, i64 timestamp."""
        parts = []
        for number, producer in self._producers.items():
            batches = [batch for batch in producer.batches if batch.base_offset < end_offset]
            if batches:
                parts.append(_ENTRY.pack(number, producer.epoch, producer.last_used_ms, len(batches)))
                parts += [
                    _BATCH.pack(batch.first_sequence, batch.last_sequence, batch.base_offset, batch.timestamp)
                    for batch in batches
                ]
        return b"".join(parts)

    @classmethod
    def restore(cls, snapshot: bytes) -> "Producers":
        """From bytes whose checksum was right."""
        restored, position = cls(), 0
        while position < len(snapshot):
            number, epoch, last_used_ms, count = _ENTRY.unpack_from(snapshot, position)
            position += _ENTRY.size
            end = position + count * _BATCH.size
            batches = [AppendedBatch(*values) for values in _BATCH.iter_unpack(snapshot[position:end])]
            restored._producers[number] = Producer(epoch, last_used_ms, batches)
            position = end
        return restored


def _last_sequence(header: BatchHeader) -> int:
    # Sequences wrap around to 0 behind the largest 32-bit number.
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
