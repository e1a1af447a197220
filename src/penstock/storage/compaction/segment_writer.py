"""Writes a segment that takes the place of others, in large pieces and with its index. It writes no byte as long as the
segment would equal its only source."""

from contextlib import suppress

from penstock.protocol.batch import BatchHeader
from penstock.storage.compaction.sources import AT_ONCE, OpenSource, SourceFolder
from penstock.storage.files import Buffer, write_all
from penstock.storage.log.cleaned import CLEANED_FILE
from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX, SegmentIndex


class SegmentWriter:
    """Begins without a file: `begin` makes it, once there is something to write that is not in the source."""

    def __init__(self, folder: SourceFolder, base_offset: int, *, created_ms: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.records = 0
        self._files = folder.files
        self._pace = folder.pace
        self._stem = f"{folder.directory}/{base_offset:020}{CLEANED_FILE}"
        self._index = SegmentIndex(created_ms)
        self._interval = index_interval_bytes
        self._next_entry = 0
        self._newest = -1
        self._fd: int | None = None
        self._buffers: list[Buffer] = []
        self._buffered = 0
        self._written = 0

    @property
    def has_begun(self) -> bool:
        return self._fd is not None

    def begin(self, source: OpenSource | None = None) -> None:
        """Make the file. With a source: what was noted so far is how it begins."""
        fd = self._fd = self._files.open(self._stem, write=True, create=True)
        self._files.truncate(fd, 0)
        if source is not None:
            while self._written < self.size:
                piece = source.read(self._written, min(AT_ONCE, self.size - self._written))
                self._write([piece], len(piece))

    def note(self, header: BatchHeader, size: int) -> None:
        """A batch of `size` bytes comes next; if the file is there, its bytes are added as well."""
        if self.size >= self._next_entry:
            self._index.add(header.base_offset - self.base_offset, self.size, self._newest)
            self._next_entry = self.size + self._interval
        self._newest = max(self._newest, header.max_timestamp)
        self.size += size
        self.records += header.record_count
        self.next_offset = header.base_offset + header.last_offset_delta + 1

    def add(self, data: Buffer) -> None:
        """Bytes of batches that were noted."""
        self._buffers.append(data)
        self._buffered += len(data)

    def flush(self) -> None:
        """Write what was added, whose memory may then be used for something else."""
        if self._buffers:
            buffers, size, self._buffers, self._buffered = self._buffers, self._buffered, [], 0
            self._write(buffers, size)

    def finish(self) -> None:
        """The file is whole, and durable but for its name."""
        assert self._fd is not None
        self.flush()
        assert self._written == self.size
        self._files.sync(self._fd)
        self.close()
        self._index.add(self.next_offset - self.base_offset, self.size, self._newest)
        # An index is a cache and may be missing.
        with suppress(OSError):
            self._index.save(self._files, self._stem, self.base_offset)

    def remove(self) -> None:
        """Remove what was written, as far as that can be done: the next start removes the rest."""
        with suppress(OSError):
            self.close()
        for path in (self._stem, self._stem + OFFSET_INDEX, self._stem + TIME_INDEX):
            with suppress(OSError):
                self._files.unlink(path)

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._files.close(fd)

    def _write(self, buffers: list[Buffer], size: int) -> None:
        assert self._fd is not None
        write_all(self._files, self._fd, buffers, self._written)
        # Otherwise the sync at the end has to wait for all of it.
        self._files.start_writeback(self._fd, self._written, size)
        self._written += size
        self._pace.spent(size)
