"""Opens a log: after a clean stop by a look at its end, otherwise by checking everything above the recovery point.

What lies above the recovery point was perhaps never flushed: the first batch there that is not sound is cut off, and
all after it. What lies below was flushed, so a fault there is corruption, which is reported and never cut.
"""

import os.path
import re
from dataclasses import dataclass
from itertools import pairwise

from penstock.storage.errors import CorruptLogError
from penstock.storage.files import Files, rewrite_file
from penstock.storage.files.checkpoint import TEMPORARY
from penstock.storage.log.compaction_state import FILE_NAME as COMPACTION_FILE
from penstock.storage.log.compaction_state import CompactionState
from penstock.storage.log.folder import IDENTITY_FILE, read_log_start
from penstock.storage.log.holes import FILE_NAME as HOLES_FILE
from penstock.storage.log.holes import Holes
from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX
from penstock.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log import Log, LogConfig, LogOwner
from penstock.storage.log.producer_snapshots import ProducerSnapshots
from penstock.storage.log.restart import clear_restarted, end_restart
from penstock.storage.log.scan import BadBatchError
from penstock.storage.log.segment import DELETED_FILE, LOG_FILE, Segment, SegmentContext
from penstock.storage.log.swap import finish_swaps

# Offsets go on without a gap or are below the recovery point, which is bound enough: batches that claim more offsets
# than an index entry has room for were acknowledged by earlier versions, and are kept.
_NO_END = 0x7FFF_FFFF_FFFF_FFFF
SEGMENT_NAME = re.compile(r"\d{20}" + re.escape(LOG_FILE))


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log took."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_reason: str | None = None


def open_log(
    directory: str,
    context: SegmentContext,
    config: LogConfig,
    *,
    recovery_point: int = 0,
    clean_end: int | None = None,
    identity: bytes = b"",
    owner: LogOwner,
) -> tuple[Log, RecoveryReport]:
    """The log in a directory, which need not exist. `clean_end` is where it ended at a clean stop; None, or an end that
    is not there, has everything from `recovery_point` on checked. `identity` goes into a new directory."""
    restarted_at = clear_restarted(context.files, directory)
    if restarted_at is not None:
        recovery_point, clean_end = 0, None
    epochs = LeaderEpochs(context.files, f"{directory}/{LEADER_EPOCHS_FILE}", was_flushed=recovery_point > 0)
    opening = _Opening(directory, context, recovery_point, epochs)
    if clean_end is None or not opening.trust(clean_end):
        opening.recover()
    end = opening.segments[-1].end_offset
    scanned_from = end if opening.scanned_from is None else opening.scanned_from
    epochs.recover(opening.epochs, scanned_from=scanned_from, end_offset=end)
    epochs.advance_start(opening.start_offset)
    snapshots = ProducerSnapshots(context.files, directory, opening.names)
    snapshots.truncate(end)
    opening.holes.truncate(end)
    opening.compaction.expect_end(end)
    log = Log(
        directory,
        context,
        config,
        start_offset=opening.start_offset,
        segments=opening.segments,
        epochs=epochs,
        snapshots=snapshots,
        compaction=opening.compaction,
        holes=opening.holes,
        identity=identity,
        owner=owner,
    )
    if restarted_at is not None:
        owner.lower_recovery_point(log, restarted_at)
        end_restart(context.files, directory)
    if log.is_unflushed:
        owner.became_unflushed(log)
    return log, opening.report


