"""Reads durations as people write them: "7 days", "90s", a timedelta, or milliseconds."""

import re
from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = str | int | float | timedelta
"""A number is one of milliseconds."""

_UNITS_MS: Final = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?")


def milliseconds(duration: Duration) -> int:
    """A duration in milliseconds; `ValueError` if it cannot be read or is negative."""
    given: object = duration
    if isinstance(given, timedelta):
        result = given / timedelta(milliseconds=1)
    elif isinstance(given, str):
        result = _parse(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        result = given
    else:
        raise ValueError(f"{duration!r} is no duration; {_HINT}")
    if not 0 <= result < float("inf"):
        raise ValueError(f"{duration!r} is no duration: time only goes forward")
    return round(result)


_HINT: Final = 'write "7 days", "1 h 30 min", "90s", a timedelta, or a number of milliseconds'


def _parse(text: str) -> float:
    total, position = 0.0, 0
    lowered = text.lower().strip()
    while position < len(lowered):
        part = _PART.match(lowered, position)
        unit = part[2] if part is not None else ""
        unit_ms = _UNITS_MS.get(unit, _UNITS_MS.get(unit.removesuffix("s")))
        if part is None or unit_ms is None:
            raise ValueError(f"{text!r} is no duration; {_HINT}")
        total += float(part[1]) * unit_ms
        position = part.end()
    if not lowered:
        raise ValueError(f"{text!r} is no duration; {_HINT}")
    return total
