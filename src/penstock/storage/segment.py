"""One file of a log: record batches one behind the other, found through a sparse index.

`<base offset, 20 digits>.log` holds batches as they were received, base offset and leader epoch stamped in:

    +---------------------+---------------------+-----
    | batch (61 B header, | batch               | ...
    | then its records)   |                     |
    +---------------------+---------------------+-----
"""

import os.path
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.protocol.batch import HEADER, LENGTH_OVERHEAD, MAGIC, BatchHeader, read_header
from penstock.storage.descriptors import Descriptors, Pinned
from penstock.storage.errors import CorruptLogError, SyncFailedError
from penstock.storage.files import Buffer, Files, rewrite, write_all
from penstock.storage.index import OFFSET_INDEX, TIME_INDEX, SegmentIndex
from penstock.storage.index_cache import IndexCache
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.scan import AT_ONCE, BadBatchError, Batch, scan

LOG_FILE = ".log"
DELETED_FILE = ".deleted"
# Enough for the headers between two index entries, and for a large batch not much more than its header.
_LOOKUP_BYTES = 4096
# Where so many readers go on from is remembered for each segment.
_REMEMBERED_STARTS = 64
# An index that has grown by this much of the log is saved, so that after a crash no more than this is walked again, but
# not more often than the recovery point is: what lies above that is walked in any case.
_SAVE_INDEX_BYTES = 4 * 1024 * 1024
_SAVE_INDEX_MS = 1000
# Above every relative offset.
_LAST = 0x7FFF_FFFF


class CutBackError(OSError):
    """A write failed, and so did removing what it may have left behind."""


@dataclass(slots=True, frozen=True)
class SegmentContext:
    """What all segments of a log have in common."""

    files: Files
    descriptors: Descriptors
    indexes: IndexCache
    index_interval_bytes: int


