"""Records are read from a batch one by one, and built into new batches.

`iterate` is the reference for the record format: faster parsers stand elsewhere, and tests compare each of them with it
(docs/decisions/0016-second-parsers.md).
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.protocol.batch import (
    CONTROL_BIT,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    check_shape,
    read_header,
    stamp_crc,
)
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.varint import Buffer, read_uvarint, read_varlong, varint, varlong


class Record(NamedTuple):
    """A record of the log. A null value is a tombstone to compaction; a timestamp of -1 is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class NewRecord(NamedTuple):
    """A record that has no offset yet."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = -1


def iterate(view: Buffer, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """The records of one whole batch, each decoded when it is asked for; the checksum is left to `verify`.

    The bytes are copied, or decompressed, before the first record: `view` may be overwritten after that.
    """
    header = read_header(view)
    check_shape(header, view)
    codec = header.codec
    if codec is Codec.NONE:
        data = bytes(view)
        position = HEADER.size
    else:
        data = decompress(codec, memoryview(view)[HEADER.size :], limit=max_decompressed_bytes)
        position = 0
    end = len(data)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_timestamp = header.max_timestamp if header.is_log_append_time else None
    # From a sensible base no delta of one or two bytes leads out of 64 bits; a longer one sets the flag.
    check_timestamp = append_timestamp is not None or not -_INT64_MAX // 2 < base_timestamp < _INT64_MAX // 2
    last_offset_delta = header.last_offset_delta
    previous_delta = -1
    new = tuple.__new__  # NamedTuple's own constructor is a Python function and costs three times as much.

    # Varints of one and two bytes are read in place: five calls a record would double its cost. Positions only grow, so
    # a record that ends where its length says has not read beyond it, and every slice in it was whole.
    try:
        for _ in range(header.record_count):
            number = data[position]
            if number < 0x80:
                position += 1
            elif (byte := data[position + 1]) < 0x80:
                number += (byte << 7) - 0x80
                position += 2
            else:
                number, position = read_uvarint(data, position)
            record_end = position + (number >> 1)
            if number & 1 or record_end > end:
                raise DecodeError(f"a record's length does not fit the {end - position} bytes that remain of its batch")
            position += 1  # The record's attributes: no bit has a meaning yet, and Kafka ignores them all.

            number = data[position]
            if number < 0x80:
                position += 1
                timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))
            elif (byte := data[position + 1]) < 0x80:
                number += (byte << 7) - 0x80
                position += 2
                timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))
            else:
                number, position = read_varlong(data, position)
                timestamp = base_timestamp + number
                check_timestamp = True
            if check_timestamp:
                if append_timestamp is not None:
                    timestamp = append_timestamp
                elif not _INT64_MIN <= timestamp <= _INT64_MAX:
                    raise DecodeError(f"a record's timestamp {timestamp} does not fit 64 bits")

            number = data[position]
            if number < 0x80:
                position += 1
            elif (byte := data[position + 1]) < 0x80:
                number += (byte << 7) - 0x80
                position += 2
            else:
                number, position = read_uvarint(data, position)
            delta = number >> 1
            if number & 1 or not previous_delta < delta <= last_offset_delta:
                raise DecodeError("the offsets of a batch's records do not ascend to its last offset")
            previous_delta = delta

            number = data[position]
            if number < 0x80:
                position += 1
            else:
                number, position = read_uvarint(data, position)
            if number & 1:
                if number != 1:
                    raise _negative_length(number)
                key = None
            else:
                stop = position + (number >> 1)
                key = data[position:stop]
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
                if number != 1:
                    raise _negative_length(number)
                value = None
            else:
                stop = position + (number >> 1)
                value = data[position:stop]
                position = stop

            if data[position] == 0:
                headers: tuple[tuple[str, bytes | None], ...] = ()
                position += 1
            else:
                headers, position = read_headers(data, position, record_end)

            if position != record_end:
                raise DecodeError("a record's fields are not as long as its length says")
            yield new(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise DecodeError("a record runs past the end of its batch") from None
    if position != end:
        raise DecodeError(f"{end - position} bytes follow the last of a batch's {header.record_count} records")


def build(
    records: Sequence[NewRecord | Record],
    *,
    base_offset: int = 0,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A batch of `records` at dense offsets from `base_offset`, whatever offsets they had.

    A caller that drops records from a batch gives the `offset_deltas` of those it keeps and the old
    `last_offset_delta`, so that no offset moves. With `log_append_time` every record reads as if it had that timestamp.
    """
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if deltas else -1
    _check_deltas(deltas, len(records), last_offset_delta)

    base_timestamp = records[0].timestamp if records else -1
    parts, max_timestamp = _encode(records, deltas, base_timestamp)
    if codec is not Codec.NONE:
        parts = [b"", compress(codec, b"".join(parts), level)]
    parts[0] = bytes(HEADER.size)
    batch = bytearray().join(parts)

    attributes = codec | (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    if log_append_time is not None:
        max_timestamp = log_append_time
        attributes |= LOG_APPEND_TIME_BIT
    try:
        HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LENGTH_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    except struct.error as error:
        raise EncodeError(f"a field of the batch header is out of range: {error}") from None
    stamp_crc(batch)
    return batch


_INT32_MAX = 0x7FFF_FFFF
_INT64_MIN = -0x8000_0000_0000_0000
_INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF

_NULL = varint(-1)
_NO_HEADERS = varint(0)
_ATTRIBUTES = b"\x00"


def _negative_length(number: int) -> DecodeError:
    return DecodeError(f"a field of a record has length {~(number >> 1)}; below 0 there is only -1, for null")


def read_headers(data: bytes, position: int, record_end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    number, position = read_uvarint(data, position)
    # A header takes two bytes at least.
    if number & 1 or number > record_end - position:
        raise DecodeError("a record's header count does not fit the bytes that remain of it")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(number >> 1):
        number = data[position]
        if number < 0x80:
            position += 1
        else:
            number, position = read_uvarint(data, position)
        stop = position + (number >> 1)
        if number & 1 or stop > record_end:
            raise DecodeError("the length of a record header's key does not fit the bytes that remain")
        try:
            name = data[position:stop].decode()
        except UnicodeDecodeError:
            raise DecodeError("the key of a record header is not UTF-8") from None
        number = data[stop]
        if number < 0x80:
            position = stop + 1
        else:
            number, position = read_uvarint(data, stop)
        if number & 1:
            if number != 1:
                raise _negative_length(number)
            headers.append((name, None))
        else:
            stop = position + (number >> 1)
            headers.append((name, data[position:stop]))
            position = stop
    return tuple(headers), position


def _check_deltas(deltas: Sequence[int], count: int, last: int) -> None:
    if len(deltas) != count:
        raise EncodeError(f"{count} records need as many offset deltas, not {len(deltas)}")
    previous = -1
    for delta in deltas:
        if delta <= previous:
            raise EncodeError(f"offset delta {delta} does not follow {previous}: they ascend from 0 or more")
        previous = delta
    if last < max(previous, 0):
        raise EncodeError(f"a batch covers one offset or more and those of all its records, not {last + 1}")


def _encode(
    records: Sequence[NewRecord | Record], deltas: Sequence[int], base_timestamp: int
) -> tuple[list[bytes], int]:
    """The records as pieces to join, after an empty one where the batch header goes, and the latest timestamp."""
    parts = [b""]
    total = HEADER.size
    max_timestamp = base_timestamp
    for record, delta in zip(records, deltas, strict=True):
        key, value, headers, timestamp = record.key, record.value, record.headers, record.timestamp
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise EncodeError(f"timestamp {timestamp} does not fit 64 bits")
        max_timestamp = max(max_timestamp, timestamp)
        key_length = _NULL if key is None else varint(len(key))
        front = _ATTRIBUTES + varlong(timestamp - base_timestamp) + varint(delta) + key_length + (key or b"")
        value_length = _NULL if value is None else varint(len(value))
        value = value or b""
        back = _encode_headers(headers) if headers else _NO_HEADERS
        size = len(front) + len(value_length) + len(value) + len(back)
        length = varint(size)
        total += len(length) + size
        # Checked as it grows, before the pieces are joined.
        if total > _INT32_MAX:
            raise EncodeError(f"a batch holds at most {_INT32_MAX} bytes; split it")
        parts += (length, front, value_length, value, back)
    return parts, max_timestamp


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        try:
            key = name.encode()
        except UnicodeEncodeError:
            raise EncodeError(f"header key {name!r} cannot be written as UTF-8") from None
        parts += (varint(len(key)), key)
        parts += (_NULL,) if value is None else (varint(len(value)), value)
    return b"".join(parts)
