"""A swap puts a cleaned segment in the place of its sources: the file is `.cleaned`, then `.swap`, then `.log`.

    swap = log.begin_swap(cleaned)    # None: the sources are not the log's any more, end the round
    swap.perform()                    # in a thread: waits for the disk
    log.end_swap(swap)                # readers see the new segment

Once the name `<base offset>-<end offset>.swap` is durable, every segment in that range is superfluous: the next process
that opens the log removes them, and finishes what was begun. Until then nothing has happened.
"""

import os.path
import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from threading import Lock
from typing import Final

from penstock.storage.files import Files, lacks_space
from penstock.storage.log.cleaned import CLEANED_FILE, CleanedSegment
from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.log.segment import DELETED_FILE, LOG_FILE, Segment

SWAP_FILE: Final = ".swap"
_SWAP_NAME: Final = re.compile(r"(\d{20})-(\d{20})" + re.escape(SWAP_FILE))
_LOG_NAME: Final = re.compile(r"(\d{20})" + re.escape(LOG_FILE))


class Stage(Enum):
    BEGUN = auto()
    """Nothing has happened."""
    CANCELLED = auto()
    """Nothing will happen."""
    COMMITTING = auto()
    """The new segment may count, and the old ones are on their way out."""
    PERFORMED = auto()
    """Only the first of the old segments still has its name."""


class Swap:
    """One swap under way. Until it is over the sources are held: readers go on with the files that they were."""

    def __init__(
        self, files: Files, cleaned: CleanedSegment, sources: Sequence[Segment], *, prepare: Callable[[], None]
    ) -> None:
        """`prepare` makes durable whatever has to be before a record goes."""
        self.sources = sources
        self.cleaned = cleaned
        self.stage = Stage.BEGUN
        self.error: OSError | None = None
        self.sync_failed = False
        self._files = files
        self._prepare = prepare
        self._stem = sources[0].stem
        self._directory = os.path.dirname(self._stem)
        self._swap_path = f"{self._stem}-{cleaned.end_offset:020}{SWAP_FILE}"
        self._working = Lock()
        self._held: list[Segment] = []
        try:
            for segment in sources:
                self._held.append(segment.hold())
        except BaseException:
            self.release()
            raise

    def perform(self) -> None:
        """The part that waits for the disk. `Log.end_swap` reports what goes wrong."""
        with self._working:
            if self.stage is Stage.BEGUN:
                try:
                    self._perform()
                except OSError as error:
                    self.error = error

    def cancel(self) -> None:
        """Wait for `perform` if it is under way; if it has not begun, it never will."""
        with self._working:
            if self.stage is Stage.BEGUN:
                self.stage = Stage.CANCELLED

    def _perform(self) -> None:
        try:
            self._prepare()
        except OSError as error:
            # A disk that cannot keep this may have lost other things that it had taken, unless it is full.
            self.sync_failed = not lacks_space(error)
            raise
        self._files.rename(self._stem + CLEANED_FILE, self._swap_path)
        self.stage = Stage.COMMITTING
        self._sync_directory()
        others = self.sources[1:]
        for segment in others:
            self._files.rename(segment.path, segment.stem + DELETED_FILE)
        if others:
            # Before the new segment gets its name: without the `.swap` name nothing would show that these are old.
            self._sync_directory()
        self.stage = Stage.PERFORMED

    def _sync_directory(self) -> None:
        try:
            self._files.sync_directory(self._directory)
        except OSError:
            self.sync_failed = True
            raise

    def take_names(self) -> None:
        """Give the new segment and its index the names of the first source, whose file is then a deleted one."""
        files = self._files
        self.sources[0].remove_index_files()
        files.rename(self._stem + LOG_FILE, self._stem + DELETED_FILE)
        files.rename(self._swap_path, self._stem + LOG_FILE)
        for kind in (OFFSET_INDEX, TIME_INDEX):
            if files.stat(cleaned := self._stem + CLEANED_FILE + kind) is not None:
                files.rename(cleaned, self._stem + kind)

    def release(self) -> None:
        """The sources are not needed any more."""
        while self._held:
            self._held.pop().release()


def remove_cleaned(files: Files, directory: str, names: Sequence[str]) -> None:
    """What a round has left that will not be swapped in."""
    for name in names:
        if CLEANED_FILE in name:
            files.unlink(f"{directory}/{name}")


def finish_swaps(files: Files, directory: str, names: list[str]) -> list[str]:
    """When a log is opened: bring every swap that counts to its end, and remove what does not count. Durable, and it
    may be cut short at any point. Returns the names that there are now."""
    swaps = [match for name in names if (match := _SWAP_NAME.fullmatch(name))]
    cleaned = [name for name in names if CLEANED_FILE in name]
    if not swaps and not cleaned:
        return names
    remove_cleaned(files, directory, cleaned)
    logs = [match for name in names if (match := _LOG_NAME.fullmatch(name))]
    for swap in swaps:
        for log in logs:
            if swap[1] <= log[1] < swap[2]:
                # The indexes first: one without its log is nothing, but one with another log is wrong.
                for kind in (OFFSET_INDEX, TIME_INDEX, LOG_FILE):
                    if files.stat(path := f"{directory}/{log[1]}{kind}") is not None:
                        files.unlink(path)
    if swaps:
        # A process may have died between giving a file this name and making that durable.
        files.sync_directory(directory)
    for swap in swaps:
        files.rename(f"{directory}/{swap[0]}", f"{directory}/{swap[1]}{LOG_FILE}")
    files.sync_directory(directory)
    return files.list(directory)
