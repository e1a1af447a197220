"""Segments of batches, written as they are told, to be read by compaction."""

from collections.abc import Sequence

from penstock.protocol.batch import read_header
from penstock.protocol.records import NewRecord, build
from penstock.storage.compaction.pace import Pace
from penstock.storage.compaction.sources import SourceFolder
from penstock.storage.files.memory import MemoryFiles
from penstock.storage.log.cleaned import CleaningJob, Source
from tests.storage.store import overwrite

LOG = "/log"


def batch(offset: int, *pairs: tuple[bytes | None, bytes | None], **fields: int) -> bytes:
    """A batch of keys and values at an offset."""
    records = [NewRecord(key=key, value=value, timestamp=1000) for key, value in pairs]
    return bytes(build(records, base_offset=offset, **fields))  # type: ignore[arg-type]


def put(files: MemoryFiles, *segments: Sequence[bytes | bytearray]) -> list[Source]:
    """Write segments; each begins where the one before it ends, the first at 0."""
    if files.stat(LOG) is None:
        files.make_directory(LOG)
    sources, base = [], 0
    for batches in segments:
        data = b"".join(batches)
        end = read_header(batches[-1]).next_offset
        overwrite(files, f"{LOG}/{base:020}.log", data)
        sources.append(Source(base, end, len(data)))
        base = end
    return sources


def folder(files: MemoryFiles) -> SourceFolder:
    return SourceFolder(files, LOG, Pace(lambda: False, None))


def job(*groups: Sequence[Source], dirty_from: int = 0, delete_before: int = 0, max_keys: int = 1000) -> CleaningJob:
    return CleaningJob(
        directory=LOG,
        groups=tuple(tuple(group) for group in groups),
        dirty_from=dirty_from,
        bound=groups[-1][-1].end_offset,
        delete_before=delete_before,
        producers_before=0,
        truncations=0,
        index_interval_bytes=100,
        max_keys=max_keys,
    )
