"""Buckets of time: as wide as the data needs, and never more than a few."""

from itertools import pairwise

import numpy as np
import pytest

from penstock.spark.statistics.times import (
    LAST_MS,
    MAX_COUNTED,
    MAX_DRAWN,
    WIDTHS_MS,
    TimeStats,
    TimeTally,
    choose_width,
    describe_width,
    lay_out,
)

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def counted(*times_ms: int) -> TimeTally:
    tally = TimeTally()
    tally.add(np.array(times_ms, np.int64))
    return tally


def bucket(start_ms: int, messages: int = 1, *, topic: str = "a", width_ms: int = 1_000) -> TimeStats:
    return TimeStats(topic, start_ms, width_ms, messages)


def test_each_width_is_a_multiple_of_the_one_before() -> None:
    assert all(later % earlier == 0 for earlier, later in pairwise(WIDTHS_MS))


def test_seconds_are_counted_while_there_are_few_and_no_time_is_none() -> None:
    tally = counted(NOW_MS, NOW_MS + 999, NOW_MS + 1_000, -1)
    assert (tally.level, tally.counts) == (0, {NOW_MS // 1000: 2, NOW_MS // 1000 + 1: 1})


def test_many_buckets_become_wider_and_nothing_is_lost() -> None:
    tally = TimeTally()
    for day in range(40):
        tally.add(NOW_MS + day * DAY_MS + np.arange(0, DAY_MS, 60_000, dtype=np.int64))
    assert len(tally.counts) <= MAX_COUNTED
    assert WIDTHS_MS[tally.level] == 6 * 3_600_000
    assert sum(tally.counts.values()) == 40 * 1_440


def test_any_number_that_a_producer_sends_is_counted() -> None:
    tally = TimeTally()
    tally.add(np.linspace(0, 2**63 - 1024, 100_000).astype(np.int64))
    assert len(tally.counts) <= MAX_COUNTED
    assert sum(tally.counts.values()) == 100_000


@pytest.mark.parametrize(
    ("span_ms", "words"),
    [
        (10_000, "second"),
        (120_000, "second"),
        (121_000, "5 seconds"),
        (3_600_000, "30 seconds"),
        (DAY_MS, "30 minutes"),
        (40 * DAY_MS, "12 hours"),
        (365 * DAY_MS, "7 days"),
        (2**63, "2,800,000,000 days"),
    ],
)
def test_the_width_follows_from_the_length_of_the_data(span_ms: int, words: str) -> None:
    width_ms = choose_width(span_ms)
    assert describe_width(width_ms) == words
    assert span_ms <= width_ms * MAX_DRAWN


def test_a_timeline_adds_up_buckets_of_different_widths() -> None:
    times = [bucket(NOW_MS - 3_600_000, 5), bucket(NOW_MS - 60_000, 7, width_ms=60_000), bucket(0, 9, topic="other")]
    found = lay_out(times, ["a"], now_ms=NOW_MS - 30_000)
    assert found is not None
    assert (found.width_ms, found.first_ms, found.end_ms) == (60_000, NOW_MS - 3_600_000, NOW_MS - 30_000)
    assert found.counts == {"a": {NOW_MS - 3_600_000: 5, NOW_MS - 60_000: 7}}
    assert found.left_out == 0


def test_times_that_cannot_be_right_are_left_out_and_counted() -> None:
    wrong = [bucket(0, 2), bucket(NOW_MS * 1000, 3), bucket(NOW_MS + 400 * DAY_MS, 4)]
    found = lay_out([bucket(NOW_MS, 100), *wrong], ["a"], now_ms=NOW_MS)
    assert found is not None
    assert (found.width_ms, found.left_out, found.counts) == (1_000, 9, {"a": {NOW_MS: 100}})


def test_times_that_most_messages_have_are_drawn_however_odd_they_are() -> None:
    found = lay_out([bucket(5_000, 100), bucket(NOW_MS, 3)], ["a"], now_ms=NOW_MS)
    assert found is not None
    assert sum(found.counts["a"].values()) == 103
    assert lay_out([bucket(LAST_MS, 100)], ["a"], now_ms=NOW_MS) is None
    assert lay_out([], ["a"], now_ms=NOW_MS) is None
