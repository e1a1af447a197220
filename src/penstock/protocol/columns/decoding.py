"""Decodes fetched record batches to columns: it chooses the batches that count, puts their records into one buffer, and
makes the columns."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.protocol.batch import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    check_shape,
    split,
    verify,
)
from penstock.protocol.columns.kernels import HeaderScan, Impl, Kernels, Regions, Scan, load
from penstock.protocol.columns.layout import ALL_COLUMNS, MESSAGE_COLUMNS, Binary, Columns, Headers, pack_bits
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, decompress
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import iterate
from penstock.protocol.varint import Buffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def decode(
    data: Buffer,
    *,
    columns: Collection[str] = MESSAGE_COLUMNS,
    start_offset: int = 0,
    skip_control: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    is_verified: bool = False,
    impl: Impl = "auto",
) -> Columns:
    """The records of whole batches, as the reply to a fetch has them, without those below `start_offset`.

    `aborted` is the list of (producer id, first offset) in the reply to a reader of committed records: what these
    transactions wrote is left out. Checksums are checked unless `is_verified`. The result shares no memory with `data`.
    """
    pieces = decode_pieces(
        data,
        columns=columns,
        start_offset=start_offset,
        skip_control=skip_control,
        aborted=aborted,
        is_verified=is_verified,
        impl=impl,
        piece_bytes=_MAX_BUFFER,
    )
    piece = next(pieces)
    if next(pieces, None) is not None:
        raise DecodeError(f"the record batches hold more than {_MAX_BUFFER} bytes; decode them in pieces")
    return piece


def decode_pieces(
    data: Buffer,
    *,
    columns: Collection[str] = MESSAGE_COLUMNS,
    start_offset: int = 0,
    skip_control: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    is_verified: bool = False,
    impl: Impl = "auto",
    piece_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    on_corrupt: Callable[[BatchHeader, memoryview, DecodeError], None] | None = None,
) -> Iterator[Columns]:
    """`decode` in pieces, to bound the memory that compressed batches take: as many batches at a time as decompress to
    `piece_bytes`, or a single one up to `max_decompressed_bytes`.

    There is one piece at least, maybe without records. Damaged records show when their piece is asked for: all records
    of a batch are refused if one of them cannot be read. `on_corrupt` is then called with the batch, which is left out
    unless the function raises; what comes before the batch is in pieces before that. Without it a DecodeError is
    raised.
    """
    if unknown := set(columns) - set(ALL_COLUMNS):
        raise ValueError(f"there is no column {unknown.pop()!r}; there are {', '.join(ALL_COLUMNS)}")
    wanted = _Wanted(load(impl), columns, start_offset)
    whole = memoryview(data)
    transactions = _Transactions(aborted)
    piece = _Piece()
    next_offset = start_offset
    end = 0
    check = check_shape if is_verified else verify
    for header, view in split(data):
        start, end = end, end + len(view)
        last_offset = header.base_offset + header.last_offset_delta
        is_left_out = last_offset < start_offset or (skip_control and header.attributes & CONTROL_BIT != 0)
        payload: Buffer | None = None
        try:
            check(header, view)
            if not transactions.is_aborted(header, view) and not is_left_out:
                payload = view[HEADER.size :]
                if header.attributes & CODEC_BITS:
                    payload = decompress(header.codec, payload, limit=max_decompressed_bytes)
                _check_count(header, len(payload))
        except DecodeError as error:
            if on_corrupt is None:
                raise
            if piece.headers:
                yield from _columns_of_readable(piece, whole, wanted, next_offset, on_corrupt)
                piece = _Piece()
            on_corrupt(header, view, error)
            payload = None
        if payload is not None:
            if piece.headers and (piece.size + len(payload) > piece_bytes or end - piece.starts[0] > _MAX_BUFFER):
                yield from _columns_of_readable(piece, whole, wanted, next_offset, on_corrupt)
                piece = _Piece()
            piece.add(header, payload, start + HEADER.size)
        if last_offset >= next_offset:
            next_offset = last_offset + 1
    yield from _columns_of_readable(piece, whole, wanted, next_offset, on_corrupt)


# Positions have 32 bits, as Arrow's offsets have.
_MAX_BUFFER = 0x7FFF_FFFF
_INT32_MAX = 0x7FFF_FFFF
# Length, attributes, two deltas, two lengths and a count.
_SMALLEST_RECORD = 7
_ABORT_MARKER = b"\x00\x00"


class _Transactions:
    """Which batches belong to aborted transactions, as they come by in order (KIP-98)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
        self._under_way: set[int] = set()

    def is_aborted(self, header: BatchHeader, view: memoryview) -> bool:
        if not self._to_come and not self._under_way:
            return False
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._under_way.add(self._to_come.pop()[1])
        if header.producer_id not in self._under_way:
            return False
        if header.is_control:
            # The marker that ends the transaction: of its key, the version comes first, then the type.
            marker = next(iterate(view), None)
            if marker is not None and (marker.key or b"")[2:4] == _ABORT_MARKER:
                self._under_way.remove(header.producer_id)
            return False
        return header.is_transactional


