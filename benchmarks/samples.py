"""Keeps what was measured of a system, round by round, for medians with their spread and ratios within each round."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Generic, TypeVar

from benchmarks.report import format_number

S = TypeVar("S")


@dataclass(slots=True, frozen=True)
class Rounds(Generic[S]):
    """The samples of one system at one kind of work, in the order of the rounds."""

    samples: Sequence[S]

    def median(self, of: Callable[[S], float]) -> float:
        return float(median(map(of, self.samples)))

    def spread(self, of: Callable[[S], float]) -> str:
        values = [of(sample) for sample in self.samples]
        return f"{format_number(min(values))}–{format_number(max(values))}"

    def ratio(self, other: "Rounds[S]", of: Callable[[S], float]) -> float:
        """Of ours to the other's: the median of the ratios within each round, since another program on the machine
        slows both sides of such a ratio."""
        pairs = zip(self.samples, other.samples, strict=True)
        return float(median(of(ours) / max(of(theirs), 1e-12) for ours, theirs in pairs))

    def as_json(self, *without: str) -> list[dict[str, Any]]:
        """Every sample, but for some of its fields."""
        everything: list[dict[str, Any]] = [asdict(sample) for sample in self.samples]  # type: ignore[call-overload]
        return [{name: value for name, value in one.items() if name not in without} for one in everything]
