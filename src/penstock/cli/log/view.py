"""`walk` reads a data folder without locking or changing it, so that it may be a copy or a folder that a broker writes
to. It reports damage and goes on with the rest."""

import os.path
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from penstock.machines.producers import SNAPSHOT_VERSION, Producers
from penstock.protocol.batch import BatchHeader, verify
from penstock.protocol.errors import DecodeError
from penstock.storage.errors import StorageError
from penstock.storage.files import Files
from penstock.storage.log.folder import IDENTITY_FILE, read_identity, read_log_start
from penstock.storage.log.index import OFFSET_INDEX, TIME_INDEX, SegmentIndex
from penstock.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.producer_snapshots import ProducerSnapshots
from penstock.storage.log.scan import BadBatchError, scan
from penstock.storage.log.segment import LOG_FILE
from penstock.storage.recovery_points import FILE_NAME as RECOVERY_POINTS_FILE
from penstock.storage.recovery_points import RecoveryPoints

LOGS_FOLDER = "logs"
"""The folder of the logs, in a broker's data folder."""

_SEGMENT = re.compile(r"\d{20}" + re.escape(LOG_FILE))
_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]*)", re.ASCII)
_POSITION = 0xFFFF_FFFF
_LAST_OFFSET = 0x7FFF_FFFF_FFFF_FFFF

T = TypeVar("T")


class NoLogError(Exception):
    """There is nothing to show at a path."""


@dataclass(slots=True, frozen=True)
class PartitionView:
    """A partition's folder and its checkpoints; a problem stands in place of what could not be read."""

    name: str
    path: str
    identity: bytes | None
    log_start: int | None
    recovery_point: int | None
    """None if it is not known, because the folder is that of one partition."""
    leader_epochs: tuple[tuple[int, int], ...]
    """Epoch and start offset of each."""
    snapshots: tuple[int, ...]
    """The offsets of producer snapshots."""
    producers: int | None
    """The number of producers in the newest snapshot."""
    problems: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class SegmentView:
    path: str
    base_offset: int
    size: int


@dataclass(slots=True, frozen=True)
class BatchView:
    position: int
    header: BatchHeader
    data: bytes
    problem: str | None
    """What is wrong with its checksum or form, if anything."""


@dataclass(slots=True, frozen=True)
class IndexEntry:
    offset: int
    position: int
    max_timestamp: int
    """The largest timestamp of the batches before."""
    problem: str | None = None


@dataclass(slots=True, frozen=True)
class IndexView:
    """The index of a segment, which follows its batches; None where it cannot be read."""

    entries: list[IndexEntry] | None
    problem: str | None = None

    @property
    def wrong(self) -> list[IndexEntry]:
        return [entry for entry in self.entries or () if entry.problem is not None]


@dataclass(slots=True, frozen=True)
class FaultView:
    """The rest of a segment cannot be read. At the end of a log that is no damage: a batch is being written there, or a
    crash interrupted its write, and the next start cuts it off."""

    reason: str
    is_damage: bool


View = PartitionView | SegmentView | BatchView | FaultView | IndexView


def walk(files: Files, path: str) -> Iterator[View]:
    """Yield each partition, its segments, their batches, and after those their index. `path` is a broker's data folder,
    the folder of logs in it, or a partition's."""
    for folder in partition_folders(files, path):
        try:
            yield read_partition(files, folder)
            found = list(segments(files, folder))
            for segment in found:
                yield segment
                yield from read_segment(files, segment, is_last=segment is found[-1])
        except FileNotFoundError as gone:
            # Retention or the deletion of a topic has removed it meanwhile.
            yield FaultView(f"{gone.filename} was deleted meanwhile", is_damage=False)


def partition_folders(files: Files, path: str) -> list[str]:
    path = path.rstrip("/") or "/"
    found = files.stat(path)
    if found is None or not found.is_directory:
        raise NoLogError(f"{path} is no folder")
    names = files.list(path)
    if any(_SEGMENT.fullmatch(name) for name in names) or {IDENTITY_FILE, LEADER_EPOCHS_FILE}.intersection(names):
        return [path]
    if LOGS_FOLDER in names and _is_folder(files, f"{path}/{LOGS_FOLDER}"):
        path = f"{path}/{LOGS_FOLDER}"
        names = files.list(path)
    matches = [match for name in names if (match := _PARTITION.fullmatch(name)) and _is_folder(files, f"{path}/{name}")]
    if not matches:
        raise NoLogError(f"{path} has no partition in it; give a broker's data folder, or a partition's own")
    return [f"{path}/{match[0]}" for match in sorted(matches, key=lambda match: (match[1], int(match[2])))]


