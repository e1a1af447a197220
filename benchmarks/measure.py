"""Measures fairly on a machine that is shared: CPU time beside wall time, cases in turns, medians.

CPU time is that of the whole process, user and system. A ratio is the median of the ratios within each round, so that
another program on the machine slows both sides of it.
"""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Self, TypeAlias


class Stopwatch:
    """Counts the time spent in its `with` blocks. What a case prepares and removes happens outside of them."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.wall_s = 0.0

    def __enter__(self) -> Self:
        self._wall_ns = time.perf_counter_ns()
        self._cpu_ns = time.process_time_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cpu_s += (time.process_time_ns() - self._cpu_ns) / 1e9
        self.wall_s += (time.perf_counter_ns() - self._wall_ns) / 1e9


Case: TypeAlias = Callable[[Stopwatch], None]
Step: TypeAlias = Callable[[str], None]
"""Called with what is done next, for the progress display."""


@dataclass(slots=True, frozen=True)
class Timing:
    """One case: the seconds of each round."""

    cpu: tuple[float, ...]
    wall: tuple[float, ...]

    @property
    def cpu_s(self) -> float:
        return median(self.cpu)

    @property
    def wall_s(self) -> float:
        return median(self.wall)

    def cpu_ratio(self, other: "Timing") -> float:
        return _ratio(self.cpu, other.cpu)

    def wall_ratio(self, other: "Timing") -> float:
        return _ratio(self.wall, other.wall)


def take_turns(cases: Mapping[str, Case], *, rounds: int, step: Step) -> dict[str, Timing]:
    """Run every case once a round, forwards and backwards in turn, so that no case always follows the same other."""
    watches: dict[str, list[Stopwatch]] = {name: [] for name in cases}
    # The collector leaves alone what is there already, modules mostly, so that it costs every case the same.
    gc.collect()
    gc.freeze()
    for number in range(rounds):
        for name in cases if number % 2 == 0 else reversed(list(cases)):
            step(f"{name}, round {number + 1} of {rounds}")
            watch = Stopwatch()
            cases[name](watch)
            watches[name].append(watch)
    return {
        name: Timing(tuple(watch.cpu_s for watch in held), tuple(watch.wall_s for watch in held))
        for name, held in watches.items()
    }


def repeat(call: Callable[[], object], times: int) -> Case:
    """A case that makes the same call over and over. The loop's own cost, some 0.03 µs a turn, counts."""

    def case(watch: Stopwatch) -> None:
        with watch:
            for _ in range(times):
                call()

    return case


def _ratio(ours: tuple[float, ...], theirs: tuple[float, ...]) -> float:
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))
