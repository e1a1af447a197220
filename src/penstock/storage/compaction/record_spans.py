"""Reads what compaction needs of a batch's records: their keys, and where each of them lies.

The reference is `protocol.records.iterate`. Like it, these are tight loops with varints of one and two bytes read in
place, because compaction passes over every record of a topic.
"""

import os
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from penstock.protocol.batch import CODEC_BITS, HEADER, LENGTH_OVERHEAD, BatchHeader
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, decompress
from penstock.protocol.errors import DecodeError
from penstock.protocol.varint import read_uvarint, read_varlong

# A longer key is known by a digest, which no short key can be: it has one byte more.
LONGEST_KEY: Final = 40
# Every process draws its own, so that no client can search for two keys of one digest.
_SALT: Final = os.urandom(16)


class Keys(NamedTuple):
    """The keys (or their digests; None for a record without a key) and offsets of all records of a batch, in order."""

    keys: list[bytes | None]
    offsets: list[int]
    # The offsets of those that have a key and no value.
    tombstones: list[int]


Span: TypeAlias = tuple[int, int, int, int]
"""A record: its offset, from where to where it lies, and its timestamp, less the batch's."""


def digest(key: bytes) -> bytes:
    """The key itself if it is short, otherwise its digest."""
    return key if len(key) <= LONGEST_KEY else blake2b(key, digest_size=LONGEST_KEY + 1, key=_SALT).digest()


def unpack(header: BatchHeader, data: bytes, start: int) -> tuple[bytes, int, int]:
    """The records of the batch that begins at `start`: bytes in which they lie, and from where to where."""
    end = start + header.batch_length + LENGTH_OVERHEAD
    if not header.attributes & CODEC_BITS:
        return data, start + HEADER.size, end
    records = decompress(header.codec, memoryview(data)[start + HEADER.size : end], limit=MAX_DECOMPRESSED_BYTES)
    return records, 0, len(records)


def read_keys(header: BatchHeader, data: bytes, position: int, end: int) -> Keys:
    """The keys of the records that `unpack` has found; a DecodeError if they are not what they should be."""
    keys: list[bytes | None] = []
    offsets: list[int] = []
    add_key, add_offset = keys.append, offsets.append
    base_offset = header.base_offset
    last_offset, previous = base_offset + header.last_offset_delta, base_offset - 1
    tombstones: list[int] = []
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
                raise _bad_length()

            # The timestamp follows the attributes.
            if data[position + 1] < 0x80:
                position += 2
            elif data[position + 2] < 0x80:
                position += 3
            else:
                _, position = read_varlong(data, position + 1)

            number = data[position]
            if number < 0x80:
                position += 1
            elif (byte := data[position + 1]) < 0x80:
                number += (byte << 7) - 0x80
                position += 2
            else:
                number, position = read_uvarint(data, position)
            offset = base_offset + (number >> 1)
            if number & 1 or not previous < offset <= last_offset:
                raise _bad_offset()
            previous = offset

            number = data[position]
            if number < 0x80:
                position += 1
            else:
                number, position = read_uvarint(data, position)
            if number & 1:
                if number != 1:
                    raise _bad_length()
                add_key(None)
            else:
                stop = position + (number >> 1)
                if stop >= record_end:
                    raise _bad_length()
                add_key(data[position:stop] if number <= _LONGEST_NUMBER else digest(data[position:stop]))
                if data[stop] == 1:
                    tombstones.append(offset)
            add_offset(offset)
            position = record_end
    except IndexError:
        raise _bad_length() from None
    if position != end:
        raise DecodeError(f"{end - position} bytes follow the last of a batch's {header.record_count} records")
    return Keys(keys, offsets, tombstones)


def read_spans(header: BatchHeader, data: bytes, position: int) -> list[Span]:
    """Where the records lie of a batch that `read_keys` has read or could read."""
    spans: list[Span] = []
    add, base_offset = spans.append, header.base_offset
    for _ in range(header.record_count):
        start = position
        number = data[position]
        if number < 0x80:
            position += 1
        elif (byte := data[position + 1]) < 0x80:
            number += (byte << 7) - 0x80
            position += 2
        else:
            number, position = read_uvarint(data, position)
        record_end = position + (number >> 1)

        number = data[position + 1]
        if number < 0x80:
            position += 2
            timestamp = (number >> 1) ^ -(number & 1)
        elif (byte := data[position + 2]) < 0x80:
            number += (byte << 7) - 0x80
            position += 3
            timestamp = (number >> 1) ^ -(number & 1)
        else:
            timestamp, position = read_varlong(data, position + 1)

        number = data[position]
        if number >= 0x80:
            if (byte := data[position + 1]) < 0x80:
                number += (byte << 7) - 0x80
            else:
                number, _ = read_uvarint(data, position)
        add((base_offset + (number >> 1), start, record_end, timestamp))
        position = record_end
    return spans


_LONGEST_NUMBER: Final = LONGEST_KEY << 1


def _bad_length() -> DecodeError:
    return DecodeError("the lengths of a record do not fit the batch that it lies in")


def _bad_offset() -> DecodeError:
    return DecodeError("the offsets of a batch's records do not ascend to its last offset")
