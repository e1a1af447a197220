"""Encodes columns to record batches: rows are divided into batches, and the size of every record is known before any is
written."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, MAGIC, TRANSACTIONAL_BIT, stamp_crc
from penstock.protocol.columns.kernels import Impl, Kernels, Layout, load
from penstock.protocol.columns.layout import Binary, Columns, Headers, varint_sizes, zigzag
from penstock.protocol.compression import Codec, compress
from penstock.protocol.errors import EncodeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EncodedBatch(NamedTuple):
    """A batch of the next rows, as many as `record_count`."""

    batch: memoryview
    record_count: int


def encode(
    columns: Columns,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    max_batch_bytes: int = 1024 * 1024,
    impl: Impl = "auto",
) -> Iterator[EncodedBatch]:
    """Batches of all rows in their order, made as they are asked for, some megabytes at a time.

    None is larger than `max_batch_bytes` before it is compressed, save where a single record is. Sequence numbers go on
    from `base_sequence`, one a row. A batch may be written to, to stamp it anew. Where there is no column, timestamps
    are -1, keys and values null.
    """
    kernels = load(impl)
    rows = _Rows.of(columns)
    attributes = codec | (TRANSACTIONAL_BIT if transactional else 0)
    first = 0
    while first < columns.count:
        for plain, count, base_timestamp, max_timestamp in _write(kernels, rows, first, max_batch_bytes):
            batch = plain
            if codec is not Codec.NONE:
                batch = memoryview(bytearray(HEADER.size) + compress(codec, plain[HEADER.size :], level))
            sequence = base_sequence if base_sequence < 0 else (base_sequence + first) & _INT32_MAX
            try:
                HEADER.pack_into(
                    batch,
                    0,
                    0,
                    len(batch) - LENGTH_OVERHEAD,
                    -1,
                    MAGIC,
                    0,
                    attributes,
                    count - 1,
                    base_timestamp,
                    max_timestamp,
                    producer_id,
                    producer_epoch,
                    sequence,
                    count,
                )
            except struct.error as error:
                raise EncodeError(f"a field of the batch header is out of range: {error}") from None
            stamp_crc(batch)
            yield EncodedBatch(batch, count)
            first += count


_INT32_MAX = 0x7FFF_FFFF
# What is written at a time, or two batches if they are larger.
_WINDOW_ROWS = 64 * 1024
_WINDOW_BYTES = 8 * 1024 * 1024


@dataclass(slots=True, frozen=True, eq=False)
class _Rows:
    """Columns that a record has, all there and of one length."""

    key: Binary
    value: Binary
    timestamp: "NDArray[np.int64]"
    headers: Headers

    @classmethod
    def of(cls, columns: Columns) -> "_Rows":
        import numpy as np

        count = columns.count
        nulls = Binary(np.zeros(count + 1, np.int64), np.empty(0, np.uint8), np.zeros((count + 7) // 8, np.uint8))
        key = nulls if columns.key is None else columns.key
        value = nulls if columns.value is None else columns.value
        timestamp = np.full(count, -1, np.int64) if columns.timestamp is None else columns.timestamp
        nothing = Binary(np.zeros(1, np.int64), np.empty(0, np.uint8))
        headers = columns.headers or Headers(np.zeros(count + 1, np.int64), nothing, nothing)
        rows = cls(key, value, timestamp, headers)
        # Compiled code would read wherever they point.
        for column in (key, value, headers.key, headers.value):
            _check_offsets(column.offsets, len(column.data))
        _check_offsets(headers.offsets, len(headers.key))
        if not len(key) == len(value) == len(timestamp) == len(headers.offsets) - 1 == count:
            raise EncodeError(f"the columns are not all of {count} rows")
        if len(headers.key) != len(headers.value) or headers.key.lengths().min(initial=0) < 0:
            raise EncodeError("a record header has no key")
        return rows

    def slice(self, first: int, count: int) -> "_Rows":
        offsets = self.headers.offsets[first : first + count + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        key, value = self.headers.key.slice(begin, end - begin), self.headers.value.slice(begin, end - begin)
        return _Rows(
            self.key.slice(first, count),
            self.value.slice(first, count),
            self.timestamp[first : first + count],
            Headers(offsets - begin, key, value),
        )


class _Written(NamedTuple):
    """A batch with room for its header."""

    batch: memoryview
    record_count: int
    base_timestamp: int
    max_timestamp: int


def _write(kernels: Kernels, whole: _Rows, first: int, max_batch_bytes: int) -> list[_Written]:
    """The batches of some rows from `first` on; all end as they would if there were no end to the rows."""
    import numpy as np

    count = _window(whole, first, max(_WINDOW_BYTES, 2 * max_batch_bytes))
    is_last = first + count == len(whole.timestamp)
    rows = whole.slice(first, count)
    key_length, value_length = rows.key.lengths(), rows.value.lengths()
    header_count = np.diff(rows.headers.offsets).astype(np.int64)
    header = _write_headers(kernels, rows.headers)
    # Of a record, all but its length and the two deltas, which depend on where its batch begins.
    fixed = np.diff(header.offsets) + np.maximum(key_length, 0) + np.maximum(value_length, 0) + 1
    for lengths in (key_length, value_length, header_count):
        fixed += varint_sizes(zigzag(lengths))

    bounds = _divide(fixed, rows.timestamp, max_batch_bytes - HEADER.size)
    if not is_last and len(bounds) > 2:
        bounds = bounds[:-1]
    counts = np.diff(bounds)
    total = int(bounds[-1])
    batch_of = np.repeat(np.arange(len(counts)), counts)
    offset_delta = np.arange(total) - bounds[batch_of]
    timestamp_delta = _deltas(rows.timestamp[:total], rows.timestamp[bounds[batch_of]])
    body = fixed[:total] + varint_sizes(zigzag(timestamp_delta)) + varint_sizes(zigzag(offset_delta))
    size = body + varint_sizes(zigzag(body))
    end = np.cumsum(size) + (batch_of + 1) * HEADER.size
    batch_end = end[bounds[1:] - 1]
    if np.diff(batch_end, prepend=0).max() > _INT32_MAX:
        raise EncodeError(f"a batch holds at most {_INT32_MAX} bytes; split it")
    layout = Layout(
        position=end - size,
        body=body,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_length=key_length[:total],
        key=rows.key.slice(0, total),
        value_length=value_length[:total],
        value=rows.value.slice(0, total),
        header_count=header_count[:total],
        header=header.slice(0, total),
    )
    output = kernels.write(layout, int(batch_end[-1])).data
    ends = batch_end.tolist()
    views = [output[begin:stop] for begin, stop in zip([0, *ends], ends, strict=False)]
    base = rows.timestamp[bounds[:-1]].tolist()
    largest = np.maximum.reduceat(rows.timestamp[:total], bounds[:-1]).tolist()
    return [_Written(*each) for each in zip(views, counts.tolist(), base, largest, strict=True)]


def _window(rows: _Rows, first: int, size: int) -> int:
    """How many rows to look at."""
    import numpy as np

    count = min(len(rows.timestamp) - first, _WINDOW_ROWS)
    for offsets in (rows.key.offsets, rows.value.offsets):
        some = offsets[first : first + count + 1]
        count = max(1, int(np.searchsorted(some, some[0] + size, side="right")) - 1)
    return count


def _divide(fixed: "NDArray[np.int64]", timestamp: "NDArray[np.int64]", room: int) -> "NDArray[np.int64]":
    """Where batches begin, and the end: as many rows in each as fit with the longest deltas there can be."""
    import numpy as np

    span = min(int(timestamp.max()) - int(timestamp.min()), 1 << 62)
    longest = int(varint_sizes(zigzag(np.array([span, len(fixed)]))).sum())
    size = fixed + longest
    upto = np.zeros(len(fixed) + 1, np.int64)
    np.cumsum(size + varint_sizes(zigzag(size)), out=upto[1:])
    bounds = [0]
    while (first := bounds[-1]) < len(fixed):
        fits = int(upto.searchsorted(upto[first] + room, side="right")) - 1
        bounds.append(max(fits, first + 1))
    return np.array(bounds)


def _deltas(timestamp: "NDArray[np.int64]", base: "NDArray[np.int64]") -> "NDArray[np.int64]":
    delta = timestamp - base
    if (((timestamp ^ base) & (timestamp ^ delta)) < 0).any():
        raise EncodeError("timestamps of one batch are so far apart that their distance does not fit 64 bits")
    return delta


def _write_headers(kernels: Kernels, headers: Headers) -> Binary:
    """The headers of each record as bytes."""
    import numpy as np

    key_length, value_length = headers.key.lengths(), headers.value.lengths()
    sizes = varint_sizes(zigzag(key_length)) + key_length + varint_sizes(zigzag(value_length))
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes + np.maximum(value_length, 0), out=ends[1:])
    if not len(sizes):
        return Binary(np.zeros(len(headers.offsets), np.int64), np.empty(0, np.uint8))
    data = kernels.write_headers(key_length, headers.key, value_length, headers.value)
    return Binary(ends[headers.offsets], data)


def _check_offsets(offsets: "NDArray[np.signedinteger[Any]]", size: int) -> None:
    import numpy as np

    if not len(offsets) or offsets[0] < 0 or offsets[-1] > size or (np.diff(offsets) < 0).any():
        raise EncodeError("the offsets of a column do not ascend within its data")
