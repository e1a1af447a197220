"""A stretch of a segment: whole batches, ready to be sent from the file or read into memory."""

from dataclasses import dataclass
from types import TracebackType

from penstock.storage.descriptors import Pinned
from penstock.storage.errors import CorruptLogError
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.scan import AT_ONCE
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
        self.segment.verify(self.position, self.position + self.length, self.epochs)

    @property
    def is_ready(self) -> bool:
        """Whether it can be sent without waiting for the disk: verified, and in the page cache."""
        return self.is_verified and self.segment.is_cached(self.pinned, self.position, self.length)

    def warm(self) -> None:
        """Read it all, and check what was not checked yet. To be done in a thread."""
        if not self.is_verified:
            self.verify()
        else:
            for position in range(self.position, self.position + self.length, AT_ONCE):
                self.segment.read(self.pinned, position, min(AT_ONCE, self.position + self.length - position))

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
