"""Places in a partition as users write them: `beginning`, `end`, an offset, so many from the end, or a time."""

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
        """Which offset it means in a partition with these ends. `at_time` is that of the first record at or after the
        time; below 0 if there is none. Never outside of the partition."""
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


def parse_position(text: str) -> Position:
    """ValueError, saying what can be written, if it is none."""
    if text in ("beginning", "end"):
        return Position(Kind(text))
    if text.startswith("@"):
        return Position(Kind.TIME, parse_time(text[1:]))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return Position(Kind.OFFSET if digits == text else Kind.FROM_END, int(digits))
    raise ValueError(f"{text!r} is none of: beginning, end, an offset, -N for the last N, @timestamp")


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


class PositionType(click.ParamType[Position, Any]):
    """Of the kinds that make sense where it is used."""

    name = "position"

    def __init__(self, *kinds: Kind) -> None:
        self._kinds = kinds or tuple(Kind)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        if isinstance(value, Position):
            return value
        try:
            position = parse_position(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if position.kind not in self._kinds:
            self.fail(f"{value!r} makes no sense here", param, ctx)
        return position

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        words = [kind.value for kind in (Kind.BEGINNING, Kind.END) if kind in self._kinds]
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]
