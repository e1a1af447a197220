"""Record batches of every kind, and what `records.iterate` makes of them, for both implementations to be equal to."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from penstock.protocol.batch import BatchHeader, read_header, split, verify
from penstock.protocol.columns import Binary, Columns, Impl
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.records import NewRecord, Record, build, iterate

IMPLEMENTATIONS: tuple[Impl, ...] = ("numpy", "numba")
NOW = 1_700_000_000_000


def strings(column: Binary) -> list[bytes | None]:
    lengths = column.lengths().tolist()
    starts = column.offsets.tolist()
    data = column.data.tobytes()
    return [
        None if length < 0 else data[start : start + length] for start, length in zip(starts, lengths, strict=False)
    ]


def records(columns: Columns) -> list[Record]:
    """The rows of columns that hold all that a record has."""
    headers = columns.headers
    assert columns.key is not None
    assert columns.value is not None
    assert columns.offset is not None
    assert columns.timestamp is not None
    assert headers is not None
    pairs = [
        ((key or b"").decode(), value) for key, value in zip(strings(headers.key), strings(headers.value), strict=True)
    ]
    bounds = headers.offsets.tolist()
    of_rows = [tuple(pairs[start:end]) for start, end in pairwise(bounds)]
    rows = zip(
        columns.offset.tolist(),
        columns.timestamp.tolist(),
        strings(columns.key),
        strings(columns.value),
        of_rows,
        strict=True,
    )
    return [Record._make(row) for row in rows]


def expected(data: bytes, *, start_offset: int = 0, skip_control: bool = True) -> list[tuple[BatchHeader, Record]]:
    """Each record one by one, with the header of its batch."""
    found = []
    for header, view in split(data):
        verify(header, view)
        if not (skip_control and header.is_control) and header.last_offset >= start_offset:
            found += [(header, record) for record in iterate(view) if record.offset >= start_offset]
    return found


def size_of(record: Record) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def sequence_of(header: BatchHeader, record: Record) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) % 2**31


def make_field(chance: random.Random, most_records: int = 60) -> bytes:
    """A records field of some batches of any kind."""
    batches = []
    offset = chance.choice((0, 1, 1000, 2**40, 2**63 - 5000))
    for _ in range(chance.randint(1, 5)):
        batch = make_batch(chance, offset, chance.randint(1, most_records))
        batches.append(bytes(batch))
        offset = read_header(batch).next_offset + chance.choice((0, 0, 0, 7))
    return b"".join(batches)


def make_batch(chance: random.Random, offset: int, count: int) -> bytearray:
    codec = chance.choice((Codec.NONE, Codec.NONE, *Codec))
    producer: dict[str, Any] = {}
    if chance.random() < 0.5:
        sequence = chance.choice((0, 17, 2**31 - 3))
        producer = {
            "producer_id": chance.randrange(5),
            "producer_epoch": chance.randrange(9),
            "base_sequence": sequence,
        }
    kind = chance.random()
    if kind < 0.1:
        return build_end_marker(
            chance.choice(list(ControlType)),
            producer_id=chance.randrange(5),
            producer_epoch=1,
            coordinator_epoch=3,
            timestamp=NOW,
            base_offset=offset,
        )
    if kind < 0.15:
        return build([], base_offset=offset, last_offset_delta=count, codec=codec, **producer)
    new = make_records(chance, count)
    deltas: Sequence[int] | None = None
    if chance.random() < 0.3:
        deltas = sorted(chance.sample(range(count * 3), count))
    return build(
        new,
        base_offset=offset,
        offset_deltas=deltas,
        codec=codec,
        leader_epoch=chance.randrange(-1, 5),
        transactional=bool(producer) and chance.random() < 0.5,
        log_append_time=NOW + 99 if chance.random() < 0.2 else None,
        **producer,
    )


def make_records(chance: random.Random, count: int) -> list[NewRecord]:
    """Of one shape, or of all shapes; numbers at the edges of one, two and three bytes."""
    if chance.random() < 0.4:
        size, key = chance.choice((0, 5, 60, 100, 1000, 9000)), chance.choice((None, b"", b"a key"))
        return [NewRecord(chance.randbytes(size), key=key, timestamp=NOW + at // 9) for at in range(count)]
    return [
        NewRecord(
            _some_bytes(chance),
            key=_some_bytes(chance),
            headers=_some_headers(chance),
            timestamp=NOW + chance.choice((0, at, -at, 63, 64, 8191, 8192, 10**9, -(10**12))),
        )
        for at in range(count)
    ]


def _some_bytes(chance: random.Random) -> bytes | None:
    size = chance.choice((None, 0, 1, 2, 3, 4, 63, 64, 65, chance.randrange(300), chance.choice((8191, 8192, 20_000))))
    return None if size is None else chance.randbytes(1) * size if size > 100 else chance.randbytes(size)


def _some_headers(chance: random.Random) -> list[tuple[str, bytes | None]]:
    if chance.random() < 0.6:
        return []
    names = ("", "trace", "größe-数", "é", "x" * 100)
    return [(chance.choice(names), _some_bytes(chance)) for _ in range(chance.choice((1, 1, 2, 3, 70)))]
