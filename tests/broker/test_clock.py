"""The real clocks."""

import time

from penstock.broker.clock import SystemClock


def test_the_wall_clock_counts_milliseconds_since_1970() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_the_other_clock_never_runs_backward() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(1000)]
    assert readings == sorted(readings)
