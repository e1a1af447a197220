"""Loads a system until it is warm: until the CPU of a request stays the same for a minute.

A system that compiles its code while it runs costs several times as much in its first minute as later.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(slots=True, frozen=True)
class Patience:
    """A system is warm when the readings of the last seconds lie within a part of their median."""

    seconds: float
    within: float
    # One that is not warm by then is measured as it is.
    at_most_seconds: float


@dataclass(slots=True, frozen=True)
class Reading:
    """What a request cost in one cycle of loads, and how long the warming had lasted at its end."""

    at_seconds: float
    cost: float


@dataclass(slots=True, frozen=True)
class Warmth:
    """How a system was warmed."""

    readings: Sequence[Reading]
    is_warm: bool

    @property
    def seconds(self) -> float:
        return self.readings[-1].at_seconds

    @property
    def gain(self) -> float:
        """The last cost as a multiple of the first."""
        return self.readings[-1].cost / self.readings[0].cost


def is_warm(readings: Sequence[Reading], patience: Patience) -> bool:
    """Two readings or more have to cover the time: one alone cannot differ from itself."""
    if not readings or readings[-1].at_seconds < patience.seconds:
        return False
    recent = [one.cost for one in readings if one.at_seconds > readings[-1].at_seconds - patience.seconds]
    middle = median(recent)
    return len(recent) > 1 and all(abs(cost - middle) <= patience.within * middle for cost in recent)


def mean_cost(costs: Sequence[float]) -> float:
    """Of kinds of requests that differ by orders of magnitude: each counts by how far it changed (geometric mean)."""
    return math.exp(sum(map(math.log, costs)) / len(costs))


def warm(load: Callable[[], Sequence[float]], patience: Patience, clock: Callable[[], float]) -> Warmth:
    """Load it cycle by cycle; a cycle returns what a request of each kind cost."""
    began = clock()
    readings: list[Reading] = []
    while True:
        cost = mean_cost(load())
        readings.append(Reading(clock() - began, cost))
        if is_warm(readings, patience):
            return Warmth(readings, is_warm=True)
        if readings[-1].at_seconds >= patience.at_most_seconds:
            return Warmth(readings, is_warm=False)
