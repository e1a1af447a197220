"""NumPy does the loops over records as operations on whole columns; pyarrow copies what is not of one length.

Only the search for where records begin goes from one to the next; for records of equal length even that does not. The
reference is `protocol.records.iterate`: what it refuses is refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.protocol.columns.kernels import HeaderScan, Layout, Regions, Scan
from penstock.protocol.columns.layout import Binary, varint_sizes, zigzag
from penstock.protocol.errors import DecodeError
from penstock.protocol.varint import read_uvarint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.protocol.columns.kernels import Bytes, Ints, Positions


def scan(buffer: Bytes, regions: Regions) -> Scan:
    total = int(regions.record_count.sum())
    starts = _find_records(buffer, regions, total)
    positions = [np.empty(total, np.int32) for _ in range(7)]
    result = Scan(np.empty(total, np.int64), np.empty(total, np.int64), *positions)
    # A record ends where the next one begins.
    result.end[:-1] = starts[1:]
    last = np.cumsum(regions.record_count) - 1
    filled = regions.record_count > 0
    result.end[last[filled]] = regions.end[filled]
    region_of = np.repeat(np.arange(len(regions.record_count)), regions.record_count)
    for first in range(0, total, _CHUNK):
        rows = slice(first, first + _CHUNK)
        header = Regions._make(column[region_of[rows]] for column in regions)
        _scan_rows(buffer, header, starts[rows].astype(np.int64), Scan._make(column[rows] for column in result))
    _check_order(result.offset, regions)
    return result


def scan_headers(buffer: Bytes, start: Positions, count: Positions, end: Positions) -> HeaderScan:
    """The first header of every record at once, then the second of those that have one, and so on."""
    rows = np.cumsum(count, dtype=np.int64) - count
    total = int(count.sum(dtype=np.int64))
    result = HeaderScan(*(np.empty(total, np.int32) for _ in range(4)))
    position, left, end = start.astype(np.int64), count.astype(np.int64), end.astype(np.int64)
    while len(position) > _FEW_HEADERS:
        number, position = _read_varints(buffer, position, 32)
        length = number >> 1
        if (number & 1).any() or (length > end - position).any():
            raise DecodeError(_FIELDS)
        result.key_start[rows], result.key_length[rows] = position, length
        number, position = _read_varints(buffer, position + length, 32)
        length = _nullable(number)
        if (length > end - position).any():
            raise DecodeError(_FIELDS)
        result.value_start[rows], result.value_length[rows] = position, length
        position += np.maximum(length, 0)
        rows += 1
        left -= 1
        more = left > 0
        if (position[~more] != end[~more]).any():
            raise DecodeError(_FIELDS)
        position, left, end, rows = position[more], left[more], end[more], rows[more]
    # One by one, lest a single record with very many headers takes as many rounds.
    for at, stop, row, count_left in zip(position.tolist(), end.tolist(), rows.tolist(), left.tolist(), strict=True):
        columns = HeaderScan._make(column[row : row + count_left] for column in result)
        _scan_headers_of(buffer, at, stop, columns)
    return result


def gather(buffer: Bytes, start: Positions, length: Positions) -> tuple[NDArray[np.signedinteger[Any]], Bytes]:
    """What is wanted and what lies between are a column of byte strings in turn; pyarrow picks every other one."""
    count = len(start)
    if not count:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = start
    offsets[1::2] = start + np.maximum(length, 0)
    offsets[-1] = offsets[-2]
    both = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    every_other = pa.py_buffer(np.full((2 * count + 7) // 8, 0b01010101, np.uint8))
    picked = both.filter(pa.Array.from_buffers(pa.bool_(), 2 * count, [None, every_other]))
    return _offsets_of(picked), _bytes_of(picked)


def take(column: Binary, rows: Ints) -> Binary:
    taken = _as_arrow(column.offsets, column.data, column.validity).take(pa.array(rows))
    bitmap = taken.buffers()[0]
    return Binary(_offsets_of(taken), _bytes_of(taken), None if bitmap is None else np.frombuffer(bitmap, np.uint8))


def write(layout: Layout, size: int) -> Bytes:
    columns = [layout.key, layout.value, layout.header]
    key, value, header = (_as_arrow(each.offsets, each.data, each.validity) for each in columns)
    joined = _join(
        _fronts(layout),
        key,
        _varint_column(layout.value_length),
        value,
        _varint_column(layout.header_count),
        header,
    )
    assert len(joined) == size, "the sizes of the records add up"
    return joined


def write_headers(key_length: Ints, key: Binary, value_length: Ints, value: Binary) -> Bytes:
    return _join(
        _varint_column(key_length),
        _as_arrow(key.offsets, key.data, key.validity),
        _varint_column(value_length),
        _as_arrow(value.offsets, value.data, value.validity),
    )


def murmur2(column: Binary) -> NDArray[np.uint32]:
    data, start, length = column.data, column.offsets[:-1].astype(np.int64), np.diff(column.offsets)
    hashed = np.uint32(_SEED) ^ length.astype(np.uint32)
    rows = np.arange(len(length))
    word_at, words_left = start.copy(), length // 4
    while True:
        more = words_left > 0
        rows, word_at, words_left = rows[more], word_at[more], words_left[more]
        if len(rows) <= _FEW_KEYS:
            break
        word = _words(data, word_at)
        hashed[rows] = hashed[rows] * _MIX ^ _mixed(word)
        word_at += 4
        words_left -= 1
    # One by one, lest a single long key takes as many rounds as it has words.
    for row, at, left in zip(rows.tolist(), word_at.tolist(), words_left.tolist(), strict=True):
        number = int(hashed[row])
        for word in _mixed(data[at : at + 4 * left].view("<u4")).tolist():
            number = number * 0x5BD1E995 & 0xFFFFFFFF ^ word
        hashed[row] = number
    rest = length % 4
    for index in (2, 1, 0):
        has = rest > index
        at = (start + length - rest + index)[has]
        hashed[has] ^= data[at].astype(np.uint32) << np.uint32(8 * index)
    hashed[rest > 0] *= _MIX
    hashed = (hashed ^ hashed >> np.uint32(13)) * _MIX
    return hashed ^ hashed >> np.uint32(15)


_FIELDS = "a record's fields are not as long as its length says"
_NEGATIVE = "a field of a record has a length below 0 that is not -1, for null"
_ORDER = "the offsets of a batch's records do not ascend to its last offset"

# Rows at a time: what is worked with stays in the processor's cache.
_CHUNK = 16 * 1024
# Up to this many rows are faster one by one: of records, of those with one more header, of keys with one more word.
_FEW = 16
_FEW_HEADERS = 100
_FEW_KEYS = 128

_FIRST_PATIENCE = 4
_FIRST_REACH = 64

_SEED = 0x9747B28C
_MIX = np.uint32(0x5BD1E995)


def _find_records(buffer: Bytes, regions: Regions, total: int) -> Positions:
    starts = np.empty(total, np.int32)
    data = buffer.data
    row = 0
    for start, end, count in zip(
        regions.start.tolist(), regions.end.tolist(), regions.record_count.tolist(), strict=True
    ):
        _find_records_of(buffer, data, start, end, starts[row : row + count])
        row += count
    return starts


def _find_records_of(buffer: Bytes, data: memoryview, position: int, end: int, starts: Positions) -> None:
    """Where the records of one batch begin, by nothing but the lengths they claim.

    After some of equal length the next ones are looked at together, under the guess that they go on so. Right guesses
    reach farther and farther, wrong ones come less and less often.
    """
    row, left = 0, len(starts)
    found: list[int] = []
    previous = 0
    patience = wait = _FIRST_PATIENCE
    reach = _FIRST_REACH
    try:
        while left:
            number = data[position]
            if number < 0x80:
                size = 1 + (number >> 1)
            elif (byte := data[position + 1]) < 0x80:
                size = 2 + ((number + (byte << 7) - 0x80) >> 1)
            else:
                number, behind = read_uvarint(data, position)
                size = behind - position + (number >> 1)
            found.append(position)
            position += size
            left -= 1
            if size != previous:
                previous = size
                continue
            wait -= 1
            if wait or left < _FEW or not (run := min(reach, left, (end - position) // size)):
                continue
            starts[row : row + len(found)] = found
            row += len(found)
            found.clear()
            equal = _equal_run(buffer, position, size, run)
            starts[row : row + equal] = np.arange(position, position + equal * size, size, dtype=np.int32)
            row += equal
            left -= equal
            position += equal * size
            if equal == run:
                wait, reach = 1, reach * 4
            else:
                patience = _FIRST_PATIENCE if equal > _FEW else min(patience * 2, _CHUNK)
                wait, reach = patience, _FIRST_REACH
    except IndexError:
        raise DecodeError("a record runs past the end of its batch") from None
    starts[row:] = found
    if position != end:
        raise DecodeError(f"the {len(starts)} records of a batch do not end where it ends")


def _equal_run(buffer: Bytes, position: int, size: int, count: int) -> int:
    """How many of `count` records from `position` on have lengths of the very bytes of the one before."""
    before = position - size
    _, behind = read_uvarint(buffer.data, before)
    lengths = buffer[before : position + count * size].reshape(count + 1, size)[:, : behind - before]
    different = (lengths[1:] != lengths[0]).any(axis=1)
    return int(different.argmax()) if different.any() else count


def _scan_rows(buffer: Bytes, batch: Regions, position: Ints, result: Scan) -> None:
    """The fields of some records, each with the header of its batch. Positions only grow, so a record that ends where
    the next one begins has read nothing beyond. After the buffer's end, its last byte is read again and again."""
    number, position = _read_varints(buffer, position, 32)
    if (number & 1).any():
        raise DecodeError("a record's length is below 0")

    number, position = _read_varints(buffer, position + 1, 64)
    delta = (number >> np.uint64(1)).view(np.int64) ^ -(number & np.uint64(1)).view(np.int64)
    moment = batch.base_timestamp + delta
    is_over = ((batch.base_timestamp ^ moment) & (delta ^ moment)) < 0
    if (is_over & ~batch.has_append_timestamp).any():
        raise DecodeError("a record's timestamp does not fit 64 bits")
    result.timestamp[:] = np.where(batch.has_append_timestamp, batch.append_timestamp, moment)

    number, position = _read_varints(buffer, position, 32)
    delta = number >> 1
    if (number & 1).any() or (delta > batch.last_delta).any():
        raise DecodeError(_ORDER)
    result.offset[:] = batch.base_offset + delta

    for start, length in ((result.key_start, result.key_length), (result.value_start, result.value_length)):
        number, position = _read_varints(buffer, position, 32)
        lengths = _nullable(number)
        start[:], length[:] = position, lengths
        position += np.maximum(lengths, 0)

    number, position = _read_varints(buffer, position, 32)
    if (number & 1).any() or (number > result.end - position).any():
        raise DecodeError("a record's header count does not fit the bytes that remain of it")
    if ((number == 0) & (position != result.end)).any():
        raise DecodeError(_FIELDS)
    result.header_start[:], result.header_count[:] = position, number >> 1


