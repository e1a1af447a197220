"""Polls that return whole columns: fetched batches are made into Arrow in a thread, without an object per record."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from penstock.client.decoding import Encoded, Returned, Segment, corrupt_batch
from penstock.client.errors import CorruptBatchError
from penstock.client.metadata import TopicPartition
from penstock.client.polling import Poller
from penstock.client.settings import ConsumerSettings
from penstock.client.subscription import Reading, Subscription
from penstock.protocol.batch import split
from penstock.protocol.errors import DecodeError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_RECORDS: Final = 20_000
"""Rows of one batch, unless told: so many that what each call costs is spread thin."""
PARTITION_BYTES: Final = 4 * 1024 * 1024
"""What is fetched of a partition at a time, for the same reason, unless the user has set something."""
LIGHT_BYTES: Final = 32 * 1024
"""So much is decoded at once: a thread would take longer to begin."""
PIECE_BYTES: Final = 32 * 1024 * 1024
"""What compressed batches may take when they are decompressed at a time."""
MOST_BYTES: Final = 512 * 1024 * 1024
"""Of one batch: Arrow's columns hold 2 GiB."""


def partition_bytes(settings: ConsumerSettings) -> int:
    """How much to fetch of a partition at a time."""
    is_set = settings.max_partition_fetch_bytes != ConsumerSettings().max_partition_fetch_bytes
    return settings.max_partition_fetch_bytes if is_set else PARTITION_BYTES


@dataclass(slots=True, eq=False)
class Piece:
    """The next batches of a segment as columns, from the offset `at` up to `end`."""

    at: int
    end: int
    rows: "pa.RecordBatch"
    size: int
    """About how many bytes they are."""
    error: CorruptBatchError | None = None
    """What is wrong with the batch behind it."""


@dataclass(slots=True, eq=False)
class Taken:
    """What one poll returns, in parts, and where each partition was before."""

    rows: list["pa.RecordBatch"] = field(default_factory=list)
    count: int = 0
    size: int = 0
    before: dict[Reading, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, piece: Piece, count: int) -> None:
        """Its first rows."""
        total = piece.rows.num_rows
        self.rows.append(piece.rows if count == total else piece.rows.slice(0, count))
        self.count += count
        self.size += piece.size * count // total


