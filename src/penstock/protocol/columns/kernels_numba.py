"""Numba compiles these loops over records. Compiled code checks no bounds, so every length is checked here.

The reference is `protocol.records.iterate`: what it refuses is refused here.

What was compiled is kept in Numba's cache, so that only the first process on a machine waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit, types

from penstock.protocol.columns.kernels import HeaderScan, Layout, Regions, Scan
from penstock.protocol.columns.layout import Binary, pack_bits, varint_sizes, zigzag
from penstock.protocol.errors import DecodeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.protocol.columns.kernels import Bytes, Ints, Positions


def scan(buffer: Bytes, regions: Regions) -> Scan:
    count = int(regions.record_count.sum())
    positions = [np.empty(count, np.int32) for _ in range(7)]
    result = Scan(np.empty(count, np.int64), np.empty(count, np.int64), *positions)
    _check(_scan(buffer, regions, result))
    return result


def scan_headers(buffer: Bytes, start: Positions, count: Positions, end: Positions) -> HeaderScan:
    total = int(count.sum(dtype=np.int64))
    result = HeaderScan(*(np.empty(total, np.int32) for _ in range(4)))
    _check(_scan_headers(buffer, start, count, end, result))
    return result


def gather(buffer: Bytes, start: Positions, length: Positions) -> tuple[Positions, Bytes]:
    offsets = np.zeros(len(start) + 1, np.int32)
    np.cumsum(np.maximum(length, 0), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    _copy(buffer, start.astype(np.int64), offsets.astype(np.int64), data)
    return offsets, data


def take(column: Binary, rows: Ints) -> Binary:
    length = column.lengths()[rows]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.maximum(length, 0), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    _copy(column.data, column.offsets[:-1].astype(np.int64)[rows], offsets, data)
    return Binary(offsets, data, None if column.validity is None else pack_bits(length >= 0))


def write(layout: Layout, size: int) -> Bytes:
    output = np.empty(size, np.uint8)
    numbers = _Numbers(layout.position, layout.body, layout.timestamp_delta, layout.offset_delta, layout.header_count)
    key = _strings(layout.key, layout.key_length)
    value = _strings(layout.value, layout.value_length)
    _write(output, numbers, key, value, _strings(layout.header, np.diff(layout.header.offsets)))
    return output


def write_headers(key_length: Ints, key: Binary, value_length: Ints, value: Binary) -> Bytes:
    sizes = varint_sizes(zigzag(key_length)) + key_length + varint_sizes(zigzag(value_length))
    output = np.empty(int((sizes + np.maximum(value_length, 0)).sum()), np.uint8)
    _write_headers(output, _strings(key, key_length), _strings(value, value_length))
    return output


def murmur2(column: Binary) -> NDArray[np.uint32]:
    hashes = np.empty(len(column), np.uint32)
    _murmur2(column.data, column.offsets.astype(np.int64, copy=False), hashes)
    return hashes


class _Numbers(NamedTuple):
    position: Ints
    body: Ints
    timestamp_delta: Ints
    offset_delta: Ints
    header_count: Ints


class _Strings(NamedTuple):
    length: Ints
    start: Ints
    data: Bytes


def _strings(column: Binary, length: Ints) -> _Strings:
    # Within a tuple Numba tells arrays that can be written to from those that cannot, so it is always the same here.
    data = column.data.view()
    data.flags.writeable = False
    return _Strings(length, column.offsets[:-1].astype(np.int64), data)


_FINE, _NUMBER, _LENGTH, _TIMESTAMP, _ORDER, _NEGATIVE, _HEADERS, _FIELDS, _REST = range(9)
_PROBLEMS = {
    _NUMBER: "a number in a record is cut off or longer than it can be",
    _LENGTH: "a record's length does not fit the bytes that remain of its batch",
    _TIMESTAMP: "a record's timestamp does not fit 64 bits",
    _ORDER: "the offsets of a batch's records do not ascend to its last offset",
    _NEGATIVE: "a field of a record has a length below 0 that is not -1, for null",
    _HEADERS: "a record's header count does not fit the bytes that remain of it",
    _FIELDS: "a record's fields are not as long as its length says",
    _REST: "bytes follow the last of a batch's records",
}


def _check(problem: int) -> None:
    if problem != _FINE:
        raise DecodeError(_PROBLEMS[problem])


def _readable(kind: Any) -> Any:
    return types.Array(kind, 1, "C", readonly=True)


_READ = _readable(types.uint8)
_READ_INT64 = _readable(types.int64)
_READ_INT32 = _readable(types.int32)
_WRITE = types.uint8[::1]
_WRITE_INT64 = types.int64[::1]
_WRITE_INT32 = types.int32[::1]
_REGIONS = types.NamedTuple((*(_WRITE_INT64,) * 7, types.boolean[::1]), Regions)  # type: ignore[no-untyped-call]
_SCAN = types.NamedTuple((*(_WRITE_INT64,) * 2, *(_WRITE_INT32,) * 7), Scan)  # type: ignore[no-untyped-call]
_HEADER_SCAN = types.NamedUniTuple(_WRITE_INT32, 4, HeaderScan)  # type: ignore[no-untyped-call]
_NUMBERS = types.NamedUniTuple(_WRITE_INT64, 5, _Numbers)  # type: ignore[no-untyped-call]
_VARINT = types.Tuple((types.uint64, types.int64))  # type: ignore[no-untyped-call]
_STRINGS = types.NamedTuple((_WRITE_INT64, _WRITE_INT64, _READ), _Strings)  # type: ignore[no-untyped-call]


def _compiled(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile now, without the interpreter's lock, and keep the result where the machine lets us."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any]
        try:
            made = njit(signature, cache=True, nogil=True)(function)
        except RuntimeError:
            # There is no folder that can be written to.
            made = njit(signature, nogil=True)(function)
        return made

    return decorate


@_compiled(_VARINT(_READ, types.int64, types.int64, types.int64))
def _varint(buffer: Any, position: int, end: int, bits: int) -> Any:
    # After one that is cut off or too long, the position is -1.
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = np.uint64(buffer[position])
        position += 1
        low = byte & np.uint64(0x7F)
        if shift + np.uint64(7) > np.uint64(bits) and low >> (np.uint64(bits) - shift) != np.uint64(0):
            return value, -1
        value |= low << shift
        if byte < np.uint64(0x80):
            return value, position
        shift += np.uint64(7)
        if shift >= np.uint64(bits):
            return value, -1
    return value, -1


@_compiled(types.int64(_READ, _REGIONS, _SCAN))
def _scan(buffer: Any, regions: Any, result: Any) -> int:
    row = 0
    for region in range(len(regions.start)):
        position = regions.start[region]
        end = regions.end[region]
        base_timestamp = regions.base_timestamp[region]
        previous_delta = np.int64(-1)
        for _ in range(regions.record_count[region]):
            number, position = _varint(buffer, position, end, 32)
            if position < 0:
                return _NUMBER
            record_end = position + np.int64(number >> np.uint64(1))
            if number & np.uint64(1) or record_end > end:
                return _LENGTH
            position += 1  # The record's attributes.

            number, position = _varint(buffer, position, end, 64)
            if position < 0:
                return _NUMBER
            if regions.has_append_timestamp[region]:
                result.timestamp[row] = regions.append_timestamp[region]
            else:
                delta = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
                moment = base_timestamp + delta
                if (base_timestamp ^ moment) & (delta ^ moment) < 0:
                    return _TIMESTAMP
                result.timestamp[row] = moment

            number, position = _varint(buffer, position, end, 32)
            if position < 0:
                return _NUMBER
            offset_delta = np.int64(number >> np.uint64(1))
            if number & np.uint64(1) or offset_delta <= previous_delta or offset_delta > regions.last_delta[region]:
                return _ORDER
            previous_delta = offset_delta
            result.offset[row] = regions.base_offset[region] + offset_delta

            number, position = _varint(buffer, position, end, 32)
            if position < 0:
                return _NUMBER
            result.key_start[row] = position
            if number & np.uint64(1):
                if number != np.uint64(1):
                    return _NEGATIVE
                result.key_length[row] = -1
            else:
                length = np.int64(number >> np.uint64(1))
                result.key_length[row] = length
                position += length

            number, position = _varint(buffer, position, end, 32)
            if position < 0:
                return _NUMBER
            result.value_start[row] = position
            if number & np.uint64(1):
                if number != np.uint64(1):
                    return _NEGATIVE
                result.value_length[row] = -1
            else:
                length = np.int64(number >> np.uint64(1))
                result.value_length[row] = length
                position += length

            number, position = _varint(buffer, position, end, 32)
            if position < 0:
                return _NUMBER
            if number & np.uint64(1) or np.int64(number) > record_end - position:
                return _HEADERS
            if number == np.uint64(0) and position != record_end:
                return _FIELDS
            result.header_start[row] = position
            result.header_count[row] = np.int64(number >> np.uint64(1))
            result.end[row] = record_end
            position = record_end
            row += 1
        if position != end:
            return _REST
    return _FINE


@_compiled(types.int64(_READ, *(_READ_INT32,) * 3, _HEADER_SCAN))
def _scan_headers(buffer: Any, starts: Any, counts: Any, ends: Any, result: Any) -> int:
    row = 0
    for record in range(len(starts)):
        position = np.int64(starts[record])
        end = np.int64(ends[record])
        for _ in range(counts[record]):
            number, position = _varint(buffer, position, end, 32)
            if position < 0:
                return _NUMBER
            length = np.int64(number >> np.uint64(1))
            if number & np.uint64(1) or length > end - position:
                return _FIELDS
            result.key_start[row] = position
            result.key_length[row] = length
            position += length

            number, position = _varint(buffer, position, end, 32)
            if position < 0:
                return _NUMBER
            result.value_start[row] = position
            if number & np.uint64(1):
                if number != np.uint64(1):
                    return _NEGATIVE
                result.value_length[row] = -1
            else:
                length = np.int64(number >> np.uint64(1))
                if length > end - position:
                    return _FIELDS
                result.value_length[row] = length
                position += length
            row += 1
        if position != end:
            return _FIELDS
    return _FINE


# Bytes are copied between slices, whose indices the compiler knows to be no less than 0: it moves 32 at a time.
@_compiled(types.void(_READ, _READ_INT64, _READ_INT64, _WRITE))
def _copy(buffer: Any, starts: Any, offsets: Any, output: Any) -> None:
    for row in range(len(starts)):
        target = output[offsets[row] : offsets[row + 1]]
        source = buffer[starts[row] : starts[row] + len(target)]
        for index in range(len(target)):
            target[index] = source[index]


@_compiled(types.int64(_WRITE, types.int64, types.int64))
def _put_zigzag(output: Any, position: int, value: int) -> int:
    number = np.uint64((value << 1) ^ (value >> 63))
    while number > np.uint64(0x7F):
        output[position] = np.uint8(number & np.uint64(0x7F) | np.uint64(0x80))
        number >>= np.uint64(7)
        position += 1
    output[position] = np.uint8(number)
    return position + 1


@_compiled(types.int64(_WRITE, types.int64, _STRINGS, types.int64))
def _put_string(output: Any, position: int, strings: Any, row: int) -> Any:
    length = max(strings.length[row], 0)
    source = strings.data[strings.start[row] : strings.start[row] + length]
    target = output[position : position + length]
    for index in range(len(target)):
        target[index] = source[index]
    return position + length


@_compiled(types.void(_WRITE, _NUMBERS, *(_STRINGS,) * 3))
def _write(output: Any, numbers: Any, key: Any, value: Any, header: Any) -> None:
    for row in range(len(numbers.position)):
        position = _put_zigzag(output, numbers.position[row], numbers.body[row])
        output[position] = 0  # The record's attributes.
        position = _put_zigzag(output, position + 1, numbers.timestamp_delta[row])
        position = _put_zigzag(output, position, numbers.offset_delta[row])
        position = _put_zigzag(output, position, key.length[row])
        position = _put_string(output, position, key, row)
        position = _put_zigzag(output, position, value.length[row])
        position = _put_string(output, position, value, row)
        position = _put_zigzag(output, position, numbers.header_count[row])
        _put_string(output, position, header, row)


@_compiled(types.void(_WRITE, _STRINGS, _STRINGS))
def _write_headers(output: Any, key: Any, value: Any) -> None:
    position = 0
    for row in range(len(key.length)):
        position = _put_zigzag(output, position, key.length[row])
        position = _put_string(output, position, key, row)
        position = _put_zigzag(output, position, value.length[row])
        position = _put_string(output, position, value, row)


@_compiled(types.void(_READ, _READ_INT64, types.uint32[::1]))
def _murmur2(data: Any, offsets: Any, hashes: Any) -> None:
    mix = np.uint32(0x5BD1E995)
    for row in range(len(hashes)):
        start = offsets[row]
        end = offsets[row + 1]
        hashed = np.uint32(0x9747B28C) ^ np.uint32(end - start)
        while end - start >= 4:
            word = np.uint32(data[start]) | np.uint32(data[start + 1]) << np.uint32(8)
            word |= np.uint32(data[start + 2]) << np.uint32(16) | np.uint32(data[start + 3]) << np.uint32(24)
            word = np.uint32(word * mix)
            word = np.uint32((word ^ word >> np.uint32(24)) * mix)
            hashed = np.uint32(hashed * mix) ^ word
            start += 4
        if start < end:
            for index in range(end - start):
                hashed ^= np.uint32(data[start + index]) << np.uint32(8 * index)
            hashed = np.uint32(hashed * mix)
        hashed = np.uint32((hashed ^ hashed >> np.uint32(13)) * mix)
        hashes[row] = hashed ^ hashed >> np.uint32(15)