def read_partition(files: Files, folder: str) -> PartitionView:
    names = files.list(folder)
    name = os.path.basename(folder)
    problems: list[str] = []

    def attempt(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except StorageError as error:
            problems.append(str(error))
            return otherwise

    snapshots = ProducerSnapshots(files, folder, names)
    return PartitionView(
        name=name,
        path=folder,
        identity=attempt(lambda: read_identity(files, folder, was_flushed=True), None),
        log_start=attempt(lambda: read_log_start(files, folder), None),
        recovery_point=attempt(lambda: _recovery_point(files, os.path.dirname(folder) or ".", name), None),
        leader_epochs=attempt(lambda: LeaderEpochs(files, f"{folder}/{LEADER_EPOCHS_FILE}").entries, ()),
        snapshots=snapshots.offsets,
        producers=attempt(lambda: _producers(snapshots), None),
        problems=tuple(problems),
    )


def segments(files: Files, folder: str) -> Iterator[SegmentView]:
    for name in files.list(folder):
        if _SEGMENT.fullmatch(name) and (found := files.stat(f"{folder}/{name}")) is not None:
            yield SegmentView(f"{folder}/{name}", int(name.removesuffix(LOG_FILE)), found.size)


def read_segment(files: Files, segment: SegmentView, *, is_last: bool) -> Iterator[BatchView | FaultView | IndexView]:
    # The index is read before the batches: entries are only appended, so none can point beyond what is read then.
    index = _Index.load(files, segment)
    fd = files.open(segment.path)
    try:
        size = files.size(fd)
        try:
            for position, header in scan(files, fd, 0, size, offsets=range(segment.base_offset, _LAST_OFFSET)):
                data = files.pread(fd, header.size, position)
                index.passed(position, header)
                yield BatchView(position, header, data, _problem(header, data))
        except BadBatchError as bad:
            rest = size - bad.position
            yield FaultView(f"the last {rest} bytes, from {bad.position} on: {bad.reason}", is_damage=not is_last)
    finally:
        files.close(fd)
    yield index.view()


class _Index:
    """Compares the entries of a segment's index with its batches, while these are read."""

    def __init__(self, base_offset: int, index: SegmentIndex | None, problem: str | None) -> None:
        self._base_offset = base_offset
        self._index = index
        self._problem = problem
        self._checked: list[IndexEntry] = []
        self._next = 0
        # The position where the next batch begins, and the newest timestamp before it.
        self._position = 0
        self._offset = base_offset
        self._max_timestamp = -1

    @classmethod
    def load(cls, files: Files, segment: SegmentView) -> "_Index":
        stem = segment.path.removesuffix(LOG_FILE)
        try:
            index = SegmentIndex.load(files, stem, segment.base_offset)
        except StorageError as error:
            return cls(segment.base_offset, None, str(error))
        if index is None:
            missing = [suffix for suffix in (OFFSET_INDEX, TIME_INDEX) if files.stat(stem + suffix) is None]
            problem = f"there is no {' and no '.join(missing)}" if missing else "it is damaged"
            return cls(segment.base_offset, None, problem)
        return cls(segment.base_offset, index, None)

    def passed(self, position: int, header: BatchHeader) -> None:
        # Offsets may have a hole before a batch; the entry at the end of the batch before says where that one ended.
        self._check_up_to(position, {self._offset, header.base_offset})
        self._position = position + header.size
        self._offset = header.next_offset
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)

    def view(self) -> IndexView:
        if self._index is None:
            return IndexView(None, self._problem)
        self._check_up_to(self._position, {self._offset})
        for number in range(self._next, len(self._index.offsets)):
            self._checked.append(self._entry(number, "it points beyond the last batch"))
        return IndexView(self._checked)

    def _check_up_to(self, position: int, offsets: set[int]) -> None:
        """Check the entries for positions up to this one, at which a batch begins or the last one ends."""
        if self._index is None:
            return
        while self._next < len(self._index.offsets) and self._index.offsets[self._next] & _POSITION <= position:
            self._checked.append(self._entry(self._next, self._problem_of(self._next, position, offsets)))
            self._next += 1

    def _problem_of(self, number: int, position: int, offsets: set[int]) -> str | None:
        entry = self._entry(number)
        if entry.position != position:
            return "no batch begins there"
        if entry.offset not in offsets:
            return f"what begins there has offset {max(offsets)}"
        assert self._index is not None
        if self._index.time_offsets[number] + self._base_offset != entry.offset:
            return "the time index has another offset for it"
        if entry.max_timestamp != self._max_timestamp:
            return f"the newest before it is {self._max_timestamp}"
        return None

    def _entry(self, number: int, problem: str | None = None) -> IndexEntry:
        assert self._index is not None
        packed = self._index.offsets[number]
        return IndexEntry(self._base_offset + (packed >> 32), packed & _POSITION, self._index.times[number], problem)


def _problem(header: BatchHeader, data: bytes) -> str | None:
    try:
        verify(header, data)
    except DecodeError as error:
        return str(error)
    return None


def _recovery_point(files: Files, folder: str, name: str) -> int | None:
    if files.stat(f"{folder}/{RECOVERY_POINTS_FILE}") is None:
        return None
    return RecoveryPoints(files, folder).get(name)


def _producers(snapshots: ProducerSnapshots) -> int | None:
    latest = snapshots.latest(version=SNAPSHOT_VERSION)
    if latest is None:
        return None
    offset, data = latest
    try:
        return len(Producers.restore(data))
    except struct.error as error:
        raise StorageError(f"the producer snapshot at offset {offset} is none that a broker has written") from error


def _is_folder(files: Files, path: str) -> bool:
    found = files.stat(path)
    return found is not None and found.is_directory
