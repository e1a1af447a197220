"""Poison batches: the header, the lengths and the checksum are right, and what is inside cannot be read.

Each function builds one kind as a producer would send it (base offset 0, no producer id).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import cramjam

from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, MAGIC, stamp_crc
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import NewRecord, build
from penstock.protocol.varint import varint, varlong

BOMB_BYTES: Final = 512 * 1024 * 1024
RECORDS: Final = 3
TIMESTAMP: Final = 1_700_000_000_000


def good(values: Sequence[bytes] = (b"one", b"two", b"three"), codec: Codec = Codec.NONE) -> bytes:
    """A batch with nothing wrong, to stand beside the others."""
    return bytes(build([NewRecord(value, timestamp=TIMESTAMP) for value in values], codec=codec))


def sealed(payload: bytes, *, count: int = RECORDS, codec: Codec = Codec.NONE) -> bytes:
    """A batch with `payload` in place of its records: its length, last offset delta and checksum are right for it."""
    batch = bytearray(HEADER.size) + payload
    length = len(batch) - LENGTH_OVERHEAD
    HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, codec, count - 1, TIMESTAMP, TIMESTAMP, -1, -1, -1, count)
    stamp_crc(batch)
    return bytes(batch)


def count_too_high() -> bytes:
    """Claims a record more than it has; few enough for its bytes to hold them."""
    return sealed(_payload(), count=RECORDS + 1)


def count_too_low() -> bytes:
    """Claims a record less than it has: bytes follow the last one."""
    return sealed(_payload(), count=RECORDS - 1)


def garbage() -> bytes:
    """Bytes that are no records: no number in them ends."""
    return sealed(b"\xff" * 100)


def empty_records() -> bytes:
    """Claims a record and has no bytes for it."""
    return sealed(b"", count=1)


def broken_gzip() -> bytes:
    return _cut_off(Codec.GZIP)


def broken_snappy() -> bytes:
    return _cut_off(Codec.SNAPPY)


def broken_lz4() -> bytes:
    return _cut_off(Codec.LZ4)


def broken_zstd() -> bytes:
    return _cut_off(Codec.ZSTD)


@cache
def zstd_bomb() -> bytes:
    """One record, right in every field, with a value of 512 MiB: about 16 kB of zstd."""
    fields = _record(value_length=BOMB_BYTES)
    tail = varint(0)
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(varint(len(fields) + BOMB_BYTES + len(tail)) + fields)
    zeros = bytes(1024 * 1024)
    for _ in range(BOMB_BYTES // len(zeros)):
        compressor.compress(zeros)
    compressor.compress(tail)
    return sealed(bytes(compressor.finish()), count=1, codec=Codec.ZSTD)


def absurd_key_length() -> bytes:
    """A key of 2 GiB in a record of a few bytes."""
    fields = b"\x00" + varlong(0) + varint(0) + varint(0x7FFF_FFFF) + b"key"
    return sealed(varint(len(fields)) + fields, count=1)


def negative_length() -> bytes:
    """A record of -5 bytes."""
    return sealed(varint(-5) + _record(value_length=3) + b"one" + varint(0), count=1)


KINDS: Final[dict[str, Callable[[], bytes]]] = {
    "count too high": count_too_high,
    "count too low": count_too_low,
    "garbage": garbage,
    "empty records": empty_records,
    "broken gzip": broken_gzip,
    "broken snappy": broken_snappy,
    "broken lz4": broken_lz4,
    "broken zstd": broken_zstd,
    "zstd bomb": zstd_bomb,
    "absurd key length": absurd_key_length,
    "negative length": negative_length,
}
"""The eleven kinds, by the names that tests show."""


def _values() -> list[bytes]:
    return [b"record %d " % number * 8 for number in range(RECORDS)]


def _payload() -> bytes:
    return good(_values())[HEADER.size :]


def _record(*, value_length: int) -> bytes:
    """A record's fields up to its value: attributes, two deltas, no key."""
    return b"\x00" + varlong(0) + varint(0) + varint(-1) + varint(value_length)


def _cut_off(codec: Codec) -> bytes:
    """Compressed records of which the last third is missing."""
    data = compress(codec, _payload())
    return sealed(data[: len(data) * 2 // 3], codec=codec)
