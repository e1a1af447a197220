"""Keeps what a log has written and not flushed yet. A flush takes it, and gives it back if the flush came to
nothing."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from penstock.storage.log.segment import Segment


class Unflushed:
    """What was written or named since the last flush began. Segments are kept open for their sync."""

    __slots__ = ("directories", "files", "rolled", "segments", "truncations")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.files: list[str] = []
        self.directories: set[str] = set()
        self.rolled = False
        # How often the log was truncated: a flush that began before a truncation proves nothing about what came after.
        self.truncations = 0

    @property
    def is_empty(self) -> bool:
        return not (self.segments or self.directories)

    def add_segment(self, segment: Segment) -> None:
        if not self.segments or self.segments[-1] is not segment:
            segment.hold_for_sync()
            self.segments.append(segment)

    def forget(self, segment: Segment) -> None:
        if segment in self.segments:
            self.segments.remove(segment)
            segment.synced()

    def forget_all(self) -> None:
        while self.segments:
            self.segments.pop().synced()

    def begin_flush(self, end_offset: int, *, saves_epochs: bool, saves_holes: bool = False) -> "FlushWork":
        """Hand everything over to a flush. What is written from now on belongs to the next one."""
        work = FlushWork(end_offset, self, saves_epochs=saves_epochs, saves_holes=saves_holes)
        self.segments = []
        if self.files or self.directories:
            self.files, self.directories = [], set()
        self.rolled = False
        return work

    def take_back(self, work: "FlushWork", segments: list[Segment]) -> None:
        """A flush came to nothing: it is to be done again, for those of its segments that are left."""
        for segment in segments:
            segment.hold_for_sync()
        twice = [segment for segment in self.segments if segment in segments]
        self.segments = [*segments, *(segment for segment in self.segments if segment not in segments)]
        for segment in twice:
            segment.synced()
        self.files += work.files
        self.directories.update(work.directories)
        self.rolled |= work.rolled


class FlushWork:
    """The part of one log in a flush. `position` is where the last segment ended when it began, -1 if there is none."""

    __slots__ = (
        "directories",
        "end_offset",
        "files",
        "pins",
        "position",
        "rolled",
        "saves_epochs",
        "saves_holes",
        "truncations",
    )

    def __init__(self, end_offset: int, unflushed: Unflushed, *, saves_epochs: bool, saves_holes: bool = False) -> None:
        self.end_offset = end_offset
        self.saves_epochs = saves_epochs
        self.saves_holes = saves_holes
        self.pins = unflushed.segments
        last = self.pins[-1] if self.pins else None
        self.position = last.size if last is not None and last.end_offset == end_offset else -1
        has_names = unflushed.files or unflushed.directories
        self.files: Sequence[str] = unflushed.files if has_names else ()
        self.directories: AbstractSet[str] = unflushed.directories if has_names else _NONE
        self.rolled = unflushed.rolled
        self.truncations = unflushed.truncations

    @property
    def unflushed(self) -> "FlushWork":
        """What it has taken."""
        return self

    def release(self) -> None:
        for segment in self.pins:
            segment.synced()


_NONE: Final[frozenset[str]] = frozenset()
