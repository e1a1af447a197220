"""`read_messages` decodes the messages of one batch when they are asked for, in as few steps as Python allows.

Runs of records with equal lengths are cut apart by C code, many at a time. Other records are read one by one, and those
that are unusual or wrong are left to `protocol.records.iterate`, the reference of all parsers of records.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice, repeat
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import HEADER, BatchHeader
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import iterate, read_headers
from penstock.protocol.varint import read_uvarint, read_varlong, varint

RawMessage: TypeAlias = Message[bytes | None, bytes | None]
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

# NamedTuple's own constructor is a Python function and costs three times as much.
_new: Final[Any] = tuple.__new__

_INT32_MAX: Final = 0x7FFF_FFFF
_ONE_BY_ONE: Final = 64
"""Records that are read one by one before the next try to find some that are alike."""
_MOST_ALIKE: Final = 512
_FEWEST_ALIKE: Final = 8
_LAST: Final = bytes(range(0x80))
"""The values that the last byte of a varint may have."""
_NOT_LAST: Final = bytes(range(0x80, 0x100))
"""The values that its other bytes may have."""


def read_messages(header: BatchHeader, data: bytes, key: TopicPartition) -> Iterator[RawMessage]:
    """`data` is the whole batch, uncompressed. A DecodeError may come late: those before it are right."""
    is_dense = header.record_count == header.last_offset_delta + 1
    if not is_dense or header.base_sequence + header.record_count > _INT32_MAX:
        return _read_any(header, data, key)
    return chain.from_iterable(_Reader(header, data, key).pieces())


class _Alike(NamedTuple):
    """Neighbouring records of one shape. Positions are within a record; a length of -1 is null."""

    records: int
    stride: int
    timestamp_at: int
    timestamp_width: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int


class _Reader:
    """Goes through a batch without gaps, in which the offsets are known beforehand, and how many bytes each takes."""

    __slots__ = ("_data", "_header", "_index", "_key", "_position", "_width", "_wider_at")

    def __init__(self, header: BatchHeader, data: bytes, key: TopicPartition) -> None:
        self._header = header
        self._data = data
        self._key = key
        self._position = HEADER.size
        self._index = 0
        self._width = 1
        self._wider_at = 64

    def pieces(self) -> Iterator[Iterable[RawMessage]]:
        """Each must be gone through before the next is asked for."""
        count = self._header.record_count
        while self._index < count:
            if self._index == self._wider_at:
                self._width += 1
                self._wider_at = 1 << (7 * self._width - 1)
            left = min(count, self._wider_at) - self._index
            alike = self._find_alike(min(_MOST_ALIKE, left))
            if alike is not None:
                yield self._cut_apart(alike)
                self._index += alike.records
                self._position += alike.records * alike.stride
                continue
            begun_at, most = self._index, min(_ONE_BY_ONE, left)
            yield self._read_each(most)
            if self._index < begun_at + most:
                yield islice(_read_any(self._header, self._data, self._key), self._index, None)
                return
        if self._position != len(self._data):
            # It knows what is wrong.
            yield islice(_read_any(self._header, self._data, self._key), count, None)

    def _find_alike(self, most: int) -> _Alike | None:
        """Records from here on that all have equal lengths."""
        data, begin = self._data, self._position
        if most < _FEWEST_ALIKE:
            return None
        try:
            length, at = _short_varint(data, begin)
            stride = at + length
            if data[begin : begin + at] != data[begin + stride : begin + stride + at]:
                return None
            length_width, timestamp_at = at, at + 1
            timestamp_width = 1 if data[begin + timestamp_at] < 0x80 else 2
            key_length_at = timestamp_at + timestamp_width + self._width
            key_length, width = _short_varint(data, begin + key_length_at)
            key_at = key_length_at + width
            value_length_at = key_at + max(key_length, 0)
            value_length, width = _short_varint(data, begin + value_length_at)
            value_at = value_length_at + width
            if value_at + max(value_length, 0) + 1 != stride or data[begin + stride - 1]:
                return None
        except (IndexError, ValueError):
            return None
        fixed = [*range(length_width), *range(key_length_at, key_at), *range(value_length_at, value_at), stride - 1]
        count = min(most, (len(data) - begin) // stride)
        for place in fixed:
            column = data[begin + place : begin + count * stride : stride]
            count = len(column) - len(column.lstrip(column[:1]))
        for place in range(timestamp_at, timestamp_at + timestamp_width):
            column = data[begin + place : begin + count * stride : stride]
            allowed = _LAST if place == timestamp_at + timestamp_width - 1 else _NOT_LAST
            count = len(column) - len(column.lstrip(allowed))
        if count < _FEWEST_ALIKE:
            return None
        return _Alike(count, stride, timestamp_at, timestamp_width, key_at, key_length, value_at, value_length)

    def _cut_apart(self, alike: _Alike) -> Iterator[RawMessage]:
        header, begin, count = self._header, self._position, alike.records
        records = memoryview(self._data)[begin : begin + count * alike.stride]
        offset = header.base_offset + self._index
        sequence = header.base_sequence + self._index
        is_numbered = header.producer_id >= 0 and header.base_sequence >= 0
        return map(
            _new,
            repeat(Message),
            zip(
                repeat(self._key.topic),
                repeat(self._key.partition),
                range(offset, offset + count),
                self._timestamps(alike),
                _column(records, alike.stride, alike.key_at, alike.key_length),
                _column(records, alike.stride, alike.value_at, alike.value_length),
                repeat(()),
                repeat(max(alike.key_length, 0) + max(alike.value_length, 0)),
                repeat(header.crc),
                repeat(header.leader_epoch),
                repeat(header.producer_id),
                range(sequence, sequence + count) if is_numbered else repeat(-1),
                repeat(header.is_log_append_time),
                repeat(header.producer_epoch),
                strict=False,
            ),
        )

    def _timestamps(self, alike: _Alike) -> Iterable[int]:
        header, data = self._header, self._data
        if header.is_log_append_time:
            return repeat(header.max_timestamp)
        first = self._position + alike.timestamp_at
        end = self._position + alike.records * alike.stride
        low = data[first : end : alike.stride]
        # There are few different ones: most batches are filled within milliseconds.
        if alike.timestamp_width == 1:
            times = {each: header.base_timestamp + ((each >> 1) ^ -(each & 1)) for each in set(low)}
            return map(times.__getitem__, low)
        pairs = list(zip(low, data[first + 1 : end : alike.stride], strict=True))
        both = {
            (one, two): header.base_timestamp + ((number >> 1) ^ -(number & 1))
            for one, two in set(pairs)
            if (number := one - 0x80 + (two << 7)) >= 0
        }
        return map(both.__getitem__, pairs)

    def _read_each(self, most: int) -> Iterator[RawMessage]:
        """The next records, up to the first that has to be left to `_read_any`."""
        header, data, position, width = self._header, self._data, self._position, self._width
        topic, partition = self._key
        crc, leader_epoch, producer_id = header.crc, header.leader_epoch, header.producer_id
        producer_epoch = header.producer_epoch
        is_append_time = header.is_log_append_time
        base_timestamp = header.max_timestamp if is_append_time else header.base_timestamp
        is_numbered = producer_id >= 0 and header.base_sequence >= 0
        sequence = time_number = -1
        timestamp = base_timestamp
        sequence_ahead = header.base_sequence - header.base_offset
        first = header.base_offset + self._index
        headers: Headers
        new, kind = _new, Message

        # As in `records.iterate`, varints of one and two bytes are read in place.
        for offset in range(first, first + most):
            try:
                number = data[position]
                if number < 0x80:
                    end = position + 1 + (number >> 1)
                    position += 2
                elif (byte := data[position + 1]) < 0x80:
                    end = position - 62 + ((number + (byte << 7)) >> 1)
                    position += 3
                else:
                    number, position = read_uvarint(data, position)
                    end = position + (number >> 1)
                    position += 1

                number = data[position]
                if number < 0x80:
                    position += 1 + width
                elif (byte := data[position + 1]) < 0x80:
                    number += (byte << 7) - 0x80
                    position += 2 + width
                else:
                    number, position = read_varlong(data, position)
                    number = number << 1 if number >= 0 else ~(number << 1)
                    position += width
                # Most have the time of the one before.
                if number != time_number:
                    time_number = number
                    timestamp = base_timestamp if is_append_time else base_timestamp + ((number >> 1) ^ -(number & 1))

                number = data[position]
                if number < 0x80:
                    position += 1
                else:
                    number, position = read_uvarint(data, position)
                if number & 1:
                    size = 0
                    name = None
                else:
                    size = number >> 1
                    stop = position + size
                    name = data[position:stop]
                    position = stop

                number = data[position]
                if number < 0x80:
                    position += 1
                elif (byte := data[position + 1]) < 0x80:
                    number += (byte << 7) - 0x80
                    position += 2
                else:
                    number, position = read_uvarint(data, position)
                if number & 1:
                    value = None
                else:
                    number >>= 1
                    size += number
                    stop = position + number
                    value = data[position:stop]
                    position = stop

                if data[position]:
                    size -= position
                    headers, position = read_headers(data, position, end)
                    size += position
                else:
                    headers = ()
                    position += 1
                if position != end:
                    break
            except (IndexError, DecodeError):
                break
            if is_numbered:
                sequence = offset + sequence_ahead
            yield new(
                kind,
                (
                    topic,
                    partition,
                    offset,
                    timestamp,
                    name,
                    value,
                    headers,
                    size,
                    crc,
                    leader_epoch,
                    producer_id,
                    sequence,
                    is_append_time,
                    producer_epoch,
                ),
            )
        else:
            self._index += most
            self._position = position
            return
        self._index = offset - header.base_offset


def _short_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of one or two bytes, 0 or more or -1, and how many bytes it has. ValueError if it is another."""
    number = data[position]
    width = 1
    if number >= 0x80:
        byte = data[position + 1]
        if byte >= 0x80:
            raise ValueError("it is longer")
        number += (byte << 7) - 0x80
        width = 2
    if number & 1:
        if number != 1:
            raise ValueError("it is negative")
        return -1, width
    return number >> 1, width


