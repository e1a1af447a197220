"""Makes records of lines of input: each is a value, a key and a value, or JSON as `penstock consume` writes it."""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import DecodeError
from msgspec.json import decode

from penstock.protocol.records import NewRecord

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

# What `consume -O json` writes of a message, and what is taken from it: topic and offset are those of the original.
_FIELDS = frozenset(
    {"topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers"}
)
_HEADER_FIELDS = frozenset({"name", "value", "value_base64"})


class LineSplitter:
    """Splits chunks of input into lines without their ends; the last line need not have one."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            # The chunks of a line are joined once: otherwise a long line would be copied for each of them.
            self._rest.append(chunk)
            return []
        lines = [b"".join([*self._rest, head]), *tail.split(b"\n")]
        self._rest = [last] if (last := lines.pop()) else []
        return lines

    def finish(self) -> list[bytes]:
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []


@dataclass(slots=True, frozen=True, kw_only=True)
class LineFormat:
    """Says how a line becomes a record. A line without the separator is all value."""

    key: bytes | None = None
    """The key of every line that has none of its own."""
    key_separator: bytes | None = None
    null: bytes | None = None
    """A key or value that is equal to this is null."""
    headers: Headers = ()

    def record(self, line: bytes, timestamp: int) -> NewRecord:
        key, value, null = self.key, line, self.null
        if self.key_separator is not None:
            first, found, rest = line.partition(self.key_separator)
            if found:
                key, value = first, rest
        if null is None:
            return NewRecord(value, key, self.headers, timestamp)
        return NewRecord(None if value == null else value, None if key == null else key, self.headers, timestamp)


@dataclass(slots=True, frozen=True, kw_only=True)
class JsonFormat:
    """Reads lines that `penstock consume --output json` has written: key, value, headers and timestamp are kept."""

    headers: Headers = ()
    """Headers of every message, after its own."""

    def record(self, line: bytes, timestamp: int) -> NewRecord:
        """The record of a line. ValueError says what is wrong with it."""
        try:
            fields = decode(line)
        except (DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"it is not JSON: {error}") from None
        _check_fields(fields, _FIELDS, "a message")
        if "value" not in fields and "value_base64" not in fields:
            raise ValueError("it has neither value nor value_base64; a message without one has null as its value")
        if "key" in fields and "key_base64" in fields:
            raise ValueError("it has both key and key_base64: leave one of them out")
        stamp = fields.get("timestamp")
        if stamp is not None and (type(stamp) is not int or not 0 <= stamp < 2**63):
            raise ValueError("its timestamp is no number of milliseconds since 1970")
        return NewRecord(
            _bytes(fields, "value"),
            _bytes(fields, "key"),
            (*_headers(fields.get("headers") or ()), *self.headers),
            timestamp if stamp is None else stamp,
        )


def _headers(listed: Any) -> list[tuple[str, bytes | None]]:
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise ValueError('its headers are no list; one is written as [{"name": "trace", "value": "1"}]')
    headers: list[tuple[str, bytes | None]] = []
    for each in listed:
        _check_fields(each, _HEADER_FIELDS, "a header")
        name = each.get("name")
        if not isinstance(name, str):
            raise ValueError("a header has no name")
        headers.append((name, _bytes(each, "value")))
    return headers


def _check_fields(fields: Any, known: frozenset[str], what: str) -> None:
    """Refuse a field that is not known: under a misspelt name, a value would be lost without a word."""
    if not isinstance(fields, dict):
        raise ValueError(f"{what} is an object of JSON, and this is none")
    if unknown := fields.keys() - known:
        raise ValueError(f"{what} has no field {min(unknown)!r}; there are {', '.join(sorted(known))}")


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    if (coded := fields.get(f"{name}_base64")) is not None:
        if fields.get(name) is not None:
            raise ValueError(f"it has both {name} and {name}_base64: leave one of them out")
        try:
            return b64decode(coded, validate=True)
        except (ValueError, TypeError):
            raise ValueError(f"its {name}_base64 is not base64") from None
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"its {name} is neither a text nor null; write JSON within a text as a text")
    return value.encode()
