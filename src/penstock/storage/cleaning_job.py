"""A round of compaction as it travels between the broker and its helper: plain values, which can be sent."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(slots=True, frozen=True)
class Source:
    """A closed segment, by its name, its end and the size it had when the round was planned."""

    base_offset: int
    end_offset: int
    size: int


Groups: TypeAlias = tuple[tuple[Source, ...], ...]


@dataclass(slots=True, frozen=True)
class CleaningJob:
    """A round. `groups` of neighbouring segments, in ascending order, each become one; below `dirty_from` keys are
    unique already; tombstones and markers below `delete_before` have been there long enough, and the last words of
    producers below `producers_before`. `truncations` tells the log which history all this is about."""

    directory: str
    groups: Groups
    dirty_from: int
    bound: int
    delete_before: int
    producers_before: int
    truncations: int
    index_interval_bytes: int
    max_keys: int
    max_bytes_per_second: int | None = None


@dataclass(slots=True, frozen=True)
class CleanedSegment:
    """A new segment lies in `<base>.cleaned`, durable but for its name, and takes the place of its sources."""

    base_offset: int
    end_offset: int
    size: int
    sources: tuple[Source, ...]
    truncations: int


@dataclass(slots=True, frozen=True)
class CleaningDone:
    """The round's last word: everything below `cleaned_to` is clean once all its segments are swapped in."""

    cleaned_to: int
    # Of the first tombstone or marker that stays in the clean part for a while, -1 if there is none.
    first_tombstone: int
    truncations: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int
    cpu_seconds: float
