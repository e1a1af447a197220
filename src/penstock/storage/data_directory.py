"""A data folder holds the logs of a broker and one flusher for all of them, and belongs to one process at a time.

    <folder>/
        lock                            held while a process uses the folder
        folder                          checkpoint: format version, ids of the folder and of the cluster
        recovery-points                 checkpoint: how far each log is flushed
        high-watermarks                 checkpoint: up to where each log was on all in-sync replicas; a hint
        clean-shutdown                  checkpoint: where each log ended, if the last stop was clean
        boot                            checkpoint: the run of the machine in which no unflushed record was gone
        <topic>-<partition>/
            <base offset>.log           a segment: record batches as received
            <base offset>.index         its offsets, sparse
            <base offset>.timeindex     its timestamps, sparse
            <base offset>.deleted       was a segment, and is about to go
            <base offset>.cleaned       will be a segment, once compaction has written it; perhaps with its index files
            <base offset>-<end>.swap    is a segment, and takes the place of all in its range, which are about to go
            <offset>.snapshot           checkpoint: what the rules knew about producers
            identity                    checkpoint: whose log this is, in bytes of the owner's
            leader-epochs               checkpoint: which epoch began where
            log-start                   checkpoint: the first offset, once history was truncated
            compaction                  checkpoint: how far the log is compacted, once it was
            holes                       checkpoint: which offsets a follower misses above the recovery point
            restart                     checkpoint: the log is empty at this offset, and all else here is to go

Payloads, little-endian. `folder` (version 2): 32 hexadecimal digits that no other folder has, then the cluster id in
UTF-8; version 1 has the cluster id alone, and becomes version 2 when the folder is opened.
`clean-shutdown` (version 1): i64 broker epoch, then names and end offsets as in `recovery-points`.
`boot` (version 1): what the operating system calls this run of the machine, in UTF-8.
"""

import os.path
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from threading import get_ident

