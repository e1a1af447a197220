"""Stretches that were checked, against a set of all their positions."""

from itertools import pairwise
from random import Random

import pytest

from penstock.storage.log.verified import MOST, Stretches, covers, joined


@pytest.mark.parametrize("seed", range(5))
def test_stretches_cover_what_was_added_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    stretches: Stretches = ()
    checked: set[int] = set()
    for _ in range(40):
        start = random.randrange(300)
        stop = start + random.randrange(1, 30)
        stretches = joined(stretches, start, stop)
        checked |= set(range(start, stop))
        ordered = sorted(stretches)
        assert all(before[1] < after[0] for before, after in pairwise(ordered))
        for _ in range(30):
            begin = random.randrange(320)
            end = begin + random.randrange(1, 40)
            assert covers(stretches, begin, end) == checked.issuperset(range(begin, end))


def test_a_reader_that_goes_on_makes_one_stretch() -> None:
    stretches: Stretches = ()
    for position in range(0, 1000, 10):
        stretches = joined(stretches, position, position + 10)
    assert stretches == ((0, 1000),)


def test_of_too_many_the_oldest_is_forgotten() -> None:
    stretches: Stretches = ()
    for number in range(MOST + 5):
        stretches = joined(stretches, 10 * number, 10 * number + 5)
    assert len(stretches) == MOST
    assert not covers(stretches, 40, 45)
    assert covers(stretches, 50, 55)
