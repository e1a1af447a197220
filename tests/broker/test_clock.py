"""The system's clocks, in milliseconds: which clock is read, and how its nanoseconds are cut."""

import time

import pytest

from penstock.broker.clock import SystemClock

NS = 1_000_000


def test_the_wall_clock_counts_whole_milliseconds_since_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123 * NS + 999_999)
    assert SystemClock().now_ms() == 1_700_000_000_123


def test_the_other_clock_does_not_follow_a_wall_clock_that_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, passed = SystemClock(), iter([5 * NS, 7 * NS + 999_999])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(passed))
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000 * NS)
    assert clock.monotonic_ms() == 5
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert clock.monotonic_ms() == 7
