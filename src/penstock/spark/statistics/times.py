"""Counts messages by time, in buckets as wide as the data needs: seconds for a minute of data, days for a year of it.

Each width is a multiple of the one before, so counts of different widths can be added up without losing any.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SECOND: Final = 1_000
_DAY: Final = 86_400 * _SECOND
WIDTHS_MS: Final[tuple[int, ...]] = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 43_200)),
    *(days * _DAY for days in (1, 7, 28)),
    # A producer may send any number of 63 bits.
    *(28 * _DAY * 10**power for power in range(1, 10)),
)
MAX_COUNTED: Final = 512
"""Limits the buckets of a task: beyond that they become wider."""
MAX_DRAWN: Final = 120
"""Limits the buckets of a picture."""
OLDEST_MS: Final = 946_684_800_000
"""The year 2000. Times before that are mistakes of a producer: 0, say, or seconds in place of milliseconds."""
AHEAD_MS: Final = 366 * _DAY
"""How far a time may lie in the future: microseconds in place of milliseconds lie further."""
LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, with which dates end."""


@dataclass(slots=True, frozen=True)
class TimeStats:
    """The messages of one topic with times from `start_ms` on, for `width_ms`."""

    topic: str
    start_ms: int
    width_ms: int
    messages: int

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.width_ms


class TimeTally:
    """Counts times, in at most `MAX_COUNTED` buckets."""

    def __init__(self) -> None:
        self.level = 0
        """The place of the width in `WIDTHS_MS`."""
        self.counts: dict[int, int] = {}
        """By the number of the bucket since 1970."""

    def add(self, times_ms: "NDArray[np.int64]") -> None:
        """Count some times; those below 0 stand for none."""
        import numpy as np

        numbers, counts = np.unique(times_ms[times_ms >= 0] // WIDTHS_MS[self.level], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self.counts[number] = self.counts.get(number, 0) + count
        while len(self.counts) > MAX_COUNTED:
            self._widen()

    def _widen(self) -> None:
        ratio = WIDTHS_MS[self.level + 1] // WIDTHS_MS[self.level]
        wider: dict[int, int] = {}
        for number, count in self.counts.items():
            wider[number // ratio] = wider.get(number // ratio, 0) + count
        self.level, self.counts = self.level + 1, wider


@dataclass(slots=True, frozen=True)
class Timeline:
    """The times of some topics in buckets of one width."""

    width_ms: int
    first_ms: int
    end_ms: int
    counts: Mapping[str, Mapping[int, int]]
    """Of each topic, by the start of the bucket in milliseconds."""
    left_out: int
    """Messages whose time cannot be right, beside most others."""


def lay_out(times: Sequence[TimeStats], topics: Collection[str], *, now_ms: int) -> Timeline | None:
    """What of the counted times is drawn; None if no message has a date."""
    mine = [each for each in times if each.topic in topics]
    dated = [each for each in mine if each.end_ms <= LAST_MS]
    sane = [each for each in dated if each.start_ms >= OLDEST_MS and each.end_ms <= now_ms + AHEAD_MS]
    shown = sane if 2 * _sum(sane) >= _sum(dated) else dated
    if not shown:
        return None
    first_ms = min(each.start_ms for each in shown)
    # The last bucket may not be over yet.
    end_ms = max(min(each.end_ms, max(now_ms, each.start_ms)) for each in shown)
    width_ms = max(choose_width(end_ms - first_ms), *(each.width_ms for each in shown))
    counts: dict[str, dict[int, int]] = {name: {} for name in topics}
    for each in shown:
        start_ms = each.start_ms // width_ms * width_ms
        counts[each.topic][start_ms] = counts[each.topic].get(start_ms, 0) + each.messages
    return Timeline(width_ms, first_ms, end_ms, counts, _sum(mine) - _sum(shown))


def choose_width(span_ms: int) -> int:
    """The smallest width that cuts a span into no more buckets than a picture may have."""
    return next((width for width in WIDTHS_MS if span_ms <= width * MAX_DRAWN), WIDTHS_MS[-1])


def describe_width(width_ms: int) -> str:
    """A width in words: `second`, `30 seconds`, `day`."""
    for unit, size_ms in (("day", _DAY), ("hour", 3_600_000), ("minute", 60_000), ("second", _SECOND)):
        count, rest = divmod(width_ms, size_ms)
        if count and not rest:
            return unit if count == 1 else f"{count:,} {unit}s"
    raise AssertionError("widths are whole seconds")


def _sum(times: Sequence[TimeStats]) -> int:
    return sum(each.messages for each in times)
