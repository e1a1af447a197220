"""Reads the metrics of a broker, and what happened between two readings."""

import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_SECONDS: Final = 60.0
_LAG: Final = "penstock_event_loop_lag_seconds"
_LAG_MAX: Final = "penstock_event_loop_lag_recent_max_seconds"


@dataclass(slots=True, frozen=True)
class Metrics:
    """Those of a broker as a whole, by name and labels."""

    values: dict[str, float]

    @classmethod
    def read(cls, port: int) -> "Metrics":
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_SECONDS) as page:
            lines = page.read().decode().splitlines()
        return cls(dict(_of_broker(lines)))

    def get(self, name: str) -> float:
        return self.values.get(name, 0.0)

    def since(self, before: "Metrics | None", name: str) -> float:
        """How much a counter has grown; a broker that was started meanwhile began at 0."""
        return self.get(name) - (before.get(name) if before is not None else 0.0)

    def longest_turn_seconds(self, before: "Metrics | None") -> float:
        """How late a timer of the loop was meanwhile, at most: the bound of the highest class of the histogram with a
        new value, or the most of late if that is less."""
        highest, below = 0.0, 0.0
        for label, bound in self._bounds():
            count = self.since(before, label)
            if count > below:
                highest = bound
            below = count
        return min(highest, self.get(_LAG_MAX))

    def _bounds(self) -> Iterator[tuple[str, float]]:
        prefix = f'{_LAG}_bucket{{le="'
        for name in self.values:
            if name.startswith(prefix):
                yield name, float(name.removeprefix(prefix).removesuffix('"}'))


def _of_broker(lines: list[str]) -> Iterator[tuple[str, float]]:
    for line in lines:
        if not line.startswith("#") and 'topic="' not in line:
            name, _, value = line.rpartition(" ")
            yield name, float(value)
