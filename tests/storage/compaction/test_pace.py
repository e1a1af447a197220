"""How fast a long piece of work may go."""

import pytest

from penstock.storage.compaction.pace import Pace, StoppedError


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.longest = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.longest = max(self.longest, seconds)
        self.now += seconds


def test_bytes_are_spread_over_time() -> None:
    time = Time()
    pace = Pace(lambda: False, 1000, clock=time.clock, sleep=time.sleep)
    for _ in range(20):
        pace.spent(500)
    assert time.now == pytest.approx(110)
    assert time.longest <= 0.1


def test_a_rest_is_made_up_for_by_a_second_at_most() -> None:
    time = Time()
    pace = Pace(lambda: False, 1000, clock=time.clock, sleep=time.sleep)
    time.now += 50
    pace.spent(3000)
    assert time.now == pytest.approx(152)


def test_without_a_limit_nobody_sleeps() -> None:
    time = Time()
    Pace(lambda: False, None, clock=time.clock, sleep=time.sleep).spent(10**12)
    assert time.now == 100


def test_it_stops_when_asked_to_even_in_its_sleep() -> None:
    time = Time()
    pace = Pace(lambda: time.now >= 101, 1, clock=time.clock, sleep=time.sleep)
    with pytest.raises(StoppedError):
        pace.spent(1000)
    assert time.now < 101.2
