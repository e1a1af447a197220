"""A histogram counts how often values fell between fixed bounds; a recent maximum keeps the largest of late."""

from bisect import bisect_left
from time import monotonic
from typing import Final

SECONDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5),
    *(0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""Bounds for times."""

POWERS: Final = tuple(float(1 << power) for power in range(14))
"""Bounds for numbers of things."""

RECENT_SECONDS: Final = 60.0


class Histogram:
    """`counts` has a number for each bound, of values up to it and above the one before, and one for all above."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class RecentMax:
    """The largest of the values of the last minute or two: since start-up there is always a large one."""

    __slots__ = ("_before", "_began", "_now")

    def __init__(self) -> None:
        self._before = 0.0
        self._now = 0.0
        self._began = monotonic()

    def observe(self, value: float) -> None:
        self._turn()
        self._now = max(self._now, value)

    @property
    def value(self) -> float:
        self._turn()
        return max(self._before, self._now)

    def _turn(self) -> None:
        passed = monotonic() - self._began
        if passed >= RECENT_SECONDS:
            self._before = self._now if passed < 2 * RECENT_SECONDS else 0.0
            self._now = 0.0
            self._began += passed
