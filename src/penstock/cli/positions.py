"""Parses places in a partition as users write them: `beginning`, `end`, an offset, a count from the end, a time, or a
duration before now."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import click


class Kind(Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    FROM_END = "from the end"
    TIME = "time"


@dataclass(slots=True, frozen=True)
class Position:
    """`value` is an offset, a count of records or milliseconds since 1970, as the kind says."""

    kind: Kind
    value: int = 0

    def offset(self, earliest: int, latest: int, at_time: int | None = None) -> int:
        """The offset that it means in a partition with these ends, never outside of the partition. `at_time` is the
        offset of the first record at or after the time; below 0 if there is none."""
        match self.kind:
            case Kind.BEGINNING:
                return earliest
            case Kind.END:
                return latest
            case Kind.OFFSET:
                return min(max(self.value, earliest), latest)
            case Kind.FROM_END:
                return max(latest - self.value, earliest)
            case Kind.TIME:
                assert at_time is not None, "who has a time asks for its offset"
                return min(max(at_time, earliest), latest) if at_time >= 0 else latest


# Kafka's words for the ends of a partition, and ours.
WORDS = {"beginning": Kind.BEGINNING, "end": Kind.END, "earliest": Kind.BEGINNING, "latest": Kind.END}

UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+){unit})?" for unit in UNITS_MS), re.ASCII)


def parse_position(text: str, *, now_ms: int | None = None) -> Position:
    """Parse a position. ValueError says what can be written."""
    if (word := WORDS.get(text)) is not None:
        return Position(word)
    if text.startswith("@"):
        return Position(Kind.TIME, parse_time(text[1:]))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return Position(Kind.OFFSET if digits == text else Kind.FROM_END, int(digits))
    if digits != text and (ago_ms := parse_duration(digits)) is not None:
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        return Position(Kind.TIME, max(0, now_ms - ago_ms))
    raise ValueError(
        f"{text!r} is none of: beginning, end, an offset, -N for the last N, @timestamp, -1h30m for so long ago"
    )


def parse_duration(text: str) -> int | None:
    """Milliseconds, from one or several numbers with units, such as 90s or 1d12h; None if the text is no duration."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    return sum(int(count) * UNITS_MS[unit] for unit, count in match.groupdict().items() if count)


def parse_time(text: str) -> int:
    """Milliseconds since 1970, from just that number or from a date of ISO 8601 (local time if it has no zone)."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither milliseconds since 1970 nor a date such as 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from None
    return round(date.timestamp() * 1000)


_SHOWN = {
    Kind.BEGINNING: "beginning",
    Kind.END: "end",
    Kind.OFFSET: "an offset",
    Kind.FROM_END: "-N",
    Kind.TIME: "@TIME or -1h",
}


def _listed(kinds: Sequence[Kind]) -> str:
    """What may be written for these kinds."""
    return " or ".join(_SHOWN[kind] for kind in kinds)


class PositionType(click.ParamType[Position, Any]):
    """A position, of the kinds that a command accepts."""

    name = "position"

    def __init__(self, *kinds: Kind, words: Sequence[str] = ("beginning", "end")) -> None:
        self._kinds = kinds or tuple(Kind)
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        if isinstance(value, Position):
            return value
        try:
            position = parse_position(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if position.kind not in self._kinds:
            self.fail(f"{value!r} makes no sense here: write {_listed(self._kinds)}", param, ctx)
        return position

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        words = [word for word in self._words if WORDS[word] in self._kinds]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]
