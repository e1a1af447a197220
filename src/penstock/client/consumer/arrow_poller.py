"""`ArrowPoller` returns whole columns: it decodes fetched batches into Arrow in a thread, without an object per
record."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NoReturn

from penstock.client.consumer.fetched import Encoded, FetchedBatches, Returned
from penstock.client.consumer.poller import Poller
from penstock.client.consumer.subscription import PartitionCursor, Subscription
from penstock.client.errors import CorruptBatchError
from penstock.client.metadata import TopicPartition
from penstock.client.settings import ConsumerSettings
from penstock.protocol.batch import BatchHeader
from penstock.protocol.errors import DecodeError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_RECORDS: Final = 20_000
"""Rows of one batch by default: enough to make the cost of each call small."""
PARTITION_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one fetch takes of a partition, for the same reason, unless the user has set another number."""
LIGHT_BYTES: Final = 32 * 1024
"""Bytes up to which batches are decoded at once: a thread would take longer to begin."""
PIECE_BYTES: Final = 32 * 1024 * 1024
"""Bytes that compressed batches may take when they are decompressed at a time."""
MOST_BYTES: Final = 512 * 1024 * 1024
"""Bytes of one batch at most: Arrow's columns hold 2 GiB."""


def partition_bytes(settings: ConsumerSettings) -> int:
    """How much to fetch of a partition at a time."""
    is_set = settings.max_partition_fetch_bytes != ConsumerSettings().max_partition_fetch_bytes
    return settings.max_partition_fetch_bytes if is_set else PARTITION_BYTES


@dataclass(slots=True, eq=False)
class Piece:
    """The next of some fetched batches as columns, from the offset `at` up to `end`."""

    at: int
    end: int
    rows: "pa.RecordBatch"
    size: int
    """About how many bytes the rows take."""


@dataclass(slots=True, eq=False)
class Taken:
    """The rows that one poll returns, in pieces, and the position that each partition had before."""

    rows: list["pa.RecordBatch"] = field(default_factory=list)
    count: int = 0
    size: int = 0
    before: dict[PartitionCursor, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, piece: Piece, count: int) -> None:
        """Add the first rows of a piece."""
        total = piece.rows.num_rows
        self.rows.append(piece.rows if count == total else piece.rows.slice(0, count))
        self.count += count
        self.size += piece.size * count // total