def _check_order(offset: Ints, regions: Regions) -> None:
    ascend = np.diff(offset) > 0
    between = np.cumsum(regions.record_count)
    ascend[between[(between > 0) & (between < len(offset))] - 1] = True
    if not ascend.all():
        raise DecodeError(_ORDER)


def _scan_headers_of(buffer: Bytes, start: int, end: int, result: HeaderScan) -> None:
    """The headers of one record, by positions in a copy of it, which is read the fastest."""
    data = buffer[start:end].tobytes()
    position, size = 0, len(data)
    try:
        for first in range(0, len(result.key_start), _CHUNK):
            chunk = HeaderScan._make(column[first : first + _CHUNK] for column in result)
            found: list[int] = []
            for _ in range(len(chunk.key_start)):
                number = data[position]
                position += 1
                if number >= 0x80:
                    number, position = read_uvarint(data, position - 1)
                if number & 1:
                    raise DecodeError(_FIELDS)
                found += (position, number >> 1)
                position += number >> 1
                number = data[position]
                position += 1
                if number >= 0x80:
                    number, position = read_uvarint(data, position - 1)
                if number & 1 and number != 1:
                    raise DecodeError(_NEGATIVE)
                found += (position, -1 if number & 1 else number >> 1)
                position += number >> 1
            # Positions only grow: if the last is within the record, all are.
            if position > size:
                raise DecodeError(_FIELDS)
            for column, numbers in zip(chunk, np.array(found).reshape(-1, 4).T, strict=True):
                column[:] = numbers
    except IndexError:
        raise DecodeError(_FIELDS) from None
    if position != size:
        raise DecodeError(_FIELDS)
    for starts in (result.key_start, result.value_start):
        np.add(starts, start, out=starts)


