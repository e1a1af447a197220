"""Values counted between bounds."""

import pytest

from penstock.broker.metrics import histogram
from penstock.broker.metrics.histogram import POWERS, SECONDS, Histogram, RecentMax


def test_a_value_is_counted_by_the_first_bound_that_it_does_not_exceed() -> None:
    counted = Histogram((1.0, 2.0, 5.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1, 5.0, 5.1, 100.0):
        counted.observe(value)
    assert counted.counts == [2, 2, 2, 2]
    assert counted.count == 8
    assert counted.sum == pytest.approx(116.7)


@pytest.mark.parametrize("bounds", [SECONDS, POWERS])
def test_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_the_largest_value_is_forgotten_after_a_minute_or_two(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(histogram, "monotonic", lambda: now)
    recent = RecentMax()
    assert recent.value == 0.0
    recent.observe(3.0)
    recent.observe(2.0)
    now += 59
    assert recent.value == 3.0
    now += 2
    recent.observe(1.0)
    assert recent.value == 3.0
    now += 60
    assert recent.value == 1.0
    now += 1000
    assert recent.value == 0.0
