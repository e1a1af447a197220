"""The log of one partition: segments one behind the other, of which the last, the active one, grows.

One thread of control owns a log. What it does not do by itself is make bytes durable: a `Flusher` does that for all
logs of a data folder together, and tells each how far it got.
"""

import os.path
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from struct import Struct
from typing import Final, Protocol

from penstock.protocol.batch import BEFORE_MAGIC, BatchHeader
from penstock.storage.checkpoint import read_checkpoint, write_checkpoint, write_first_checkpoint
from penstock.storage.descriptors import Pinned
from penstock.storage.errors import (
    CorruptCheckpointError,
    CorruptLogError,
    LogOfflineError,
    OffsetOutOfRangeError,
)
from penstock.storage.file_range import FileRange
from penstock.storage.files import Files, sync_file
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producer_snapshots import ProducerSnapshots
from penstock.storage.retention import DAY_MS, SegmentFacts, expired
from penstock.storage.segment import CutBackError, Segment, SegmentContext

LOG_START_FILE: Final = "log-start"
_LOG_START_KIND: Final = b"STRT"
_LOG_START_VERSION: Final = 1
_LOG_START: Final = Struct("<q")
IDENTITY_FILE: Final = "identity"
_IDENTITY_KIND: Final = b"IDEN"
_IDENTITY_VERSION: Final = 1
# An index entry has 31 bits for an offset and 32 for a position.
MAX_OFFSETS_IN_SEGMENT: Final = 0x7FFF_FFFF
MAX_SEGMENT_BYTES: Final = 0x7FFF_FFFF


