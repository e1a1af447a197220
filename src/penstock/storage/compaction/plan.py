"""Plans a round of compaction from the facts of a log: whether one is due, and which segments it is about."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.storage.log.cleaned import CleaningJob, Source
from penstock.storage.log.compaction_state import NEVER_MS, CompactionConfig
from penstock.storage.log.index import MAX_RELATIVE_OFFSET
from penstock.storage.log.log import Log
from penstock.storage.log.segment import Segment


@dataclass(slots=True, frozen=True)
class Dirtiness:
    """The bytes of a log: clean ones, dirty ones that can be compacted now, and those that cannot be compacted yet."""

    clean_bytes: int
    dirty_bytes: int
    uncleanable_bytes: int
    first_dirty_offset: int
    bound: int
    is_due: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def dirtiness(log: Log, *, upper_bound: int, now_ms: int) -> Dirtiness:
    """How much of a log waits for compaction. Only for a log with `config.compaction`. Nothing at or above
    `upper_bound` (high watermark, last stable offset) is ever touched."""
    return _look(log, _config(log), upper_bound, now_ms)[0]


def plan(
    log: Log, *, upper_bound: int, now_ms: int, max_keys: int, max_bytes_per_second: int | None = None
) -> CleaningJob | None:
    """The next round, None if none is due. Also rolls an active segment that max.compaction.lag.ms makes too old."""
    config = _config(log)
    log.roll_if_due(now_ms)
    found, segments = _look(log, config, upper_bound, now_ms)
    if not found.is_due:
        return None
    state, dirty_from = log.compaction, found.first_dirty_offset
    return CleaningJob(
        directory=log.directory,
        groups=_groups(segments, log.config.segment_bytes),
        dirty_from=dirty_from,
        bound=found.bound,
        delete_before=min(dirty_from, state.clean_since(now_ms - config.delete_retention_ms)),
        producers_before=min(dirty_from, state.clean_since(now_ms - log.longest_wait_ms)),
        truncations=state.truncations,
        index_interval_bytes=log.config.index_interval_bytes,
        max_keys=max_keys,
        max_bytes_per_second=max_bytes_per_second,
    )


def _config(log: Log) -> CompactionConfig:
    assert log.config.compaction is not None, "nobody asked for this log to be compacted"
    return log.config.compaction


def _look(log: Log, config: CompactionConfig, upper_bound: int, now_ms: int) -> tuple[Dirtiness, list[Segment]]:
    """How dirty a log is, and the segments that a round would be about."""
    state = log.compaction
    first_dirty = max(state.first_dirty_offset, log.start_offset)
    segments = _cleanable(log, config, first_dirty, upper_bound, now_ms)
    bound = max(first_dirty, segments[-1].end_offset) if segments else first_dirty
    clean = sum(_bytes_before(segment, first_dirty) for segment in segments)
    dirty = sum(segment.size for segment in segments) - clean
    is_due = False
    if segments and segments[-1].end_offset >= first_dirty:
        is_due = (
            (dirty > 0 and dirty >= config.min_dirty_ratio * (clean + dirty))
            or (dirty > 0 and _is_overdue(segments, config, first_dirty, now_ms))
            or 0 <= state.first_tombstone < state.clean_since(now_ms - config.delete_retention_ms)
        )
    return Dirtiness(clean, dirty, log.size - clean - dirty, first_dirty, bound, is_due), segments


def _cleanable(log: Log, config: CompactionConfig, first_dirty: int, upper_bound: int, now_ms: int) -> list[Segment]:
    """The closed segments, from the first on, that may be compacted: all in them is committed and flushed for good,
    and old enough."""
    limit = min(upper_bound, log.recovery_point)
    found = []
    for segment in log.segments[:-1]:
        is_young = (
            config.min_lag_ms > 0
            and segment.end_offset > first_dirty
            and (now_ms - segment.newest_ms < config.min_lag_ms)
        )
        if segment.end_offset > limit or is_young:
            break
        found.append(segment)
    return found


def _bytes_before(segment: Segment, offset: int) -> int:
    """How much of a segment lies before an offset, nearly."""
    if segment.end_offset <= offset:
        return segment.size
    return 0 if segment.base_offset >= offset else segment.index.floor(offset - segment.base_offset)[1]


def _is_overdue(segments: Sequence[Segment], config: CompactionConfig, first_dirty: int, now_ms: int) -> bool:
    """Whether a dirty record is older than max.compaction.lag.ms allows."""
    if config.max_lag_ms == NEVER_MS:
        return False
    segment = next(segment for segment in segments if segment.end_offset > first_dirty)
    header = segment.find(max(first_dirty, segment.base_offset)).header
    oldest_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    return now_ms - (oldest_ms if oldest_ms >= 0 else segment.newest_ms) > config.max_lag_ms


def _groups(segments: Sequence[Segment], segment_bytes: int) -> tuple[tuple[Source, ...], ...]:
    """Neighbours that are small become one: as many as would fit in a segment if all of them stayed."""
    groups: list[list[Source]] = []
    size = 0
    for segment in segments:
        size += segment.size
        first = groups[-1][0].base_offset if groups else 0
        if not groups or size > segment_bytes or segment.end_offset - first > MAX_RELATIVE_OFFSET:
            groups.append([])
            size = segment.size
        groups[-1].append(Source(segment.base_offset, segment.end_offset, segment.size))
    return tuple(tuple(group) for group in groups)