from penstock.storage.errors import DirectoryRefusedError, LogOfflineError, StorageError, SyncFailedError
from penstock.storage.files import Files, lacks_space
from penstock.storage.files.checkpoint import (
    TEMPORARY,
    read_any_version,
    read_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from penstock.storage.files.descriptors import Descriptors, default_limit
from penstock.storage.flusher import Flusher
from penstock.storage.high_watermarks import HighWatermarks
from penstock.storage.log.folder import read_identity
from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.log.index_cache import IndexCache
from penstock.storage.log.log import Cut, Log, LogConfig
from penstock.storage.log.recovery import RecoveryReport, open_log
from penstock.storage.log.segment import LOG_FILE, SegmentContext
from penstock.storage.recovery_points import RecoveryPoints, pack_offsets, unpack_offsets

FORMAT = 2
LOCK_FILE = "lock"
FOLDER_FILE = "folder"
CLEAN_SHUTDOWN_FILE = "clean-shutdown"
BOOT_FILE = "boot"
_FOLDER_KIND = b"FOLD"
_CLEAN_KIND = b"CLEN"
_CLEAN_VERSION = 1
_BOOT_KIND = b"BOOT"
_BOOT_VERSION = 1
_FOLDER_ID_LENGTH = 32
_EPOCH = Struct("<q")
# Below this much free space a deletion begins with the files that are large.
ROOM_TO_DELETE = 64 * 1024
_PARTITION_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")


class DataDirectory:
    """Open from construction to `close`; only a close after everything was flushed leaves the clean marker.

    A new folder gets `folder_id`, 32 characters that no other folder has; random ones if none are given.

    `unlink_later` takes calls that unlink files no longer needed, and makes them when it likes, in a thread perhaps: a
    large file takes its time. Without it they are made at once."""

    def __init__(
        self,
        path: str,
        files: Files,
        *,
        cluster_id: str | None = None,
        folder_id: str | None = None,
        descriptors: int | None = None,
        unlink_later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.path = path
        self.failure: OSError | None = None
        self._files = files
        self._unlink_later = unlink_later
        self._cutting_thread: int | None = None
        self._take(cluster_id, folder_id or secrets.token_hex(_FOLDER_ID_LENGTH // 2))
        try:
            self._points = RecoveryPoints(files, path)
            self.high_watermarks = HighWatermarks(files, path)
            self.last_broker_epoch, self._clean_ends = self._read_clean_marker()
            is_of_this_boot = self._is_of_this_boot()
            self.may_lack_unflushed = not (self.was_clean or is_of_this_boot)
            # The marker of the last stop may not outlive it: from now on the folder is in use.
            remove_checkpoint(files, f"{path}/{CLEAN_SHUTDOWN_FILE}")
            self._finish_deleting()
        except BaseException:
            files.close(self._lock)
            raise
        self._descriptors = Descriptors(files, limit=default_limit() if descriptors is None else descriptors)
        self._indexes = IndexCache()
        self._logs: dict[str, Log] = {}
        self.reports: dict[str, RecoveryReport] = {}
        self.flusher = Flusher(files, self._lock, self._points, name_of=self.name_of, failed=self.sync_failed)

    @property
    def was_clean(self) -> bool:
        """Whether the last process that used the folder stopped in order."""
        return self.last_broker_epoch is not None

    def note_boot(self) -> None:
        """From now on the logs lack nothing that was written in this run of the machine: the owner has made known what
        they lack, if they `may_lack_unflushed` records that another process had written. Durable when it returns."""
        self.may_lack_unflushed = False
        if self._is_of_this_boot():
            return
        try:
            payload = self._files.boot_id().encode()
            write_checkpoint(self._files, f"{self.path}/{BOOT_FILE}", _BOOT_KIND, _BOOT_VERSION, payload)
        except OSError as error:
            # Without a note the next start believes that records may be gone.
            if not lacks_space(error):
                raise

    def partitions(self) -> list[tuple[str, int]]:
        """Topic and number of every partition that has a folder here."""
        matches = [_PARTITION_NAME.fullmatch(name) for name in self._files.list(self.path)]
        return [(match[1], int(match[2])) for match in matches if match]

    def has_unopened(self, topic: str, partition: int) -> bool:
        """Whether a folder of the partition lies here that this process has not opened."""
        name = f"{topic}-{partition}"
        return name not in self._logs and self._files.stat(f"{self.path}/{name}") is not None

    def log(self, topic: str, partition: int, config: LogConfig | None = None, *, identity: bytes = b"") -> Log:
        """The log of a partition, opened and if need be recovered the first time. A new one has no files yet. With an
        identity, what lies here under the same name but belongs to another is set aside, not opened and not deleted."""
        name = f"{topic}-{partition}"
        if name not in self._logs:
            self._check_online()
            match = _PARTITION_NAME.fullmatch(name)
            if match is None or match.groups() != (topic, str(partition)) or topic in (".", ".."):
                raise ValueError(f"{name!r} cannot be a folder: a topic has 1 to 249 letters, digits, '.', '_' and '-'")
            path = f"{self.path}/{name}"
            is_there = self._files.stat(path) is not None
            was_flushed = self._points.get(name) > 0
            if identity and is_there and read_identity(self._files, path, was_flushed=was_flushed) != identity:
                self._set_aside(name, "stray")
            config = config or LogConfig()
            context = SegmentContext(self._files, self._descriptors, self._indexes, config.index_interval_bytes)
            try:
                self._logs[name], self.reports[name] = open_log(
                    path,
                    context,
                    config,
                    recovery_point=self._points.get(name),
                    clean_end=self._clean_ends.get(name),
                    identity=identity,
                    owner=self,
                )
            except SyncFailedError as error:
                self.sync_failed(error)
                raise
            self._clean_ends.pop(name, None)
            if self._points.get(name) < self._logs[name].end_offset:
                # Recovery has made the log durable, and the next flush records that: compaction goes by the recorded
                # point.
                self.flusher.mark(self._logs[name])
        return self._logs[name]

    def delete(self, topic: str, partition: int) -> None:
        """Delete a partition's log for good. It is gone under its name at once, whatever happens then."""
        self._check_online()
        name = f"{topic}-{partition}"
        if name in self._logs:
            self._logs.pop(name).let_go()
            self.reports.pop(name, None)
        if self._files.stat(f"{self.path}/{name}") is not None:
            if self._files.free_bytes(self.path) < ROOM_TO_DELETE:
                # On a disk that is full to the last byte, even deleting takes a few.
                _remove_segments(self._files, f"{self.path}/{name}")
            aside = self._set_aside(name, "delete")
            self._unlink(lambda: _remove_tree(self._files, aside))

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Take the log of a partition out of use, whether it could be opened or not: its folder is renamed, durably,
        and kept until an operator removes it. The next `log` of this partition is new and empty. Returns where the
        folder is now, None if there was none."""
        self._check_online()
        name = f"{topic}-{partition}"
        if name in self._logs:
            self._logs.pop(name).let_go()
        self.reports.pop(name, None)
        if self._files.stat(f"{self.path}/{name}") is None:
            # A log of which all is lost is corrupt as well, as long as it counts as flushed.
            self._forget(name)
            return None
        return self._set_aside(name, "stray")

    def close(self, *, broker_epoch: int = 0) -> bool:
        """Flush everything, and leave the marker that lets the next start trust it; False if the disk has failed or has
        no room for a marker. What failed is not marked clean, and the folder is free for others in any case."""
        try:
            return self.failure is None and self._close_in_order(broker_epoch)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the folder as it is, as the end of a process does."""
        self.flusher.close()
        for log in self._logs.values():
            log.let_go()
        self._descriptors.close_all()
        self._files.close(self._lock)

    def _close_in_order(self, broker_epoch: int) -> bool:
        for log in self._logs.values():
            if log.is_unflushed and log.failure is None:
                # Also what there was no room for until now.
                self.flusher.mark(log)
        if self.flusher.has_work:
            self.flusher.flush()
        ends = dict(self._clean_ends)
        for name, log in self._logs.items():
            log.close()
            if log.failure is None and not log.is_unflushed:
                ends[name] = log.end_offset
                self._points.set(name, log.end_offset)
        payload = _EPOCH.pack(broker_epoch) + pack_offsets(ends)
        try:
            self._points.save()
            write_checkpoint(self._files, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", _CLEAN_KIND, _CLEAN_VERSION, payload)
        except OSError as error:
            if not lacks_space(error):
                raise
            return False
        return True

    def truncate_many(self, cuts: Sequence[tuple[Log, int]]) -> dict[Log, Exception]:
        """Truncate logs as `Log.truncate` does, each to its offset, with one lowering of recovery points for all.
        Returns the error of each that could not be; the others are cut. May run in a thread, one at a time, while
        nothing else is done with these logs and no range of theirs is being read; flushes go on meanwhile."""
        assert self._cutting_thread is None, "one at a time"
        assert len({log for log, _ in cuts}) == len(cuts), "each log once"
        self._cutting_thread = self._descriptors.guest = get_ident()
        errors: dict[Log, Exception] = {}
        begun: list[Log] = []
        try:
            with self.flusher.turn:
                for log, _ in cuts:
                    with _noted(errors, log):
                        log.begin_cuts()
                        begun.append(log)
            self._cut([(log, offset) for log, offset in cuts if log not in errors], errors)
        finally:
            with self.flusher.turn:
                for log in begun:
                    log.end_cuts()
                    self.flusher.mark(log)
            self._cutting_thread = self._descriptors.guest = None
        return errors

    def _cut(self, cuts: Sequence[tuple[Log, int]], errors: dict[Log, Exception]) -> None:
        planned: list[tuple[Log, Cut]] = []
        for log, offset in cuts:
            with _noted(errors, log):
                cut = log.plan_cut(offset)
                if cut is not None:
                    with log.offline_if_it_fails():
                        log.prepare_cut(cut)
                    planned.append((log, cut))
        try:
            self._lower([(log, cut.end_offset) for log, cut in planned])
        except OSError as error:
            for log, _ in planned:
                with _noted(errors, log), log.offline_if_it_fails():
                    raise error
            return
        for log, cut in planned:
            with _noted(errors, log), log.offline_if_it_fails():
                log.perform_cut(cut)

    # What logs ask of their data folder

    def became_unflushed(self, log: Log) -> None:
        if self._cutting_thread is None or self._cutting_thread != get_ident():
            self.flusher.mark(log)

    def lower_recovery_point(self, log: Log, offset: int) -> None:
        self._lower([(log, offset)])

    def _lower(self, ends: Sequence[tuple[Log, int]]) -> None:
        """Make durable what `lower_recovery_point` says, of several logs at once."""
        is_lower = are_hints_lower = False
        for log, offset in ends:
            name = self.name_of(log)
            if self._points.get(name) > offset:
                self._points.set(name, offset)
                is_lower = True
            are_hints_lower |= self.high_watermarks.lower(name, offset)
        if is_lower:
            self._points.save()
        if are_hints_lower:
            self.high_watermarks.save()

    def recovery_point(self, log: Log) -> int:
        return self._points.get_saved(self.name_of(log))

    def sync_failed(self, error: OSError) -> None:
        """All logs go offline, for good: what the disk has lost of one it may have lost of any, and does not report."""
        self.failure = self.failure or error
        for log in list(self._logs.values()):
            log.fail(error)

    def discard(self, path: str) -> None:
        self._unlink(lambda: self._files.unlink(path))

    def _unlink(self, call: Callable[[], None]) -> None:
        if self._cutting_thread == get_ident():
            # A thread has the time, and may not hand calls over.
            _unless_gone(call)
        elif self._unlink_later is None:
            call()
        else:
            self._unlink_later(lambda: _unless_gone(call))

    def _check_online(self) -> None:
        if self.failure is not None:
            raise LogOfflineError(f"{self.path} is offline after: {self.failure}; restart the broker to recover it")

    def name_of(self, log: Log) -> str:
        return log.name

    def _set_aside(self, name: str, suffix: str) -> str:
        """Rename a partition's folder so that the name is free; returns its new path."""
        self._forget(name)
        number = 0
        while self._files.stat(aside := f"{self.path}/{name}.{number}-{suffix}") is not None:
            number += 1
        self._files.rename(f"{self.path}/{name}", aside)
        self._files.sync_directory(self.path)
        return aside

    def _forget(self, name: str) -> None:
        """What is known about an old log may not be held against a new one of the same name."""
        self._points.remove(name)
        self._clean_ends.pop(name, None)
        self._points.save()
        if self.high_watermarks.lower(name, None):
            self.high_watermarks.save()

    def _finish_deleting(self) -> None:
        for name in self._files.list(self.path):
            if name.endswith("-delete"):
                _remove_tree(self._files, f"{self.path}/{name}")

    def _take(self, cluster_id: str | None, new_folder_id: str) -> None:
        """Take the folder for this process, or refuse it."""
        files, path = self._files, self.path
        _make_directories(files, path)
        names = set(files.list(path))
        try:
            self._lock = files.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise DirectoryRefusedError(
                f"{path} is in use by another process; stop it, or choose another data folder"
            ) from None
        try:
            found = read_folder(files, path)
            if found is None:
                self._refuse_strangers(names)
            elif cluster_id not in (None, found[1]):
                raise DirectoryRefusedError(
                    f"{path} belongs to cluster {found[1]!r}, not to {cluster_id!r}; choose another data folder"
                )
            self.folder_id, self.cluster_id = found or ("", cluster_id or "")
            if not self.folder_id:
                self.folder_id = new_folder_id
                payload = (self.folder_id + self.cluster_id).encode()
                write_checkpoint(files, f"{path}/{FOLDER_FILE}", _FOLDER_KIND, FORMAT, payload)
        except BaseException:
            files.close(self._lock)
            raise

    def _refuse_strangers(self, names: set[str]) -> None:
        if strangers := sorted(names - {LOCK_FILE, FOLDER_FILE + TEMPORARY}):
            raise DirectoryRefusedError(
                f"{self.path} is no data folder of Penstock and not empty (it has {strangers[0]}); choose an empty one"
            )
        # The process that made the folder may have died before its name was durable.
        self._files.sync_directory(os.path.dirname(self.path) or ".")

    def _is_of_this_boot(self) -> bool:
        """Whether the machine has run on since the last process of this folder noted that: what that process had
        written is there, flushed or not."""
        noted = read_checkpoint(self._files, f"{self.path}/{BOOT_FILE}", _BOOT_KIND, _BOOT_VERSION)
        return bool(noted) and noted == self._files.boot_id().encode()

    def _read_clean_marker(self) -> tuple[int | None, dict[str, int]]:
        payload = read_checkpoint(self._files, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", _CLEAN_KIND, _CLEAN_VERSION)
        if payload is None:
            return None, {}
        return _EPOCH.unpack_from(payload)[0], unpack_offsets(payload[_EPOCH.size :])


def read_folder(files: Files, path: str) -> tuple[str, str] | None:
    """The ids of a data folder and of its cluster; None if there is no data folder. One from before folders had ids has
    an empty one."""
    found = read_any_version(files, f"{path}/{FOLDER_FILE}", _FOLDER_KIND, FORMAT)
    if found is None:
        return None
    version, payload = found
    text = payload.decode()
    return ("", text) if version == 1 else (text[:_FOLDER_ID_LENGTH], text[_FOLDER_ID_LENGTH:])


def _make_directories(files: Files, path: str) -> None:
    if files.stat(path) is None:
        parent = os.path.dirname(path) or "."
        _make_directories(files, parent)
        files.make_directory(path)
        files.sync_directory(parent)


@contextmanager
def _noted(errors: dict[Log, Exception], log: Log) -> Iterator[None]:
    """An error of one log is no reason to stop with the others."""
    try:
        yield
    except (OSError, StorageError) as error:
        errors[log] = error


def _unless_gone(call: Callable[[], None]) -> None:
    """What is not there need not be unlinked. Whatever else fails: the next start finds it under a name that says that
    it is to go."""
    try:
        call()
    except OSError:
        pass


def _remove_segments(files: Files, path: str) -> None:
    for name in files.list(path):
        if name.endswith((LOG_FILE, OFFSET_INDEX, TIME_INDEX)):
            files.unlink(f"{path}/{name}")


def _remove_tree(files: Files, path: str) -> None:
    for name in files.list(path):
        files.unlink(f"{path}/{name}")
    files.remove_directory(path)
