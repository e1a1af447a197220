"""A file range is a stretch of a segment: whole batches, ready to be sent from the file or read into memory."""

from types import TracebackType

from penstock.storage.errors import CorruptLogError
from penstock.storage.files import Buffer
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.segment import Segment


class FileRange:
    """Holds its segment, and so keeps the file open, until it is released, even if the log drops the segment."""

    __slots__ = ("base_offset", "epochs", "fd", "length", "position", "segment")

    def __init__(self, segment: Segment, position: int, length: int, base_offset: int, epochs: LeaderEpochs) -> None:
        """The caller has held the segment for it."""
        self.segment = segment
        self.fd = segment.fd
        self.position = position
        self.length = length
        self.base_offset = base_offset
        self.epochs = epochs

    def __len__(self) -> int:
        return self.length

    @property
    def is_verified(self) -> bool:
        """Whether the bytes may be sent as they are. If not, `verify` first; it reads them all, so not on a loop."""
        return self.segment.is_verified(self.position, self.position + self.length)

    def verify(self) -> None:
        """CorruptLogError unless every checksum is right, and what checksums do not cover too."""
        self.segment.verify(self.position, self.position + self.length, self.epochs, is_held=True)

    @property
    def is_ready(self) -> bool:
        """Whether it can be sent without waiting for the disk: verified, and in the page cache."""
        segment, position, length = self.segment, self.position, self.length
        if position < segment.trusted_from and not segment.is_verified(position, position + length):
            return False
        return segment.is_cached(position, length)

    def warm(self) -> None:
        """Read it all, and check it: what comes from the disk may have changed there. To be done in a thread. What lies
        before a damaged batch is sound: the range then ends there, and a reader that goes on from there is refused."""
        if self.is_verified:
            if self.segment.is_resident(self.position, self.length):
                # The kernel declined to read at once what it has. Nothing has to come from the disk.
                return
            # Not in memory any more. What the kernel now reads ahead is of the same file, and is to be checked too.
            self.segment.distrust()
        try:
            self.verify()
        except CorruptLogError as error:
            if not self.position < error.position < self.position + self.length:
                raise
            self.length = error.position - self.position
            self.verify()

    def read_if_ready(self) -> Buffer | None:
        """The bytes, if `is_ready`, which for a short range is found out by the very call that reads it; else None."""
        segment, position, length = self.segment, self.position, self.length
        if position < segment.trusted_from and not segment.is_verified(position, position + length):
            return None
        return segment.read_cached(position, length)

    def read(self) -> bytes:
        data = self.segment.read(self.position, self.length)
        if len(data) != self.length:
            raise CorruptLogError(
                self.segment.path, f"it was cut to {self.position + len(data)} bytes while it was read"
            )
        return data

    def release(self) -> None:
        assert self.fd >= 0, "released twice"
        self.fd = -1
        self.segment.release()

    def __enter__(self) -> "FileRange":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
