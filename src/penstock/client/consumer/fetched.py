"""`FetchedBatches` makes messages out of fetched batches, a few hundred at a time and only when they are asked for."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import Any, Final, NamedTuple

from penstock.client.consumer.message_reader import RawMessage, read_messages
from penstock.client.corruption import (
    WHOLE_RECORDS,
    PassedOver,
    corrupt_batch,
    end_of_batch,
    has_right_crc,
    split_damaged,
)
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    MIN_RECORD_BYTES,
    BatchHeader,
    check_shape,
    split,
    verify,
)
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, decompress
from penstock.protocol.control import ControlType, read_control
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import iterate
from penstock.protocol.schemas.fetch import AbortedTransaction
from penstock.protocol.varint import Buffer

HEAVY_BYTES: Final = 64 * 1024
"""A compressed batch of this size is worth a thread."""

_NO_END: Final = (1 << 63) - 1
UNKNOWN: Final = -1
"""Stands for an offset that is not known."""


@dataclass(slots=True, frozen=True)
class Rules:
    """How batches are decoded, and what becomes of those that cannot be read."""

    check_crcs: bool = True
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    passed_over: PassedOver | None = None
    """Counts batches that cannot be read and are passed over. Without it they are errors."""


DEFAULT_RULES: Final = Rules()


@dataclass(slots=True, eq=False)
class Batch:
    """A fetched batch. `data` is the whole of it, uncompressed, once it is open."""

    header: BatchHeader
    view: memoryview
    rules: Rules = DEFAULT_RULES
    damage: DecodeError | None = None
    """Why it cannot be read, if that is known."""
    data: bytes | None = None
    was_tried: bool = False
    is_intact: bool = False
    """Whether its checksum was checked and is right: what its header says is what its producer wrote."""

    @property
    def is_heavy(self) -> bool:
        """Whether to open it is worth a thread, and that was not tried yet."""
        return not self.was_tried and len(self.view) >= HEAVY_BYTES and self.header.attributes & CODEC_BITS != 0

    def open(self) -> bytes:
        """Check it, and decompress it; may run in a thread. DecodeError if it is damaged."""
        if self.damage is not None:
            raise self.damage
        if self.data is None:
            self.was_tried = True
            header = self.header
            if self.rules.check_crcs:
                verify(header, self.view)
                self.is_intact = True
            else:
                check_shape(header, self.view)
            if header.attributes & CODEC_BITS == 0:
                data = bytes(self.view)
            else:
                limit = self.rules.max_decompressed_bytes
                records = decompress(header.codec, self.view[HEADER.size :], limit=limit)
                plain = header._replace(
                    batch_length=HEADER.size - LENGTH_OVERHEAD + len(records),
                    attributes=header.attributes & ~CODEC_BITS,
                )
                data = HEADER.pack(*plain) + records
            if header.record_count > (len(data) - HEADER.size) // MIN_RECORD_BYTES:
                raise DecodeError(
                    f"{header.record_count} records do not fit the {len(data) - HEADER.size} bytes of their batch"
                )
            self.data = data
            self.view = memoryview(b"")
        return self.data

    def try_to_open(self) -> None:
        """Open it; if it is damaged, the next call of `open` says so."""
        try:
            self.open()
        except DecodeError as error:
            self.mark(error)

    def mark(self, damage: DecodeError) -> None:
        """Mark the batch as one that cannot be read."""
        self.damage = damage
        if not self.is_intact:
            is_plain = self.header.attributes & CODEC_BITS == 0
            whole = self.data if self.data is not None and is_plain else self.view
            self.is_intact = has_right_crc(self.header, whole)


class Encoded(NamedTuple):
    """Whole batches, whether their checksums are right beyond doubt, the transactions to leave out of them, by producer
    id and first offset, and a function to call with a batch that cannot be read."""

    data: Buffer
    is_verified: bool
    aborted: list[tuple[int, int]]
    note_damage: Callable[[BatchHeader, DecodeError], None]


class Returned:
    """Messages that were taken and not used; the poller treats them like `FetchedBatches`."""

    __slots__ = ("key", "is_read", "leader_epoch", "next_offset", "size", "_end", "_messages")

    heavy_batch: Final = None
    """Messages were decoded already, so no batch is heavy."""
    is_damaged: Final = False

    def __init__(self, key: TopicPartition, messages: list[Message[Any, Any]], end: int, *, is_read: bool) -> None:
        """`end` is the offset to go on from after them. `is_read`: they were deserialized already."""
        self.key = key
        self.is_read = is_read
        self.next_offset = messages[0].offset if messages else end
        self.leader_epoch = messages[0].leader_epoch if messages else -1
        self.size = 0
        self._messages = messages
        self._end = end

    @property
    def is_exhausted(self) -> bool:
        return not self._messages

    def take(self, most: int) -> list[Message[Any, Any]]:
        taken, self._messages = self._messages[:most], self._messages[most:]
        if taken:
            self.leader_epoch = taken[-1].leader_epoch
        self.next_offset = self._messages[0].offset if self._messages else self._end
        return taken


class FetchedBatches:
    """What one fetch has brought of one partition. Messages are taken from it in order; `next_offset` is the offset to
    go on from, which after control records, aborted transactions and compaction may be further than the last
    message."""

    __slots__ = (
        "columns",
        "end_epoch",
        "end_offset",
        "key",
        "leader_epoch",
        "next_offset",
        "size",
        "_aborted",
        "_aborting",
        "_batches",
        "_log_end",
        "_reading",
        "_records",
        "_rules",
    )

    is_read: Final = False

    def __init__(
        self,
        key: TopicPartition,
        offset: int,
        records: memoryview,
        rules: Rules = DEFAULT_RULES,
        *,
        aborted: Sequence[AbortedTransaction] | None = None,
        log_end: int = _NO_END,
    ) -> None:
        """`aborted` is for consumers that read committed records only. `log_end` is the offset after all that the log
        holds."""
        self.key = key
        self.next_offset = offset
        self.size = len(records)
        self.leader_epoch = -1
        """The leader epoch of the messages that were taken last."""
        self._rules = rules
        self._log_end = log_end
        self._aborted = deque(sorted(aborted or (), key=lambda each: each.first_offset))
        self._aborting: set[int] = set()
        self._reading: Iterator[RawMessage] | None = None
        self.columns: Any = None
        """What another decoder has made of the next batches."""
        try:
            self._batches = deque([Batch(*each, rules) for each in split(records)])
        except DecodeError:
            self._batches = deque([Batch(header, view, rules, why) for header, view, why in split_damaged(records)])
            records = records[: sum([len(each.view) for each in self._batches])]
        self._records = records
        self.end_offset = offset
        """Where the next fetch goes on; UNKNOWN if the last batch cannot be read and does not say it."""
        self.end_epoch = -1
        if self._batches:
            last = self._batches[-1]
            self.end_offset = max(offset, last.header.next_offset) if last.damage is None else UNKNOWN
            self.end_epoch = last.header.leader_epoch

    @property
    def is_exhausted(self) -> bool:
        return not self._batches

    @property
    def max_decompressed_bytes(self) -> int:
        """Bytes that one batch may have when it is decompressed."""
        return self._rules.max_decompressed_bytes

    @property
    def is_damaged(self) -> bool:
        """Whether the next batch is known to be one that cannot be read."""
        return bool(self._batches) and self._batches[0].damage is not None

    @property
    def record_count(self) -> int:
        """Records of all batches that are left, including those that will be skipped."""
        return sum([batch.header.record_count for batch in self._batches])

    @property
    def heavy_batch(self) -> Batch | None:
        """The next batch, if it should be opened in a thread before anything is taken."""
        return self._batches[0] if self._batches and self._batches[0].is_heavy else None

    def take(self, most: int) -> list[RawMessage]:
        """The next messages; none only if there are no more. CorruptBatchError if a batch that cannot be read comes
        first: it is raised again until the batch was passed over."""
        messages: list[RawMessage] = []
        while len(messages) < most and self._batches:
            if self._batches[0].damage is None:
                self._read(messages, most)
            elif not messages or self._can_pass_over():
                self.pass_over()
            else:
                break
        return messages

    def pass_over(self) -> None:
        """Leave the next batch, which cannot be read, and count it; CorruptBatchError if that is not wanted, or it is
        unknown where the batch ends."""
        batch, end = self._batches[0], self._end_of_damage()
        is_headless = end is None and not batch.is_intact
        offset = self.next_offset if is_headless else batch.header.base_offset
        error = corrupt_batch(self.key, offset, end, batch.damage)
        if end is None or self._rules.passed_over is None:
            raise error from batch.damage
        self._rules.passed_over.note(error)
        self._batches.popleft()
        self._reading = None
        self.next_offset = end

    def _can_pass_over(self) -> bool:
        return self._rules.passed_over is not None and self._end_of_damage() is not None

    def _end_of_damage(self) -> int | None:
        batch = self._batches[0]
        if len(self._batches) == 1 and self.end_offset == UNKNOWN:
            return None
        return end_of_batch(
            batch.header,
            is_intact=batch.is_intact,
            position=self.next_offset,
            following=self._batches[1].header if len(self._batches) > 1 else None,
            log_end=self._log_end,
        )

    def _read(self, messages: list[RawMessage], most: int) -> None:
        """Add messages of the next batch, and leave it if there are no more in it."""
        batch = self._batches[0]
        count = len(messages)
        try:
            if self._reading is None and not self._begin(batch):
                self._leave_batch()
                return
            assert self._reading is not None
            messages += islice(self._reading, most - count)
        except DecodeError as error:
            batch.mark(error)
        # What was added before a damaged record of a large batch is taken, too.
        if len(messages) > count:
            self.next_offset = messages[-1].offset + 1
            self.leader_epoch = batch.header.leader_epoch
        if batch.damage is None and len(messages) < most:
            self._leave_batch()

    def encoded(self, most: int) -> "Encoded":
        """The next batches as they came, of about `most` records: for another decoder, which then reports by `go_to`
        how far it came."""
        batches = self._batches
        if batches and batches[0].data is not None and self._reading is None and not self._is_for_us(batches[0]):
            self._leave_batch()
        if batches and (data := batches[0].data) is not None:
            # It was opened to be read, or read in part.
            return Encoded(data, True, [], self._note_damage)
        begin = end = len(self._records) - sum([len(each.view) for each in batches])
        for batch in batches:
            if most <= 0 or batch.damage is not None:
                break
            most -= batch.header.record_count
            end += len(batch.view)
        aborted = [(each.producer_id, each.first_offset) for each in self._aborted]
        aborted += [(producer_id, 0) for producer_id in self._aborting]
        return Encoded(self._records[begin:end], not self._rules.check_crcs, aborted, self._note_damage)

    def _note_damage(self, header: BatchHeader, error: DecodeError) -> None:
        """Note that one of the batches that were given away encoded is damaged; also called by a thread."""
        for batch in tuple(self._batches):
            if batch.header.base_offset == header.base_offset and batch.header.crc == header.crc:
                batch.mark(error)

    def go_to(self, offset: int) -> None:
        """Note that everything before this offset was used."""
        has_aborted = bool(self._aborted or self._aborting)
        while self._batches and not self.is_damaged and (header := self._batches[0].header).next_offset <= offset:
            if has_aborted and self._reading is None:
                self._is_committed(self._batches[0])
            if not header.attributes & CONTROL_BIT:
                self.leader_epoch = header.leader_epoch
            self._leave_batch()
        if self._batches and offset > self.next_offset:
            self.leader_epoch = self._batches[0].header.leader_epoch
            self._reading = None
            self.next_offset = offset

    def _begin(self, batch: Batch) -> bool:
        """Whether the batch has messages to return."""
        if not self._is_for_us(batch):
            return False
        header = batch.header
        reading = read_messages(header, batch.open(), self.key)
        if header.record_count <= WHOLE_RECORDS:
            reading = iter(list(reading))
        if header.base_offset < self.next_offset:
            first = self.next_offset
            reading = dropwhile(lambda message: message.offset < first, reading)
        self._reading = reading
        return True

    def _is_for_us(self, batch: Batch) -> bool:
        header = batch.header
        if header.next_offset <= self.next_offset and header.last_offset_delta >= 0:
            return False
        return self._is_committed(batch) and not header.is_control

    def _leave_batch(self) -> None:
        batch = self._batches.popleft()
        self.next_offset = max(self.next_offset, batch.header.next_offset)
        self._reading = None

    def _is_committed(self, batch: Batch) -> bool:
        """The list of aborted transactions says where each begins; its marker in the log, where it ends."""
        header = batch.header
        if not self._aborted and not self._aborting:
            return True
        while self._aborted and self._aborted[0].first_offset <= header.last_offset:
            self._aborting.add(self._aborted.popleft().producer_id)
        if not header.is_transactional or header.producer_id not in self._aborting:
            return True
        if header.is_control:
            for record in iterate(batch.open()):
                if read_control(record).type is ControlType.ABORT:
                    self._aborting.discard(header.producer_id)
        return False
