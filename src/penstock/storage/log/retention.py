"""Retention decides which old segments go."""

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
