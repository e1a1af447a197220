"""Defines the records that every client sends and reads, and their form in JSON, which all client programs
understand."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, Record

# A topic for each codec, with its name. Clients compress what they send to it accordingly.
TOPICS = {codec.name.lower(): codec for codec in Codec}

BASE_TIMESTAMP = 1_700_000_000_000
DAY = 24 * 60 * 60 * 1000


def canonical_records() -> list[NewRecord]:
    """Twenty records, among them everything that a record may be without."""
    special = [
        NewRecord(_text(0), key=None, timestamp=BASE_TIMESTAMP),
        NewRecord(None, key=b"a tombstone", timestamp=BASE_TIMESTAMP + 1),
        NewRecord(b"", key=b"an empty value", timestamp=BASE_TIMESTAMP + 2),
        NewRecord(b"an empty key", key=b"", timestamp=BASE_TIMESTAMP + 2),
        NewRecord(b"", key=b"", timestamp=BASE_TIMESTAMP + 3),
        NewRecord("Grüße, 水門, 🚰".encode(), key="Schlüssel".encode(), timestamp=BASE_TIMESTAMP + 4),
        NewRecord(bytes(range(256)), key=b"\x00\xff", timestamp=BASE_TIMESTAMP + 5),
        NewRecord(b"older than the first of its batch", key=b"old", timestamp=BASE_TIMESTAMP - DAY),
        NewRecord(b"more than 31 bits of milliseconds later", key=b"new", timestamp=BASE_TIMESTAMP + 30 * DAY),
        NewRecord(_text(9), headers=(("one", b"header"),), timestamp=BASE_TIMESTAMP + 6),
        NewRecord(
            None,
            key=b"many headers",
            # Namesakes stand side by side, because kafkajs keeps headers in an object of lists.
            headers=(
                ("twice", b"first"),
                ("twice", b"second"),
                ("empty", b""),
                ("null", None),
                ("", b"an empty name"),
                ("größe", b"\x00\x01\xfe\xff"),
                ("long", b"x" * 200),
            ),
            timestamp=BASE_TIMESTAMP + 7,
        ),
    ]
    plain = [
        NewRecord(_text(number), key=b"key-%d" % number, timestamp=BASE_TIMESTAMP + number)
        for number in range(len(special), 20)
    ]
    return special + plain


def without_null_headers(records: Iterable[NewRecord]) -> list[NewRecord]:
    """The records as a client sends them that cannot give a header a null value: it is empty then."""
    return [
        record._replace(headers=tuple((name, value or b"") for name, value in record.headers)) for record in records
    ]


def without_offset(record: Record) -> NewRecord:
    """A record read, to be compared with the one that was to be sent."""
    return NewRecord(record.value, record.key, record.headers, record.timestamp)


def with_offset(record: NewRecord, offset: int) -> Record:
    return Record(offset, record.timestamp, record.key, record.value, tuple(record.headers))


def to_json(record: NewRecord | Record) -> dict[str, Any]:
    """A record as JSON. Bytes become characters of the same number (Latin-1)."""
    offset = {"offset": record.offset} if isinstance(record, Record) else {}
    return offset | {
        "timestamp": record.timestamp,
        "key": characters(record.key),
        "value": characters(record.value),
        "headers": [[name, characters(value)] for name, value in record.headers],
    }


def from_json(record: dict[str, Any]) -> NewRecord:
    return NewRecord(
        value=_bytes(record["value"]),
        key=_bytes(record["key"]),
        headers=tuple((name, _bytes(value)) for name, value in record["headers"]),
        timestamp=record["timestamp"],
    )


def read_from_json(record: dict[str, Any]) -> Record:
    return with_offset(from_json(record), record["offset"])


def save(path: Path, records: Sequence[NewRecord]) -> None:
    lines = ",\n".join(json.dumps(to_json(record)) for record in records)
    path.write_text(f"[\n{lines}\n]\n")


def load(path: Path) -> list[NewRecord]:
    return [from_json(record) for record in json.loads(path.read_text())]


def _text(number: int) -> bytes:
    """Some 300 bytes that compress well without being the same as another record's."""
    return b" ".join(b"%03d: water runs down the penstock, gate %d is open" % (line, number) for line in range(6))


def characters(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def _bytes(characters: str | None) -> bytes | None:
    return None if characters is None else characters.encode("latin-1")