@dataclass(slots=True)
class _Piece:
    """Batches on their way into one buffer: the input itself, as long as none is compressed."""

    headers: list[BatchHeader] = field(default_factory=list)
    payloads: list[Buffer] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    size: int = 0
    is_compressed: bool = False

    def add(self, header: BatchHeader, payload: Buffer, start: int) -> None:
        size = len(payload)
        self.headers.append(header)
        self.payloads.append(payload)
        self.starts.append(start)
        self.sizes.append(size)
        self.size += size
        if header.attributes & CODEC_BITS:
            self.is_compressed = True

    def parts(self) -> "tuple[_Piece, _Piece]":
        """Two pieces of half the batches each."""
        first, second = _Piece(), _Piece()
        middle = len(self.headers) // 2
        for index, batch in enumerate(zip(self.headers, self.payloads, self.starts, strict=True)):
            (first if index < middle else second).add(*batch)
        return first, second

    def regions(self, whole: memoryview) -> "tuple[NDArray[np.uint8], Regions, NDArray[Any]]":
        """The buffer, where in it the records are, and the headers as an array."""
        import numpy as np

        headers = np.array(self.headers, dtype=list(zip(BatchHeader._fields, _HEADER_TYPES, strict=True)))
        sizes = np.array(self.sizes, np.int64)
        if self.is_compressed:
            buffer = np.frombuffer(b"".join(self.payloads), np.uint8)
            starts = np.cumsum(sizes) - sizes
        else:
            first = self.starts[0] if self.starts else 0
            last = self.starts[-1] + self.sizes[-1] if self.starts else 0
            buffer = np.frombuffer(whole[first:last], np.uint8)
            starts = np.array(self.starts, np.int64) - first
        regions = Regions(
            start=starts,
            end=starts + sizes,
            record_count=headers["record_count"].astype(np.int64),
            base_offset=headers["base_offset"].astype(np.int64),
            last_delta=headers["last_offset_delta"].astype(np.int64),
            base_timestamp=headers["base_timestamp"].astype(np.int64),
            append_timestamp=headers["max_timestamp"].astype(np.int64),
            has_append_timestamp=headers["attributes"] & LOG_APPEND_TIME_BIT != 0,
        )
        return buffer, regions, headers


# As NumPy names the fields of a batch header.
_HEADER_TYPES = ("i8", "i4", "i4", "i1", "u4", "i2", "i4", "i8", "i8", "i8", "i2", "i4", "i4")


class _Wanted(NamedTuple):
    kernels: Kernels
    columns: Collection[str]
    start_offset: int


def _check_count(header: BatchHeader, size: int) -> None:
    """Check the number of records before anything is allotted for them."""
    if header.record_count > size // _SMALLEST_RECORD:
        raise DecodeError(f"{header.record_count} records do not fit the {size} bytes of their batch")


def _columns_of_readable(
    piece: _Piece,
    whole: memoryview,
    wanted: _Wanted,
    next_offset: int,
    on_corrupt: Callable[[BatchHeader, memoryview, DecodeError], None] | None,
) -> Iterator[Columns]:
    """The piece as a whole, if all of it can be read; else in parts, without the batches that cannot."""
    try:
        columns = _columns(piece, whole, wanted, next_offset)
    except DecodeError as error:
        if on_corrupt is None:
            raise
        if len(piece.headers) == 1:
            [header], [start] = piece.headers, piece.starts
            on_corrupt(header, whole[start - HEADER.size :][: header.size], error)
            return
        first, second = piece.parts()
        between = max(wanted.start_offset, first.headers[-1].next_offset)
        yield from _columns_of_readable(first, whole, wanted, between, on_corrupt)
        yield from _columns_of_readable(second, whole, wanted, next_offset, on_corrupt)
    else:
        yield columns


