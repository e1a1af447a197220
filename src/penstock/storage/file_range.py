"""A stretch of a segment: whole batches, ready to be sent from the file or read into memory."""

from dataclasses import dataclass
from types import TracebackType

from penstock.storage.descriptors import Pinned
from penstock.storage.errors import CorruptLogError
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.segment import Segment


@dataclass(slots=True, eq=False)
class FileRange:
    """Keeps the file open until it is released, even if the log drops the segment meanwhile."""

    segment: Segment
    pinned: Pinned
    position: int
    length: int
    base_offset: int
    epochs: LeaderEpochs

    def __len__(self) -> int:
        return self.length

    @property
    def fd(self) -> int:
        return self.pinned.fd

    @property
    def is_verified(self) -> bool:
        """Whether the bytes may be sent as they are. If not, `verify` first; it reads them all, so not on a loop."""
        return self.segment.is_verified(self.position, self.position + self.length)

    def verify(self) -> None:
        """CorruptLogError unless every checksum is right, and what checksums do not cover too."""
        self.segment.verify(self.position, self.position + self.length, self.epochs, self.pinned)

    @property
    def is_ready(self) -> bool:
        """Whether it can be sent without waiting for the disk: verified, and in the page cache."""
        segment, position, length = self.segment, self.position, self.length
        return segment.is_verified(position, position + length) and segment.is_cached(self.pinned, position, length)

    def warm(self) -> None:
        """Read it all, and check it: what comes from the disk may have changed there. To be done in a thread. What lies
        before a damaged batch is sound: the range then ends there, and it is who goes on from there that is refused."""
        if self.is_verified:
            # Not in memory any more. What the kernel now reads ahead is of the same file, and is to be checked too.
            self.segment.distrust()
        try:
            self.verify()
        except CorruptLogError as error:
            if not self.position < error.position < self.position + self.length:
                raise
            self.length = error.position - self.position
            self.verify()

    def read(self) -> bytes:
        data = self.segment.read(self.pinned, self.position, self.length)
        if len(data) != self.length:
            raise CorruptLogError(
                self.segment.path, f"it was cut to {self.position + len(data)} bytes while it was read"
            )
        return data

    def release(self) -> None:
        self.pinned.release()

    def __enter__(self) -> "FileRange":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
