"""What a log has written and not flushed yet: what a flush takes from it, and what comes back if it came to nothing."""

from dataclasses import dataclass, field

from penstock.storage.descriptors import Descriptors, Pinned
from penstock.storage.segment import Segment


@dataclass(slots=True)
class Dirt:
    """What was written or named since the last flush began."""

    segments: list[Segment] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    directories: set[str] = field(default_factory=set)
    rolled: bool = False
    # How often the log was truncated: a flush that began before a truncation proves nothing about what came after.
    truncations: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.segments or self.directories)

    def add_segment(self, segment: Segment) -> None:
        if not self.segments or self.segments[-1] is not segment:
            self.segments.append(segment)

    def forget(self, segment: Segment) -> None:
        self.segments = [other for other in self.segments if other is not segment]

    def begin_flush(self, descriptors: Descriptors, end_offset: int, *, saves_epochs: bool) -> "FlushWork":
        """Everything is handed over to a flush; from now on the dirt is what comes after."""
        pins = [descriptors.pin(segment.path, write=True) for segment in self.segments]
        taken = Dirt(self.segments, self.files, self.directories, self.rolled, self.truncations)
        self.segments, self.files, self.directories = [], [], set()
        self.rolled = False
        return FlushWork(end_offset, taken, pins, saves_epochs=saves_epochs)

    def take_back(self, other: "Dirt", segments: list[Segment]) -> None:
        """A flush of `other` came to nothing: it is to be done again, for those of its segments that are left."""
        self.segments = [*segments, *(segment for segment in self.segments if segment not in segments)]
        self.files += other.files
        self.directories |= other.directories
        self.rolled |= other.rolled


@dataclass(slots=True, frozen=True)
class FlushWork:
    """One log's part in a flush."""

    end_offset: int
    dirt: Dirt
    pins: list[Pinned]
    saves_epochs: bool

    def release(self) -> None:
        for pin in self.pins:
            pin.release()
