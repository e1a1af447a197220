"""A log in memory with its ends: what is written, what counts as flushed, and what a loss of power leaves."""

from random import Random
from typing import Final

from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.leader_epochs import LeaderEpochs

Entry = tuple[int, int]
"""The leader epoch of a record, and its value."""

_FILES: Final = MemoryFiles()


class DiskLog:
    """Offsets from `base` on are in `entries`; those before `start_offset` are deleted.

    `synced` is how far the disk has it. With `is_unsynced` that does not count, but what is written: the end of a
    process leaves it, and only a loss of power does not."""

    __slots__ = (
        "base",
        "end_offset",
        "entries",
        "epochs",
        "foreign",
        "is_unsynced",
        "saved_high_watermark",
        "start_offset",
        "synced",
    )

    def __init__(self, start: int = 0, *, is_unsynced: bool = False) -> None:
        self.base = self.start_offset = self.end_offset = self.synced = self.saved_high_watermark = start
        self.is_unsynced = is_unsynced
        self.entries: list[Entry] = []
        self.epochs = LeaderEpochs(_FILES, "leader-epochs")
        self.foreign = -1
        """The first record that its broker appended when it was the leader no longer; -1 for none."""

    @property
    def flushed(self) -> int:
        """Up to where records count as flushed."""
        return self.end_offset if self.is_unsynced else self.synced

    @property
    def last_record_epoch(self) -> int:
        """Of an empty log -1."""
        return self.entries[-1][0] if self.end_offset > self.start_offset else -1

    def append(self, entries: list[Entry]) -> None:
        end, epochs = self.end_offset, self.epochs
        for epoch, _ in entries:
            if epoch > epochs.latest:
                epochs.begin(epoch, end)
            end += 1
        self.end_offset = end
        self.entries += entries

    def slice(self, first: int, last: int) -> list[Entry]:
        return self.entries[first - self.base : last - self.base]

    def truncate(self, end: int) -> None:
        """The cut is durable when this returns."""
        del self.entries[end - self.base :]
        self.end_offset = end
        self.synced = min(self.synced, end)
        self.epochs.truncate(end)
        if self.foreign >= end:
            self.foreign = -1

    def start_at(self, offset: int) -> None:
        self.__init__(offset, is_unsynced=self.is_unsynced)  # type: ignore[misc] # it is another log from now on

    def delete_before(self, offset: int) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.advance_start(offset)
            self.synced = max(self.synced, offset)

    def crash(self, random: Random, *, with_its_machine: bool = False) -> int:
        """What was not flushed is gone, or a part of it. Returns how many records are gone."""
        kept = self.synced if with_its_machine else self.flushed
        lost = self.end_offset - random.randint(kept, self.end_offset)
        if lost:
            del self.entries[-lost:]
        end = self.end_offset = self.end_offset - lost
        if with_its_machine or not self.is_unsynced:
            self.synced = end
        if self.foreign >= end:
            self.foreign = -1
        if random.random() < 0.5:
            # An election at the end may not have been saved.
            self.epochs.truncate(end)
        found: list[tuple[int, int]] = []
        for offset, (epoch, _) in enumerate(self.slice(self.start_offset, end), self.start_offset):
            if not found or found[-1][0] != epoch:
                found.append((epoch, offset))
        self.epochs.recover(found, scanned_from=self.start_offset, end_offset=end)
        return lost
