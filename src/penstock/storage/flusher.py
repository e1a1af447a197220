"""The flusher commits in groups: one flush makes durable what all logs of a data folder have written until it begins.

A round has three steps, so that an event loop can leave the middle one to a thread:

    round = flusher.begin()        # what to sync, as things stand
    round.sync()                   # only this waits for the disk
    flusher.end(round)             # the logs learn how far they are flushed
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

from penstock.storage.files import Files, lacks_descriptors, lacks_space, sync_file
from penstock.storage.files.sync_threads import SIDE_BY_SIDE, SyncThreads
from penstock.storage.log.log import Log
from penstock.storage.log.unflushed import FlushWork
from penstock.storage.recovery_points import RecoveryPoints


@dataclass(slots=True, frozen=True, eq=False)
class FlushRound:
    work: list[tuple[Log, FlushWork]]
    _files: Files
    _root_fd: int
    _threads: SyncThreads

    def sync(self) -> float:
        """Make all of it durable. After an OSError nothing is known about any of it; hand the error to `end`. There is
        no second try: a sync that follows a failed one succeeds, without the bytes that were lost. Returns the CPU
        seconds that it took, of all threads."""
        began, beside = time.thread_time(), 0.0
        fds = [pin.fd for _, work in self.work for pin in work.pins]
        staged = self._stage_epochs()
        # Few files are synced side by side, and wait for nothing that other programs have written; more of them are
        # much cheaper to sync with the whole file system (docs/decisions/0018).
        is_many = len(fds) > SIDE_BY_SIDE or bool(staged)
        one_by_one = not is_many or not self._files.sync_filesystem(self._root_fd)
        if one_by_one and len(fds) == 1:
            self._files.sync(fds[0])
        elif one_by_one and fds:
            beside = self._threads.sync(fds)
        # A name counts only when the bytes that it names do, so names come second.
        if staged:
            self._name_epochs(staged, are_synced=not one_by_one)
        done: set[str] = set()
        for log, work in self.work:
            try:
                for path in work.unflushed.files if one_by_one else []:
                    sync_file(self._files, path)
                # Epochs are in the batches as well: until they are saved, the recovery point stays where the scan finds
                # them. Before a hole that is not saved the log does not count as flushed.
                if work.saves_epochs and log.is_open:
                    _if_there_is_room(log.epochs.save)
                if work.saves_holes and log.is_open:
                    _if_there_is_room(log.save_holes)
                for directory in work.unflushed.directories - done if one_by_one else ():
                    self._files.sync_directory(directory)
                    done.add(directory)
            except FileNotFoundError:
                # A log that was deleted meanwhile may cost the others nothing.
                if log.is_open:
                    raise
        return time.thread_time() - began + beside

    def _stage_epochs(self) -> list[Log]:
        """Where the leader epochs of many logs are to be saved, as after the election of many leaders, write them all
        before the sync that settles them. Returns those that are written."""
        saving = [log for log, work in self.work if work.saves_epochs and log.is_open]
        staged: list[Log] = []
        for log in saving if len(saving) > SIDE_BY_SIDE else []:
            try:
                log.epochs.stage()
            except FileNotFoundError:
                if log.is_open:
                    raise
            except OSError as error:
                if not lacks_space(error):
                    raise
            else:
                staged.append(log)
        return staged

    def _name_epochs(self, staged: list[Log], *, are_synced: bool) -> None:
        """Give those files their names, and sync all names at once: then they need no save of their own."""
        for log in staged:
            try:
                if are_synced:
                    log.epochs.name_staged()
                else:
                    log.epochs.unstage()
            except FileNotFoundError:
                if log.is_open:
                    raise
        if are_synced and self._files.sync_filesystem(self._root_fd):
            for log in staged:
                log.epochs.staged_is_durable()


def _if_there_is_room(save: Callable[[], None]) -> None:
    try:
        save()
    except OSError as error:
        if not lacks_space(error):
            raise


class Flusher:
    """Flushes the logs of one data folder, round by round."""

    def __init__(
        self,
        files: Files,
        root_fd: int,
        points: RecoveryPoints,
        *,
        name_of: Callable[[Log], str],
        failed: Callable[[OSError], None],
    ) -> None:
        self._files = files
        self._root_fd = root_fd
        self._points = points
        self._name_of = name_of
        self._failed = failed
        self._unflushed: dict[Log, None] = {}
        # Those that wait for their leader epochs to be saved, and for nothing else.
        self._unsaved: dict[Log, None] = {}
        # Those that had no room for what must be saved before they count as flushed: they join any later round, and
        # are no reason to begin one.
        self._without_room: dict[Log, None] = {}
        self._threads = SyncThreads(files)
        self._is_flushing = False
        self._points_moved = False
        self._rolled = False
        self._saved_at_ms = 0
        # Held where rounds begin and end, for a thread that cuts logs meanwhile.
        self.turn = Lock()

    @property
    def has_work(self) -> bool:
        return bool(self._unflushed or self._unsaved)

    @property
    def unflushed_logs(self) -> Iterable[Log]:
        return tuple(self._unflushed)

    def mark(self, log: Log) -> None:
        self._unflushed[log] = None

    def begin(self, *, saves: int | None = None) -> FlushRound:
        """A round saves the leader epochs of so many logs at most. Thousands may have been elected at once, each takes
        several syncs, and clients wait for the records of others: what is left is saved in later rounds."""
        assert not self._is_flushing, "one flush at a time"
        self._is_flushing = True
        with self.turn:
            return self._begin(saves)

    def _begin(self, saves: int | None) -> FlushRound:
        if self._without_room:
            self._unflushed |= self._without_room
            self._without_room = {}
        unflushed, self._unflushed = self._unflushed, {}
        left = len(unflushed) + len(self._unsaved) if saves is None else saves
        work: list[tuple[Log, FlushWork]] = []
        for log in unflushed:
            # A log that is being cut is marked again when that is over.
            if log.failure is None and log.is_open and not log.is_being_cut:
                part = log.begin_flush()
                if part.saves_epochs and not left:
                    part.saves_epochs = False
                    self._unsaved[log] = None
                left -= part.saves_epochs
                work.append((log, part))
        while left and self._unsaved:
            log = next(iter(self._unsaved))
            del self._unsaved[log]
            is_usable = log.failure is None and log.is_open and not log.is_being_cut
            if log not in unflushed and is_usable and not log.epochs.is_saved:
                work.append((log, log.begin_flush()))
                left -= 1
        return FlushRound(work, self._files, self._root_fd, self._threads)

    def end(self, round: FlushRound, error: OSError | None = None) -> None:
        """The round is over. With an error the folder goes offline: a failed sync may have dropped the very bytes, and
        a second one would succeed without them. Only where no file could be opened nothing has happened yet: then the
        round is to be made again."""
        self._is_flushing = False
        with self.turn:
            self._end(round, error)
        if error is not None and not lacks_descriptors(error):
            self._failed(error)

    def _end(self, round: FlushRound, error: OSError | None) -> None:
        if error is not None and lacks_descriptors(error):
            for log, work in round.work:
                log.put_off_flush(work)
            return
        for log, work in round.work:
            log.end_flush(work, error)
            if error is None and log.is_open and not log.is_being_cut:
                self._rolled |= work.unflushed.rolled
                if log.flushed_offset < work.end_offset:
                    self._without_room[log] = None
                if log.epochs.is_saved_up_to(log.flushed_offset):
                    self._points.set(self._name_of(log), log.flushed_offset)
                    self._points_moved = True

    def flush(self) -> None:
        """Do all three steps, for a caller that may wait."""
        round = self.begin()
        try:
            round.sync()
        except OSError as error:
            self.end(round, error)
            raise
        self.end(round)

    def recovery_points_are_due(self, now_ms: int) -> bool:
        """Whether `save_recovery_points` should be called: after a roll, and each second while anything is flushed."""
        return self._points_moved and (self._rolled or not 0 <= now_ms - self._saved_at_ms < 1000)

    def save_recovery_points(self, now_ms: int) -> None:
        """Durable when it returns; may run in a thread. Points that were not saved are due again after a second."""
        self._points_moved = self._rolled = False
        self._saved_at_ms = now_ms
        try:
            self._points.save()
        except BaseException:
            # On an idle broker no flush would make them due, and compaction waits for them.
            self._points_moved = True
            raise

    def close(self) -> None:
        self._threads.close()
