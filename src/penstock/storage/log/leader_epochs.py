"""Records which leader epoch began at which offset, by which replicas find where their logs part (KIP-101).

Payload of the checkpoint `leader-epochs` (version 1): for each entry, i32 epoch and i64 start offset, little-endian.
"""

from bisect import bisect_right
from struct import Struct
from threading import Lock

from penstock.storage.errors import CorruptCheckpointError
from penstock.storage.files import Files
from penstock.storage.files.checkpoint import (
    TEMPORARY,
    read_checkpoint,
    write_checkpoint,
    write_first_checkpoint,
    write_unsynced,
)

FILE_NAME = "leader-epochs"
_KIND = b"EPOC"
_VERSION = 1
_ENTRY = Struct("<iq")


class LeaderEpochs:
    """Entries in ascending order of epoch and of offset. Changes are in memory until `save`."""

    def __init__(self, files: Files, path: str, *, was_flushed: bool = True) -> None:
        """What a crash kept from being written, which is only possible if nothing was flushed, counts as none."""
        self._files = files
        self.path = path
        try:
            payload = read_checkpoint(files, path, _KIND, _VERSION)
        except CorruptCheckpointError:
            if was_flushed:
                raise
            payload = None
        self._entries: tuple[tuple[int, int], ...] = tuple(_ENTRY.iter_unpack(payload)) if payload else ()
        self._saved = self._entries
        self._saving = Lock()
        self._is_closed = False
        # Entries that have a file of their own, which is to get the name; and whether it has that, not durably yet.
        self._staged: tuple[tuple[int, int], ...] | None = None
        self._is_in_doubt = False

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset) of each."""
        return self._entries

    @property
    def is_saved(self) -> bool:
        return self._saved == self._entries and not self._is_in_doubt

    def is_saved_up_to(self, offset: int) -> bool:
        """Whether the epochs of all records before an offset are durable."""
        if self._is_in_doubt:
            return False
        return self.is_saved or [entry for entry in self._saved if entry[1] < offset] == [
            entry for entry in self._entries if entry[1] < offset
        ]

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self._entries[-1][0] if self._entries else -1

    def at(self, offset: int) -> int | None:
        """The epoch in which an offset was written, if that is known."""
        count = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[count - 1][0] if count else None

    def begin(self, epoch: int, start_offset: int) -> None:
        """An epoch begins; one that has begun already changes nothing."""
        if epoch <= self.latest:
            return
        # An epoch without a record gives way to its successor at the same offset.
        kept = [entry for entry in self._entries if entry[1] < start_offset]
        self._entries = (*kept, (epoch, start_offset))

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch at or below this one, and the offset where it ends; (-1, -1) if all are newer."""
        count = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if count == 0:
            return -1, -1
        end = self._entries[count][1] if count < len(self._entries) else log_end
        return self._entries[count - 1][0], end

    def truncate(self, end_offset: int) -> None:
        """The log now ends here: epochs that began at or after it never had a record."""
        self._entries = tuple(entry for entry in self._entries if entry[1] < end_offset)

    def recover(self, found: list[tuple[int, int]], *, scanned_from: int, end_offset: int) -> None:
        """After a crash: from where the log was scanned on, its batches say which epochs there are. One epoch may begin
        at the end, without a record yet."""
        elected = [entry for entry in self._entries if entry[1] == end_offset]
        self._entries = tuple(entry for entry in self._entries if entry[1] < scanned_from)
        for epoch, start_offset in [*found, *elected]:
            self.begin(epoch, start_offset)

    def advance_start(self, start_offset: int) -> None:
        """The log now begins here: epochs that ended before are forgotten, the one in force moves up."""
        count = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if count:
            self._entries = ((self._entries[count - 1][0], start_offset), *self._entries[count:])

    def save(self) -> None:
        """Make the entries durable. The directory must exist. Two saves at once, of a flush in its thread and of an
        election, come one after the other, and the later has the later entries."""
        with self._saving:
            entries = self.entries
            self._staged = None
            if (entries != self._saved or self._is_in_doubt) and not self._is_closed:
                write_checkpoint(self._files, self.path, _KIND, _VERSION, _payload(entries))
                self._saved = entries
                self._is_in_doubt = False

    # A save in three steps, of many logs at once: their files are synced together, and then their names are. A save
    # that comes in between makes the steps that are left void.

    def stage(self) -> None:
        """Write the entries to a file beside that which counts; to be synced."""
        with self._saving:
            entries = self.entries
            if not self._is_closed:
                write_unsynced(self._files, self._staged_path, _KIND, _VERSION, _payload(entries))
                self._staged = entries

    def name_staged(self) -> None:
        """The file is durable: let it count. The name is to be synced."""
        with self._saving:
            if self._staged is not None and not self._is_closed:
                self._is_in_doubt = True
                self._files.rename(self._staged_path, self.path)

    def staged_is_durable(self) -> None:
        with self._saving:
            if self._staged is not None and self._is_in_doubt:
                self._saved, self._staged, self._is_in_doubt = self._staged, None, False

    def unstage(self) -> None:
        """The file could not be synced with the others: it is not needed."""
        with self._saving:
            if self._staged is not None and not self._is_closed:
                self._staged = None
                self._files.unlink(self._staged_path)

    @property
    def _staged_path(self) -> str:
        return f"{self.path}-staged{TEMPORARY}"

    def close(self) -> None:
        """From now on the path may be another log's."""
        with self._saving:
            self._is_closed = True

    def write_first(self) -> bool:
        """Write the entries to a directory that has none yet. False if there are none; otherwise the caller has the
        file and its name synced before it relies on them."""
        with self._saving:
            entries = self.entries
            if entries:
                write_first_checkpoint(self._files, self.path, _KIND, _VERSION, _payload(entries))
                self._saved = entries
        return bool(entries)


def _payload(entries: tuple[tuple[int, int], ...]) -> bytes:
    return b"".join(_ENTRY.pack(*entry) for entry in entries)
