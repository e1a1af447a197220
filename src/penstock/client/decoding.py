"""From fetched batches to messages, a few hundred at a time and no sooner than they are asked for."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import Any, Final, NamedTuple

from penstock.client.errors import CorruptBatchError
from penstock.client.fetching import whole_bytes
from penstock.client.message import Message
from penstock.client.message_reading import RawMessage, read_messages
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    BatchHeader,
    check_shape,
    split,
    verify,
)
from penstock.protocol.compression import decompress
from penstock.protocol.control import ControlType, read_control
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import MAX_DECOMPRESSED_BYTES, iterate
from penstock.protocol.schemas.fetch import AbortedTransaction
from penstock.protocol.varint import Buffer

HEAVY_BYTES: Final = 64 * 1024
"""A compressed batch of this size is worth a thread."""


@dataclass(slots=True, eq=False)
class Batch:
    """A fetched batch. `data` is the whole of it, uncompressed, once it is open."""

    header: BatchHeader
    view: memoryview
    data: bytes | None = None
    was_tried: bool = False

    @property
    def is_heavy(self) -> bool:
        """Whether to open it is worth a thread, and that was not tried yet."""
        return not self.was_tried and len(self.view) >= HEAVY_BYTES and self.header.attributes & CODEC_BITS != 0

    def open(self, *, check_crc: bool = True) -> bytes:
        """Check it, and decompress it; may run in a thread. DecodeError if it is damaged."""
        if self.data is None:
            self.was_tried = True
            header = self.header
            if check_crc:
                verify(header, self.view)
            else:
                check_shape(header, self.view)
            if header.attributes & CODEC_BITS == 0:
                self.data = bytes(self.view)
            else:
                records = decompress(header.codec, self.view[HEADER.size :], limit=MAX_DECOMPRESSED_BYTES)
                plain = header._replace(
                    batch_length=HEADER.size - LENGTH_OVERHEAD + len(records),
                    attributes=header.attributes & ~CODEC_BITS,
                )
                self.data = HEADER.pack(*plain) + records
            self.view = memoryview(b"")
        return self.data

    def try_to_open(self, *, check_crc: bool = True) -> None:
        """The same; if it is damaged, whoever opens it next is told."""
        with suppress(DecodeError):
            self.open(check_crc=check_crc)


class Encoded(NamedTuple):
    """Whole batches, whether their checksums are right beyond doubt, and the transactions to leave out of them, by
    producer id and first offset."""

    data: Buffer
    is_verified: bool
    aborted: list[tuple[int, int]]


class Returned:
    """Messages that were taken and not used; like a segment."""

    __slots__ = ("key", "is_read", "leader_epoch", "next_offset", "size", "_end", "_messages")

    heavy_batch: Final = None
    """There is none."""

    def __init__(self, key: TopicPartition, messages: list[Message[Any, Any]], end: int, *, is_read: bool) -> None:
        """`end` is where it goes on behind them. `is_read`: deserializers have had them."""
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


class Segment:
    """What one fetch has brought of one partition. Whoever takes from it gets messages in order; `next_offset` is where
    it goes on behind them, which after control records, aborted transactions and compaction may be further."""

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
        "_check_crcs",
        "_error",
        "_reading",
        "_records",
    )

    is_read: Final = False

    def __init__(
        self,
        key: TopicPartition,
        offset: int,
        records: memoryview,
        *,
        check_crcs: bool = True,
        aborted: Sequence[AbortedTransaction] | None = None,
    ) -> None:
        """`aborted` is for who reads committed records alone. CorruptBatchError if `records` are no batches."""
        self.key = key
        self.next_offset = offset
        self.size = len(records)
        self.leader_epoch = -1
        """Of the messages that were taken last."""
        self._check_crcs = check_crcs
        self._aborted = deque(sorted(aborted or (), key=lambda each: each.first_offset))
        self._aborting: set[int] = set()
        self._reading: Iterator[RawMessage] | None = None
        self._error: CorruptBatchError | None = None
        self.columns: Any = None
        """What was made of the next batches by who decodes them by other means."""
        try:
            self._records, batches = _split(records)
        except DecodeError as error:
            raise corrupt_batch(key, offset, error) from error
        self._batches = deque(Batch(*each) for each in batches)
        self.end_offset = max(offset, self._batches[-1].header.next_offset) if self._batches else offset
        """Where the next fetch goes on."""
        self.end_epoch = self._batches[-1].header.leader_epoch if self._batches else -1

    @property
    def is_exhausted(self) -> bool:
        return not self._batches and self._error is None

    @property
    def record_count(self) -> int:
        """Of all batches that are left, whether they are for us or not."""
        return sum([batch.header.record_count for batch in self._batches])

    @property
    def heavy_batch(self) -> Batch | None:
        """The next batch, if it should be opened in a thread before anything is taken."""
        return self._batches[0] if self._batches and self._batches[0].is_heavy else None

    def take(self, most: int) -> list[RawMessage]:
        """The next messages; none only if there are no more. CorruptBatchError at a damaged batch."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        messages: list[RawMessage] = []
        try:
            while len(messages) < most and self._batches:
                if self._reading is None and not self._begin(self._batches[0]):
                    self._leave_batch()
                    continue
                assert self._reading is not None
                messages += islice(self._reading, most - len(messages))
                if messages:
                    self.next_offset = messages[-1].offset + 1
                    self.leader_epoch = self._batches[0].header.leader_epoch
                if len(messages) < most:
                    self._leave_batch()
        except DecodeError as error:
            damage = corrupt_batch(self.key, self._batches[0].header.base_offset, error)
            self._batches.clear()
            self._reading = None
            if not messages:
                raise damage from error
            self._error = damage
        return messages

    def encoded(self, most: int) -> "Encoded":
        """The next batches as they came, of about so many records: for who decodes them by other means, and then says
        by `go_to` how far he is."""
        batches = self._batches
        if batches and batches[0].data is not None and self._reading is None and not self._begin(batches[0]):
            self._leave_batch()
        if batches and (data := batches[0].data) is not None:
            # It was opened to be read, or read in part.
            return Encoded(data, True, [])
        begin = end = len(self._records) - sum([len(each.view) for each in batches])
        for batch in batches:
            if most <= 0:
                break
            most -= batch.header.record_count
            end += len(batch.view)
        aborted = [(each.producer_id, each.first_offset) for each in self._aborted]
        aborted += [(producer_id, 0) for producer_id in self._aborting]
        return Encoded(self._records[begin:end], not self._check_crcs, aborted)

    def go_to(self, offset: int) -> None:
        """What comes before this offset was used."""
        has_aborted = bool(self._aborted or self._aborting)
        while self._batches and (header := self._batches[0].header).next_offset <= offset:
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
        """Whether there is anything in the batch for us."""
        header = batch.header
        if header.next_offset <= self.next_offset:
            return False
        if not self._is_committed(batch) or header.is_control:
            return False
        reading = read_messages(header, batch.open(check_crc=self._check_crcs), self.key)
        if header.base_offset < self.next_offset:
            first = self.next_offset
            reading = dropwhile(lambda message: message.offset < first, reading)
        self._reading = reading
        return True

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
            for record in iterate(batch.open(check_crc=self._check_crcs)):
                if read_control(record).type is ControlType.ABORT:
                    self._aborting.discard(header.producer_id)
        return False


def _split(records: memoryview) -> tuple[memoryview, list[tuple[BatchHeader, memoryview]]]:
    """Whole batches; the last one may be cut off, which is rare with most brokers."""
    try:
        return records, split(records)
    except DecodeError:
        whole = records[: whole_bytes(records)]
        return whole, split(whole)


def corrupt_batch(key: TopicPartition, offset: int, error: Exception) -> CorruptBatchError:
    return CorruptBatchError(
        f"{key}: what was fetched from offset {offset} on is damaged: {error}; the broker's log may say more, and "
        "`seek` to a later offset goes on behind it"
    )
