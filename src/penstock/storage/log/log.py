"""The log of one partition is a row of segments, of which the last, the active one, grows.

One thread of control owns a log. What it does not do by itself is make bytes durable: a `Flusher` does that for all
logs of a data folder together, and reports to each how far it got.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from penstock.protocol.batch import BEFORE_MAGIC, BatchHeader
from penstock.storage.errors import CorruptLogError, LogOfflineError, OffsetOutOfRangeError, SyncFailedError
from penstock.storage.files import lacks_space
from penstock.storage.log.cleaned import CleanedSegment, CleaningDone
from penstock.storage.log.compaction_state import CompactionConfig, CompactionState
from penstock.storage.log.file_range import FileRange
from penstock.storage.log.folder import LogDirectory, write_log_start
from penstock.storage.log.holes import Holes
from penstock.storage.log.index import MAX_RELATIVE_OFFSET
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.producer_snapshots import ProducerSnapshots
from penstock.storage.log.restart import begin_restart, end_restart
from penstock.storage.log.retention import DAY_MS, SegmentFacts, expired
from penstock.storage.log.scan import Batch
from penstock.storage.log.segment import DELETED_FILE, CutBackError, Segment, SegmentContext
from penstock.storage.log.swap import Stage, Swap, remove_cleaned
from penstock.storage.log.unflushed import FlushWork, Unflushed

MAX_SEGMENT_BYTES: Final = 0x7FFF_FFFF
# For at least this long compaction keeps the last batch of a producer, though its records are gone.
PRODUCER_RETENTION_MS: Final = DAY_MS


@dataclass(slots=True, frozen=True)
class LogConfig:
    """What may be set for a log; the defaults are Kafka's. A negative retention keeps everything."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    index_interval_bytes: int = 4096
    compaction: CompactionConfig | None = None

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise ValueError(f"segment_bytes must be from 1 to {MAX_SEGMENT_BYTES}, not {self.segment_bytes}")


@dataclass(slots=True, frozen=True)
class Cut:
    """Where a log will end, and the first batch to go, of which segment; no batch if that segment goes as a whole.
    `hole` comes before the last batch that stays."""

    end_offset: int
    number: int
    batch: Batch | None
    hole: tuple[int, int] | None


