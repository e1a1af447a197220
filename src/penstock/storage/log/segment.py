"""A segment is one file of a log: record batches one after the other, found through a sparse index.

`<base offset, 20 digits>.log` holds batches as they were received, base offset and leader epoch stamped in:

    +---------------------+---------------------+-----
    | batch (61 B header, | batch               | ...
    | then its records)   |                     |
    +---------------------+---------------------+-----
"""

import os.path
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from struct import Struct
from typing import Any

from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, MAGIC, BatchHeader, read_header
from penstock.storage.errors import CorruptLogError, SyncFailedError
from penstock.storage.files import Buffer, Files, rewrite, write_all
from penstock.storage.files.descriptors import Descriptors, KeptFile
from penstock.storage.log.index import MAX_RELATIVE_OFFSET, OFFSET_INDEX, TIME_INDEX, SegmentIndex
from penstock.storage.log.index_cache import IndexCache
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.scan import AT_ONCE, BadBatchError, Batch, scan
from penstock.storage.log.verified import Stretches, covers, joined

LOG_FILE = ".log"
# The first fields of a batch, by which one finds the next.
_BASE_AND_LENGTH = Struct(">qi")
# What the length field says of a batch without records.
_EMPTY_LENGTH = HEADER.size - LENGTH_OVERHEAD
DELETED_FILE = ".deleted"
# Enough for the headers between two index entries, and for a large batch not much more than its header.
_LOOKUP_BYTES = 4096
# The number of positions that are remembered for each segment, of readers that will go on from there.
_REMEMBERED_STARTS = 64
# An index that has grown by this much of the log is saved, so that after a crash no more than this is walked again, but
# not more often than the recovery point is: what lies above that is walked in any case.
_SAVE_INDEX_BYTES = 4 * 1024 * 1024
_SAVE_INDEX_MS = 1000


class CutBackError(OSError):
    """A write failed, and so did removing what it may have left."""


@dataclass(slots=True, frozen=True)
class SegmentContext:
    """What all segments of a log have in common."""

    files: Files
    descriptors: Descriptors
    indexes: IndexCache
    index_interval_bytes: int


