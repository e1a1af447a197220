"""This meter measures how long the garbage collector holds everything up."""

import gc
from time import perf_counter

from penstock.broker.metrics.histogram import SECONDS, Histogram, RecentMax


class GcPauses:
    """Measures each garbage collection from `start` to `close`."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self.recent = RecentMax()
        self.collections = [0, 0, 0]
        """By generation, the youngest first."""
        self.collected = 0
        self._began: float | None = None

    def start(self) -> None:
        gc.callbacks.append(self._called)

    def close(self) -> None:
        gc.callbacks.remove(self._called)

    def _called(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = perf_counter()
        elif self._began is not None:
            passed, self._began = perf_counter() - self._began, None
            self.seconds.observe(passed)
            self.recent.observe(passed)
            self.collections[info["generation"]] += 1
            self.collected += info["collected"]
