"""These errors say what is wrong with a log or a data folder."""


class StorageError(Exception):
    """Base of the errors that storage raises besides the operating system's own."""


class CorruptLogError(StorageError):
    """Bytes that were safely on disk are not what they were. Nothing has been cut or served."""

    def __init__(self, path: str, reason: str, *, position: int = 0, offset: int | None = None) -> None:
        super().__init__(
            f"{path}, byte {position}: {reason}. The disk lost or changed data that had been flushed; "
            "restore this partition from a replica or a backup, or move its folder away to start it empty"
        )
        self.path = path
        self.position = position
        # The offset of the record that should lie there, if that is known.
        self.offset = offset
        self.reason = reason

    @property
    def place(self) -> dict[str, str | int | None]:
        """Where it is, as fields of a log line."""
        return {"file": self.path, "position": self.position, "offset": self.offset}


class CorruptCheckpointError(StorageError):
    """A checkpoint file does not have the checksum it was written with."""


class UnsupportedFormatError(StorageError):
    """A file was written by a newer Penstock."""


class LogOfflineError(StorageError):
    """An earlier write or sync failed in a way that leaves the disk's content in doubt; the log takes nothing more."""


class OffsetOutOfRangeError(StorageError):
    """The log does not hold this offset: it is below its start or above its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is not in the log, which goes from {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class SyncFailedError(StorageError, OSError):
    """A sync failed: what it should have made durable may be lost, though it can still be read, and a second sync would
    succeed without it."""


class DirectoryRefusedError(StorageError):
    """A data folder is in use by another process, or belongs to another cluster or node."""


class MetadataBehindError(StorageError):
    """A log knows a leader epoch that the metadata does not: the metadata is older than the log, and what it says of
    leaders and replicas may be wrong."""

    def __init__(self, name: str, epoch: int, newest_known: int) -> None:
        super().__init__(
            f"the log of {name} has leader epoch {epoch}, and the metadata only knows epochs up to {newest_known}: the "
            "metadata was restored from an older copy. Import an export instead (penstock cluster import), or if the "
            "records of this log are not needed, move its folder away"
        )
