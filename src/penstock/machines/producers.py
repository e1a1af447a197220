"""Judges the batches of idempotent producers in one partition: which are new, which were seen, which come out of order.

Its state is a fold over batch headers. For each producer it remembers the last five batches, as many as a client keeps
in flight, so that a retry is answered with the offsets of the original.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.batch import BatchHeader
from penstock.protocol.error_codes import ErrorCode

WINDOW: Final = 5
MAX_REFUSED: Final = 1000
"""The most producers of a partition of which refused batches are remembered, however many ids a client makes up."""
SNAPSHOT_VERSION: Final = 1
_SEQUENCES: Final = 0x8000_0000
_NO_END: Final = 0x7FFF_FFFF_FFFF_FFFF
_ENTRY: Final = Struct("<qhqB")
_BATCH: Final = Struct("<iiqq")


class AppendedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


class Producer:
    """The epoch of a producer, the sequence that comes next, and its last batches, at most five."""

    __slots__ = ("batches", "epoch", "last_used_ms", "next_sequence")

    def __init__(self, epoch: int, last_used_ms: int, batches: list[AppendedBatch] | None = None) -> None:
        self.epoch = epoch
        self.last_used_ms = last_used_ms
        self.batches = batches or []
        self.next_sequence = (self.batches[-1].last_sequence + 1) % _SEQUENCES if self.batches else 0

    def append(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        first = header.base_sequence
        last = first + header.last_offset_delta
        # Sequences wrap around to 0 after the largest 32-bit number.
        if last >= _SEQUENCES:
            last -= _SEQUENCES
        batches = self.batches
        batches.append(_new(AppendedBatch, (first, last, base_offset, header.max_timestamp)))
        if len(batches) > WINDOW:
            del batches[0]
        self.next_sequence = last + 1 if last < _SEQUENCES - 1 else 0
        self.last_used_ms = now_ms


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
    """Call `check` before an append and `appended` after it, or `take_next` for both; `refused` if there is none."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # Of producers that are not known, the first batch of the last epoch that was refused: the epoch, negative, and
        # the sequence.
        self._refused: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def take_next(self, header: BatchHeader, base_offset: int, now_ms: int) -> bool:
        """Whether the batch is the one that its producer has to send next, as nearly all are: then it counts as
        appended at `base_offset`. False: `check` knows what it is."""
        producer = self._producers.get(header.producer_id)
        if (
            producer is None
            or header.producer_epoch != producer.epoch
            or header.base_sequence != producer.next_sequence
            or not producer.batches
        ):
            return False
        producer.append(header, base_offset, now_ms)
        return True

    def check(self, header: BatchHeader) -> Duplicate | Rejected | None:
        """None: append it. Batches without a producer id are never looked at."""
        producer = self._producers.get(header.producer_id)
        # Of a producer that is not known, because it is new or its batches are deleted, any sequence is taken. What it
        # has sent together with a batch that was refused is not: it would come before that one (KAFKA-15591).
        if producer is None:
            refused = self._refused.get(header.producer_id)
            if refused is None or (-header.producer_epoch, header.base_sequence) <= refused:
                return None
            return Rejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, and {refused[1]} was refused",
            )
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
        expected = producer.next_sequence
        if header.base_sequence == expected:
            return None
        last_sequence = (header.base_sequence + header.last_offset_delta) % _SEQUENCES
        for batch in producer.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return Duplicate(batch.base_offset, batch.timestamp)
        return Rejected(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence} where {expected} comes next",
        )

    def refused(self, header: BatchHeader) -> None:
        """The batch passed the check, and is not taken now: its producer will send it again."""
        if header.producer_id in self._producers:
            return
        if header.producer_id in self._refused or len(self._refused) < MAX_REFUSED:
            place = (-header.producer_epoch, header.base_sequence)
            self._refused[header.producer_id] = min(place, self._refused.get(header.producer_id, place))

    def appended(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """The batch lies in the log at `base_offset`."""
        # A control batch with a sequence is what compaction leaves of a producer's last batch.
        if header.producer_id < 0 or (header.is_control and header.base_sequence < 0):
            return
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._producers[header.producer_id] = Producer(header.producer_epoch, now_ms)
        producer.append(header, base_offset, now_ms)
        if self._refused:
            self._refused.pop(header.producer_id, None)

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
        # What is still sent is refused again.
        self._refused.clear()

    def snapshot(self, end_offset: int = _NO_END) -> bytes:
        """What is known of batches before an offset. A producer with five batches after the offset is left out, and
        nothing is missed: it has answers to all that came before them.

        Version 1, little-endian. Each producer: i64 id, i16 epoch, i64 last used ms, u8 batches; each batch of it:
        i32 first sequence, i32 last sequence, i64 base offset, i64 timestamp."""
        parts = []
        for number, producer in self._producers.items():
            batches = [batch for batch in producer.batches if batch.base_offset < end_offset]
            if batches:
                parts.append(_ENTRY.pack(number, producer.epoch, producer.last_used_ms, len(batches)))
                parts += [_BATCH.pack(*batch) for batch in batches]
        return b"".join(parts)

    @classmethod
    def restore(cls, snapshot: bytes) -> "Producers":
        """Restore the state from bytes whose checksum was right."""
        restored, position = cls(), 0
        while position < len(snapshot):
            number, epoch, last_used_ms, count = _ENTRY.unpack_from(snapshot, position)
            position += _ENTRY.size
            end = position + count * _BATCH.size
            batches = [AppendedBatch(*values) for values in _BATCH.iter_unpack(snapshot[position:end])]
            restored._producers[number] = Producer(epoch, last_used_ms, batches)
            position = end
        return restored


# NamedTuple's own constructor is a Python function and costs three times as much.
_new: Final = tuple.__new__
