"""When a system counts as warm, by a clock that the test moves."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

import pytest

from benchmarks.peers.warming import Patience, Reading, is_warm, mean_cost, warm

PATIENCE = Patience(seconds=60, within=0.05, at_most_seconds=180)


def readings(*costs: float, every: float = 10) -> list[Reading]:
    return [Reading(every * number, cost) for number, cost in enumerate(costs, start=1)]


def test_a_system_is_warm_when_its_cost_stayed_within_five_percent_for_a_minute() -> None:
    assert is_warm(readings(100, 104, 96, 100, 101, 99), PATIENCE)
    assert not is_warm(readings(100, 106, 94, 100, 101, 99), PATIENCE)


def test_a_minute_has_to_be_over() -> None:
    assert not is_warm(readings(100, 100, 100, 100, 100), PATIENCE)
    assert not is_warm([], PATIENCE)


def test_one_reading_alone_shows_nothing() -> None:
    assert not is_warm(readings(100, every=90), PATIENCE)


def test_what_was_before_the_last_minute_does_not_count() -> None:
    cold = [900.0, 400.0, 200.0]
    assert not is_warm(readings(*cold, 100, 100, 100, 100, 100), PATIENCE)
    assert is_warm(readings(*cold, 100, 100, 100, 100, 100, 100), PATIENCE)


def test_a_system_that_still_gets_cheaper_is_not_warm() -> None:
    falling = [100 * 0.97**number for number in range(12)]
    assert not is_warm(readings(*falling), PATIENCE)


def test_a_kind_of_request_counts_by_how_far_it_changed_however_cheap_it_is() -> None:
    assert mean_cost([10, 1_000]) == pytest.approx(100)
    assert mean_cost([5, 1_000]) == pytest.approx(mean_cost([10, 500]))


class Loaded:
    """A system each of whose cycles takes ten seconds."""

    def __init__(self, costs: Iterator[float]) -> None:
        self.now = 1_000.0
        self._costs = costs

    def cycle(self) -> Sequence[float]:
        self.now += 10
        return [next(self._costs)]

    def clock(self) -> float:
        return self.now


def test_warming_ends_when_the_system_is_warm() -> None:
    system = Loaded(chain([900, 500, 200], repeat(100)))
    warmth = warm(system.cycle, PATIENCE, system.clock)
    assert (warmth.is_warm, warmth.seconds) == (True, 90)
    assert warmth.gain == pytest.approx(1 / 9)


def test_warming_of_a_system_that_never_is_steady_has_a_bound() -> None:
    system = Loaded(chain.from_iterable(repeat([100, 200])))
    warmth = warm(system.cycle, PATIENCE, system.clock)
    assert (warmth.is_warm, warmth.seconds) == (False, 180)
