"""This parser reads Java's format for properties, which Kafka's files of settings are written in.

`name=value`, `name: value` or `name value`; `#` and `!` begin a comment, and a backslash continues a line or escapes
a character.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"


class Property(NamedTuple):
    name: str
    value: str
    line: int


class PropertiesError(ValueError):
    """A line is not what a line of properties can be."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


def parse_properties(text: str) -> list[Property]:
    """The properties in the order of the file. A name that comes twice is there twice; in Java the last one counts."""
    return [_parse_line(line, number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines, each with the number of its first line: continued ones joined, comments and empty ones left out."""
    joined, first, continued = "", 0, False
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(_BLANK)
        if not (continued and joined):
            if line.startswith(("#", "!")):
                continue
            joined, first = "", number
        joined += line
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if continued:
            joined = joined[:-1]
        elif joined:
            yield first, joined
    if continued and joined:
        yield first, joined


def _parse_line(line: str, number: int) -> Property:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return Property(_unescape(line[:end], number), _unescape(rest, number), number)


def _unescape(text: str, line: int) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[0] != "u":
            return _ESCAPES.get(escaped, escaped)
        if len(escaped) != 5:
            raise PropertiesError(line, "a \\u is not followed by four hexadecimal digits; write \\\\u for a backslash")
        return chr(int(escaped[1:], 16))

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text, flags=re.DOTALL)
