"""Group commit: one flush makes durable what all logs of a data folder have written until it begins.

A round has three steps, so that an event loop can leave the middle one to a thread:

    round = flusher.begin()        # what to sync, as things stand
    round.sync()                   # only this waits for the disk
    flusher.end(round)             # the logs learn how far they are flushed
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.storage.files import Files, lacks_descriptors, lacks_space, sync_file
from penstock.storage.log import Log
from penstock.storage.recovery_points import RecoveryPoints
from penstock.storage.unflushed import FlushWork

# Up to this many files are synced side by side; more are cheaper to sync with the whole file system (measured).
SIDE_BY_SIDE = 8


@dataclass(slots=True, frozen=True, eq=False)
class FlushRound:
    work: list[tuple[Log, FlushWork]]
    _files: Files
    _root_fd: int
    _run_all: Callable[[Iterable[Callable[[], None]]], None]

    def sync(self) -> None:
        """Make all of it durable. After an OSError nothing is known about any of it; hand the error to `end`. There is
        no second try: a sync that follows a failed one succeeds, without the bytes that were lost."""
        fds = [pin.fd for _, work in self.work for pin in work.pins]
        one_by_one = len(fds) <= SIDE_BY_SIDE or not self._files.sync_filesystem(self._root_fd)
        if one_by_one:
            self._run_all([_sync(self._files, fd) for fd in fds])
        # A name counts only when the bytes behind it do, so names come second.
        done: set[str] = set()
        for log, work in self.work:
            try:
                for path in work.dirt.files if one_by_one else []:
                    sync_file(self._files, path)
                if work.saves_epochs and log.is_open:
                    _save_if_there_is_room(log)
                for directory in work.dirt.directories - done:
                    self._files.sync_directory(directory)
                    done.add(directory)
            except FileNotFoundError:
                # A log that was deleted meanwhile may cost the others nothing.
                if log.is_open:
                    raise


def _save_if_there_is_room(log: Log) -> None:
    """Epochs are in the batches as well: until they are saved, the recovery point stays where the scan finds them."""
    try:
        log.epochs.save()
    except OSError as error:
        if not lacks_space(error):
            raise


def _sync(files: Files, fd: int) -> Callable[[], None]:
    return lambda: files.sync(fd)


class Flusher:
    """One for a data folder."""

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
        self._dirty: dict[Log, None] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._is_flushing = False
        self._points_moved = False
        self._rolled = False
        self._saved_at_ms = 0

    @property
    def has_work(self) -> bool:
        return bool(self._dirty)

    @property
    def dirty_logs(self) -> Iterable[Log]:
        return self._dirty

    def mark(self, log: Log) -> None:
        self._dirty[log] = None

    def begin(self) -> FlushRound:
        assert not self._is_flushing, "one flush at a time"
        self._is_flushing = True
        dirty, self._dirty = self._dirty, {}
        work = [(log, log.begin_flush()) for log in dirty if log.failure is None and log.is_open]
        return FlushRound(work, self._files, self._root_fd, self._run_all)

    def end(self, round: FlushRound, error: OSError | None = None) -> None:
        """The round is over. With an error the folder goes offline: a failed sync may have dropped the very bytes, and
        a second one would succeed without them. Only where no file could be opened nothing has happened yet: then the
        round is to be made again."""
        self._is_flushing = False
        if error is not None and lacks_descriptors(error):
            for log, work in round.work:
                log.put_off_flush(work)
            return
        for log, work in round.work:
            log.end_flush(work, error)
            if error is None and log.is_open:
                self._rolled |= work.dirt.rolled
                if log.epochs.is_saved_up_to(log.flushed_offset):
                    self._points.set(self._name_of(log), log.flushed_offset)
                    self._points_moved = True
        if error is not None:
            self._failed(error)

    def flush(self) -> None:
        """All three steps at once, for whoever may wait."""
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
        """Durable when it returns; may run in a thread."""
        self._points_moved = self._rolled = False
        self._saved_at_ms = now_ms
        self._points.save()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def _run_all(self, calls: Iterable[Callable[[], None]]) -> None:
        """Side by side where there are several."""
        calls = list(calls)
        if len(calls) < 2:
            for call in calls:
                call()
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SIDE_BY_SIDE, "penstock-flush")
        # All have to be done before anybody looks at the first error: a sync still running holds its descriptor.
        done = [self._threads.submit(call) for call in calls]
        errors = [future.exception() for future in done]
        for error in errors:
            if error is not None:
                raise error
