"""Which old segments go: the rules, and a guard against a clock that jumps."""

from collections.abc import Sequence
from typing import Final, NamedTuple

DAY_MS: Final = 24 * 3_600_000


class SegmentFacts(NamedTuple):
    size: int
    newest_ms: int


def expired(
    oldest_first: Sequence[SegmentFacts],
    *,
    total_bytes: int,
    retention_bytes: int,
    retention_ms: int,
    now_ms: int,
) -> int:
    """How many of the closed segments go, from the oldest on. By time: as long as the newest record of a segment is
    older than `retention_ms`. By size: as long as what stays is at least `retention_bytes`, so that the log is a ring
    that always holds that much. Negative limits keep everything."""
    count = 0
    for segment in oldest_first:
        too_old = retention_ms >= 0 and now_ms - segment.newest_ms > retention_ms
        too_much = retention_bytes >= 0 and total_bytes - segment.size >= retention_bytes
        if not (too_old or too_much):
            break
        total_bytes -= segment.size
        count += 1
    return count


class ClockGuard:
    """Compares the wall clock with one that only runs forward. A wall clock that jumps by more than a day would let
    retention delete everything: sweeps wait until it has jumped back, or has stood by its new time for a day."""

    def __init__(self) -> None:
        self._lead_ms: int | None = None
        self._jumped_at_ms: int | None = None

    def allows(self, wall_ms: int, monotonic_ms: int) -> bool:
        """Whether a sweep may run now. To be asked before each one."""
        lead_ms = wall_ms - monotonic_ms
        if self._lead_ms is None or abs(lead_ms - self._lead_ms) <= DAY_MS:
            # Small steps add up over the years, so the clock is compared with its last state.
            self._lead_ms, self._jumped_at_ms = lead_ms, None
            return True
        if self._jumped_at_ms is None:
            self._jumped_at_ms = monotonic_ms
        if monotonic_ms - self._jumped_at_ms < DAY_MS:
            return False
        self._lead_ms, self._jumped_at_ms = lead_ms, None
        return True
