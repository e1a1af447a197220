"""Which segments go."""

from typing import Final

from penstock.storage.log.log import LogConfig
from penstock.storage.log.retention import DAY_MS, SegmentFacts, expired

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
