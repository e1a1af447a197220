"""Records how far a log is compacted: the settings, and a checkpoint of what has been clean since when.

Payload of the checkpoint `compaction` (version 1), little-endian:

    +-------------+--------------+-----------------+-----------+------------+----------+----
    | first dirty | end of holes | first tombstone | number of | mark 1:    | mark 1:  | ...
    | offset i64  | offset i64   | offset i64      | marks u16 | offset i64 | time i64 |
    +-------------+--------------+-----------------+-----------+------------+----------+----

A mark says: what lies below this offset has been clean since this time.
"""

from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from threading import Lock
from typing import Final, NamedTuple

from penstock.storage.errors import CorruptCheckpointError
from penstock.storage.files import Files
from penstock.storage.files.checkpoint import read_checkpoint, write_checkpoint

FILE_NAME: Final = "compaction"
NEVER_MS: Final = 2**63 - 1
MAX_MARKS: Final = 16
_KIND: Final = b"CMPT"
_VERSION: Final = 1
_HEAD: Final = Struct("<qqqH")
_MARK: Final = Struct("<qq")


@dataclass(slots=True, frozen=True)
class CompactionConfig:
    """What may be set for the compaction of a log; the defaults are Kafka's."""

    min_dirty_ratio: float = 0.5
    min_lag_ms: int = 0
    max_lag_ms: int = NEVER_MS
    delete_retention_ms: int = 86_400_000


class Mark(NamedTuple):
    """What lies below the offset has been clean since this time."""

    offset: int
    cleaned_ms: int


class CompactionState:
    """Below `first_dirty_offset` every key has one value; `first_tombstone` is the first record there that may go when
    it has been clean for long enough, -1 if there is none. Below `holes_end` offsets may be missing, and all is known
    to be flushed. Changes are in memory until `save`, which may run in a thread: a process that loses them does a round
    again, and keeps tombstones longer than it was asked to."""

    def __init__(self, files: Files, directory: str, *, exists: bool) -> None:
        self.first_dirty_offset = 0
        self.holes_end = 0
        self.first_tombstone = -1
        self.marks: tuple[Mark, ...] = ()
        # How often the log was truncated: a round that was planned before does not count.
        self.truncations = 0
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        self._saving = Lock()
        self._is_closed = False
        if exists:
            self._load()
        self._saved = self._payload()

    def expect_holes(self, end_offset: int) -> None:
        """Records below this offset are about to go; to be saved before they do."""
        self.holes_end = max(self.holes_end, end_offset)

    def clean_since(self, time_ms: int) -> int:
        """Up to which offset everything has been clean since a time or longer."""
        return max((mark.offset for mark in self.marks if mark.cleaned_ms <= time_ms), default=0)

    def finish_round(self, cleaned_to: int, first_tombstone: int, *, now_ms: int, longest_wait_ms: int) -> None:
        """Everything below `cleaned_to` is clean now. Marks that are older than the longest wait are merged."""
        last = self.marks[-1] if self.marks else Mark(0, 0)
        self.first_dirty_offset = cleaned_to
        self.first_tombstone = first_tombstone
        marks = [*self.marks]
        if cleaned_to > last.offset:
            # A clock that went back may not make anything seem to be clean for longer.
            marks.append(Mark(cleaned_to, max(now_ms, last.cleaned_ms)))
        # Of two marks of the same time the second says all.
        marks = [mark for mark, later in pairwise([*marks, Mark(0, NEVER_MS)]) if mark.cleaned_ms != later.cleaned_ms]
        passed = [mark for mark in marks if mark.cleaned_ms <= now_ms - longest_wait_ms]
        self.marks = _merged(marks[max(0, len(passed) - 1) :])

    def truncate(self, end_offset: int) -> bool:
        """The log will end here. True if that changed anything, which then has to be saved before the log is cut: what
        will be written from here on is not clean."""
        self.truncations += 1
        if max(self.first_dirty_offset, self.holes_end) <= end_offset:
            return False
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self.holes_end = min(self.holes_end, end_offset)
        beyond = [mark for mark in self.marks if mark.offset > end_offset]
        self.marks = tuple(mark for mark in self.marks if mark.offset <= end_offset)
        if beyond and (not self.marks or self.marks[-1].offset < end_offset):
            self.marks += (Mark(end_offset, beyond[0].cleaned_ms),)
        return True

    def clear(self) -> None:
        """The log has no records any more; to be saved."""
        self.truncations += 1
        self.first_dirty_offset, self.holes_end, self.first_tombstone, self.marks = 0, 0, -1, ()

    def expect_end(self, end_offset: int) -> None:
        """When a log is opened: a state that goes beyond its end is of no use."""
        if self.first_dirty_offset > end_offset:
            self.first_dirty_offset, self.first_tombstone, self.marks = 0, -1, ()

    def save(self) -> None:
        """Durable when it returns. Two saves at once come one after the other, and the later has the later state."""
        with self._saving:
            payload = self._payload()
            if payload != self._saved and not self._is_closed:
                write_checkpoint(self._files, self._path, _KIND, _VERSION, payload)
                self._saved = payload

    def close(self) -> None:
        """From now on the path may be another log's."""
        with self._saving:
            self._is_closed = True

    def _payload(self) -> bytes:
        marks = b"".join(_MARK.pack(*mark) for mark in self.marks)
        return _HEAD.pack(self.first_dirty_offset, self.holes_end, self.first_tombstone, len(self.marks)) + marks

    def _load(self) -> None:
        try:
            payload = read_checkpoint(self._files, self._path, _KIND, _VERSION)
        except CorruptCheckpointError:
            # Without it a round is done again.
            return
        if payload is not None:
            self.first_dirty_offset, self.holes_end, self.first_tombstone, count = _HEAD.unpack_from(payload)
            self.marks = tuple(Mark(*_MARK.unpack_from(payload, _HEAD.size + n * _MARK.size)) for n in range(count))


def _merged(marks: list[Mark]) -> tuple[Mark, ...]:
    """Not too many. What a removed mark said is covered by the mark after it, of a later time."""
    while len(marks) > MAX_MARKS:
        gaps = [later.cleaned_ms - earlier.cleaned_ms for earlier, later in pairwise(marks)]
        del marks[gaps.index(min(gaps))]
    return tuple(marks)
