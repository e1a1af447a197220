"""The broker's two clocks: what time it is, and how much has passed."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """The time that records and retention go by."""

    def monotonic_ms(self) -> int:
        """A clock that only runs forward, from any beginning."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
