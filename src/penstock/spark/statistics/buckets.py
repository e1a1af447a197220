"""Counts whole numbers from 0 on in buckets that can be added up, and that grow with the numbers, so that a percentile
is off by no more than a hundredth."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXACT: Final = 128
"""Each number below this has a bucket of its own."""
GROWTH: Final = 1.02
"""The ratio of the bounds of a bucket above `EXACT`."""
PERCENTILES: Final = (50, 95, 99)


@dataclass(slots=True, frozen=True)
class Distribution:
    """The distribution of `count` numbers. The percentiles are within a hundredth of the true number. The rest is
    exact, except the mean of latencies, which is as close as the percentiles."""

    count: int
    min: int
    mean: float
    p50: int
    p95: int
    p99: int
    max: int


def bucket_of(numbers: "NDArray[np.int64]") -> "NDArray[np.int32]":
    """The bucket of each number."""
    import numpy as np

    grown = EXACT + np.floor(np.log(np.maximum(numbers, EXACT) / EXACT) / log(GROWTH))
    return np.where(numbers < EXACT, numbers, grown).astype(np.int32)


def first_of(bucket: int) -> float:
    """The number that a bucket begins with; it ends where the next one begins."""
    return bucket if bucket < EXACT else EXACT * GROWTH ** (bucket - EXACT)


def typical_of(bucket: int) -> float:
    """A number that is within a hundredth of every number in the bucket."""
    return bucket if bucket < EXACT else first_of(bucket) * 2 * GROWTH / (1 + GROWTH)


def distribution(
    counts: Mapping[int, int], *, smallest: int, largest: int, mean: float | None = None
) -> Distribution | None:
    """The distribution of counted buckets; None if there are none. The mean is estimated if it is not given."""
    total = sum(counts.values())
    if not total:
        return None
    if mean is None:
        mean = sum(typical_of(bucket) * count for bucket, count in counts.items()) / total
    found: dict[str, Any] = {f"p{each}": _percentile(counts, each, smallest, largest) for each in PERCENTILES}
    return Distribution(total, smallest, mean, max=largest, **found)


def _percentile(counts: Mapping[int, int], percent: int, smallest: int, largest: int) -> int:
    """The smallest number that at least `percent` of the numbers do not exceed (the nearest rank)."""
    rank = max(1, ceil(sum(counts.values()) * percent / 100))
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= rank:
            return min(max(round(typical_of(bucket)), smallest), largest)
    raise AssertionError("the rank is among those counted")