def _columns(piece: _Piece, whole: memoryview, wanted: _Wanted, next_offset: int) -> Columns:
    import numpy as np

    kernels, names, start_offset = wanted
    buffer, regions, batches = piece.regions(whole)
    scan = kernels.scan(buffer, regions)
    has_headers = scan.header_count > 0
    header_scan = kernels.scan_headers(
        buffer, scan.header_start[has_headers], scan.header_count[has_headers], scan.end[has_headers]
    )
    batch_of = np.repeat(np.arange(len(batches)), regions.record_count)
    if (regions.base_offset < start_offset).any():
        rows = scan.offset >= start_offset
        header_scan = HeaderScan._make(column[np.repeat(rows, scan.header_count)] for column in header_scan)
        scan = Scan._make(column[rows] for column in scan)
        batch_of = batch_of[rows]

    made: dict[str, Any] = {}
    if "key" in names:
        made["key"] = _binary(kernels, buffer, scan.key_start, scan.key_length)
    if "value" in names:
        made["value"] = _binary(kernels, buffer, scan.value_start, scan.value_length)
    if "headers" in names:
        made["headers"] = _headers(kernels, buffer, scan, header_scan)
    if "offset" in names:
        made["offset"] = scan.offset
    if "timestamp" in names:
        made["timestamp"] = scan.timestamp
    if "timestamp_type" in names:
        made["timestamp_type"] = regions.has_append_timestamp.astype(np.int32)[batch_of]
    if "size" in names:
        made["size"] = _size(scan, header_scan)
    if "sequence" in names:
        made["sequence"] = _sequence(scan, batches[batch_of])
    for name in ("crc", "producer_id", "producer_epoch", "leader_epoch"):
        if name in names:
            made[name] = batches[name][batch_of]
    return Columns(count=len(scan.offset), next_offset=next_offset, **made)


def _binary(
    kernels: Kernels, buffer: "NDArray[np.uint8]", start: "NDArray[np.int32]", length: "NDArray[np.int32]"
) -> Binary:
    valid = length >= 0
    return Binary(*kernels.gather(buffer, start, length), None if valid.all() else pack_bits(valid))


def _headers(kernels: Kernels, buffer: "NDArray[np.uint8]", scan: Scan, header_scan: HeaderScan) -> Headers:
    import numpy as np

    offsets = np.zeros(len(scan.header_count) + 1, np.int32)
    np.cumsum(scan.header_count, out=offsets[1:])
    key = _binary(kernels, buffer, header_scan.key_start, header_scan.key_length)
    _check_text(key)
    return Headers(offsets, key, _binary(kernels, buffer, header_scan.value_start, header_scan.value_length))


def _check_text(column: Binary) -> None:
    """All at once: text after text is text, and if no text begins within a character, its parts are text too."""
    if not len(column.data) or column.data.max() < 0x80:
        return
    starts = column.offsets[:-1]
    first_bytes = column.data[starts[starts < len(column.data)]]
    try:
        str(column.data.data, "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("the key of a record header is not UTF-8") from None
    if (first_bytes & 0xC0 == 0x80).any():
        raise DecodeError("the key of a record header is not UTF-8")


def _size(scan: Scan, header_scan: HeaderScan) -> "NDArray[np.int32]":
    import numpy as np

    headers = np.zeros(len(header_scan.key_length) + 1, np.int64)
    np.cumsum(header_scan.key_length + np.maximum(header_scan.value_length, 0), out=headers[1:])
    ends = np.cumsum(scan.header_count)
    fields = np.maximum(scan.key_length, 0) + np.maximum(scan.value_length, 0)
    size: NDArray[np.int64] = fields + headers[ends] - headers[ends - scan.header_count]
    return size.astype(np.int32)


def _sequence(scan: Scan, batches: "NDArray[Any]") -> "NDArray[np.int32]":
    """Sequence numbers begin again at 0 after the largest."""
    import numpy as np

    base = batches["base_sequence"].astype(np.int64)
    sequence = (base + scan.offset - batches["base_offset"]) & _INT32_MAX
    return np.where(base < 0, -1, sequence).astype(np.int32)