def _column(records: memoryview, stride: int, at: int, length: int) -> Iterable[bytes | None]:
    if length < 0:
        return repeat(None)
    return chain.from_iterable(_field(stride, at, length).iter_unpack(records))


@lru_cache(maxsize=4096)
def _field(stride: int, at: int, length: int) -> Struct:
    return Struct(f"{at}x{length}s{stride - at - length}x")


def _read_any(header: BatchHeader, data: bytes, key: TopicPartition) -> Iterator[RawMessage]:
    """The messages of batches of every kind."""
    topic, partition = key
    is_append_time = header.is_log_append_time
    is_numbered = header.producer_id >= 0 and header.base_sequence >= 0
    for record in iterate(data):
        size = len(record.key or b"") + len(record.value or b"")
        if record.headers:
            size += len(varint(len(record.headers)))
            for name, value in record.headers:
                stored = len(name.encode())
                size += len(varint(stored)) + stored
                size += 1 if value is None else len(varint(len(value))) + len(value)
        # After the largest sequence number comes 0.
        sequence = (header.base_sequence + record.offset - header.base_offset) & _INT32_MAX if is_numbered else -1
        yield _new(
            Message,
            (
                topic,
                partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
                size,
                header.crc,
                header.leader_epoch,
                header.producer_id,
                sequence,
                is_append_time,
                header.producer_epoch,
            ),
        )