class Segment:
    """Belongs to one log, which alone knows whether it is the active one. The file is made by the first append."""

    __slots__ = (
        "_context",
        "_index",
        "_index_saved_at",
        "_index_saved_ms",
        "_max_timestamp",
        "_newest_unknown_ms",
        "_next_entry",
        "_starts",
        "_trusted_from",
        "_verified",
        "_writer",
        "base_offset",
        "created_ms",
        "end_offset",
        "exists",
        "size",
        "stem",
    )

    def __init__(self, context: SegmentContext, directory: str, base_offset: int) -> None:
        self._context = context
        self._index: SegmentIndex | None = None
        self._index_saved_at = 0
        self._index_saved_ms = 0
        self._next_entry = 0
        self._writer: Pinned | None = None
        self.stem = f"{directory}/{base_offset:020}"
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.exists = False
        self.size = 0
        # Known of an active segment alone.
        self.created_ms = 0
        self._max_timestamp: int | None = -1
        # Told once: it takes a walk through the whole file to find out that nothing can be found out.
        self._newest_unknown_ms: int | None = None
        # Bytes from here on were written by this process, or checked by its recovery, and have not left its memory.
        self._trusted_from = 0
        # The batches that a read ended before, or where they will begin: readers go on from where they were.
        self._starts: dict[int, Batch | int] = {}
        # Where somebody read last in what was there before: checked once, as readers go on from where they were.
        self._verified = (0, 0)

    @property
    def path(self) -> str:
        return self.stem + LOG_FILE

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
        """Write batches of `size` bytes in all; their offsets stand beside their headers, which may tell older ones.
        After an OSError the file is as it was, unless it is a CutBackError."""
        if not self.exists:
            self._create(now_ms)
        files = self._context.files
        fd = (self._writer or self.pin_for_writing()).fd
        try:
            if files.pwritev(fd, buffers, self.size) != size:
                # Writing the same bytes to the same place once more is the simple way to deal with a short write.
                write_all(files, fd, buffers, self.size)
        except OSError as error:
            try:
                files.truncate(fd, self.size)
            except OSError:
                raise CutBackError(f"{self.path} could not be cut back to byte {self.size} after: {error}") from error
            raise
        self._note(placed)
        self.end_offset = end_offset
        if self.size - self._index_saved_at >= _SAVE_INDEX_BYTES and now_ms - self._index_saved_ms >= _SAVE_INDEX_MS:
            self.save_index()
            self._index_saved_ms = now_ms

    def pin_for_writing(self) -> Pinned:
        """The descriptor that writes, and that the next sync needs; kept until `release_writer`."""
        if self._writer is None:
            self._writer = self._context.descriptors.pin(self.path, write=True)
        return self._writer

    @property
    def is_open_for_writing(self) -> bool:
        return self._writer is not None

    def release_writer(self) -> None:
        if self._writer is not None:
            self._writer.release()
            self._writer = None

    def save_index(self) -> None:
        try:
            self.index.save(self._context.files, self.stem, self.base_offset)
        except OSError:
            # An index is a cache and may be missing; a disk that is full or broken is told by what must be written.
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

    def end_before(self, batch: Batch) -> int:
        """The end offset of the batch before this one; where the segment begins, if there is none."""
        position = self.index.floor_of_position(max(0, batch.position - 1))[1]
        end = self.base_offset
        for before in self.batches(position, batch.position, end_offset=batch.header.base_offset):
            end = before.header.next_offset
        return end

    def truncate(self, batch: Batch) -> None:
        """Cut before a batch, not the first. The cut, and that the old index files are gone, is durable."""
        files = self._context.files
        self.reopen_index()
        last = self.index.floor(batch.header.base_offset - 1 - self.base_offset)
        fd = self.pin_for_writing().fd
        self._resume(*last)
        files.truncate(fd, batch.position)
        self._sync(fd)
        self._walk(batch.position, batch.header.base_offset)
        self._trusted_from = min(self._trusted_from, self.size)
        self._verified = (0, 0)
        self._starts.clear()

    def remove(self) -> str | None:
        """Take the files away, the indexes first: an index without its log is nothing. The caller syncs the directory,
        and then unlinks what is left under the name that is returned, if anything is: of a large file that takes time.
        """
        self.release_writer()
        self._index = None
        if not self.exists:
            return None
        self.remove_index_files()
        self._context.descriptors.forget(self.path)
        self._context.files.rename(self.path, self.stem + DELETED_FILE)
        self.exists = False
        return self.stem + DELETED_FILE

    def remove_index_files(self) -> bool:
        self._context.indexes.forget(self.stem)
        present = [path for path in self.index_paths if self._context.files.stat(path) is not None]
        for path in present:
            self._context.files.unlink(path)
        return bool(present)

    @property
    def index_paths(self) -> tuple[str, str]:
        return self.stem + OFFSET_INDEX, self.stem + TIME_INDEX

    # Opening

    def open_closed(self, size: int, end_offset: int) -> None:
        """There is a file of this name, and another segment behind it."""
        self.exists = True
        self.size = self._trusted_from = size
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
        self._next_entry = self.index.floor(_LAST)[1] + self._context.index_interval_bytes

    def begin_scan(self, size: int, offset: int) -> int:
        """For recovery: forget what the index says from `offset` on, and return where to scan from. Then come the
        batches that prove sound, by `accept`, and `end_scan`."""
        self.exists = True
        self.size = size
        self._index = SegmentIndex.load(self._context.files, self.stem, self.base_offset)
        entry = self._index.floor(max(0, offset - 1 - self.base_offset)) if self._index else (0, 0)
        if self._index is None or not self._points_at_a_batch(*entry):
            self._index = SegmentIndex(self._modified_ms())
            self._remove_index_files_durably()
            entry = (0, 0)
        self.created_ms = self._index.created_ms
        self._resume(*entry)
        self._trusted_from = self.size
        return self.size

    def rewrite(self, position: int, end: int) -> None:
        """For recovery, before the scan: make sure that the sync after it leaves out nothing that can be read now."""
        rewrite(self._context.files, self.pin_for_writing().fd, position, end)

    def accept(self, batch: Batch) -> None:
        """The batch at the end of what was accepted so far is sound."""
        self._note(((batch.header.base_offset, batch.header),))
        self.end_offset = batch.header.next_offset

    def end_scan(self, size: int) -> None:
        """Cut what was not accepted. What is left is durable; if nothing is, there is no file any more."""
        if self.size == 0:
            if (left := self.remove()) is not None:
                self._context.files.unlink(left)
            return
        fd = self.pin_for_writing().fd
        if self.size < size:
            self._context.files.truncate(fd, self.size)
        self._sync(fd)
        self.release_writer()

    def reopen_index(self) -> None:
        """Hold the index here, as an active segment does."""
        if self._index is None:
            self._index = self.index
            self.created_ms = self._index.created_ms
            self._max_timestamp = self.max_timestamp
            self._context.indexes.forget(self.stem)

    def _sync(self, fd: int) -> None:
        try:
            self._context.files.sync(fd)
        except OSError as error:
            raise SyncFailedError(error.errno, f"{self.path} could not be synced: {error}") from error

    def _create(self, now_ms: int) -> None:
        files = self._context.files
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
        position, next_entry, newest, index = self.size, self._next_entry, self._max_timestamp, self._index
        assert newest is not None
        assert index is not None, "only an active segment grows"
        for offset, header in placed:
            if position >= next_entry:
                index.add(offset - self.base_offset, position, newest)
                next_entry = position + self._context.index_interval_bytes
            newest = max(newest, header.max_timestamp)
            position += header.batch_length + LENGTH_OVERHEAD
        self.size, self._next_entry, self._max_timestamp = position, next_entry, newest

    def _resume(self, relative: int, position: int) -> None:
        """Go back to an index entry, as if nothing had been written behind it yet."""
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
            self._context.files.sync_directory(os.path.dirname(self.stem))
        self.index.forget_files()

    def _load_or_rebuild_index(self) -> SegmentIndex:
        index = SegmentIndex.load(self._context.files, self.stem, self.base_offset)
        if index is not None and index.ends_at(self.end_offset - self.base_offset, self.size):
            return index
        return self._rebuild_index()

    def _rebuild_index(self) -> SegmentIndex:
        """Walk the whole file and write its index anew."""
        rebuilt = Segment(self._context, os.path.dirname(self.stem), self.base_offset)
        rebuilt.exists = True
        index = rebuilt._index = SegmentIndex(self._modified_ms())
        rebuilt._walk(self.size, self.end_offset)
        index.add(rebuilt.end_offset - self.base_offset, rebuilt.size, rebuilt.max_timestamp)
        rebuilt.save_index()
        return index

    def _modified_ms(self) -> int:
        stat = self._context.files.stat(self.path)
        return stat.modified_ms if stat else 0

    # Reading

    def find(self, offset: int, pinned: Pinned | None = None) -> Batch:
        """The batch that holds an offset, or the first one behind it: compaction leaves holes."""
        start = self._starts.get(offset)
        if isinstance(start, Batch):
            return start
        if start is not None and start < self.size and pinned is not None:
            found = self._batch_at(start, pinned)
            if found.header.base_offset == offset:
                return found
        relative, position = self._floor(offset)
        before, expected = None, self.base_offset + relative
        for batch in self.batches(position, self.size, pinned=pinned):
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
        with self.pin() as pinned:
            return self.find(offset) if self.is_cached(pinned, position, length) else None

    def batches_since(self, timestamp: int) -> Iterator[Batch]:
        """The batches that have a record at or after a time."""
        start = self.base_offset + self.index.floor_of_time(timestamp)
        for batch in self.batches(self._floor(start)[1], self.size):
            if batch.header.max_timestamp >= timestamp:
                yield batch

    def end_within(self, first: Batch, max_bytes: int, upper_bound: int, pinned: Pinned) -> int:
        """Where a read from `first` on ends: behind the last whole batch that fits in `max_bytes` and lies below
        `upper_bound`, and behind `first` in any case."""
        limit = first.position + max_bytes
        end = self.size if upper_bound >= self.end_offset else self.find(upper_bound, pinned).position
        if limit >= end:
            self._remember(min(upper_bound, self.end_offset), end)
            return end
        size = first.header.batch_length + LENGTH_OVERHEAD
        behind = first.position + size
        if limit <= behind:
            return behind
        # Headers that lie far apart are cheaper to read one by one, and the index is no help if there are few of them.
        are_large = size >= _LOOKUP_BYTES
        are_few = are_large and max_bytes < 3 * size
        position = behind if are_few else max(behind, self.index.floor_of_position(limit)[1])
        if not are_large:
            for batch in self.batches(position, self.size, pinned=pinned):
                if batch.position + batch.header.size > limit:
                    self._remember(batch.header.base_offset, batch)
                    return batch.position
            return self.size
        while position < self.size:
            batch = self._batch_at(position, pinned)
            size = batch.header.batch_length + LENGTH_OVERHEAD
            if position + size > limit:
                self._remember(batch.header.base_offset, batch)
                return position
            position += size
        return self.size

    def _batch_at(self, position: int, pinned: Pinned) -> Batch:
        """The batch that begins at a position, as `batches` has it first."""
        data = self._context.files.pread(pinned.fd, HEADER.size, position)
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
        return next(self.batches(position, self.size, pinned=pinned))

    def _remember(self, offset: int, start: Batch | int) -> None:
        if len(self._starts) >= _REMEMBERED_STARTS:
            self._starts.clear()
        self._starts[offset] = start

    def batches(
        self,
        position: int,
        end: int,
        *,
        bytes_at_once: int = _LOOKUP_BYTES,
        checksums: bool = False,
        end_offset: int | None = None,
        pinned: Pinned | None = None,
    ) -> Iterator[Batch]:
        """The batches from a position on, by their headers; CorruptLogError where there is none."""
        end_offset = self.end_offset if end_offset is None else end_offset
        scanned = self.scan(position, end, end_offset, bytes_at_once=bytes_at_once, checksums=checksums, pinned=pinned)
        try:
            yield from scanned
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
        pinned: Pinned | None = None,
    ) -> Iterator[Batch]:
        """The batches from a position on; BadBatchError where there is none, or where a checksum is wrong. Whoever has
        a descriptor pinned, as a thread must, comes with it."""
        if pinned is None:
            return self._scan_pinned(position, end, end_offset, bytes_at_once=bytes_at_once, checksums=checksums)
        files, offsets = self._context.files, range(self.base_offset, end_offset)
        fd = pinned.fd
        return scan(files, fd, position, end, offsets=offsets, bytes_at_once=bytes_at_once, checksums=checksums)

    def _scan_pinned(self, position: int, end: int, end_offset: int, **how: Any) -> Iterator[Batch]:
        with self.pin() as own:
            yield from self.scan(position, end, end_offset, pinned=own, **how)

    def pin(self) -> Pinned:
        return self._context.descriptors.pin(self.path)

    def read(self, pinned: Pinned, position: int, length: int) -> bytes:
        return self._context.files.pread(pinned.fd, length, position)

    def is_cached(self, pinned: Pinned, position: int, length: int) -> bool:
        return self._context.files.is_cached(pinned.fd, position, length)

    def is_verified(self, position: int, end: int) -> bool:
        """Whether the checksums of a range have been checked since the log was opened."""
        start, stop = self._verified
        return position >= self._trusted_from or (start <= position and (end <= stop or stop >= self._trusted_from))

    def distrust(self) -> None:
        """Bytes of it come from the disk, which may have changed them: from now on those that are there are checked
        before they are read, as if another process had written them."""
        self._trusted_from = self.size
        self._verified = (0, 0)

    def verify(self, position: int, end: int, epochs: LeaderEpochs, pinned: Pinned | None = None) -> None:
        """Check a range of whole batches that `find` has found: CorruptLogError if a bit has changed."""
        for _ in self.checked(position, end, epochs, pinned):
            pass
        start, stop = self._verified
        self._verified = (start, max(stop, end)) if start <= position <= stop else (position, end)

    def checked(self, position: int, end: int, epochs: LeaderEpochs, pinned: Pinned | None = None) -> Iterator[Batch]:
        """The batches of a range, once nothing is wrong with them."""
        expected = None
        for batch in self.batches(position, end, bytes_at_once=AT_ONCE, checksums=True, pinned=pinned):
            header = batch.header
            # Checksums do not cover what a leader stamps: the epoch is known, and the offset has to fit its neighbours.
            if header.leader_epoch != (epoch := epochs.at(header.last_offset)) and epoch is not None:
                reason = f"leader epoch {header.leader_epoch} where {epoch} should be"
                raise CorruptLogError(self.path, reason, position=batch.position, offset=header.base_offset)
            if header.base_offset != expected and expected is not None:
                self._check_hole(None, batch, pinned)
            yield batch
            expected = header.next_offset

    def _check_hole(self, before: Batch | None, batch: Batch, pinned: Pinned | None = None) -> None:
        """Offsets are missing before a batch. That is compaction, or else a changed bit: in the count of the batch
        before, which has a checksum, or in the offset of this one, which then goes beyond what follows."""
        if before is not None:
            for _ in self.batches(before.position, batch.position, checksums=True, pinned=pinned):
                pass
        for _ in islice(self.batches(batch.position, self.size, pinned=pinned), 2):
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
        with self.pin() as pinned:
            data = self.read(pinned, position, HEADER.size)
        header = read_header(data)
        return header.magic == MAGIC and header.base_offset == self.base_offset + relative
