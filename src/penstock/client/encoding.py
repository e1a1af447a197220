"""Records as the bytes of a batch, quickly: many at once, with as few Python operations on each as can be."""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, TypeAlias

from penstock.client.errors import UnsendableError
from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, MAGIC, stamp_crc
from penstock.protocol.compression import Codec
from penstock.protocol.varint import varint, varlong

HEADER_BYTES: Final = HEADER.size
RECORD_OVERHEAD: Final = 14
"""What a record takes besides key, value and headers, but for very large ones: they take some bytes more."""


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


def write_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """A record's headers, counted; they are checked here, where their caller still is."""
    parts: list[bytes] = []
    count = 0
    for name, value in headers:
        if type(name) is not str or not (value is None or isinstance(value, bytes | bytearray | memoryview)):
            raise TypeError(f"a header is a name (str) and a value (bytes or None), not {(name, value)!r}")
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
    """Write who sends the batch, and the checksum over it all."""
    _PRODUCER.pack_into(batch, 43, producer_id, epoch, sequence)
    stamp_crc(batch)


class _Memo(dict[int, bytes]):
    """Numbers as they are written, with something behind them; small ones are remembered."""

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
