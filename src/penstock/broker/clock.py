"""A broker reads two clocks: one says what time it is, the other how much time has passed."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """The time of day, which records and retention go by."""

    def monotonic_ms(self) -> int:
        """The time that has passed since some moment: this clock only runs forward."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