class LogOwner(Protocol):
    """What a log asks of the data folder it lies in."""

    def became_unflushed(self, log: "Log") -> None:
        """There is something to flush."""

    def lower_recovery_point(self, log: "Log", offset: int) -> None:
        """Make durable that nothing from this offset on is known to be flushed."""

    def recovery_point(self, log: "Log") -> int:
        """The offset up to which a durable checkpoint says that the log is flushed."""

    def sync_failed(self, error: OSError) -> None:
        """The disk has lost bytes that it had taken."""

    def discard(self, path: str) -> None:
        """Unlink a file that is no longer needed, in a thread perhaps, since a large one takes its time."""


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
        compaction: CompactionState,
        holes: Holes,
        identity: bytes,
        owner: LogOwner,
    ) -> None:
        assert segments, "a log has an active segment, though not always a file of it"
        self.directory = directory
        self.name = directory.rpartition("/")[2]
        self.config = config
        self.start_offset = start_offset
        self.epochs = epochs
        self.compaction = compaction
        self._snapshots = snapshots
        self._holes = holes
        self._context = context
        self._files = context.files
        self._segments = segments
        self._place = LogDirectory(self._files, directory, identity)
        self._owner = owner
        self.flushed_offset = self.end_offset
        self._unflushed = Unflushed()
        self._swap: Swap | None = None
        self._is_start_in_doubt = False
        self._failure: BaseException | None = None
        self.is_open = True
        # While a thread cuts the log, flushes keep away from it; those that end meanwhile wait here.
        self.is_being_cut = False
        self._interrupted: list[tuple[FlushWork, OSError | None]] = []

    # State

    @property
    def end_offset(self) -> int:
        return self._segments[-1].end_offset

    @property
    def last_record_epoch(self) -> int:
        """The leader epoch of the last record, -1 if there is none. A later election without a record is not it."""
        epoch = self.epochs.at(self.end_offset - 1) if self.start_offset < self.end_offset else None
        return -1 if epoch is None else epoch

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
    def recovery_point(self) -> int:
        """The offset up to which the log will count as flushed after a crash. Above it recovery takes a hole for
        damage, unless the hole is written down."""
        return min(self.flushed_offset, self._owner.recovery_point(self))

    @property
    def failure(self) -> BaseException | None:
        """Why the log is offline, if it is."""
        return self._failure

    # Appending

    def append(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, leader_epoch: int, now_ms: int) -> int:
        """As the leader: give the batches the next offsets, stamping them in place, and write them with one call: all
        of them or none. (Only where they take more offsets than a segment has, segment by segment: after an error
        `end_offset` says how many were written.) The caller has checked them. Returns the first offset."""
        first = offset = self._segments[-1].end_offset
        if len(batches) == 1:
            # With many partitions most writes are of one batch.
            header, view = batches[0]
            _stamp(view, 0, offset, header.batch_length, leader_epoch)
            end = offset + header.last_offset_delta + 1
            self._write(((offset, header),), (view,), len(view), end, now_ms)
        else:
            placed, views, size = [], [], 0
            for header, view in batches:
                _stamp(view, 0, offset, header.batch_length, leader_epoch)
                placed.append((offset, header))
                views.append(view)
                size += len(view)
                offset += header.last_offset_delta + 1
            self._write(placed, views, size, offset, now_ms)
        if leader_epoch > self.epochs.latest and batches:
            self.epochs.begin(leader_epoch, first)
        return first

    def append_replicated(self, batches: Sequence[tuple[BatchHeader, memoryview]], *, now_ms: int) -> None:
        """As a follower: write batches with the offsets and epochs that the leader gave them, as `append` does. The
        first one of an empty log may begin before its start, where the leader's log starts within a batch."""
        expected = self.end_offset
        reaches_back = (
            expected == self.start_offset
            and bool(batches)
            and batches[0][0].base_offset < expected < batches[0][0].next_offset
        )
        if reaches_back:
            expected = batches[0][0].base_offset
        placed, views, size, holes = [], [], 0, []
        for header, view in batches:
            if header.base_offset < expected:
                raise OffsetOutOfRangeError(header.base_offset, expected, expected)
            if header.base_offset > expected:
                # Compaction at the leader left a hole: the next batch does not begin with the offset that was the end.
                self._segments[-1].forget_starts()
                holes.append((expected, header.base_offset))
            placed.append((header.base_offset, header))
            views.append(view)
            size += len(view)
            expected = header.next_offset
        if reaches_back:
            self._begin_segment(batches[0][0].base_offset)
        try:
            self._write(placed, views, size, expected, now_ms)
        finally:
            if self.end_offset < self.start_offset:
                self._begin_segment(self.start_offset)
            # After an error some of them may be there.
            end = self.end_offset
            for hole in holes:
                if hole[1] < end:
                    self._holes.add(*hole)
            for header, _ in batches:
                if header.base_offset < end:
                    self.epochs.begin(header.leader_epoch, max(header.base_offset, self.start_offset))

    def begin_epoch(self, epoch: int) -> None:
        """A leader was elected: its epoch begins at the end of the log. The next flush makes that durable."""
        self._check_online()
        self.epochs.begin(epoch, self.end_offset)
        if self.is_unflushed:
            self._owner.became_unflushed(self)

    def roll_if_due(self, now_ms: int) -> bool:
        """Close an active segment that is old enough, for retention and compaction, though nothing is appended."""
        active, config = self._segments[-1], self.config
        limit_ms = config.segment_ms
        if config.compaction is not None:
            limit_ms = min(limit_ms, config.compaction.max_lag_ms)
        due = active.size > 0 and now_ms - active.created_ms >= limit_ms
        if due:
            self._roll()
        return due

    def _write(
        self,
        placed: Sequence[tuple[int, BatchHeader]],
        views: Sequence[memoryview],
        size: int,
        end_offset: int,
        now_ms: int,
    ) -> None:
        """Write batches, `size` bytes in all, which take the offsets beside their headers and those up to the end."""
        if self._failure is not None:
            raise self._offline()
        if not views:
            return
        active, config = self._segments[-1], self.config
        if end_offset - active.base_offset > MAX_RELATIVE_OFFSET and len(views) > 1:
            # Together they claim more offsets than a segment can index: each is looked at alone, and rolls if it must.
            for (offset, header), view in zip(placed, views, strict=True):
                self._write([(offset, header)], [view], len(view), offset + header.last_offset_delta + 1, now_ms)
            return
        if active.size and (
            active.size + size > config.segment_bytes
            or end_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or now_ms - active.created_ms >= config.segment_ms
        ):
            active = self._roll()
        if not active.exists:
            self._make_directory()
        try:
            active.append(placed, views, size, end_offset, now_ms)
        except CutBackError as error:
            self.fail(error)
            raise self._offline() from error
        except OSError:
            if active.fd >= 0:
                # It was cut back, which has to be durable too: a crash may not bring the torn batch back.
                self._became_unflushed(active)
            raise
        # The owner already knows of a segment that is unflushed.
        if not (unflushed := self._unflushed.segments) or unflushed[-1] is not active:
            self._became_unflushed(active)

    def _became_unflushed(self, segment: Segment) -> None:
        self._unflushed.add_segment(segment)
        self._owner.became_unflushed(self)

    def _roll(self) -> Segment:
        active = self._segments[-1]
        active.close_index()
        self._segments.append(Segment(self._context, self.directory, active.end_offset))
        self._unflushed.rolled = True
        return self._segments[-1]

    def _begin_segment(self, base_offset: int) -> None:
        """Give an empty log a segment with another base. What is left of others lies before the start."""
        self._check_online()
        if self._swap is not None:
            self._give_up(self._swap)
        dropped, self._segments = self._segments, [Segment(self._context, self.directory, base_offset)]
        try:
            for segment in reversed(dropped):
                self._remove(segment)
        except OSError as error:
            self.fail(error)
            raise self._offline() from error

    def _make_directory(self) -> None:
        try:
            self._place.make(self.epochs, self._unflushed)
        finally:
            if not self._unflushed.is_empty:
                self._owner.became_unflushed(self)

    def _make_name_durable(self) -> None:
        try:
            self._place.make_name_durable()
        except SyncFailedError as error:
            self.fail(error)
            self._owner.sync_failed(error)
            raise self._offline() from error

    # Reading

    def read(
        self, offset: int, *, max_bytes: int, upper_bound: int | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """Whole batches from the one that holds `offset` on, their checksums checked if this process has not seen them
        yet; None if there are none below `upper_bound`. A first batch larger than `max_bytes` comes alone, or not at
        all unless `at_least_one`. A read stays within a segment, and may end up to an eighth of `max_bytes` before the
        batch that no longer fits. The caller releases the range."""
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
        end = self._segments[-1].end_offset
        if not self.start_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, self.start_offset, end)
        bound = end if upper_bound is None else min(upper_bound, end)
        if offset >= bound:
            return None
        # Nearly all reads are of what was written last.
        segment = self._segments[-1]
        if offset < segment.base_offset:
            segment = self._segments[self._segment_number(offset)]
        segment.hold()
        try:
            known = segment.stretch(offset, max_bytes, bound)
            if known is not None:
                position, stop = known
                return FileRange(segment, position, stop - position, offset, self.epochs)
            first = segment.find(offset, is_held=True)
            if first.header.next_offset > bound:
                # The header that says so has not been checked yet: a changed bit may not pass for the end of what is
                # there.
                segment.verify(first.position, first.position + first.header.size, self.epochs, is_held=True)
            elif first.header.size <= max_bytes or at_least_one:
                length = segment.end_within(first, max_bytes, bound) - first.position
                return FileRange(segment, first.position, length, first.header.base_offset, self.epochs)
        except BaseException:
            segment.release()
            raise
        segment.release()
        return None

    def find_timestamp(self, timestamp: int, *, upper_bound: int | None = None) -> BatchHeader | None:
        """The header of the first batch with a record at or after a time. Which record it is, only the batch shows."""
        bound = self.end_offset if upper_bound is None else upper_bound
        for segment in self._segments[self._segment_number(self.start_offset) :]:
            if segment.size and segment.max_timestamp >= timestamp:
                for batch in segment.batches_since(timestamp, from_offset=self.start_offset):
                    if batch.header.last_offset >= self.start_offset:
                        return batch.header if batch.header.next_offset <= bound else None
        return None

    def find_cached(self, offset: int) -> BatchHeader | None:
        """The header of the batch that holds an offset, if the log does and there is no disk to wait for."""
        if not self.start_offset <= offset < self.end_offset:
            return None
        found = self._segments[self._segment_number(offset)].find_cached(offset)
        return None if found is None else found.header

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of all batches from the one that holds `offset` on: what producer state is folded from."""
        offset, stop = max(offset, self.start_offset), self.end_offset
        while offset < stop:
            # Looked for each time: between two of them segments may be deleted, or give way to a compacted one.
            segment = self._segments[self._segment_number(offset)]
            end = segment.end_offset
            with segment.hold():
                position = segment.find(offset, is_held=True).position
                for batch in segment.checked(position, segment.size, self.epochs, is_held=True):
                    yield batch.header
                    offset = batch.header.next_offset
            if offset != end:
                raise CorruptLogError(segment.path, f"it ends at offset {offset}, not at {end}")

    def _segment_number(self, offset: int) -> int:
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    # Producer state, which storage keeps without understanding it

    def save_snapshot(self, data: bytes, *, version: int, offset: int | None = None) -> None:
        """Save what the rules know about producers at an offset, by default the end of the log. Durable when it
        returns."""
        self._check_online()
        if self._place.exists:
            self._make_name_durable()
            self._snapshots.save(self.end_offset if offset is None else offset, data, version=version)

    def latest_snapshot(self, *, version: int) -> tuple[int, bytes] | None:
        """The newest snapshot, of a version up to this one, and its offset. From there on `headers` have the rest."""
        return self._snapshots.latest(version=version)

    # Truncation, of the end and of the beginning

    def truncate(self, offset: int) -> None:
        """Cut the log before the batch that holds `offset`, and forget epochs that have no record below the new end:
        also elections at the end of a log that is not cut. Durable when it returns, whatever flush is under way."""
        cut = self.plan_cut(offset)
        if cut is None:
            return
        with self.offline_if_it_fails():
            self.prepare_cut(cut)
            # Before anything is cut: the next recovery may not take for lost what lies below the recovery point.
            self._owner.lower_recovery_point(self, cut.end_offset)
            self.perform_cut(cut)
        self._unflushed.truncations += 1
        self._owner.became_unflushed(self)

    # The steps of a truncation: `DataDirectory.truncate_many` takes them for many logs at once, in a thread.

    def begin_cuts(self) -> None:
        """From now on a flush neither begins with this log nor ends with an effect on it, until `end_cuts`."""
        self._check_online()
        self.is_being_cut = True
        self._unflushed.truncations += 1

    def end_cuts(self) -> None:
        """Flushes that were under way prove nothing about what is there now."""
        self.is_being_cut = False
        self._unflushed.truncations += 1
        interrupted, self._interrupted = self._interrupted, []
        for work, error in interrupted:
            self.end_flush(work, error)

    def plan_cut(self, offset: int) -> Cut | None:
        """Where to cut the log before the batch that holds an offset. None if the log ends there already; then
        elections without a record are forgotten, and that is all there is to do."""
        self._check_online()
        if offset >= self.end_offset:
            self._forget_elections()
            return None
        if offset < self.start_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if self._swap is not None:
            self._give_up(self._swap)
        number = self._segment_number(offset)
        with self._segments[number].hold() as segment:
            batch = segment.find(offset, is_held=True)
            with self.offline_if_it_fails():
                # Where compaction has left a hole before the batch, that goes as well.
                behind, hole = segment.end_before(batch)
        # Nothing of the segment stays if it begins with the batch, or if all that comes before is deleted anyway.
        whole = batch.position == 0 or behind < self.start_offset
        return Cut(max(behind, self.start_offset), number, *((None, None) if whole else (batch, hole)))

    def prepare_cut(self, cut: Cut) -> None:
        """Make durable what has to be before the recovery point is lowered, and that before anything is cut."""
        self._place.make_name_durable()
        if self._is_start_in_doubt:
            self._write_start(self.start_offset)
        if self.compaction.truncate(cut.end_offset):
            self.compaction.save()
        self._holes.truncate(cut.end_offset)
        if cut.hole is not None:
            # The batch after it ends where the recovery point will be. To recovery its offset is certain only if the
            # hole is written down: what comes next may be torn, or be left of the cut.
            self._holes.restore(*cut.hole)

    def perform_cut(self, cut: Cut) -> None:
        """Durable when it returns."""
        end = cut.end_offset
        self.flushed_offset = min(self.flushed_offset, end)
        if cut.batch is None:
            self._replace_segments(cut.number, [Segment(self._context, self.directory, end)])
        else:
            self._replace_segments(cut.number + 1, [])
            self._segments[-1].truncate(cut.batch)
        if self._snapshots.truncate(end):
            self._files.sync_directory(self.directory)
        self.epochs.truncate(end)
        self.epochs.save()

    @contextmanager
    def offline_if_it_fails(self) -> Iterator[None]:
        """What is on disk is in doubt after an error."""
        try:
            yield
        except (OSError, CorruptLogError) as error:
            self.fail(error)
            if isinstance(error, SyncFailedError):
                self._owner.sync_failed(error)
            raise self._offline() from error

    def _forget_elections(self) -> None:
        """A leader that was elected here and has written nothing leaves no epoch: its successor knows none of it."""
        self.epochs.truncate(self.end_offset)
        if self._place.exists:
            with self.offline_if_it_fails():
                self.epochs.save()

    def advance_start(self, offset: int) -> None:
        """Delete what lies before `offset`: whole files go, the rest is out of reach. The start never goes back, and
        once this returns it survives a crash."""
        self._check_online()
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if offset <= self.start_offset:
            return
        self._make_name_durable()
        # The start is durable first: files may vanish in any order in a crash, and no hole may be taken for data.
        try:
            self._write_start(offset)
        except OSError as error:
            if not lacks_space(error) or not self.drop_indexes():
                raise
            # On a disk that is full to the last byte, even deleting takes a few: caches make way for them.
            self._write_start(offset)
        self.start_offset = offset
        if offset == self.end_offset and self._segments[-1].exists:
            self._roll()
        if self._swap is None:
            self._remove_before_start()
        self.epochs.advance_start(offset)
        self._owner.became_unflushed(self)

    def start_at(self, offset: int) -> None:
        """Throw all records away, and all that is known about them, and go on, empty, at this offset, wherever the log
        ended. Durable when it returns; a crash before leaves the log as it was, or empty at this offset."""
        self._check_online()
        if offset < 0:
            raise OffsetOutOfRangeError(offset, self.start_offset, self.end_offset)
        if self._swap is not None:
            self._give_up(self._swap)
        try:
            with self.offline_if_it_fails():
                self._restart(offset)
        finally:
            self._owner.became_unflushed(self)

    def _restart(self, offset: int) -> None:
        if not self._place.exists:
            self.epochs.truncate(0)
            self._place.make(self.epochs, self._unflushed)
        self._place.make_name_durable()
        begin_restart(self._files, self.directory, offset)
        # A flush that is under way proves nothing about what comes now.
        self._unflushed.truncations += 1
        self.flushed_offset = min(self.flushed_offset, offset)
        self._replace_segments(0, [Segment(self._context, self.directory, offset)])
        self._snapshots.truncate(-1)
        self._holes.truncate(-1)
        self.compaction.clear()
        self.compaction.save()
        self.epochs.truncate(0)
        self.epochs.save()
        self.start_offset = offset
        self._write_start(offset)
        self._owner.lower_recovery_point(self, offset)
        end_restart(self._files, self.directory)
        self.flushed_offset = offset

    def _remove_before_start(self) -> None:
        for segment in [segment for segment in self._segments[:-1] if segment.end_offset <= self.start_offset]:
            self._segments.remove(segment)
            self._remove(segment)

    def drop_indexes(self) -> bool:
        """Delete the index files of closed segments, which can be made anew, for the room they take. False if there
        were none."""
        removed = [segment.remove_index_files() for segment in self._segments[:-1]]
        return any(removed)

    def _write_start(self, offset: int) -> None:
        # After an error the file may have either start: a log that then ends below its start would lose all it has, and
        # the next process would rely on a name that is not durable.
        self._is_start_in_doubt = True
        self._unflushed.directories.add(self.directory)
        self._owner.became_unflushed(self)
        write_log_start(self._files, self.directory, offset)
        self._is_start_in_doubt = False

    def find_expired(self, now_ms: int, *, upper_bound: int | None = None) -> list[Segment]:
        """The segments that the configuration no longer wants, as far as they lie below `upper_bound` and are flushed.
        An active segment is rolled if it is too old as well."""
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
        return closed[:count]

    def _replace_segments(self, number: int, successors: list[Segment]) -> None:
        """Remove the segments from a number on, the last first, durably."""
        dropped, self._segments[number:] = self._segments[number:], successors
        for segment in reversed(dropped):
            self._remove(segment)
        if dropped:
            self._files.sync_directory(self.directory)

    def _remove(self, segment: Segment) -> None:
        self._unflushed.forget(segment)
        if (path := segment.remove()) is not None:
            self._owner.discard(path)

    # Compaction: the helper cleans, what it hands over is swapped in; the middle one of three steps may be in a thread.

    @property
    def is_swapping(self) -> bool:
        return self._swap is not None

    def begin_swap(self, cleaned: CleanedSegment) -> Swap | None:
        """A cleaned segment is about to take the place of its sources. None if it may not: they have been deleted or
        cut since they were read. Then its round is over."""
        self._check_online()
        assert self._swap is None, "one swap at a time"
        if cleaned.truncations != self.compaction.truncations:
            return None
        number = self._segment_number(cleaned.base_offset)
        sources = self._segments[number : number + len(cleaned.sources)]
        found = [(segment.base_offset, segment.end_offset, segment.size) for segment in sources]
        if found != [(source.base_offset, source.end_offset, source.size) for source in cleaned.sources]:
            return None
        if sources[-1] is self._segments[-1] or any(segment in self._unflushed.segments for segment in sources):
            return None
        self._swap = Swap(self._files, cleaned, sources, prepare=self.compaction.save)
        self.compaction.expect_holes(cleaned.end_offset)
        return self._swap

    def end_swap(self, swap: Swap) -> bool:
        """The swap was performed: from now on the new segment is read. False if the log was truncated or closed
        meanwhile: then its round is over. OSError: nothing has happened; LogOfflineError: it is unknown what has."""
        if self._swap is not swap:
            return False
        self._swap = None
        try:
            if swap.error is not None and (swap.sync_failed or swap.stage is Stage.COMMITTING):
                self.fail(swap.error)
                if swap.sync_failed:
                    self._owner.sync_failed(swap.error)
            elif swap.stage is Stage.PERFORMED and self._failure is None:
                self._take_in(swap)
        finally:
            swap.release()
        self._check_online()
        self._remove_before_start()
        if swap.error is not None:
            raise swap.error
        return swap.stage is Stage.PERFORMED

    def _take_in(self, swap: Swap) -> None:
        first = self._segments.index(swap.sources[0])
        for segment in swap.sources:
            self._unflushed.forget(segment)
            segment.drop()
        try:
            swap.take_names()
        except OSError as error:
            self.fail(error)
            return
        cleaned = Segment(self._context, self.directory, swap.sources[0].base_offset)
        cleaned.open_closed(swap.cleaned.size, swap.cleaned.end_offset)
        self._segments[first : first + len(swap.sources)] = [cleaned]
        # The names are safe either way, but a folder should not be left with a swap to finish.
        self._unflushed.directories.add(self.directory)
        self._owner.became_unflushed(self)
        for segment in swap.sources:
            segment.exists = False
            self._context.indexes.forget(segment.stem)
            # What cannot be unlinked is found by the next start: an index without its log, and a name that says that
            # the file is to go.
            indexes = segment.index_paths if segment is not swap.sources[0] else ()
            for path in (*indexes, segment.stem + DELETED_FILE):
                with suppress(OSError):
                    self._owner.discard(path)

    def _give_up(self, swap: Swap) -> None:
        """End a swap here and now, whatever has become of it."""
        swap.cancel()
        # The task that began it finds that its round is over.
        with suppress(OSError):
            self.end_swap(swap)

    def finish_round(self, done: CleaningDone, now_ms: int) -> None:
        """All that a round has cleaned is swapped in. To be made durable by `compaction.save`, in a thread perhaps."""
        if done.truncations == self.compaction.truncations:
            self.compaction.finish_round(
                done.cleaned_to, done.first_tombstone, now_ms=now_ms, longest_wait_ms=self.longest_wait_ms
            )

    @property
    def longest_wait_ms(self) -> int:
        """For how long compaction leaves something where it is that has been clean since."""
        config = self.config.compaction
        return max(PRODUCER_RETENTION_MS, 0 if config is None else config.delete_retention_ms)

    def discard_cleaned(self) -> None:
        """After a round that was stopped or has failed: remove what it has left."""
        if self._place.exists:
            remove_cleaned(self._files, self.directory, self._files.list(self.directory))

    # Flushing: `Flusher` drives these three; the work between the first two may be done in a thread.

    @property
    def is_unflushed(self) -> bool:
        return (
            not self._unflushed.is_empty
            or (self._place.exists and not self.epochs.is_saved)
            or not self._holes.is_saved
        )

    def begin_flush(self) -> FlushWork:
        """What has to be synced so that everything written until now is durable."""
        saves_holes = not self._holes.is_saved
        if saves_holes:
            self._holes.prune(self._owner.recovery_point(self))
        return self._unflushed.begin_flush(
            self._segments[-1].end_offset,
            saves_epochs=self._place.exists and not self.epochs.is_saved,
            saves_holes=saves_holes,
        )

    def save_holes(self) -> None:
        """What a flush does after it has synced the batches; may run in a thread."""
        self._holes.save()

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None:
        """The work was done: what was written before it began is durable now, unless it was cut off meanwhile. It does
        not count as flushed beyond a hole that there was no room to write down: recovery would cut it off. With an
        error nothing is known about it, and the log goes offline."""
        if self.is_being_cut:
            self._interrupted.append((work, error))
            return
        for segment in work.pins:
            segment.synced()
        if error is not None:
            self.fail(error)
        elif work.truncations != self._unflushed.truncations:
            self._take_back(work)
        else:
            self.flushed_offset = self._holes.saved_up_to(work.end_offset)
            if work.position >= 0:
                work.pins[-1].settle(work.end_offset, work.position)
            if work.directories:
                self._place.flushed(work)

    def put_off_flush(self, work: FlushWork) -> None:
        """The work could not be begun: it is left to the next flush."""
        if self.is_being_cut:
            self._interrupted.append((work, None))
            return
        work.release()
        self._take_back(work)

    def _take_back(self, work: FlushWork) -> None:
        self._unflushed.take_back(work, [segment for segment in work.pins if segment in self._segments])
        self._owner.became_unflushed(self)

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
        if self._swap is not None:
            # The next process that opens the log finishes it, if it was performed.
            self._swap.cancel()
            self._swap.release()
            self._swap = None
        self.compaction.close()
        self._holes.close()
        self.epochs.close()
        self._unflushed.forget_all()
        for segment in self._segments:
            segment.drop()
            self._context.indexes.forget(segment.stem)

    def _check_online(self) -> None:
        if self._failure is not None:
            raise self._offline()

    def _offline(self) -> LogOfflineError:
        return LogOfflineError(f"{self.directory} is offline after: {self._failure}; restart the broker to recover it")


_stamp = BEFORE_MAGIC.pack_into
_base_offset = attrgetter("base_offset")