@dataclass(slots=True, frozen=True)
class LogConfig:
    """What may be set for a log; the defaults are Kafka's. A negative retention keeps everything."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    index_interval_bytes: int = 4096

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(f"segment_bytes must be from 1 to {MAX_SEGMENT_BYTES}, not {self.segment_bytes}")


class LogOwner(Protocol):
    """What a log asks of the data folder it lies in."""

    def became_dirty(self, log: "Log") -> None:
        """There is something to flush."""

    def lower_recovery_point(self, log: "Log", offset: int) -> None:
        """Make durable that nothing from this offset on is known to be flushed."""


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

    def take_back(self, other: "Dirt", segments: list[Segment]) -> None:
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


class Log:
    """Made by `recovery.open_log`. Offsets: `start_offset` is the first that may be read, `end_offset` the next to be
    written, `flushed_offset` the end of what a crash leaves untouched."""

    def __init__(
        self,
        directory: str,
        context: SegmentContext,
        config: LogConfig,
        *,
        start_offset: int,
        segments: list[Segment],
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
        identity: bytes,
        owner: LogOwner,
    ) -> None:
        assert segments, "a log has an active segment, though not always a file of it"
        self.directory = directory
        self.config = config
        self.start_offset = start_offset
        self.epochs = epochs
        self._snapshots = snapshots
        self._context = context
        self._files = context.files
        self._segments = segments
        self._identity = identity
        self._owner = owner
        # An empty one may be what a killed process left: its name is not durable.
        self._has_directory = any(segment.exists for segment in segments) or _has_files(self._files, directory)
        self._name_is_durable = self._has_directory
        self.flushed_offset = self.end_offset
        self._dirt = Dirt()
        self._is_start_in_doubt = False
        self._failure: BaseException | None = None
        self.is_open = True

    # State

    @property
    def end_offset(self) -> int:
        return self._segments[-1].end_offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp of all records, -1 if there is none."""
        return max(segment.max_timestamp for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def failure(self) -> BaseException | None:
        """Why the log is offline, if it is."""
        return self._failure

    # Appending

    def append(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: int, now_ms: int) -> int:
        """As the leader: give the batches the next offsets, stamping them in place, and write them with one call: all
        of them or none. The caller has checked them. Returns the first offset."""
        first = offset = self._segments[-1].end_offset
        placed, views, size = [], [], 0
        for header, view in batches:
            _stamp(view, 0, offset, header.batch_length, leader_epoch)
            placed.append((offset, header))
            views.append(view)
            size += len(view)
            offset += header.last_offset_delta + 1
        self._write(placed, views, size, offset, now_ms)
        if leader_epoch > self.epochs.latest and views:
            self.epochs.begin(leader_epoch, first)
        return first

    def append_replicated(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int) -> None:
        """As a follower: write batches with the offsets and epochs that the leader gave them, all of them or none."""
        expected = self.end_offset
        placed, views, size = [], [], 0
        for header, view in batches:
            if header.base_offset < expected:
                raise OffsetOutOfRangeError(header.base_offset, expected, expected)
            placed.append((header.base_offset, header))
            views.append(view)
            size += len(view)
            expected = header.next_offset
        self._write(placed, views, size, expected, now_ms)
        for header, _ in batches:
            self.epochs.begin(header.leader_epoch, header.base_offset)

    def begin_epoch(self, epoch: int) -> None:
        """A leader was elected: its epoch begins at the end of the log. The next flush makes that durable."""
        self._check_online()
        self.epochs.begin(epoch, self.end_offset)
        if self.is_dirty:
            self._owner.became_dirty(self)

    def roll_if_due(self, now_ms: int) -> bool:
        """Close an active segment that is old enough, for the sake of retention, though nobody appends."""
        active = self._segments[-1]
        due = active.size > 0 and now_ms - active.created_ms >= self.config.segment_ms
        if due:
            self._roll()
        return due

    def _write(
        self, placed: list[tuple[int, BatchHeader]], views: list[memoryview], size: int, end_offset: int, now_ms: int
    ) -> None:
        """Write batches, `size` bytes in all, which take the offsets beside their headers and those up to the end."""
        if self._failure is not None:
            raise self._offline()
        if not views:
            return
        active, config = self._segments[-1], self.config
        if active.size and (
            active.size + size > config.segment_bytes
            or end_offset - active.base_offset > MAX_OFFSETS_IN_SEGMENT
            or now_ms - active.created_ms >= config.segment_ms
        ):
            active = self._roll()
        if not active.exists:
            self._prepare_directory()
        try:
            active.append(placed, views, size, end_offset, now_ms)
        except CutBackError as error:
            self.fail(error)
            raise self._offline() from error
        except OSError:
            if active.is_open_for_writing:
                # It was cut back, which has to be durable too: a crash may not bring the torn batch back.
                self._became_dirty(active)
            raise
        # A segment that is dirty already has been told of.
        if not (dirty := self._dirt.segments) or dirty[-1] is not active:
            self._became_dirty(active)

    def _became_dirty(self, segment: Segment) -> None:
        self._dirt.add_segment(segment)
        self._owner.became_dirty(self)

    def _roll(self) -> Segment:
        active = self._segments[-1]
        active.close_index()
        self._segments.append(Segment(self._context, self.directory, active.end_offset))
        self._dirt.rolled = True
        return self._segments[-1]

    def _prepare_directory(self) -> None:
        """A new file's name, and its directory's own, need a sync before anything in it counts as flushed."""
        if not self._has_directory:
            if self._files.stat(self.directory) is None:
                self._files.make_directory(self.directory)
            self._dirt.directories.add(os.path.dirname(self.directory))
        self._dirt.directories.add(self.directory)
        # Even if nothing comes of the write: a file may be there, and the next process will rely on its name.
        self._owner.became_dirty(self)
        if not self._has_directory:
            if self._identity:
                path = f"{self.directory}/{IDENTITY_FILE}"
                write_first_checkpoint(self._files, path, _IDENTITY_KIND, _IDENTITY_VERSION, self._identity)
                self._dirt.files.append(path)
            if self.epochs.write_first():
                self._dirt.files.append(self.epochs.path)
            self._has_directory = True

    def _make_name_durable(self) -> None:
        """Before anything in the directory is relied on: a directory whose name is lost takes all with it."""
        if not self._name_is_durable:
            if self._identity:
                sync_file(self._files, f"{self.directory}/{IDENTITY_FILE}")
            self._files.sync_directory(os.path.dirname(self.directory))
            self._name_is_durable = True

    # Reading

    def read(
        self, offset: int, *, max_bytes: int, upper_bound: int | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """Whole batches from the one that holds `offset` on, their checksums checked if this process has not seen them
        yet; None if there are none below `upper_bound`. A first batch larger than `max_bytes` comes alone, or not at
        all unless `at_least_one`. A read stays within a segment. The caller releases the range."""
        found = self.locate(offset, max_bytes=max_bytes, upper_bound=upper_bound, at_least_one=at_least_one)
        if found is not None and not found.is_verified:
            try:
                found.verify()
            except BaseException:
                found.release()
                raise
        return found

    def locate(
        self, offset: int, *, max_bytes: int, upper_bound: int | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """Like `read`, but leaves it to the caller to have the range verified, in a thread perhaps."""
        end = self.end_offset
        if not self.start_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, self.start_offset, end)
        bound = end if upper_bound is None else min(upper_bound, end)
        if offset >= bound:
            return None
        segment = self._segments[self._segment_number(offset)]
        first = segment.find(offset)
        if first.header.next_offset > bound:
            # So says a header that nobody has checked yet: a changed bit may not pass for the end of what is there.
            segment.verify(first.position, first.position + first.header.size, self.epochs)
            return None
        if first.header.size > max_bytes and not at_least_one:
            return None
        stop = segment.end_within(first, max_bytes, bound)
        length = stop - first.position
        return FileRange(segment, segment.pin(), first.position, length, first.header.base_offset, self.epochs)

    def find_timestamp(self, timestamp: int, *, upper_bound: int | None = None) -> BatchHeader | None:
        """The header of the first batch with a record at or after a time; which record it is, the batch must tell."""
        bound = self.end_offset if upper_bound is None else upper_bound
        for segment in self._segments[self._segment_number(self.start_offset) :]:
            if segment.size and segment.max_timestamp >= timestamp:
                for batch in segment.batches_since(timestamp):
                    if batch.header.last_offset >= self.start_offset:
                        return batch.header if batch.header.next_offset <= bound else None
        return None

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of all batches from the one that holds `offset` on: what producer state is folded from."""
        offset = max(offset, self.start_offset)
        for segment in self._segments[self._segment_number(offset) :]:
            if max(offset, segment.base_offset) < (end := segment.end_offset):
                position = segment.find(max(offset, segment.base_offset)).position
                for batch in segment.checked(position, segment.size, self.epochs):
                    yield batch.header
                    offset = batch.header.next_offset
                if offset != end:
                    raise CorruptLogError(segment.path, f"it ends at offset {offset}, not at {end}")

    def _segment_number(self, offset: int) -> int:
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    # Producer state, which storage keeps without understanding it

    def save_snapshot(self, data: bytes, *, version: int) -> None:
        """What the rules know about producers at the end of the log. Durable when it returns."""
        self._check_online()
        if self._has_directory:
            self._make_name_durable()
            self._snapshots.save(self.end_offset, data, version=version)

    def latest_snapshot(self, *, version: int) -> tuple[int, bytes] | None:
        """The newest snapshot and its offset, from where on `headers` tell the rest; of a version up to this one."""
        return self._snapshots.latest(version=version)

    # Truncation, of the end and of the beginning

    def truncate(self, offset: int) -> None:
        """Cut the log before the batch that holds `offset`. Durable when it returns, whatever flush is under way."""
        self._check_online()
        if offset >= self.end_offset:
            return
        if offset < self.start_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        number = self._segment_number(offset)
        cut = self._segments[number].find(offset)
        end = max(cut.header.base_offset, self.start_offset)
        # Nothing of the segment stays if it begins with the batch, or if all that comes before is deleted anyway.
        whole = cut.position == 0 or cut.header.base_offset < self.start_offset
        try:
            self._make_name_durable()
            if self._is_start_in_doubt:
                self._write_start(self.start_offset)
            # Before anything is cut: the next recovery may not take for lost what lies below the recovery point.
            self._owner.lower_recovery_point(self, end)
            if whole:
                self._replace_segments(number, [Segment(self._context, self.directory, end)])
            else:
                self._replace_segments(number + 1, [])
                self._segments[-1].truncate(cut)
            if self._snapshots.truncate(end):
                self._files.sync_directory(self.directory)
            self.epochs.truncate(end)
            self.epochs.save()
        except (OSError, CorruptLogError) as error:
            self.fail(error)
            raise self._offline() from error
        self.flushed_offset = min(self.flushed_offset, end)
        self._dirt.truncations += 1
        self._owner.became_dirty(self)

    def advance_start(self, offset: int) -> None:
        """Delete what lies before `offset`: whole files go, the rest is out of reach. The start never goes back, and
        a start that was told survives a crash."""
        self._check_online()
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if offset <= self.start_offset:
            return
        self._make_name_durable()
        # The start is durable first: files may vanish in any order in a crash, and no hole may be taken for data.
        self._write_start(offset)
        self.start_offset = offset
        if offset == self.end_offset and self._segments[-1].exists:
            self._roll()
        for segment in [segment for segment in self._segments[:-1] if segment.end_offset <= offset]:
            self._segments.remove(segment)
            self._remove(segment)
        self.epochs.advance_start(offset)
        self._owner.became_dirty(self)

    def _write_start(self, offset: int) -> None:
        # After an error the file may tell either: a log that then ends below its start would lose all it has, and the
        # next process would rely on a name that is not durable.
        self._is_start_in_doubt = True
        self._dirt.directories.add(self.directory)
        self._owner.became_dirty(self)
        write_log_start(self._files, self.directory, offset)
        self._is_start_in_doubt = False

    def apply_retention(self, now_ms: int, *, upper_bound: int | None = None) -> int:
        """Delete the segments that the configuration no longer wants, as far as they lie below `upper_bound` and are
        flushed. Returns how many."""
        self._check_online()
        retention_ms = self.config.retention_ms
        if self._segments[-1].size and 0 <= retention_ms < now_ms - self._segments[-1].newest_ms:
            self._roll()
        limit = self.flushed_offset if upper_bound is None else min(self.flushed_offset, upper_bound)
        closed = [segment for segment in self._segments[:-1] if segment.end_offset <= limit]
        count = expired(
            [SegmentFacts(segment.size, segment.newest_ms) for segment in closed],
            total_bytes=self.size,
            retention_bytes=self.config.retention_bytes,
            retention_ms=retention_ms,
            now_ms=now_ms,
        )
        if count:
            self.advance_start(closed[count - 1].end_offset)
        return count

    def _replace_segments(self, number: int, successors: list[Segment]) -> None:
        """Remove the segments from a number on, the last first, durably."""
        dropped, self._segments[number:] = self._segments[number:], successors
        for segment in reversed(dropped):
            self._remove(segment)
        if dropped:
            self._files.sync_directory(self.directory)

    def _remove(self, segment: Segment) -> None:
        self._dirt.forget(segment)
        segment.remove()

    # Flushing: `Flusher` drives these three; the work between the first two may be done in a thread.

    @property
    def is_dirty(self) -> bool:
        return not self._dirt.is_empty or (self._has_directory and not self.epochs.is_saved)

    def begin_flush(self) -> FlushWork:
        """What has to be synced so that everything written until now is durable."""
        dirt, self._dirt = self._dirt, Dirt(truncations=self._dirt.truncations)
        pins = [self._context.descriptors.pin(segment.path, write=True) for segment in dirt.segments]
        return FlushWork(self.end_offset, dirt, pins, saves_epochs=self._has_directory)

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None:
        """The work was done: what was written before it began is durable now, unless it was cut off meanwhile. With an
        error nothing is known about it, and the log goes offline."""
        for pin in work.pins:
            pin.release()
        if error is not None:
            self.fail(error)
        elif work.dirt.truncations != self._dirt.truncations:
            self._dirt.take_back(work.dirt, [segment for segment in work.dirt.segments if segment in self._segments])
            self._owner.became_dirty(self)
        else:
            self.flushed_offset = work.end_offset
            self._name_is_durable |= os.path.dirname(self.directory) in work.dirt.directories
            for segment in work.dirt.segments:
                if segment not in self._dirt.segments:
                    segment.release_writer()

    def fail(self, error: BaseException) -> None:
        """From now on the log takes nothing: what is on disk is in doubt until it has been recovered."""
        self._failure = self._failure or error

    def close(self) -> None:
        """After the last flush: leave an index that needs no walk when the log is opened again."""
        active = self._segments[-1]
        if active.exists and self._failure is None:
            active.close_index()
        self.let_go()

    def let_go(self) -> None:
        """Close all files. A flush that is under way ends without an effect."""
        self.is_open = False
        for segment in self._segments:
            segment.release_writer()
            self._context.descriptors.forget(segment.path)
            self._context.indexes.forget(segment.stem)

    def _check_online(self) -> None:
        if self._failure is not None:
            raise self._offline()

    def _offline(self) -> LogOfflineError:
        return LogOfflineError(f"{self.directory} is offline after: {self._failure}; restart the broker to recover it")


_stamp = BEFORE_MAGIC.pack_into
_base_offset = attrgetter("base_offset")


def _has_files(files: Files, directory: str) -> bool:
    return files.stat(directory) is not None and bool(files.list(directory))


def read_identity(files: Files, directory: str, *, was_flushed: bool) -> bytes | None:
    """Payload of the checkpoint `identity` (version 1): bytes that tell whose log this is. None if there are none, or
    if a crash kept them from being written, which means that nothing behind them was flushed either."""
    try:
        return read_checkpoint(files, f"{directory}/{IDENTITY_FILE}", _IDENTITY_KIND, _IDENTITY_VERSION)
    except CorruptCheckpointError:
        if was_flushed:
            raise
        return None


def write_log_start(files: Files, directory: str, offset: int) -> None:
    """Payload of the checkpoint `log-start` (version 1): i64 offset, little-endian."""
    payload = _LOG_START.pack(offset)
    write_checkpoint(files, f"{directory}/{LOG_START_FILE}", _LOG_START_KIND, _LOG_START_VERSION, payload)


def read_log_start(files: Files, directory: str) -> int:
    payload = read_checkpoint(files, f"{directory}/{LOG_START_FILE}", _LOG_START_KIND, _LOG_START_VERSION)
    offset: int = _LOG_START.unpack(payload)[0] if payload else 0
    return offset
