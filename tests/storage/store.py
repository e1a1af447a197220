"""A data folder with a log in it, to be stopped, killed and damaged by tests."""

from collections.abc import Iterator

from penstock.protocol.batch import HEADER, BatchHeader, read_header, split, stamp_crc
from penstock.protocol.compression import Codec
from penstock.protocol.crc32c import crc32c
from penstock.protocol.records import NewRecord, build, iterate
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import Buffer, Files, write_all
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.log import Log, LogConfig
from penstock.storage.log.recovery import RecoveryReport

FOLDER = "/data"
TOPIC = "orders"
NOW_MS = 1_700_000_000_000


def new_batch(*values: bytes, timestamp: int = NOW_MS, codec: Codec = Codec.NONE) -> bytearray:
    """A batch of records with these values."""
    return bytearray(build([NewRecord(value, timestamp=timestamp) for value in values], codec=codec))


def claiming(batch: bytearray, count: int) -> bytearray:
    """The batch with another number of records in its header, and a right checksum."""
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(record_count=count, last_offset_delta=count - 1))
    stamp_crc(batch)
    return batch


class Store:
    """One log that is open. Batches of one short value have 70 bytes or so."""

    def __init__(self, files: Files | None = None, config: LogConfig | None = None, *, folder: str = FOLDER) -> None:
        self.memory = MemoryFiles()
        self.files: Files = files or self.memory
        self.config = config or LogConfig()
        self.folder = folder
        self.open()

    def open(self) -> None:
        self.directory = DataDirectory(self.folder, self.files)
        self.log = self.other_log(0)

    def other_log(self, partition: int) -> Log:
        return self.directory.log(TOPIC, partition, self.config)

    def stop(self) -> None:
        """In order."""
        self.directory.close()

    def kill(self) -> None:
        """The process is gone, and what it wrote is there."""
        self.directory._descriptors.close_all()
        self.files.close(self.directory._lock)

    def reopen(self, *, clean: bool = True) -> None:
        if clean:
            self.stop()
        else:
            self.kill()
        self.open()

    @property
    def report(self) -> RecoveryReport:
        return self.directory.reports[f"{TOPIC}-0"]

    @property
    def path(self) -> str:
        """The log's folder."""
        return f"{self.folder}/{TOPIC}-0"

    def append(self, *values: bytes, epoch: int = 0, now_ms: int = NOW_MS, timestamp: int | None = None) -> int:
        """One batch of these values."""
        batch = new_batch(*values, timestamp=now_ms if timestamp is None else timestamp)
        return self.log.append(split(batch), leader_epoch=epoch, now_ms=now_ms)

    def flush(self, *, save_recovery_points: bool = False) -> None:
        self.directory.flusher.flush()
        if save_recovery_points:
            self.directory.flusher.save_recovery_points(NOW_MS)

    def names(self, suffix: str = "") -> list[str]:
        """Of the files in the log's folder, which may be missing."""
        if self.files.stat(self.path) is None:
            return []
        return [name for name in self.files.list(self.path) if name.endswith(suffix)]

    def values(self) -> list[bytes]:
        """Of all records that can be read."""
        return values_of(self.log)


def values_of(log: Log) -> list[bytes]:
    """Of all records that can be read."""
    records = (record for _, batch in batches_of(log) for record in iterate(batch))
    return [record.value or b"" for record in records if record.offset >= log.start_offset]


def batches_of(log: Log, *, max_bytes: int = 1000) -> Iterator[tuple[BatchHeader, bytes]]:
    """All batches from the start of a log to its end, read in pieces."""
    offset = log.start_offset
    while (found := log.read(offset, max_bytes=max_bytes)) is not None:
        with found:
            data = found.read()
        for header, view in split(data):
            yield header, bytes(view)
            offset = header.next_offset
    assert offset == log.end_offset


def read_one(log: Log, offset: int) -> tuple[BatchHeader, bytes]:
    """The batch that holds an offset."""
    found = log.read(offset, max_bytes=1)
    assert found is not None
    with found:
        data = found.read()
    return read_header(data), data


def delete_expired(log: Log, now_ms: int, *, upper_bound: int | None = None) -> int:
    """Apply retention to a log, as a partition does. Returns how many segments are gone."""
    expired = log.find_expired(now_ms, upper_bound=upper_bound)
    if expired:
        log.advance_start(expired[-1].end_offset)
    return len(expired)


def contents(files: Files, path: str) -> bytes:
    fd = files.open(path)
    try:
        return files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)


def overwrite(files: Files, path: str, data: Buffer) -> None:
    """Make a file, or give it another content."""
    fd = files.open(path, write=True, create=True)
    try:
        files.truncate(fd, 0)
        if data:
            write_all(files, fd, [data], 0)
    finally:
        files.close(fd)


def make_newer(files: Files, path: str) -> None:
    """Raise the version that a checkpoint or an index carries, as a later Penstock would."""
    data = bytearray(contents(files, path))
    if data[:4] == b"PSCK":
        data[8:10] = (int.from_bytes(data[8:10], "little") + 1).to_bytes(2, "little")
        data[14:18] = crc32c(bytes(data[4:14] + data[18:])).to_bytes(4, "little")
    else:
        data[4:6] = (2).to_bytes(2, "little")
    overwrite(files, path, data)
