"""Walks through a file of batches, by their headers alone or with their checksums."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.protocol.batch import HEADER, MAGIC, BatchHeader, read_header, verify
from penstock.protocol.errors import DecodeError
from penstock.storage.files import Files

# The number of bytes that a walk over much of a file reads at once.
AT_ONCE = 1024 * 1024


class Batch(NamedTuple):
    """Where a batch lies."""

    position: int
    header: BatchHeader


class BadBatchError(Exception):
    """What lies at a position is no batch. What that means, the caller decides."""

    def __init__(self, position: int, reason: str, *, offset: int | None = None) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason
        # The offset of the record that should lie there, as far as the batches before it, or it itself, say.
        self.offset = offset


def scan(
    files: Files,
    fd: int,
    position: int,
    end: int,
    *,
    offsets: range,
    bytes_at_once: int = AT_ONCE,
    checksums: bool = False,
) -> Iterator[Batch]:
    """The batches from `position` to `end`, whole and with growing `offsets`; BadBatchError where that is not so."""
    buffer, start, expected = memoryview(b""), position, offsets.start
    known: int | None = None
    while position < end:
        if position + HEADER.size > start + len(buffer):
            start, buffer = position, memoryview(files.pread(fd, min(bytes_at_once, end - position), position))
            if len(buffer) < HEADER.size:
                raise BadBatchError(position, f"{len(buffer)} bytes remain, too few for a batch", offset=known)
        header = read_header(buffer, position - start)
        size = header.size
        if header.magic != MAGIC or size < HEADER.size or header.last_offset_delta < 0:
            raise BadBatchError(position, "there is no batch here", offset=known)
        if position + size > end:
            reason = f"a batch of {size} bytes goes beyond the {end - position} that remain"
            raise BadBatchError(position, reason, offset=known)
        if header.base_offset < expected:
            raise BadBatchError(position, f"offset {header.base_offset} comes after {expected - 1}", offset=known)
        if header.next_offset > offsets.stop:
            reason = f"offset {header.last_offset} where {offsets.stop - 1} is the last"
            raise BadBatchError(position, reason, offset=known)
        if checksums:
            if position + size > start + len(buffer):
                at_once = max(size, min(bytes_at_once, end - position))
                start, buffer = position, memoryview(files.pread(fd, at_once, position))
            try:
                verify(header, buffer[position - start : position - start + size])
            except DecodeError as bad:
                raise BadBatchError(position, str(bad), offset=header.base_offset) from None
        yield Batch(position, header)
        position += size
        known = expected = header.next_offset
