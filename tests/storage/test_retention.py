"""Which segments go, and the clock that nobody should believe at once."""

from typing import Final

import pytest

from penstock.storage.log import LogConfig
from penstock.storage.retention import DAY_MS, ClockGuard, SegmentFacts, expired

NOW: Final = 100 * DAY_MS


def gone(*facts: SegmentFacts, retention_bytes: int = -1, retention_ms: int = -1, active_bytes: int = 0) -> int:
    total = sum(fact.size for fact in facts) + active_bytes
    return expired(facts, total_bytes=total, retention_bytes=retention_bytes, retention_ms=retention_ms, now_ms=NOW)


def aged(days: float, size: int = 100) -> SegmentFacts:
    return SegmentFacts(size, NOW - int(days * DAY_MS))


def test_by_default_records_are_kept_for_seven_days_and_any_number_of_bytes() -> None:
    assert (LogConfig().retention_ms, LogConfig().retention_bytes) == (7 * DAY_MS, -1)


def test_segments_go_when_their_newest_record_is_older_than_the_time() -> None:
    facts = [aged(9), aged(8), aged(7), aged(6)]
    assert gone(*facts, retention_ms=7 * DAY_MS) == 2
    assert gone(*facts, retention_ms=0) == 4


def test_a_young_segment_keeps_the_older_ones_behind_it() -> None:
    assert gone(aged(9), aged(1), aged(9), retention_ms=7 * DAY_MS) == 1


def test_by_size_the_log_is_a_ring_that_holds_at_least_so_much() -> None:
    facts = [aged(1, 100), aged(1, 100), aged(1, 100)]
    assert gone(*facts, retention_bytes=300, active_bytes=50) == 0
    assert gone(*facts, retention_bytes=250, active_bytes=50) == 1
    assert gone(*facts, retention_bytes=249, active_bytes=50) == 1
    assert gone(*facts, retention_bytes=150, active_bytes=50) == 2
    assert gone(*facts, retention_bytes=0, active_bytes=50) == 3


def test_either_limit_is_enough() -> None:
    facts = [aged(9, 100), aged(1, 100), aged(1, 100)]
    assert gone(*facts, retention_ms=7 * DAY_MS, retention_bytes=100) == 2


def test_negative_limits_keep_everything() -> None:
    assert gone(aged(99, 10**12), aged(98, 10**12)) == 0


def test_records_from_the_future_are_kept() -> None:
    assert gone(aged(-30), retention_ms=0) == 0


class TestClockGuard:
    def test_a_clock_that_runs_like_the_other_is_believed(self) -> None:
        guard = ClockGuard()
        assert all(guard.allows(NOW + hour * 3_600_000, hour * 3_600_000) for hour in range(0, 2000, 5))

    @pytest.mark.parametrize("jump", [DAY_MS + 1, 365 * DAY_MS, -DAY_MS - 1])
    def test_sweeps_wait_when_the_clock_jumps_by_more_than_a_day(self, jump: int) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert not guard.allows(NOW + 60_000 + jump, 60_000)
        assert not guard.allows(NOW + 120_000 + jump, 120_000)

    @pytest.mark.parametrize("jump", [DAY_MS, 3_600_000, -DAY_MS])
    def test_a_smaller_jump_is_believed(self, jump: int) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert guard.allows(NOW + 60_000 + jump, 60_000)

    def test_a_machine_that_was_asleep_has_not_jumped(self) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert guard.allows(NOW + 30 * DAY_MS, 30 * DAY_MS)

    def test_sweeps_go_on_at_once_when_it_has_jumped_back(self) -> None:
        guard = ClockGuard()
        assert guard.allows(NOW, 0)
        assert not guard.allows(NOW + 400 * DAY_MS, 60_000)
        assert guard.allows(NOW + 120_000, 120_000)

    def test_a_new_time_that_stands_for_a_day_is_believed(self) -> None:
        guard = ClockGuard()
        jumped = NOW + 400 * DAY_MS
        assert guard.allows(NOW, 0)
        assert not guard.allows(jumped, 1000)
        assert not guard.allows(jumped + DAY_MS - 1, 1000 + DAY_MS - 1)
        assert guard.allows(jumped + DAY_MS, 1000 + DAY_MS)
        assert guard.allows(jumped + 2 * DAY_MS, 1000 + 2 * DAY_MS)

    def test_small_steps_may_add_up_over_the_years(self) -> None:
        guard = ClockGuard()
        assert all(guard.allows(NOW + n * 61_000, n * 60_000) for n in range(5000))
