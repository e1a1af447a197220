"""The clock of a broker in a test runs with real time, ahead of it by as much as the test says."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.testing.durations import Duration, milliseconds


class Clock:
    """Runs with real time, so that clients and their timeouts work as ever, and leaps when `advance` is called.

    Example:
        from penstock.testing import Broker

        with Broker() as broker:
            broker.create_topic("orders", retention_ms=86_400_000)
            broker.clock.advance("7 days")
    """

    def __init__(self, leap: Callable[[int], None]) -> None:
        self._leap = leap
        self._lead_ms = 0

    def advance(self, duration: Duration) -> None:
        """Let a duration pass at once: "7 days", "90s", a timedelta, or milliseconds.

        When this returns, the broker has done what became due: records are deleted that were kept long enough, silent
        members are out of their groups, requests that waited have their replies.
        """
        self._leap(milliseconds(duration))

    @property
    def now(self) -> datetime:
        """What time it is for the broker."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    @property
    def lead_ms(self) -> int:
        """How far it is ahead of real time."""
        return self._lead_ms

    # The broker asks these

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._lead_ms

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._lead_ms

    # The host of the broker moves it

    def set_lead(self, lead_ms: int) -> None:
        self._lead_ms = lead_ms
