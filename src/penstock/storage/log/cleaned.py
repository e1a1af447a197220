"""These values describe a round of compaction, as the broker and its helper send them to each other."""

from dataclasses import dataclass
from typing import Final, TypeAlias

CLEANED_FILE: Final = ".cleaned"
"""How the name of a segment ends that the helper has written, until it takes the place of its sources."""


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
    unique already; tombstones and markers below `delete_before` have been there long enough, and the last batches of
    producers below `producers_before`. By `truncations` the log knows which history all this is about."""

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
    """The end of a round: everything below `cleaned_to` is clean once all its segments are swapped in."""

    cleaned_to: int
    # The offset of the first tombstone or marker that stays in the clean part for a while, -1 if there is none.
    first_tombstone: int
    truncations: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int
    cpu_seconds: float
