"""Renders messages as bytes to print: by a format string in kcat's language, or as lines of JSON."""

import re
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from penstock.cli.output import bytes_field

if TYPE_CHECKING:
    from penstock.protocol.records import Record

Render: TypeAlias = Callable[[int, "Record"], bytes]
"""Renders a record of the partition with that number."""

DEFAULT_FORMAT = r"%s\n"

TOKENS = {
    "%s": "value",
    "%S": "its size, -1 if it is null",
    "%R": "the same in binary, 32 bits, big-endian",
    "%k": "key",
    "%K": "its size, -1 if it is null",
    "%t": "topic",
    "%p": "partition",
    "%o": "offset",
    "%T": "timestamp in milliseconds",
    "%h": "headers as name=value, separated by commas",
    "%%": "a percent sign",
    r"\n \r \t": "newline, return, tab",
    r"\xNN \\": "the byte of this hexadecimal number, a backslash",
}

_PART = re.compile(rb"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"0": b"\0"}
_INT32 = Struct(">i")


def compile_format(text: str, topic: str) -> Render:
    """Compile a format. ValueError if it has an unknown token."""
    name = topic.encode()
    fields: dict[bytes, Render] = {
        b"s": lambda _, record: record.value or b"",
        b"S": lambda _, record: b"%d" % _size(record.value),
        b"R": lambda _, record: _INT32.pack(_size(record.value)),
        b"k": lambda _, record: record.key or b"",
        b"K": lambda _, record: b"%d" % _size(record.key),
        b"t": lambda _, record: name,
        b"p": lambda partition, _: b"%d" % partition,
        b"o": lambda _, record: b"%d" % record.offset,
        b"T": lambda _, record: b"%d" % record.timestamp,
        b"h": lambda _, record: _headers(record),
    }
    parts: list[bytes | Render] = []
    position, source = 0, text.encode(errors="surrogateescape")
    for match in _PART.finditer(source):
        parts.append(source[position : match.start()])
        position = match.end()
        token, escape = match.groups()
        if token is None:
            parts.append(_unescape(escape))
        elif token == b"%":
            parts.append(b"%")
        elif token in fields:
            parts.append(fields[token])
        else:
            raise ValueError(f"%{token.decode(errors='replace')} is no token of a format; {known_tokens()}")
    parts.append(source[position:])
    return _join(_merged(parts))


def json_lines(topic: str) -> Render:
    """Render a message as a JSON object on one line. Bytes that are not UTF-8 are in base64, in a field of another
    name."""
    from msgspec.json import Encoder

    encode = Encoder().encode

    def render(partition: int, record: "Record") -> bytes:
        return encode(message_fields(topic, partition, record)) + b"\n"

    return render


def message_fields(topic: str, partition: int, record: "Record") -> dict[str, object]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp if record.timestamp >= 0 else None,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        "headers": [{"name": name, **bytes_field("value", value)} for name, value in record.headers],
    }


def known_tokens() -> str:
    return "there are " + ", ".join(f"{token} ({meaning})" for token, meaning in TOKENS.items())


def unescape(text: str) -> bytes:
    r"""The bytes of a text of the command line, in which \t and other escapes stand for what cannot be typed."""
    source = text.encode(errors="surrogateescape")
    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.?)", lambda match: _unescape(match[1]), source, flags=re.DOTALL)


def _unescape(escape: bytes) -> bytes:
    if len(escape) == 3:
        return bytes.fromhex(escape[1:].decode())
    # A backslash that begins no escape is left as it is.
    return _ESCAPES.get(escape, b"\\" + escape)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: "Record") -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


def _merged(parts: list[bytes | Render]) -> list[bytes | Render]:
    """The parts with neighbouring texts joined and empty ones left out."""
    merged: list[bytes | Render] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        elif part != b"":
            merged.append(part)
    return merged


def _join(parts: list[bytes | Render]) -> Render:
    match parts:
        case [first, bytes() as rest] if not isinstance(first, bytes):
            # The default and most formats are a value or two and the end of the line.
            return lambda partition, record: first(partition, record) + rest
        case _:
            return lambda partition, record: b"".join(
                [part if isinstance(part, bytes) else part(partition, record) for part in parts]
            )
