"""The sparse index of a segment finds a position by offset and an offset by time. It is a cache: without it a segment
is walked.

Both files are a header and then blocks, appended as the segment grows; what follows a damaged block is not used.

     0        4       6       8             16           24
    +--------+-------+-------+-------------+------------+---------+---------+----
    | magic  | vers. | zero  | base offset | created ms | block 1 | block 2 | ...
    | 4 s    | u16   | u16   | i64         | i64        |         |         |
    +--------+-------+-------+-------------+------------+---------+---------+----

    block:            +---------+--------+---------------------------+
                      | entries | CRC32C | entry 1 | entry 2 | ...   |
                      | u32     | u32    |                           |
                      +---------+--------+---------------------------+
    entry of .index:      i64: relative offset in the upper 32 bits, position in the lower
    entry of .timeindex:  i64: largest timestamp of the batches before, i64: relative offset that they come before
    Little-endian. The checksum covers the base offset and the entries.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import NamedTuple

from penstock.protocol.crc32c import crc32c
from penstock.storage.errors import UnsupportedFormatError
from penstock.storage.files import Files, write_all

# An entry has 31 bits for an offset and 32 for a position.
MAX_RELATIVE_OFFSET = 0x7FFF_FFFF

OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"

_VERSION = 1
_HEADER = Struct("<4sHHqq")
_BLOCK = Struct("<II")
_BASE = Struct("<q")
_MAGIC = {OFFSET_INDEX: b"PSOI", TIME_INDEX: b"PSTI"}
# Integers in an entry.
_WIDTH = {OFFSET_INDEX: 1, TIME_INDEX: 2}
_LOW = 0xFFFF_FFFF


def _position(entry: int) -> int:
    return entry & _LOW


class SegmentIndex:
    """Entries in memory, and how many of them the files have. Positions and relative offsets are below 2^32."""

    __slots__ = ("_saved_offsets", "_saved_times", "created_ms", "offsets", "time_offsets", "times")

    def __init__(self, created_ms: int) -> None:
        self.created_ms = created_ms
        self.offsets = array("q")
        self.times = array("q")
        self.time_offsets = array("q")
        self._saved_offsets = 0
        self._saved_times = 0

    @property
    def size_bytes(self) -> int:
        return 8 * (len(self.offsets) + 2 * len(self.times))

    @property
    def is_saved(self) -> bool:
        return self._saved_offsets == len(self.offsets) and self._saved_times == len(self.times)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp before the last entry, -1 if there is none."""
        return self.times[-1] if self.times else -1

    def add(self, relative_offset: int, position: int, max_timestamp: int) -> None:
        """A batch begins here, or the last one has ended; those before have timestamps of at most `max_timestamp`. What
        an entry has no room for is left out and found by a walk from the entry before: a segment can only have come to
        such offsets under an earlier Penstock, which believed any record count."""
        if relative_offset > MAX_RELATIVE_OFFSET:
            return
        self.offsets.append(relative_offset << 32 | position)
        self.times.append(max_timestamp)
        self.time_offsets.append(relative_offset)

    def ends_at(self, relative_offset: int, position: int) -> bool:
        """Whether the last entry is the end of a closed segment: only then nothing is missing."""
        return bool(
            self.offsets
            and self.offsets[-1] == relative_offset << 32 | position
            and self.time_offsets
            and self.time_offsets[-1] == relative_offset
        )

    def floor(self, relative_offset: int) -> tuple[int, int]:
        """The last entry at or below an offset, as (relative offset, position); the start if there is none."""
        return self._entry(bisect_right(self.offsets, relative_offset << 32 | _LOW))

    def floor_of_position(self, position: int) -> tuple[int, int]:
        """The last entry at or below a position."""
        return self._entry(bisect_right(self.offsets, position, key=_position))

    def last_within(self, relative_offset: int, position: int, limit: int, most: int) -> tuple[int, int]:
        """The last entry after a place and not after the position `limit`, among the next `most` entries; (0, 0) if
        there is none."""
        offsets = self.offsets
        first = bisect_right(offsets, relative_offset << 32 | position)
        count = bisect_right(offsets, limit, first, min(first + most, len(offsets)), key=_position)
        if count == first:
            return 0, 0
        entry = offsets[count - 1]
        return entry >> 32, entry & _LOW

    def floor_of_time(self, timestamp: int) -> int:
        """A relative offset such that every batch before it is older than `timestamp`."""
        count = bisect_left(self.times, timestamp)
        return self.time_offsets[count - 1] if count else 0

    def truncate(self, relative_offset: int) -> bool:
        """Drop the entries after an offset. True if the files now have more than we do and have to be removed."""
        del self.offsets[bisect_right(self.offsets, relative_offset << 32 | _LOW) :]
        keep = bisect_right(self.time_offsets, relative_offset)
        del self.times[keep:], self.time_offsets[keep:]
        return len(self.offsets) < self._saved_offsets or len(self.times) < self._saved_times

    def forget_files(self) -> None:
        """The files are gone; the next save writes everything."""
        self._saved_offsets = self._saved_times = 0

    def save(self, files: Files, stem: str, base_offset: int) -> None:
        """Append what the files do not have yet. Not synced: a torn block is found by its checksum."""
        if self._saved_offsets < len(self.offsets):
            fresh = self.offsets[self._saved_offsets :]
            self._append(files, stem, OFFSET_INDEX, base_offset, fresh)
            self._saved_offsets = len(self.offsets)
        if self._saved_times < len(self.times):
            fresh = array("q", bytes(16 * (len(self.times) - self._saved_times)))
            fresh[0::2] = self.times[self._saved_times :]
            fresh[1::2] = self.time_offsets[self._saved_times :]
            self._append(files, stem, TIME_INDEX, base_offset, fresh)
            self._saved_times = len(self.times)

    @classmethod
    def load(cls, files: Files, stem: str, base_offset: int) -> "SegmentIndex | None":
        """The entries of both files up to the first damaged block; None if a file is missing or is not an index."""
        offsets = _read(files, stem, OFFSET_INDEX, base_offset)
        times = _read(files, stem, TIME_INDEX, base_offset)
        if offsets is None or times is None:
            return None
        index = cls(offsets.created_ms)
        index.offsets = offsets.entries
        index.times, index.time_offsets = times.entries[0::2], times.entries[1::2]
        # Entries come in pairs, but the files are written one after the other.
        both = min(len(index.offsets), len(index.times))
        # A file with more than that, or with a damaged block, counts as empty, so that the next save writes it anew.
        index._saved_offsets = both if offsets.is_whole and both == len(index.offsets) else 0
        index._saved_times = both if times.is_whole and both == len(index.times) else 0
        del index.offsets[both:], index.times[both:], index.time_offsets[both:]
        return index

    def _entry(self, count: int) -> tuple[int, int]:
        entry = self.offsets[count - 1] if count else 0
        return entry >> 32, entry & _LOW

    def _append(self, files: Files, stem: str, kind: str, base_offset: int, entries: "array[int]") -> None:
        count = len(entries) // _WIDTH[kind]
        if sys.byteorder == "big":
            entries.byteswap()
        data = entries.tobytes()
        block = [_BLOCK.pack(count, crc32c(_BASE.pack(base_offset) + data)), data]
        is_first = not (self._saved_offsets if kind == OFFSET_INDEX else self._saved_times)
        fd = files.open(stem + kind, write=True, create=True)
        try:
            if is_first:
                files.truncate(fd, 0)
                block.insert(0, _HEADER.pack(_MAGIC[kind], _VERSION, 0, base_offset, self.created_ms))
            write_all(files, fd, block, files.size(fd))
        finally:
            files.close(fd)