class _Opening:
    def __init__(
        self, directory: str, context: SegmentContext, recovery_point: int, saved_epochs: LeaderEpochs
    ) -> None:
        self.directory = directory
        self.context = context
        self.saved_epochs = saved_epochs
        self.files: Files = context.files
        self.report = RecoveryReport()
        self.epochs: list[tuple[int, int]] = []
        self.scanned_from: int | None = None
        self.segments: list[Segment] = []
        names = self.files.list(directory) if self.files.stat(directory) else []
        self.names = finish_swaps(self.files, directory, names)
        self.start_offset = read_log_start(self.files, directory) if self.names else 0
        # A flush ends with the names and the small files that a log begins with.
        self.was_flushed = recovery_point > 0
        self.compaction = CompactionState(self.files, directory, exists=COMPACTION_FILE in self.names)
        self.holes = Holes(self.files, directory, exists=HOLES_FILE in self.names)
        self.known_holes = frozenset(self.holes.entries)
        # Only what was flushed is compacted, and where records are missing because of that, they are not lost.
        recovery_point = max(recovery_point, self.compaction.holes_end)
        # Below the start nothing is missed, flushed or not.
        self.recovery_point = recovery_point if recovery_point > self.start_offset else 0
        self._remove_leftovers()
        self.sizes = self._segment_sizes()

    def trust(self, clean_end: int) -> bool:
        """Open without a scan; False if the log does not end where a clean stop left it."""
        bases = sorted(self.sizes)
        if not bases:
            self._begin_anew()
            return clean_end == self.start_offset
        segments = [self._segment(base) for base in bases]
        for segment, following in pairwise(segments):
            segment.open_closed(self.sizes[segment.base_offset], following.base_offset)
        try:
            segments[-1].open_active(self.sizes[bases[-1]], clean_end)
        except CorruptLogError:
            segments[-1].drop()
            return False
        self.segments = segments
        return bases[0] <= self.start_offset

    def recover(self) -> None:
        """Check what lies above the recovery point, cut what is not sound, and make durable what is."""
        self.segments = []
        bases = sorted(self.sizes)
        expected = self.start_offset
        for number, base in enumerate(bases):
            # The first one may begin before the start, and every other one begins where the one before it ends.
            if base > expected or (number and base < expected):
                self._expect_lost_only_above_recovery_point(expected, base)
                self._cut_segments(bases[number:], f"offset {base} where {expected} should be")
                break
            segment = self._segment(base)
            self.segments.append(segment)
            following = bases[number + 1] if number + 1 < len(bases) else None
            if following is not None and following < self.recovery_point:
                segment.open_closed(self.sizes[base], following)
                segment.check_end()
            elif not self._scan(segment):
                self._cut_segments(bases[number + 1 :], None)
                break
            expected = segment.end_offset
        self._check_end()
        for segment in self.segments[:-1]:
            segment.close_index()
        if self.names:
            if not self.was_flushed:
                # The process before may have died before it synced them.
                for name in (IDENTITY_FILE, LEADER_EPOCHS_FILE):
                    if name in self.names:
                        rewrite_file(self.files, f"{self.directory}/{name}")
                self.files.sync_directory(os.path.dirname(self.directory))
            self.files.sync_directory(self.directory)

    def _scan(self, segment: Segment) -> bool:
        """Check a segment from the recovery point on, and cut it at the first fault. False if it was cut."""
        size = self.sizes[segment.base_offset]
        position = segment.begin_scan(size, self.recovery_point)
        self.report.scanned_bytes += size - position
        # The process before may have stopped because a sync failed: then what can be read now is not what lies on the
        # disk, and the next power loss would take it away.
        segment.rewrite(self._end_of_flushed(segment, position, size), size)
        epoch, certain = -1, segment.end_offset
        # The epochs of what lies below the recovery point are saved, and compaction may have taken their first batches.
        if self.scanned_from is None:
            self.scanned_from = max(segment.end_offset, self.recovery_point)
        try:
            for batch in segment.scan(position, size, _NO_END):
                header = batch.header
                expected = segment.end_offset
                is_known = header.base_offset == expected or (expected, header.base_offset) in self.known_holes
                # Compaction leaves holes in what was flushed long ago, and a follower writes down those of its leader.
                # Before the start nothing is missed.
                if not is_known and header.next_offset > self.recovery_point and header.base_offset > self.start_offset:
                    raise BadBatchError(batch.position, f"offset {header.base_offset} where {expected} should be")
                if header.leader_epoch < epoch:
                    raise BadBatchError(batch.position, f"leader epoch {header.leader_epoch} comes after {epoch}")
                if header.next_offset <= self.recovery_point:
                    saved_epoch = self.saved_epochs.at(header.last_offset)
                    if saved_epoch not in (None, header.leader_epoch):
                        reason = f"leader epoch {header.leader_epoch} where {saved_epoch} should be"
                        raise BadBatchError(batch.position, reason)
                segment.accept(batch)
                # A batch after a hole may be one whose offset has changed, until the next one fits.
                certain = header.next_offset if is_known else expected
                if header.leader_epoch > epoch:
                    epoch = header.leader_epoch
                    self.epochs.append((epoch, header.base_offset))
        except BadBatchError as bad:
            if certain < self.recovery_point:
                raise CorruptLogError(segment.path, bad.reason, position=bad.position, offset=bad.offset) from None
            self.report.cut_reason = f"{os.path.basename(segment.path)}, {bad}"
            self.report.cut_bytes += size - segment.size
            segment.end_scan(size)
            return False
        segment.end_scan(size)
        return True

    def _end_of_flushed(self, segment: Segment, position: int, size: int) -> int:
        """Where the recovery point lies in a segment, looking from a position before it."""
        try:
            for batch in segment.scan(position, size, _NO_END, checksums=False):
                if batch.header.next_offset > self.recovery_point:
                    break
                position = batch.position + batch.header.size
        except BadBatchError:
            # The scan finds out what that means.
            pass
        return position

    def _check_end(self) -> None:
        end = self.segments[-1].end_offset if self.segments else self.start_offset
        if end < self.recovery_point:
            path = self.segments[-1].path if self.segments else self.directory
            raise CorruptLogError(path, f"it ends at offset {end}, but was flushed up to {self.recovery_point}")
        if not self.segments or end < self.start_offset:
            # All that is left lies before the start: deleted files that a crash brought back.
            for segment in self.segments:
                segment.drop()
            self._cut_segments([segment.base_offset for segment in self.segments if segment.exists], None)
            self._begin_anew()

    def _expect_lost_only_above_recovery_point(self, expected: int, found: int) -> None:
        if expected < self.recovery_point:
            path = f"{self.directory}/{found:020}{LOG_FILE}"
            raise CorruptLogError(path, f"the offsets from {expected} on should come before it, and are not there")

    def _cut_segments(self, bases: list[int], reason: str | None) -> None:
        """Remove segments, the last first, durably."""
        self.report.cut_reason = self.report.cut_reason or reason
        for base in reversed(bases):
            self.report.cut_bytes += self.sizes[base]
            self._remove_files(base)
        if bases:
            self.files.sync_directory(self.directory)

    def _begin_anew(self) -> None:
        self.segments = [self._segment(self.start_offset)]

    def _segment(self, base: int) -> Segment:
        return Segment(self.context, self.directory, base)

    def _segment_sizes(self) -> dict[int, int]:
        """The size of every segment file, but those that lie before the start: they were deleted, and are again."""
        bases = sorted(int(name.removesuffix(LOG_FILE)) for name in self.names if SEGMENT_NAME.fullmatch(name))
        gone = [base for base, following in pairwise(bases) if following <= self.start_offset]
        for base in gone:
            self._remove_files(base)
        stats = {base: self.files.stat(self._segment(base).path) for base in bases if base not in gone}
        return {base: stat.size for base, stat in stats.items() if stat is not None}

    def _remove_files(self, base: int) -> None:
        segment = self._segment(base)
        segment.exists = True
        if (left := segment.remove()) is not None:
            self.files.unlink(left)

    def _remove_leftovers(self) -> None:
        """Checkpoints that a crash kept from their names, deleted files, and indexes that have lost their log."""
        stems = {name.removesuffix(LOG_FILE) for name in self.names if name.endswith(LOG_FILE)}
        for name in self.names:
            stem, suffix = os.path.splitext(name)
            if suffix in (TEMPORARY, DELETED_FILE) or (suffix in (OFFSET_INDEX, TIME_INDEX) and stem not in stems):
                self.files.unlink(f"{self.directory}/{name}")
