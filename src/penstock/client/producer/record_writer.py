"""The record writer writes records as the bytes of a batch: many at once, with few Python operations on each."""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final, TypeAlias

from penstock.client.errors import UnsendableError
from penstock.client.message import Headers
from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, MAGIC, stamp_crc
from penstock.protocol.compression import Codec
from penstock.protocol.varint import varint, varlong

HEADER_BYTES: Final = HEADER.size
RECORD_OVERHEAD: Final = 14
"""Bytes of a record besides key, value and headers; very large records take some bytes more."""


Record: TypeAlias = tuple[bytes | None, bytes | None, int]
"""Key, value and timestamp."""


def write_records(
    records: Iterable[Record], headers: Mapping[int, bytes], *, first: int, base_timestamp: int
) -> tuple[bytes, int]:
    """The records of a batch from the one with offset delta `first` on, and their latest timestamp. `headers` are
    written ones, by offset delta."""
    varints, keyless = _VARINTS, _KEYLESS
    parts: list[bytes] = []
    number = first
    last_stamp = max_stamp = -1
    front, front_size = b"", 0
    for key, value, stamp in records:
        if stamp != last_stamp:
            # Attributes and the time since the batch's base: most neighbours have them in common.
            front = b"\0" + varlong(stamp - base_timestamp)
            front_size = len(front) + 1
            last_stamp = stamp
            max_stamp = max(max_stamp, stamp)
        if value is None:
            value_size, value_length, content = 0, _NULL, b""
        else:
            value_size, content = len(value), value
            value_length = varints[value_size]
        size = front_size + len(value_length) + value_size
        behind = _NO_HEADERS
        if headers and number in headers:
            behind = headers[number]
            size += len(behind) - 1
        if key is None:
            delta = keyless[number]
            parts += varints[size + len(delta)], front, delta, value_length, content, behind
        else:
            key_size = len(key)
            delta, key_length = varints[number], varints[key_size]
            size += len(delta) + len(key_length) + key_size
            parts += varints[size], front, delta, key_length, key, value_length, content, behind
        number += 1
    return b"".join(parts), max_stamp


def write_headers(headers: Headers) -> bytes:
    """A record's headers, counted; they are checked here, where their caller still is."""
    parts: list[bytes] = []
    count = 0
    given: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    for header in given:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise TypeError(
                f"headers are a dict, or a list of pairs such as ('trace', b'1'), and {header!r} is no such pair"
            )
        name, value = header
        if type(name) is not str or not (value is None or isinstance(value, bytes | bytearray | memoryview)):
            advice = ": encode the value" if type(name) is str and isinstance(value, str) else ""
            raise TypeError(f"a header is a name (str) and a value (bytes or None), not {(name, value)!r}{advice}")
        try:
            key = name.encode()
        except UnicodeEncodeError:
            raise UnsendableError(f"the header name {name!r} cannot be written as UTF-8") from None
        parts += varint(len(key)), key
        parts += (_NULL,) if value is None else (varint(len(value)), bytes(value))
        count += 1
    return varint(count) + b"".join(parts)


def stamp_header(batch: bytearray, *, codec: Codec, count: int, base_timestamp: int, max_timestamp: int) -> None:
    """Write the header in its place before the records, all but the producer and the checksum."""
    length = len(batch) - LENGTH_OVERHEAD
    times = base_timestamp, max_timestamp
    HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, codec, count - 1, *times, -1, -1, -1, count)


def stamp_producer(batch: bytearray | memoryview, producer_id: int, epoch: int, sequence: int) -> None:
    """Write the producer's id, and the checksum over the whole batch."""
    _PRODUCER.pack_into(batch, 43, producer_id, epoch, sequence)
    stamp_crc(batch)


class _Memo(dict[int, bytes]):
    """Numbers as varints, followed by fixed bytes; small ones are remembered."""

    def __init__(self, behind: bytes = b"") -> None:
        self._behind = behind

    def __missing__(self, number: int) -> bytes:
        written = varint(number) + self._behind
        if number < _REMEMBERED:
            self[number] = written
        return written


_PRODUCER: Final = Struct(">qhi")
_REMEMBERED: Final = 16_384
_NULL: Final = varint(-1)
_NO_HEADERS: Final = varint(0)
_VARINTS: Final = _Memo()
_KEYLESS: Final = _Memo(_NULL)
