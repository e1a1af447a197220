"""Records which offsets are missing above the recovery point, so that recovery tells a hole from damage.

A follower of a compacted topic appends batches that the leader's compaction has left, with holes between them. Offsets
have no checksum: a hole that is not written down is a changed bit, or a batch that was never flushed.

Payload of the checkpoint `holes` (version 1), little-endian, for each hole in ascending order:

    +----------------------+----------------------------+-----
    | first missing offset | offset of the batch after  | ...
    | i64                  | i64                        |
    +----------------------+----------------------------+-----
"""

from struct import Struct
from threading import Lock
from typing import Final

from penstock.storage.files import Files
from penstock.storage.files.checkpoint import read_checkpoint, write_checkpoint

FILE_NAME: Final = "holes"
_KIND: Final = b"HOLE"
_VERSION: Final = 1
_HOLE: Final = Struct("<qq")


class Holes:
    """Changes are in memory until `save`, which may run in a thread, but for truncations. There is no file before the
    first hole. A hole may be saved before the batch after it is durable: what was appended stays true until it is
    truncated."""

    def __init__(self, files: Files, directory: str, *, exists: bool) -> None:
        self._files = files
        self._path = f"{directory}/{FILE_NAME}"
        payload = read_checkpoint(files, self._path, _KIND, _VERSION) if exists else None
        self._entries: list[tuple[int, int]] = list(_HOLE.iter_unpack(payload)) if payload else []
        self._saved = tuple(self._entries)
        # Counts the changes, to see whether there was one since a save began.
        self._version = self._saved_version = 0
        self._saving = Lock()
        self._is_closed = False

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(first missing offset, offset of the batch after it) of each."""
        return tuple(self._entries)

    @property
    def is_saved(self) -> bool:
        return self._saved_version == self._version

    def saved_up_to(self, offset: int) -> int:
        """Up to which offset, this one at most, no hole is known to memory alone."""
        if self.is_saved:
            return offset
        saved_end = self._saved[-1][1] if self._saved else -1
        return next((start for start, end in self._entries if end > saved_end and start < offset), offset)

    def add(self, start_offset: int, end_offset: int) -> None:
        """A batch was appended at `end_offset`, and the one before it ends at `start_offset`."""
        self._entries.append((start_offset, end_offset))
        self._version += 1

    def prune(self, recovery_point: int) -> None:
        """Leave out of the next save what lies below a recovery point that is durable: there any hole is accepted."""
        if self._entries and self._entries[0][1] < recovery_point:
            self._entries = [hole for hole in self._entries if hole[1] >= recovery_point]

    def truncate(self, end_offset: int) -> None:
        """The log will end here, or does already. Durable when it returns: a hole that is out of date would let the
        loss of what is appended in its place pass for compaction."""
        if any(end > end_offset for _, end in (*self._entries, *self._saved)):
            self._entries = [hole for hole in self._entries if hole[1] <= end_offset]
            self._version += 1
            self.save()

    def restore(self, start_offset: int, end_offset: int) -> None:
        """The last batch of the log comes after this hole, which may have been pruned. Durable when it returns."""
        hole = (start_offset, end_offset)
        if hole not in self._saved or hole not in self._entries:
            self._entries = [*(other for other in self._entries if other[1] < end_offset), hole]
            self._version += 1
            self.save()

    def save(self) -> None:
        """Durable when it returns. Two saves at once come one after the other, and the later has the later holes."""
        with self._saving:
            # The number is read first: a hole that is added in between is saved, and once more by the next save.
            version, entries = self._version, tuple(self._entries)
            if version != self._saved_version and not self._is_closed:
                payload = b"".join(_HOLE.pack(*hole) for hole in entries)
                write_checkpoint(self._files, self._path, _KIND, _VERSION, payload)
                self._saved, self._saved_version = entries, version

    def close(self) -> None:
        """From now on the path may be another log's."""
        with self._saving:
            self._is_closed = True
