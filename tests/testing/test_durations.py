"""Durations as people write them."""

from datetime import timedelta
from typing import Any

import pytest

from penstock.testing.durations import milliseconds


@pytest.mark.parametrize(
    ("written", "expected_ms"),
    [
        ("7 days", 7 * 86_400_000),
        ("1 day", 86_400_000),
        ("90s", 90_000),
        ("1 h", 3_600_000),
        ("1 h 30 min", 5_400_000),
        ("1 hour, 30 minutes", 5_400_000),
        ("1.5 Hours", 5_400_000),
        ("2w", 14 * 86_400_000),
        ("250 ms", 250),
        ("0 s", 0),
        (1500, 1500),
        (0.4, 0),
        (timedelta(minutes=2), 120_000),
    ],
)
def test_a_duration_comes_to_milliseconds(written: Any, expected_ms: int) -> None:
    assert milliseconds(written) == expected_ms


@pytest.mark.parametrize("nonsense", ["", "soon", "7", "7 parsecs", "days 7", "-1 s", "1 h and a half", None, True, []])
def test_nonsense_is_refused_with_what_could_be_written(nonsense: Any) -> None:
    with pytest.raises(ValueError, match=r'is no duration; write "7 days"'):
        milliseconds(nonsense)


@pytest.mark.parametrize("backward", [-1, timedelta(days=-1), float("inf"), float("nan")])
def test_time_only_goes_forward(backward: Any) -> None:
    with pytest.raises(ValueError, match="only goes forward"):
        milliseconds(backward)