class ArrowPoller:
    """Takes batches from the queues that `Poller` takes from; the poller waits on its behalf, and counts what both
    return."""

    def __init__(self, subscription: Subscription, poller: Poller) -> None:
        self._subscription = subscription
        self._poller = poller
        self._empty: pa.RecordBatch | None = None

    async def prepare(self) -> "pa.RecordBatch":
        """Import what is needed, and compile it, which may take seconds the first time. Returns a batch without
        rows."""
        if self._empty is None:
            if find_spec("pyarrow") is None or find_spec("numpy") is None:
                raise ImportError("poll_arrow needs pyarrow and NumPy: pip install 'penstock-mq[arrow]'")
            self._empty = await self._poller.in_thread(_prepare)
        return self._empty

    def take(self, most: int) -> Taken | None:
        """Rows that are there; None if there are none, or they are to be decoded in a thread before."""
        taken = Taken()
        while taken.count < most and taken.size < MOST_BYTES:
            cursor = next(self._subscription.in_line(), None)
            if cursor is None:
                break
            fetched = cursor.queued[0]
            if isinstance(fetched, Returned):
                # Messages, maybe deserialized, that an iteration or a merge has left: they are fetched again.
                self._poller.refetch(cursor)
            elif fetched.is_damaged:
                if taken.rows:
                    break
                self._pass_over(cursor, fetched)
            elif _is_decoded(fetched) or self._decode(most, may_wait=not taken.rows):
                self._take_from(cursor, fetched, most - taken.count, taken)
            else:
                break
        return taken if taken.rows else None

    def give_back(self, taken: Taken) -> None:
        """Have rows fetched again that were taken last, and not returned."""
        for cursor, (position, epoch, moves) in taken.before.items():
            if cursor.moves == moves and not cursor.is_revoked:
                cursor.position, cursor.epoch = position, epoch
                self._poller.refetch(cursor)

    async def join(self, taken: Taken) -> "pa.RecordBatch":
        """The pieces as one batch."""
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

    def _take_from(self, cursor: PartitionCursor, fetched: FetchedBatches, most: int, taken: Taken) -> None:
        """Take rows of the first partition in line."""
        piece: Piece = fetched.columns
        count = min(piece.rows.num_rows, most)
        taken.before.setdefault(cursor, (cursor.position, cursor.epoch, cursor.moves))
        if count:
            taken.add(piece, count)
        if count < piece.rows.num_rows:
            fetched.go_to(piece.rows.column("offset")[count - 1].as_py() + 1)
        else:
            fetched.go_to(piece.end)
        if count < piece.rows.num_rows:
            left = piece.rows.slice(count)
            piece.size = piece.size * left.num_rows // piece.rows.num_rows
            piece.rows, piece.at = left, fetched.next_offset
        else:
            fetched.columns = None
        self._subscription.next_in_line()
        self._poller.went_on(cursor, fetched)
        self._subscription.line_up(cursor)

    def _pass_over(self, cursor: PartitionCursor, fetched: FetchedBatches) -> None:
        """The batch that cannot be read, if that is wanted; it is raised where nothing that came before is left."""
        try:
            fetched.pass_over()
        except CorruptBatchError:
            self._poller.refetch_later(cursor)
            raise
        self._subscription.next_in_line()
        self._poller.went_on(cursor, fetched)
        self._subscription.line_up(cursor)

    def _decode(self, most: int, *, may_wait: bool) -> bool:
        """Decode the next batches, of about `most` rows. False: a thread has to do it."""
        work = list(self._undecoded(most))
        if sum(len(each.encoded.data) for each in work) <= LIGHT_BYTES:
            _decode_all(work)
            return True
        if may_wait:
            self._poller.heavy_work = partial(_decode_all, work)
        return False

    def _undecoded(self, most: int) -> Iterator["Undecoded"]:
        for cursor in self._subscription.in_line():
            for fetched in cursor.queued:
                if most <= 0 or isinstance(fetched, Returned) or fetched.is_damaged:
                    break
                if _is_decoded(fetched):
                    most -= fetched.columns.rows.num_rows
                else:
                    count = fetched.record_count
                    encoded = fetched.encoded(most)
                    most -= count
                    yield Undecoded(cursor.key, fetched, fetched.next_offset, encoded)


@dataclass(slots=True, eq=False)
class Undecoded:
    """Batches to be decoded in a thread. Meanwhile the `FetchedBatches` may be used otherwise, or dropped."""

    key: TopicPartition
    fetched: FetchedBatches
    at: int
    encoded: Encoded

    def decode(self) -> None:
        """Decode up to the first batch that cannot be read, and mark that one."""
        from penstock.protocol.columns import SPARK_NAMES, decode, decode_pieces, to_arrow

        pieces = decode_pieces(
            self.encoded.data,
            start_offset=self.at,
            aborted=self.encoded.aborted,
            is_verified=self.encoded.is_verified,
            piece_bytes=PIECE_BYTES,
            max_decompressed_bytes=self.fetched.max_decompressed_bytes,
            on_corrupt=self._damaged,
        )
        try:
            # If there are more, they are decoded when they are asked for.
            columns = next(pieces)
        except _DamagedError:
            columns = decode(b"", start_offset=self.at)
        rows = to_arrow(columns, SPARK_NAMES, topic=self.key.topic, partition=self.key.partition)
        assert columns.key is not None
        assert columns.value is not None
        size = len(columns.key.data) + len(columns.value.data)
        self.fetched.columns = Piece(self.at, columns.next_offset, rows, size)

    def _damaged(self, header: BatchHeader, _: memoryview, error: DecodeError) -> NoReturn:
        self.encoded.note_damage(header, error)
        raise _DamagedError


class _DamagedError(Exception):
    """A batch that cannot be read is first: there is nothing to decode before it."""


def _decode_all(work: list[Undecoded]) -> None:
    for each in work:
        each.decode()


def _prepare() -> "pa.RecordBatch":
    from penstock.protocol.columns import SPARK_NAMES, decode, prepare, to_arrow

    prepare()
    return to_arrow(decode(b""), SPARK_NAMES, topic="", partition=0)


def _is_decoded(fetched: FetchedBatches) -> bool:
    """Unless it was gone on with by other means."""
    piece = fetched.columns
    return piece is not None and piece.at == fetched.next_offset
