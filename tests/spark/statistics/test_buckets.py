"""Buckets: percentiles within a hundredth, whatever the numbers."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from penstock.spark.statistics.buckets import EXACT, bucket_of, distribution, first_of, typical_of


def counts_of(numbers: list[int]) -> dict[int, int]:
    buckets, counts = np.unique(bucket_of(np.array(numbers, np.int64)), return_counts=True)
    return dict(zip(buckets.tolist(), counts.tolist(), strict=True))


def test_small_numbers_have_a_bucket_of_their_own() -> None:
    assert bucket_of(np.arange(EXACT)).tolist() == list(range(EXACT))
    assert [typical_of(number) for number in (0, 1, EXACT - 1)] == [0, 1, EXACT - 1]


def test_a_bucket_begins_where_the_one_before_ends_and_its_numbers_are_close_to_the_typical_one() -> None:
    numbers = np.unique(np.geomspace(EXACT, 2**40, 5_000).astype(np.int64))
    for number, bucket in zip(numbers.tolist(), bucket_of(numbers).tolist(), strict=True):
        assert first_of(bucket) <= number * (1 + 1e-9)
        assert number <= first_of(bucket + 1) * (1 + 1e-9)
        assert abs(typical_of(bucket) - number) <= 0.01 * number


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("spread", ["even", "skewed", "equal"])
def test_percentiles_are_within_a_hundredth(spread: str, seed: int) -> None:
    chance = random.Random(seed)
    draw: Callable[[], int] = {
        "even": lambda: chance.randrange(100_000),
        "skewed": lambda: int(chance.lognormvariate(6, 2)),
        "equal": lambda: 1_000,
    }[spread]
    numbers = [draw() for _ in range(10_000)]
    found = distribution(counts_of(numbers), smallest=min(numbers), largest=max(numbers))
    assert found is not None
    assert abs(found.mean - sum(numbers) / len(numbers)) <= 0.01 * found.mean
    for percent, told in ((50, found.p50), (95, found.p95), (99, found.p99)):
        exact = sorted(numbers)[math.ceil(len(numbers) * percent / 100) - 1]
        assert abs(told - exact) <= 0.01 * exact + 0.5


def test_a_mean_that_is_known_is_believed_and_nothing_has_no_distribution() -> None:
    found = distribution({5: 1}, smallest=5, largest=5, mean=5.0)
    assert found is not None
    assert (found.count, found.min, found.mean, found.p99, found.max) == (1, 5, 5.0, 5, 5)
    assert distribution({}, smallest=0, largest=0) is None