class Segment(KeptFile):
    """Belongs to one log, which alone knows whether it is the active one. The file is made by the first append."""

    __slots__ = (
        "_context",
        "_files",
        "_index",
        "_index_saved_at",
        "_index_saved_ms",
        "_max_timestamp",
        "_newest_unknown_ms",
        "_next_entry",
        "_settled",
        "_starts",
        "_verified",
        "base_offset",
        "created_ms",
        "end_offset",
        "exists",
        "size",
        "stem",
        "trusted_from",
    )

    def __init__(self, context: SegmentContext, directory: str, base_offset: int) -> None:
        stem = f"{directory}/{base_offset:020}"
        super().__init__(context.descriptors, stem + LOG_FILE)
        self._context = context
        self._files = context.files
        self._index: SegmentIndex | None = None
        self._index_saved_at = 0
        self._index_saved_ms = 0
        self._next_entry = 0
        self.stem = stem
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.exists = False
        self.size = 0
        # Known of an active segment alone.
        self.created_ms = 0
        self._max_timestamp: int | None = -1
        # Kept once it is known: only a walk through the whole file shows that the newest timestamp cannot be found.
        self._newest_unknown_ms: int | None = None
        # Bytes from here on were written by this process, or checked by its recovery, and have not left its memory.
        self.trusted_from = 0
        # Where the batches begin that reads ended before, by offset: readers go on from where they were.
        self._starts: dict[int, int] = {}
        # The offset and the position up to which it was last flushed: what waits for a flush is not read.
        self._settled = (base_offset, 0)
        # What was checked of older bytes.
        self._verified: Stretches = ()

    @property
    def max_timestamp(self) -> int:
        """The newest of its records' timestamps, -1 if they have none."""
        if self._max_timestamp is None:
            self._max_timestamp = self.index.max_timestamp
        return self._max_timestamp

    @property
    def newest_ms(self) -> int:
        """When it was last of use: the newest record's time, or else when the file was last written. That also counts
        for a file in which a bit has changed and that has no index: it may be damaged, but it may not stay for ever."""
        if self._newest_unknown_ms is not None:
            return self._newest_unknown_ms
        try:
            newest = self.max_timestamp
        except CorruptLogError:
            self._newest_unknown_ms = self._modified_ms()
            return self._newest_unknown_ms
        return newest if newest >= 0 else self._modified_ms()

    @property
    def index(self) -> SegmentIndex:
        """The active segment holds its own; those of closed ones are loaded when asked for, and rebuilt if damaged."""
        return self._index or self._context.indexes.get(self.stem, self._load_or_rebuild_index)

    # Writing

    def append(
        self,
        placed: Iterable[tuple[int, BatchHeader]],
        buffers: Sequence[Buffer],
        size: int,
        end_offset: int,
        now_ms: int,
    ) -> None:
        """Write batches of `size` bytes in all; their offsets stand beside their headers, which may have older ones.
        After an OSError the file is as it was, unless it is a CutBackError."""
        if not self.exists:
            self._create(now_ms)
        files, position = self._files, self.size
        fd = self.fd if self.fd >= 0 else self.open()
        try:
            if files.pwritev(fd, buffers, position) != size:
                # Writing the same bytes to the same place once more is the simple way to deal with a short write.
                write_all(files, fd, buffers, position)
        except OSError as error:
            try:
                files.truncate(fd, self.size)
            except OSError:
                raise CutBackError(f"{self.path} could not be cut back to byte {self.size} after: {error}") from error
            raise
        self._note(placed)
        self.end_offset = end_offset
        if (
            position + size - self._index_saved_at >= _SAVE_INDEX_BYTES
            and now_ms - self._index_saved_ms >= _SAVE_INDEX_MS
        ):
            self.save_index()
            self._index_saved_ms = now_ms

    def save_index(self) -> None:
        try:
            self.index.save(self._files, self.stem, self.base_offset)
        except OSError:
            # An index is a cache and may be missing; a disk that is full or broken shows in what must be written.
            self.index.forget_files()
        self._index_saved_at = self.size

    def close_index(self) -> None:
        """Nothing will be appended: the index says where the batches end, and goes to where it may be forgotten."""
        if self._index is not None:
            if not self._index.ends_at(self.end_offset - self.base_offset, self.size):
                self._index.add(self.end_offset - self.base_offset, self.size, self.max_timestamp)
            self.save_index()
            self._context.indexes.put(self.stem, self._index)
            self._index = None

    def end_before(self, batch: Batch) -> tuple[int, tuple[int, int] | None]:
        """The end offset of the batch before this one, and the hole before that one, if there is any; where the segment
        begins, if there is no batch."""
        last = self._batch_before(batch)
        if last is None:
            return self.base_offset, None
        before_last = self._batch_before(last)
        end = self.base_offset if before_last is None else before_last.header.next_offset
        return last.header.next_offset, (end, last.header.base_offset) if end < last.header.base_offset else None

    def _batch_before(self, batch: Batch) -> Batch | None:
        position = self.index.floor_of_position(max(0, batch.position - 1))[1]
        before = deque(self.batches(position, batch.position, end_offset=batch.header.base_offset), maxlen=1)
        return before[0] if before else None

    def truncate(self, batch: Batch) -> None:
        """Cut before a batch, not the first. The cut, and that the old index files are gone, is durable."""
        files = self._files
        self.reopen_index()
        last = self.index.floor(batch.header.base_offset - 1 - self.base_offset)
        with self.hold():
            self._resume(*last)
            files.truncate(self.fd, batch.position)
            self._sync()
        self._walk(batch.position, batch.header.base_offset)
        self.trusted_from = min(self.trusted_from, self.size)
        self._verified = ()
        self._settled = (self.base_offset, 0)
        self._starts.clear()

    def remove(self) -> str | None:
        """Take the files away, the indexes first: an index without its log is nothing. The caller syncs the directory,
        and then unlinks what is left under the name that is returned, if anything is: of a large file that takes time.
        """
        self.drop()
        self._index = None
        if not self.exists:
            return None
        self.remove_index_files()
        self._files.rename(self.path, self.stem + DELETED_FILE)
        self.exists = False
        return self.stem + DELETED_FILE

    def remove_index_files(self) -> bool:
        self._context.indexes.forget(self.stem)
        present = [path for path in self.index_paths if self._files.stat(path) is not None]
        for path in present:
            self._files.unlink(path)
        return bool(present)

    @property
    def index_paths(self) -> tuple[str, str]:
        return self.stem + OFFSET_INDEX, self.stem + TIME_INDEX

    # Opening

    def open_closed(self, size: int, end_offset: int) -> None:
        """There is a file of this name, and another segment after it."""
        self.exists = True
        self.size = self.trusted_from = size
        self.end_offset = end_offset
        self._max_timestamp = None

    def check_end(self) -> None:
        """CorruptLogError unless the batches of a closed segment end where they should."""
        last = self.index.floor_of_position(self.size - 1)
        end = self.base_offset
        for batch in self.batches(last[1], self.size, bytes_at_once=AT_ONCE):
            end = batch.header.next_offset
        if end != self.end_offset:
            raise CorruptLogError(self.path, f"it ends at offset {end}, not at {self.end_offset}", position=self.size)

    def open_active(self, size: int, end_offset: int) -> None:
        """There is a file of this name, the last one, and this is where it should end."""
        self.open_closed(size, end_offset)
        self.check_end()
        self.reopen_index()
        self._next_entry = self.index.floor(MAX_RELATIVE_OFFSET)[1] + self._context.index_interval_bytes

    def begin_scan(self, size: int, offset: int) -> int:
        """For recovery: forget what the index says from `offset` on, and return where to scan from. Then come the
        batches that prove sound, by `accept`, and `end_scan`."""
        self.exists = True
        self.size = size
        self._index = SegmentIndex.load(self._files, self.stem, self.base_offset)
        entry = self._index.floor(max(0, offset - 1 - self.base_offset)) if self._index else (0, 0)
        if self._index is None or not self._points_at_a_batch(*entry):
            self._index = SegmentIndex(self._modified_ms())
            self._remove_index_files_durably()
            entry = (0, 0)
        self.created_ms = self._index.created_ms
        self._resume(*entry)
        self.trusted_from = self.size
        return self.size

    def rewrite(self, position: int, end: int) -> None:
        """For recovery, before the scan: make sure that the sync after it leaves out nothing that can be read now."""
        rewrite(self._files, self.open(), position, end)

    def accept(self, batch: Batch) -> None:
        """The batch at the end of what was accepted so far is sound."""
        self._note(((batch.header.base_offset, batch.header),))
        self.end_offset = batch.header.next_offset

    def end_scan(self, size: int) -> None:
        """Cut what was not accepted. What is left is durable; if nothing is, there is no file any more."""
        if self.size == 0:
            if (left := self.remove()) is not None:
                self._files.unlink(left)
            return
        if self.size < size:
            self._files.truncate(self.open(), self.size)
        self._sync()

    def reopen_index(self) -> None:
        """Hold the index here, as an active segment does."""
        if self._index is None:
            self._index = self.index
            self.created_ms = self._index.created_ms
            self._max_timestamp = self.max_timestamp
            self._context.indexes.forget(self.stem)

    def _sync(self) -> None:
        try:
            self._files.sync(self.open())
        except OSError as error:
            raise SyncFailedError(error.errno, f"{self.path} could not be synced: {error}") from error

    def _create(self, now_ms: int) -> None:
        files = self._files
        fd = files.open(self.path, write=True, create=True)
        try:
            # A file that a crash left under this name is not ours to continue.
            if files.size(fd):
                files.truncate(fd, 0)
        finally:
            files.close(fd)
        self.exists = True
        self._index = SegmentIndex(now_ms)
        self.created_ms = now_ms

    def _note(self, placed: Iterable[tuple[int, BatchHeader]]) -> None:
        """Account for batches at the end so far. Locals and no properties, as this is done for every append."""
        position, newest = self.size, self._max_timestamp
        assert newest is not None
        for offset, header in placed:
            if position >= self._next_entry:
                assert self._index is not None, "only an active segment grows"
                self._index.add(offset - self.base_offset, position, newest)
                self._next_entry = position + self._context.index_interval_bytes
            newest = max(newest, header.max_timestamp)
            position += header.batch_length + LENGTH_OVERHEAD
        self.size, self._max_timestamp = position, newest

    def _resume(self, relative: int, position: int) -> None:
        """Go back to an index entry, as if nothing had been written after it yet."""
        if self.index.truncate(relative):
            self._remove_index_files_durably()
        self._max_timestamp = self.index.max_timestamp
        self._next_entry = position + self._context.index_interval_bytes if self.index.offsets else 0
        self.end_offset = self.base_offset + relative
        self.size = position

    def _walk(self, end: int, end_offset: int) -> None:
        """Account for all batches from the end so far to a position, where the offsets end too."""
        for batch in self.batches(self.size, end, bytes_at_once=AT_ONCE, end_offset=end_offset):
            self.accept(batch)

    def _remove_index_files_durably(self) -> None:
        if self.remove_index_files():
            self._files.sync_directory(os.path.dirname(self.stem))
        self.index.forget_files()

    def _load_or_rebuild_index(self) -> SegmentIndex:
        index = SegmentIndex.load(self._files, self.stem, self.base_offset)
        if index is not None and index.ends_at(self.end_offset - self.base_offset, self.size):
            return index
        return self._rebuild_index()

    def _rebuild_index(self) -> SegmentIndex:
        """Walk the whole file and write its index anew."""
        rebuilt = Segment(self._context, os.path.dirname(self.stem), self.base_offset)
        rebuilt.exists = True
        index = rebuilt._index = SegmentIndex(self._modified_ms())
        try:
            rebuilt._walk(self.size, self.end_offset)
        finally:
            rebuilt.drop()
        index.add(rebuilt.end_offset - self.base_offset, rebuilt.size, rebuilt.max_timestamp)
        rebuilt.save_index()
        return index

    def _modified_ms(self) -> int:
        stat = self._files.stat(self.path)
        return stat.modified_ms if stat else 0

    # Reading

    def find(self, offset: int, *, is_held: bool = False) -> Batch:
        """The batch that holds an offset, or the first one after it: compaction leaves holes."""
        start = self._starts.get(offset)
        if start is not None and start < self.size and is_held:
            found = self._batch_at(start)
            if found.header.base_offset == offset:
                return found
        relative, position = self._floor(offset)
        before, expected = None, self.base_offset + relative
        for batch in self.batches(position, self.size, is_held=is_held):
            if batch.header.last_offset >= offset:
                if batch.header.base_offset != expected:
                    self._check_hole(before, batch)
                return batch
            before, expected = batch, batch.header.next_offset
        raise CorruptLogError(self.path, f"no batch holds offset {offset}", position=position, offset=offset)

    def find_cached(self, offset: int) -> Batch | None:
        """Like `find`, but None where that might have to wait for the disk."""
        index = self._index or self._context.indexes.peek(self.stem)
        if index is None:
            return None
        position = index.floor(max(0, offset - self.base_offset))[1]
        length = min(self._context.index_interval_bytes + _LOOKUP_BYTES, self.size - position)
        with self.hold():
            return self.find(offset) if self.is_cached(position, length) else None

    def stretch(self, offset: int, max_bytes: int, upper_bound: int) -> tuple[int, int] | None:
        """Where a read from an offset on begins and ends, as far as that is known without a look at a header: from a
        position where an earlier read ended, to the end of what may be read, or to a place that the index knows. None:
        `find` and `end_within` have to look. The caller holds the segment."""
        position = self._starts.get(offset)
        # What the headers of older bytes say counts once it is checked.
        if position is None or position < self.trusted_from:
            return None
        end_offset, end = self.end_offset, self.size
        if upper_bound < end_offset:
            end_offset, end = self._settled
            if upper_bound != end_offset:
                return None
        limit = position + max_bytes
        if limit < end:
            index = self._index or self._context.indexes.peek(self.stem)
            if index is None:
                return None
            # Entries lie at least an interval apart, but for the last one of a closed segment.
            most = max_bytes // self._context.index_interval_bytes + 2
            relative, end = index.last_within(offset - self.base_offset, position, limit, most)
            if limit - end > max_bytes >> 3:
                # Much would be left out: the headers after the entry are worth a look.
                found = self._last_start(end or position, limit)
                if found is None:
                    return None
                end_offset, end = found
            else:
                end_offset = self.base_offset + relative
        if end <= position:
            return None
        if len(self._starts) >= _REMEMBERED_STARTS:
            self._starts.clear()
        self._starts[end_offset] = end
        return position, end

    def _last_start(self, position: int, limit: int) -> tuple[int, int] | None:
        """The offset and the position of the last batch that begins at or below a limit, by headers from the batch at
        `position` on. None if it is there, or if a header is not what it should be."""
        data = self._files.pread(self.fd, limit + _BASE_AND_LENGTH.size - position, position)
        size, at = len(data), 0
        while at + _BASE_AND_LENGTH.size <= size:
            base_offset, length = _BASE_AND_LENGTH.unpack_from(data, at)
            if length < _EMPTY_LENGTH or base_offset < self.base_offset:
                return None
            behind = at + length + LENGTH_OVERHEAD
            if position + behind > limit:
                return (base_offset, position + at) if at else None
            at = behind
        return None

    def batches_since(self, timestamp: int, *, from_offset: int = 0) -> Iterator[Batch]:
        """The batches that have a record at or after a time, from about an offset on."""
        start = max(self.base_offset + self.index.floor_of_time(timestamp), from_offset)
        for batch in self.batches(self._floor(start)[1], self.size):
            if batch.header.max_timestamp >= timestamp:
                yield batch

    def end_within(self, first: Batch, max_bytes: int, upper_bound: int) -> int:
        """Where a read from `first` on ends: after the last whole batch that fits in `max_bytes` and lies below
        `upper_bound`, and after `first` in any case. The caller holds the segment."""
        limit = first.position + max_bytes
        end = self.size if upper_bound >= self.end_offset else self.find(upper_bound, is_held=True).position
        if limit >= end:
            self._remember(min(upper_bound, self.end_offset), end)
            return end
        size = first.header.batch_length + LENGTH_OVERHEAD
        behind = first.position + size
        if limit <= behind:
            if first.position >= self.trusted_from:
                self._remember(first.header.next_offset, behind)
            return behind
        # Headers that lie far apart are cheaper to read one by one, and the index is no help if there are few of them.
        are_large = size >= _LOOKUP_BYTES
        are_few = are_large and max_bytes < 3 * size
        position = behind if are_few else max(behind, self.index.floor_of_position(limit)[1])
        if not are_large:
            for batch in self.batches(position, self.size, is_held=True):
                if batch.position + batch.header.size > limit:
                    self._remember(batch.header.base_offset, batch.position)
                    return batch.position
            return self.size
        while position < self.size:
            batch = self._batch_at(position)
            size = batch.header.batch_length + LENGTH_OVERHEAD
            if position + size > limit:
                self._remember(batch.header.base_offset, position)
                return position
            position += size
        return self.size

    def forget_starts(self) -> None:
        self._starts.clear()

    def settle(self, offset: int, position: int) -> None:
        """All before an offset, which lies at this position, has been flushed: reads will end there."""
        self._settled = offset, position

    def _batch_at(self, position: int) -> Batch:
        """The batch that begins at a position, as `batches` has it first. The caller holds the segment."""
        data = self._files.pread(self.fd, HEADER.size, position)
        if len(data) == HEADER.size:
            header = read_header(data)
            base_offset, length, _, magic, _, _, last_delta, *_ = header
            if (
                magic == MAGIC
                and HEADER.size <= length + LENGTH_OVERHEAD <= self.size - position
                and last_delta >= 0
                and self.base_offset <= base_offset < self.end_offset - last_delta
            ):
                return Batch(position, header)
        return next(self.batches(position, self.size, is_held=True))

    def _remember(self, offset: int, position: int) -> None:
        if len(self._starts) >= _REMEMBERED_STARTS:
            self._starts.clear()
        self._starts[offset] = position

    def batches(
        self,
        position: int,
        end: int,
        *,
        bytes_at_once: int = _LOOKUP_BYTES,
        checksums: bool = False,
        end_offset: int | None = None,
        is_held: bool = False,
    ) -> Iterator[Batch]:
        """The batches from a position on, by their headers; CorruptLogError where there is none."""
        end_offset = self.end_offset if end_offset is None else end_offset
        try:
            yield from self.scan(
                position, end, end_offset, bytes_at_once=bytes_at_once, checksums=checksums, is_held=is_held
            )
        except BadBatchError as bad:
            raise CorruptLogError(self.path, bad.reason, position=bad.position, offset=bad.offset) from None

    def scan(
        self,
        position: int,
        end: int,
        end_offset: int,
        *,
        bytes_at_once: int = AT_ONCE,
        checksums: bool = True,
        is_held: bool = False,
    ) -> Iterator[Batch]:
        """The batches from a position on; BadBatchError where there is none, or where a checksum is wrong. A caller
        that holds the segment, as one in a thread must, says so."""
        if not is_held:
            return self._scan_held(position, end, end_offset, bytes_at_once=bytes_at_once, checksums=checksums)
        files, offsets = self._files, range(self.base_offset, end_offset)
        return scan(files, self.fd, position, end, offsets=offsets, bytes_at_once=bytes_at_once, checksums=checksums)

    def _scan_held(self, position: int, end: int, end_offset: int, **how: Any) -> Iterator[Batch]:
        with self.hold():
            yield from self.scan(position, end, end_offset, is_held=True, **how)

    def read(self, position: int, length: int) -> bytes:
        """Bytes of a segment that the caller holds."""
        return self._files.pread(self.fd, length, position)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """Like `read`, but None if some of it has to come from the disk."""
        return self._files.read_cached(self.fd, length, position)

    def is_cached(self, position: int, length: int) -> bool:
        return self._files.is_cached(self.fd, position, length)

    def is_resident(self, position: int, length: int) -> bool:
        return self._files.is_resident(self.fd, position, length)

    def is_verified(self, position: int, end: int) -> bool:
        """Whether the checksums of a range have been checked since the log was opened."""
        return position >= self.trusted_from or covers(self._verified, position, min(end, self.trusted_from))

    def distrust(self) -> None:
        """Bytes of it come from the disk, which may have changed them: from now on those that are there are checked
        before they are read, as if another process had written them."""
        self.trusted_from = self.size
        self._verified = ()

    def verify(self, position: int, end: int, epochs: LeaderEpochs, *, is_held: bool = False) -> None:
        """Check a range of whole batches that `find` has found: CorruptLogError if a bit has changed."""
        for _ in self.checked(position, end, epochs, is_held=is_held):
            pass
        self._verified = joined(self._verified, position, end)

    def checked(self, position: int, end: int, epochs: LeaderEpochs, *, is_held: bool = False) -> Iterator[Batch]:
        """The batches of a range, once nothing is wrong with them."""
        expected = None
        for batch in self.batches(position, end, bytes_at_once=AT_ONCE, checksums=True, is_held=is_held):
            header = batch.header
            # Checksums do not cover what a leader stamps: the epoch is known, and the offset has to fit its neighbours.
            if header.leader_epoch != (epoch := epochs.at(header.last_offset)) and epoch is not None:
                reason = f"leader epoch {header.leader_epoch} where {epoch} should be"
                raise CorruptLogError(self.path, reason, position=batch.position, offset=header.base_offset)
            if header.base_offset != expected and expected is not None:
                self._check_hole(None, batch, is_held=is_held)
            yield batch
            expected = header.next_offset

    def _check_hole(self, before: Batch | None, batch: Batch, *, is_held: bool = False) -> None:
        """Offsets are missing before a batch. That is compaction, or else a changed bit: in the count of the batch
        before, which has a checksum, or in the offset of this one, which then goes beyond what follows."""
        if before is not None:
            for _ in self.batches(before.position, batch.position, checksums=True, is_held=is_held):
                pass
        for _ in islice(self.batches(batch.position, self.size, is_held=is_held), 2):
            pass

    def _floor(self, offset: int) -> tuple[int, int]:
        """The index entry at or below an offset. If it points at anything but its batch, the index is made anew."""
        relative = max(0, offset - self.base_offset)
        entry = self.index.floor(relative)
        if entry[0] and not self._points_at_a_batch(*entry):
            rebuilt = self._rebuild_index()
            if self._index is not None:
                self._index = rebuilt
            else:
                self._context.indexes.put(self.stem, rebuilt)
            entry = rebuilt.floor(relative)
        return entry

    def _points_at_a_batch(self, relative: int, position: int) -> bool:
        if position + HEADER.size > self.size:
            return relative == 0
        data = self._files.pread(self.open(), HEADER.size, position)
        header = read_header(data)
        return header.magic == MAGIC and header.base_offset == self.base_offset + relative