class ArrowPoller:
    """Takes from the same line as `Poller`, which waits for it, and counts for both."""

    def __init__(self, subscription: Subscription, poller: Poller) -> None:
        self._subscription = subscription
        self._poller = poller
        self._empty: pa.RecordBatch | None = None

    async def prepare(self) -> "pa.RecordBatch":
        """Before anything is taken: import what is needed, and compile it, which may take seconds the first time.
        Returns a batch without rows."""
        if self._empty is None:
            if find_spec("pyarrow") is None or find_spec("numpy") is None:
                raise ImportError("poll_arrow needs pyarrow and NumPy: pip install 'penstock[arrow]'")
            self._empty = await self._poller.in_thread(_prepare)
        return self._empty

    def take(self, most: int) -> Taken | None:
        """Rows that are there; None if there are none, or they are to be decoded in a thread before."""
        taken = Taken()
        while taken.count < most and taken.size < MOST_BYTES:
            reading = next(self._subscription.in_line(), None)
            if reading is None:
                break
            segment = reading.segments[0]
            if isinstance(segment, Returned):
                # Messages, maybe deserialized, that an iteration or a merge has left: they are fetched again.
                self._poller.refetch(reading)
            elif _is_decoded(segment) or self._decode(most, may_wait=not taken.rows):
                self._take_from(reading, segment, most - taken.count, taken)
            else:
                break
        return taken if taken.rows else None

    def give_back(self, taken: Taken) -> None:
        """What was taken last, and not returned: it is fetched again."""
        for reading, (position, epoch, moves) in taken.before.items():
            if reading.moves == moves and not reading.is_revoked:
                reading.position, reading.epoch = position, epoch
                self._poller.refetch(reading)

    async def join(self, taken: Taken) -> "pa.RecordBatch":
        """As one batch."""
        import pyarrow as pa

        rows = taken.rows
        if len(rows) == 1:
            return rows[0]
        if taken.size <= LIGHT_BYTES:
            return pa.concat_batches(rows)
        try:
            return await self._poller.in_thread(lambda: pa.concat_batches(rows))
        except BaseException:
            self.give_back(taken)
            raise

    def _take_from(self, reading: Reading, segment: Segment, most: int, taken: Taken) -> None:
        """Of the first in line."""
        piece: Piece = segment.columns
        count = min(piece.rows.num_rows, most)
        if piece.error is not None and not count:
            self._poller.refetch(reading)
            if not taken.rows:
                raise piece.error
            self._poller.failed(piece.error)
            return
        taken.before.setdefault(reading, (reading.position, reading.epoch, reading.moves))
        if count:
            taken.add(piece, count)
        if count < piece.rows.num_rows:
            segment.go_to(piece.rows.column("offset")[count - 1].as_py() + 1)
        else:
            segment.go_to(piece.end)
        if count < piece.rows.num_rows or piece.error is not None:
            left = piece.rows.slice(count)
            piece.size = piece.size * left.num_rows // piece.rows.num_rows
            piece.rows, piece.at = left, segment.next_offset
        else:
            segment.columns = None
        self._subscription.next_in_line()
        self._poller.went_on(reading, segment)
        self._subscription.line_up(reading)

    def _decode(self, most: int, *, may_wait: bool) -> bool:
        """Decode what is next in line, of about so many rows. False: a thread has to."""
        work = list(self._undecoded(most))
        if sum(len(each.encoded.data) for each in work) <= LIGHT_BYTES:
            _decode_all(work)
            return True
        if may_wait:
            self._poller.heavy_work = partial(_decode_all, work)
        return False

    def _undecoded(self, most: int) -> Iterator["Undecoded"]:
        for reading in self._subscription.in_line():
            for segment in reading.segments:
                if most <= 0 or isinstance(segment, Returned):
                    break
                if _is_decoded(segment):
                    most -= segment.columns.rows.num_rows
                else:
                    count = segment.record_count
                    encoded = segment.encoded(most)
                    most -= count
                    yield Undecoded(reading.key, segment, segment.next_offset, encoded)


@dataclass(slots=True, eq=False)
class Undecoded:
    """Batches to be decoded, for a thread: meanwhile their segment may be used otherwise, or be of no use any more."""

    key: TopicPartition
    segment: Segment
    at: int
    encoded: Encoded

    def decode(self) -> None:
        data = memoryview(self.encoded.data)
        try:
            self.segment.columns = self._piece(data)
        except DecodeError:
            self.segment.columns = self._up_to_damage(data)

    def _piece(self, data: memoryview) -> Piece:
        from penstock.protocol.columns import SPARK_NAMES, decode_pieces, to_arrow

        pieces = decode_pieces(
            data,
            start_offset=self.at,
            aborted=self.encoded.aborted,
            is_verified=self.encoded.is_verified,
            piece_bytes=PIECE_BYTES,
        )
        # If there are more, they are decoded when they are asked for.
        columns = next(pieces)
        rows = to_arrow(columns, SPARK_NAMES, topic=self.key.topic, partition=self.key.partition)
        assert columns.key is not None
        assert columns.value is not None
        return Piece(self.at, columns.next_offset, rows, len(columns.key.data) + len(columns.value.data))

    def _up_to_damage(self, data: memoryview) -> Piece:
        """What comes before a damaged batch."""
        size, end = 0, self.at
        damage: CorruptBatchError | None = None
        for header, view in split(data):
            try:
                self._piece(view)
            except DecodeError as error:
                damage = corrupt_batch(self.key, header.base_offset, error)
                break
            size += len(view)
            end = max(end, header.next_offset)
        piece = self._piece(data[:size])
        if piece.end == end:
            piece.error = damage
        return piece


def _decode_all(work: list[Undecoded]) -> None:
    for each in work:
        each.decode()


def _prepare() -> "pa.RecordBatch":
    from penstock.protocol.columns import SPARK_NAMES, decode, prepare, to_arrow

    prepare()
    return to_arrow(decode(b""), SPARK_NAMES, topic="", partition=0)


def _is_decoded(segment: Segment) -> bool:
    """Unless it was gone on with by other means."""
    piece = segment.columns
    return piece is not None and piece.at == segment.next_offset
