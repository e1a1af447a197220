"""The log of one partition: segments one behind the other, of which the last, the active one, grows.

One thread of control owns a log. What it does not do by itself is make bytes durable: a `Flusher` does that for all
logs of a data folder together, and tells each how far it got.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from penstock.protocol.batch import BEFORE_MAGIC, BatchHeader
from penstock.storage.cleaning_job import CleanedSegment, CleaningDone
from penstock.storage.compaction_state import CompactionConfig, CompactionState
from penstock.storage.errors import CorruptLogError, LogOfflineError, OffsetOutOfRangeError, SyncFailedError
from penstock.storage.file_range import FileRange
from penstock.storage.files import lacks_space
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_directory import LogDirectory, write_log_start
from penstock.storage.producer_snapshots import ProducerSnapshots
from penstock.storage.retention import DAY_MS, SegmentFacts, expired
from penstock.storage.segment import DELETED_FILE, CutBackError, Segment, SegmentContext
from penstock.storage.swapping import Stage, Swap, remove_cleaned
from penstock.storage.unflushed import Dirt, FlushWork

# An index entry has 31 bits for an offset and 32 for a position.
MAX_OFFSETS_IN_SEGMENT: Final = 0x7FFF_FFFF
MAX_SEGMENT_BYTES: Final = 0x7FFF_FFFF
# For as long at least the last word of a producer outlives its records.
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


class LogOwner(Protocol):
    """What a log asks of the data folder it lies in."""

    def became_dirty(self, log: "Log") -> None:
        """There is something to flush."""

    def lower_recovery_point(self, log: "Log", offset: int) -> None:
        """Make durable that nothing from this offset on is known to be flushed."""

    def recovery_point(self, log: "Log") -> int:
        """Up to where it is known, and that is durable, that the log is flushed."""

    def sync_failed(self, error: OSError) -> None:
        """The disk has lost bytes that it had taken."""

    def discard(self, path: str) -> None:
        """A file that nobody needs any more: unlink it, in a thread perhaps, since a large one takes its time."""


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
        identity: bytes,
        owner: LogOwner,
    ) -> None:
        assert segments, "a log has an active segment, though not always a file of it"
        self.directory = directory
        self.config = config
        self.start_offset = start_offset
        self.epochs = epochs
        self.compaction = compaction
        self._snapshots = snapshots
        self._context = context
        self._files = context.files
        self._segments = segments
        self._place = LogDirectory(self._files, directory, identity)
        self._owner = owner
        self.flushed_offset = self.end_offset
        self._dirt = Dirt()
        self._swap: Swap | None = None
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
    def recovery_point(self) -> int:
        """Up to where a crash leaves it told that the log is flushed. Above that recovery takes a hole for damage."""
        return min(self.flushed_offset, self._owner.recovery_point(self))

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
        """Close an active segment that is old enough, for retention and compaction, though nobody appends."""
        active, config = self._segments[-1], self.config
        limit_ms = config.segment_ms
        if config.compaction is not None:
            limit_ms = min(limit_ms, config.compaction.max_lag_ms)
        due = active.size > 0 and now_ms - active.created_ms >= limit_ms
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
            self._make_directory()
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

    def _make_directory(self) -> None:
        try:
            self._place.make(self.epochs, self._dirt)
        finally:
            if not self._dirt.is_empty:
                self._owner.became_dirty(self)

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
        end = self._segments[-1].end_offset
        if not self.start_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, self.start_offset, end)
        bound = end if upper_bound is None else min(upper_bound, end)
        if offset >= bound:
            return None
        # Nearly everybody reads what was written last.
        segment = self._segments[-1]
        if offset < segment.base_offset:
            segment = self._segments[self._segment_number(offset)]
        pinned = segment.pin()
        try:
            first = segment.find(offset, pinned)
            if first.header.next_offset > bound:
                # So says a header that nobody has checked yet: a changed bit may not pass for the end of what is there.
                segment.verify(first.position, first.position + first.header.size, self.epochs)
            elif first.header.size <= max_bytes or at_least_one:
                length = segment.end_within(first, max_bytes, bound, pinned) - first.position
                return FileRange(segment, pinned, first.position, length, first.header.base_offset, self.epochs)
        except BaseException:
            pinned.release()
            raise
        pinned.release()
        return None

    def find_timestamp(self, timestamp: int, *, upper_bound: int | None = None) -> BatchHeader | None:
        """The header of the first batch with a record at or after a time; which record it is, the batch must tell."""
        bound = self.end_offset if upper_bound is None else upper_bound
        for segment in self._segments[self._segment_number(self.start_offset) :]:
            if segment.size and segment.max_timestamp >= timestamp:
                for batch in segment.batches_since(timestamp):
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
            with segment.pin() as pinned:
                position = segment.find(offset, pinned).position
                for batch in segment.checked(position, segment.size, self.epochs, pinned):
                    yield batch.header
                    offset = batch.header.next_offset
            if offset != end:
                raise CorruptLogError(segment.path, f"it ends at offset {offset}, not at {end}")

    def _segment_number(self, offset: int) -> int:
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    # Producer state, which storage keeps without understanding it

    def save_snapshot(self, data: bytes, *, version: int, offset: int | None = None) -> None:
        """What the rules know about producers at an offset, the end of the log unless told. Durable when it returns."""
        self._check_online()
        if self._place.exists:
            self._place.make_name_durable()
            self._snapshots.save(self.end_offset if offset is None else offset, data, version=version)

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
        if self._swap is not None:
            self._give_up(self._swap)
        number = self._segment_number(offset)
        cut = self._segments[number].find(offset)
        try:
            # Where compaction has left a hole before the batch, that goes as well.
            behind = self._segments[number].end_before(cut)
            end = max(behind, self.start_offset)
            # Nothing of the segment stays if it begins with the batch, or if all that comes before is deleted anyway.
            whole = cut.position == 0 or behind < self.start_offset
            self._place.make_name_durable()
            if self._is_start_in_doubt:
                self._write_start(self.start_offset)
            if self.compaction.truncate(end):
                self.compaction.save()
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
            if isinstance(error, SyncFailedError):
                self._owner.sync_failed(error)
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
        self._place.make_name_durable()
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
        self._owner.became_dirty(self)

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
        # After an error the file may tell either: a log that then ends below its start would lose all it has, and the
        # next process would rely on a name that is not durable.
        self._is_start_in_doubt = True
        self._dirt.directories.add(self.directory)
        self._owner.became_dirty(self)
        write_log_start(self._files, self.directory, offset)
        self._is_start_in_doubt = False

    def apply_retention(self, now_ms: int, *, upper_bound: int | None = None) -> int:
        """Delete the segments that the configuration no longer wants. Returns how many."""
        gone = self.find_expired(now_ms, upper_bound=upper_bound)
        if gone:
            self.advance_start(gone[-1].end_offset)
        return len(gone)

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
        self._dirt.forget(segment)
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
        if sources[-1] is self._segments[-1] or any(segment in self._dirt.segments for segment in sources):
            return None
        for segment in sources:
            segment.release_writer()
        self._swap = Swap(self._files, cleaned, sources, prepare=self.compaction.save)
        self.compaction.expect_holes(cleaned.end_offset)
        return self._swap

    def end_swap(self, swap: Swap) -> bool:
        """The swap was performed: from now on the new segment is read. False if the log was truncated or closed
        meanwhile: then its round is over. OSError: nothing has happened; LogOfflineError: nobody knows what has."""
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
            self._dirt.forget(segment)
            self._context.descriptors.forget(segment.path)
        try:
            swap.take_names()
        except OSError as error:
            self.fail(error)
            return
        cleaned = Segment(self._context, self.directory, swap.sources[0].base_offset)
        cleaned.open_closed(swap.cleaned.size, swap.cleaned.end_offset)
        self._segments[first : first + len(swap.sources)] = [cleaned]
        # The names are safe either way, but a folder should not be left with a swap to finish.
        self._dirt.directories.add(self.directory)
        self._owner.became_dirty(self)
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
        # Whoever began it finds that its round is over.
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
    def is_dirty(self) -> bool:
        return not self._dirt.is_empty or (self._place.exists and not self.epochs.is_saved)

    def begin_flush(self) -> FlushWork:
        """What has to be synced so that everything written until now is durable."""
        return self._dirt.begin_flush(self._context.descriptors, self.end_offset, saves_epochs=self._place.exists)

    def end_flush(self, work: FlushWork, error: OSError | None = None) -> None:
        """The work was done: what was written before it began is durable now, unless it was cut off meanwhile. With an
        error nothing is known about it, and the log goes offline."""
        work.release()
        if error is not None:
            self.fail(error)
        elif work.dirt.truncations != self._dirt.truncations:
            self._take_back(work)
        else:
            self.flushed_offset = work.end_offset
            self._place.flushed(work.dirt)
            for segment in work.dirt.segments:
                if segment not in self._dirt.segments:
                    segment.release_writer()

    def put_off_flush(self, work: FlushWork) -> None:
        """The work could not be begun: it is left to the next flush."""
        work.release()
        self._take_back(work)

    def _take_back(self, work: FlushWork) -> None:
        self._dirt.take_back(work.dirt, [segment for segment in work.dirt.segments if segment in self._segments])
        self._owner.became_dirty(self)

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
            # Whoever opens the log next finishes it, if it was performed.
            self._swap.cancel()
            self._swap.release()
            self._swap = None
        self.compaction.close()
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