def _read_varints(buffer: Bytes, position: Ints, bits: int) -> tuple[NDArray[Any], Ints]:
    """The unsigned numbers at `position`, and the positions after them."""
    byte = buffer.take(position, mode="clip")
    value: NDArray[Any] = byte.astype(np.uint64 if bits == 64 else np.int64)
    behind = position + 1
    more = np.flatnonzero(byte & 0x80)
    if len(more):
        value &= value.dtype.type(0x7F)
    shift = 7
    while len(more):
        if shift >= bits:
            raise DecodeError(f"a number in a record is longer than {bits} bits need")
        byte = buffer.take(behind[more], mode="clip")
        low = byte & 0x7F
        if shift + 7 > bits and (low >> (bits - shift)).any():
            raise DecodeError(f"a number in a record does not fit {bits} bits")
        value[more] |= low.astype(value.dtype) << value.dtype.type(shift)
        behind[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return value, behind


def _nullable(number: Ints) -> Ints:
    """Lengths from their zigzag; only -1 may be negative."""
    length = number >> 1
    odd = (number & 1).astype(np.bool_)
    if odd.any():
        if (length[odd] != 0).any():
            raise DecodeError(_NEGATIVE)
        length[odd] = -1
    return length


def _fronts(layout: Layout) -> pa.Array:
    """What stands before each key, with what lies between two records: the headers of batches."""
    fields = [layout.body, layout.timestamp_delta, layout.offset_delta, layout.key_length]
    numbers = [zigzag(field) for field in fields]
    widths = [varint_sizes(number) for number in numbers]
    gap = layout.position.copy()
    gap[1:] -= (layout.position + widths[0] + layout.body)[:-1]
    offsets = np.zeros(len(gap) + 1, np.int64)
    # One for the attributes, which follow the length and are 0 as the buffer is.
    np.cumsum(sum(widths, gap) + 1, out=offsets[1:])
    front = np.zeros(int(offsets[-1]), np.uint8)
    position = offsets[:-1] + gap
    for index, (number, width) in enumerate(zip(numbers, widths, strict=True)):
        _put_varints(front, position, number, width)
        position += width + 1 if index == 0 else width
    return _as_arrow(offsets, front)


def _varint_column(values: Ints) -> pa.Array:
    numbers = zigzag(values)
    widths = varint_sizes(numbers)
    offsets = np.zeros(len(widths) + 1, np.int64)
    np.cumsum(widths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    _put_varints(data, offsets[:-1], numbers, widths)
    return _as_arrow(offsets, data)


def _put_varints(output: Bytes, position: Ints, numbers: NDArray[np.uint64], widths: Ints) -> None:
    if widths.max(initial=1) == 1:
        output[position] = numbers
        return
    width = 1
    while len(numbers):
        last = widths == width
        output[position] = numbers & np.uint64(0x7F) | np.where(last, np.uint64(0), np.uint64(0x80))
        more = ~last
        position, numbers, widths = position[more] + 1, numbers[more] >> np.uint64(7), widths[more]
        width += 1


def _as_arrow(offsets: NDArray[np.signedinteger[Any]], data: Bytes, validity: Bytes | None = None) -> pa.Array:
    buffers = [validity, offsets.astype(np.int64, copy=False), data]
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None if each is None else pa.py_buffer(each) for each in buffers]
    )


def _join(*columns: pa.Array) -> Bytes:
    """The fields of each row one after the other, row by row; nulls take no bytes."""
    separator = pa.scalar(b"", pa.large_binary())
    return _bytes_of(pc.binary_join_element_wise(*columns, separator, null_handling="replace", null_replacement=""))


def _offsets_of(array: pa.Array) -> NDArray[np.signedinteger[Any]]:
    buffer = array.buffers()[1]
    kind = np.int32 if array.type == pa.binary() else np.int64
    return np.zeros(1, kind) if buffer is None else np.frombuffer(buffer, kind, len(array) + 1)


def _bytes_of(array: pa.Array) -> Bytes:
    buffer = array.buffers()[2]
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _words(data: Bytes, position: Ints) -> NDArray[np.uint32]:
    word = data[position].astype(np.uint32)
    for index in (1, 2, 3):
        word |= data[position + index].astype(np.uint32) << np.uint32(8 * index)
    return word


def _mixed(word: NDArray[np.uint32]) -> NDArray[np.uint32]:
    word = word * _MIX
    return (word ^ word >> np.uint32(24)) * _MIX
