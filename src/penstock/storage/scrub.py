"""Looks for bits that have changed on the disk: it walks through segments, a slice at a time, and checks every batch.

A slice may be checked in a thread: it opens the file for itself, and knows of the log only what it was given.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from penstock.protocol.batch import HEADER, MAGIC, read_header
from penstock.storage.files import Files
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log import Log
from penstock.storage.log.scan import BadBatchError, Batch, scan
from penstock.storage.log.segment import Segment

# More are left to the next slice: they are gone through one by one, in Python.
BATCHES_AT_ONCE: Final = 200
_HEADERS_AT_ONCE: Final = 4096


@dataclass(slots=True, frozen=True)
class Damage:
    """A batch that is not what was written, or cannot be read."""

    path: str
    position: int
    offset: int
    reason: str


@dataclass(slots=True)
class Slice:
    """A stretch of a closed segment, which no longer changes, to be checked; then, what came of it."""

    segment: Segment
    epochs: LeaderEpochs
    position: int
    # The offset of the batch that begins there, or less if that is not known.
    offset: int
    max_bytes: int
    # Where the next slice begins.
    end: int = 0
    end_offset: int = 0
    found: list[Damage] = field(default_factory=list)

    @property
    def size(self) -> int:
        return self.end - self.position

    def check(self, files: Files) -> None:
        """Read it and check it, and leave no trace in the page cache."""
        try:
            fd = files.open(self.segment.path)
        except FileNotFoundError:
            # Deleted meanwhile: there is nothing wrong with it.
            self._skip_the_rest()
            return
        stop = min(self.segment.size, self.position + self.max_bytes)
        try:
            was_cached = files.is_cached(fd, self.position, stop - self.position)
            self._walk(files, fd, stop)
            if not was_cached:
                files.drop_cached(fd, self.position, self.size)
        except OSError as error:
            self.found.append(Damage(self.segment.path, self.position, self.offset, f"it cannot be read: {error}"))
            self._skip_the_rest()
        finally:
            files.close(fd)

    def _walk(self, files: Files, fd: int, stop: int) -> None:
        segment = self.segment
        self.end, self.end_offset = self.position, self.offset
        offsets, at_once = range(self.offset, segment.end_offset), max(self.max_bytes, _HEADERS_AT_ONCE)
        batches = scan(files, fd, self.position, segment.size, offsets=offsets, bytes_at_once=at_once, checksums=True)
        # The batch follows a hole, which compaction leaves and a changed bit as well: the batch after it shows which it
        # was.
        doubtful: Batch | None = None
        try:
            for batch in islice(batches, BATCHES_AT_ONCE):
                header = batch.header
                epoch = self.epochs.at(header.last_offset)
                if epoch is not None and epoch != header.leader_epoch:
                    reason = f"leader epoch {header.leader_epoch} where {epoch} should be"
                    raise BadBatchError(batch.position, reason, offset=header.base_offset)
                doubtful = batch if header.base_offset != self.end_offset else None
                self.end, self.end_offset = batch.position + header.size, header.next_offset
                if self.end >= stop:
                    break
            if self.end == segment.size and self.end_offset != segment.end_offset:
                reason = f"it ends at offset {self.end_offset}, not at {segment.end_offset}"
                raise BadBatchError(self.end, reason, offset=self.end_offset)
        except BadBatchError as bad:
            blamed = bad.position if doubtful is None else doubtful.position
            offset = self.end_offset if bad.offset is None else bad.offset
            self.found.append(Damage(segment.path, blamed, offset, bad.reason))
            self._go_on_behind(files, fd, bad.position)

    def _go_on_behind(self, files: Files, fd: int, position: int) -> None:
        """Go on after a damaged batch, if it says how long it is and that may be true: the next batch shows whether it
        is."""
        segment = self.segment
        data = files.pread(fd, HEADER.size, position)
        header = read_header(data) if len(data) == HEADER.size else None
        if header is None or header.magic != MAGIC or not HEADER.size <= header.size <= segment.size - position:
            self._skip_the_rest()
        else:
            self.end, self.end_offset = position + header.size, segment.base_offset

    def _skip_the_rest(self) -> None:
        self.end, self.end_offset = self.segment.size, self.segment.end_offset


class Scrubber:
    """Goes round and round over the closed and flushed segments of all logs, each time from where it was."""

    def __init__(self, logs: Callable[[], Iterable[Log]]) -> None:
        self._logs = logs
        self._waiting: deque[Log] = deque()
        self._place: tuple[Segment, int, int] | None = None
        self.rounds = 0

    def next_slice(self, max_bytes: int) -> Slice | None:
        """What to check next; None at the end of a round."""
        if not self._waiting:
            self._waiting.extend(self._logs())
        while self._waiting:
            log = self._waiting[0]
            found = self._in_log(log, max_bytes) if log.is_open and log.failure is None else None
            if found is not None:
                return found
            self._waiting.popleft()
            self._place = None
        self.rounds += 1
        return None

    def checked(self, done: Slice) -> list[Damage]:
        """Go on after a slice. Returns what it found, unless the segment is not the log's any more."""
        self._place = (done.segment, done.end, done.end_offset)
        if not done.found or not self._waiting or done.segment not in self._waiting[0].segments:
            return []
        # From now on no read gets anything of it that was not checked just before.
        done.segment.distrust()
        return done.found

    def _in_log(self, log: Log, max_bytes: int) -> Slice | None:
        for segment in log.segments[:-1]:
            if not segment.exists or segment.end_offset > log.flushed_offset:
                continue
            position, offset = 0, segment.base_offset
            if self._place is not None:
                last, behind, behind_offset = self._place
                if segment.base_offset < last.base_offset:
                    continue
                if segment is last:
                    position, offset = behind, behind_offset
            if position < segment.size:
                return Slice(segment, log.epochs, position, offset, max_bytes)
        return None
