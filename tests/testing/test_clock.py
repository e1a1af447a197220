"""The clock by itself; what a broker does when it leaps is tested in test_leaping."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from penstock.testing.clock import Clock


def test_it_runs_with_real_time_until_it_is_advanced() -> None:
    clock = Clock(lambda by_ms: None)
    before = time.time_ns() // 1_000_000
    assert before <= clock.now_ms() <= time.time_ns() // 1_000_000
    before = time.monotonic_ns() // 1_000_000
    assert before <= clock.monotonic_ms() <= time.monotonic_ns() // 1_000_000


def test_a_lead_counts_for_both_of_its_hands() -> None:
    clock = Clock(lambda by_ms: None)
    wall_ms, passed_ms = clock.now_ms(), clock.monotonic_ms()
    clock.set_lead(86_400_000)
    assert clock.lead_ms == 86_400_000
    assert clock.now_ms() >= wall_ms + 86_400_000
    assert clock.monotonic_ms() >= passed_ms + 86_400_000
    assert clock.now - datetime.now(UTC) > timedelta(hours=23)


def test_advancing_is_told_in_milliseconds() -> None:
    leaps: list[int] = []
    clock = Clock(leaps.append)
    clock.advance("7 days")
    clock.advance(timedelta(seconds=1))
    assert leaps == [604_800_000, 1000]
    with pytest.raises(ValueError, match="is no duration"):
        clock.advance("a while")