def read_created_ms(files: Files, stem: str) -> int | None:
    """When a segment was begun, None if its index does not say."""
    try:
        fd = files.open(stem + OFFSET_INDEX)
    except FileNotFoundError:
        return None
    try:
        data = files.pread(fd, _HEADER.size, 0)
    finally:
        files.close(fd)
    if len(data) < _HEADER.size or not data.startswith(_MAGIC[OFFSET_INDEX]):
        return None
    created_ms: int = _HEADER.unpack(data)[-1]
    return created_ms


class _Read(NamedTuple):
    created_ms: int
    entries: "array[int]"
    is_whole: bool


def _read(files: Files, stem: str, kind: str, base_offset: int) -> _Read | None:
    """The entries of an index file, as far as they are sound."""
    try:
        fd = files.open(stem + kind)
    except FileNotFoundError:
        return None
    try:
        data = files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)
    if len(data) < _HEADER.size:
        return None
    magic, version, _, base, created_ms = _HEADER.unpack_from(data)
    if magic != _MAGIC[kind] or base != base_offset:
        return None
    if version > _VERSION:
        raise UnsupportedFormatError(
            f"{stem}{kind} has format {version}, and this Penstock reads up to {_VERSION}; upgrade Penstock to open it"
        )
    entries = array("q")
    position, prefix = _HEADER.size, _BASE.pack(base_offset)
    while position + _BLOCK.size <= len(data):
        count, checksum = _BLOCK.unpack_from(data, position)
        block = data[position + _BLOCK.size : position + _BLOCK.size + 8 * _WIDTH[kind] * count]
        if len(block) < 8 * _WIDTH[kind] * count or crc32c(prefix + block) != checksum:
            break
        entries.frombytes(block)
        position += _BLOCK.size + len(block)
    if sys.byteorder == "big":
        entries.byteswap()
    return _Read(created_ms, entries, is_whole=position == len(data))
