"""Reads the segments that a round of compaction is about: whole batches, a few megabytes at a time."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.protocol.batch import CRC_START, HEADER, LENGTH_OVERHEAD, MAGIC, BatchHeader
from penstock.protocol.crc32c import crc32c
from penstock.storage.compaction.pace import Pace
from penstock.storage.errors import CorruptLogError, StorageError
from penstock.storage.files import Files
from penstock.storage.log.cleaned import Source
from penstock.storage.log.segment import LOG_FILE

AT_ONCE: Final = 1024 * 1024
# Headers that lie further apart than this are read one by one.
_FAR_APART: Final = 32 * 1024
_LOOKUP_BYTES: Final = 4096


class SourceChangedError(StorageError):
    """A segment was deleted or cut since the round was planned: plan a new one."""


class Chunk(NamedTuple):
    """A stretch of a segment: its bytes, where it begins, and the headers of its batches with their places in it."""

    data: bytes
    position: int
    batches: list[tuple[int, BatchHeader]]


class OpenSource:
    """A source that is being read."""

    def __init__(self, files: Files, path: str, fd: int, source: Source, pace: Pace) -> None:
        self.path = path
        self.fd = fd
        self.source = source
        self._files = files
        self._pace = pace

    def chunks(self) -> Iterator[Chunk]:
        """Yields all batches, each whole; CorruptLogError where there is none. Checksums are left to `verify`."""
        position, expected, size = 0, self.source.base_offset, self.source.size
        while position < size:
            data = self._read(position, AT_ONCE)
            batches, end = self._parse(data, position, expected)
            if not batches:
                # One that is larger than a chunk.
                data = self._read(position, _size_at(data))
                batches, end = self._parse(data, position, expected)
            yield Chunk(data, position, batches)
            position, expected = position + end, batches[-1][1].next_offset

    def headers(self) -> Iterator[list[tuple[int, BatchHeader]]]:
        """The headers of all batches, with their positions in the file, some at a time."""
        position, expected, size, at_once = 0, self.source.base_offset, self.source.size, AT_ONCE
        while position < size:
            data = self._read(position, at_once)
            batches, end = self._parse(data, position, expected, whole=False)
            yield [(position + start, header) for start, header in batches]
            at_once = AT_ONCE if end < _FAR_APART * len(batches) else _LOOKUP_BYTES
            position, expected = position + end, batches[-1][1].next_offset

    def read(self, position: int, size: int) -> bytes:
        data = self._files.pread(self.fd, size, position)
        if len(data) < size:
            raise SourceChangedError(f"{self.path} was cut while it was compacted")
        return data

    def verify(self, chunk: Chunk, start: int, header: BatchHeader) -> None:
        """CorruptLogError unless a batch of a chunk has the checksum that it was written with."""
        found = crc32c(memoryview(chunk.data)[start + CRC_START : start + header.batch_length + LENGTH_OVERHEAD])
        if found != header.crc:
            reason = f"the record batch is damaged: its CRC32C is {found:08x}, its header says {header.crc:08x}"
            raise CorruptLogError(self.path, reason, position=chunk.position + start, offset=header.base_offset)

    def _read(self, position: int, size: int) -> bytes:
        size = min(size, self.source.size - position)
        files, fd = self._files, self.fd
        was_cached = files.is_cached(fd, position, size)
        data = self.read(position, size)
        if not was_cached:
            # The page cache is for readers of the log, not for compaction.
            files.drop_cached(fd, position, size)
        self._pace.spent(size)
        return data

    def _parse(
        self, data: bytes, position: int, expected: int, *, whole: bool = True
    ) -> tuple[list[tuple[int, BatchHeader]], int]:
        """The batches at the beginning of `data`, which lies at `position`, and where they end."""
        batches: list[tuple[int, BatchHeader]] = []
        add, new, unpack, length = batches.append, tuple.__new__, HEADER.unpack_from, len(data)
        left, end_offset, start, known = self.source.size - position, self.source.end_offset, 0, expected
        while start < left:
            try:
                header = new(BatchHeader, unpack(data, start))
            except struct.error:
                if left - start >= HEADER.size:
                    break
                reason = f"{left - start} bytes remain, too few for a batch"
                raise self._corrupt(position + start, reason, known) from None
            size = header.batch_length + LENGTH_OVERHEAD
            if header.magic != MAGIC or size < HEADER.size or header.last_offset_delta < 0 or start + size > left:
                raise self._corrupt(position + start, "there is no batch here", known)
            if header.base_offset < known or header.base_offset + header.last_offset_delta >= end_offset:
                reason = f"offset {header.base_offset} where {known} to {end_offset - 1} should be"
                raise self._corrupt(position + start, reason, known)
            if whole and start + size > length:
                break
            add((start, header))
            start += size
            known = header.base_offset + header.last_offset_delta + 1
        if start == left and known != end_offset:
            raise self._corrupt(position + start, f"it ends at offset {known}, not at {end_offset}", known)
        return batches, start

    def _corrupt(self, position: int, reason: str, offset: int) -> CorruptLogError:
        return CorruptLogError(self.path, reason, position=position, offset=offset)


@dataclass(slots=True, frozen=True)
class SourceFolder:
    """Opens sources, and limits how fast they are read."""

    files: Files
    directory: str
    pace: Pace

    @contextmanager
    def open(self, source: Source) -> Iterator[OpenSource]:
        files, path = self.files, f"{self.directory}/{source.base_offset:020}{LOG_FILE}"
        try:
            fd = files.open(path)
        except FileNotFoundError:
            raise SourceChangedError(f"{path} was deleted before it was compacted") from None
        try:
            if files.size(fd) != source.size:
                raise SourceChangedError(f"{path} does not have the {source.size} bytes that were to be compacted")
            yield OpenSource(files, path, fd, source, self.pace)
        finally:
            files.close(fd)


def _size_at(data: bytes) -> int:
    """The size of the batch that the data begins with."""
    size: int = HEADER.unpack_from(data)[1] + LENGTH_OVERHEAD
    return size
