"""Runs one round of compaction, away from the broker: it reads segments and writes the few that take their place.

A round runs in the helper process and makes three passes: over all headers, to learn which producers wrote last and how
transactions ended; over what is dirty, to learn which record of each key is the newest; and over everything, to write
what stays.
"""

import time
from collections.abc import Callable, Iterator

from penstock.protocol.batch import CONTROL_BIT
from penstock.protocol.errors import DecodeError
from penstock.storage.compaction.group import Counts, GroupCleaning
from penstock.storage.compaction.key_offsets import KeyOffsets
from penstock.storage.compaction.pace import Pace, StoppedError
from penstock.storage.compaction.record_spans import read_keys, unpack
from penstock.storage.compaction.sources import SourceChangedError, SourceFolder
from penstock.storage.compaction.survey import Survey, survey
from penstock.storage.compaction.verdicts import Verdicts
from penstock.storage.files import Files
from penstock.storage.log.cleaned import CleanedSegment, CleaningDone, CleaningJob, Groups, Source

__all__ = ["CleanedSegment", "CleaningDone", "CleaningJob", "Source", "SourceChangedError", "clean"]


def clean(
    files: Files, job: CleaningJob, *, should_stop: Callable[[], bool] = lambda: False
) -> Iterator[CleanedSegment | CleaningDone]:
    """Run a round. CleanedSegments come in ascending order, only those that changed; swap each in before or after the
    next is asked for, but in order, and stop the round at the first that cannot be. CleaningDone comes last, unless
    `should_stop` said so: then the iterator ends without it. CorruptLogError: a source is damaged. OSError and
    SourceChangedError: nothing has happened; files that are left go with `log.discard_cleaned`."""
    started = time.process_time()
    folder = SourceFolder(files, job.directory, Pace(should_stop, job.max_bytes_per_second))
    try:
        known = survey(folder, _flat(job.groups))
        groups, bound = _decided(job, known)
        newest, cleaned_to = _find_newest(folder, job, groups, known, bound)
        groups = _only(groups, lambda source: source.base_offset < cleaned_to)
        counts = Counts()
        verdicts = Verdicts(
            known,
            newest,
            dirty_from=job.dirty_from,
            cleaned_to=cleaned_to,
            delete_before=job.delete_before,
            producers_before=job.producers_before,
            first_tombstone=newest.first_tombstone,
        )
        for group in groups:
            cleaning = GroupCleaning(folder, group, verdicts, counts, index_interval_bytes=job.index_interval_bytes)
            if (size := cleaning.run()) is not None:
                yield CleanedSegment(group[0].base_offset, group[-1].end_offset, size, group, job.truncations)
    except StoppedError:
        return
    yield CleaningDone(
        cleaned_to,
        verdicts.first_tombstone,
        job.truncations,
        bytes_read=counts.bytes_read,
        bytes_written=counts.bytes_written,
        records_read=counts.records_read,
        records_kept=counts.records_kept,
        keys=len(newest),
        cpu_seconds=time.process_time() - started,
    )


def _decided(job: CleaningJob, known: Survey) -> tuple[Groups, int]:
    """The segments that may be judged: those before a transaction whose end is not known."""
    first_undecided = min(known.undecided.values(), default=job.bound)
    groups = _only(job.groups, lambda source: source.end_offset <= first_undecided)
    bound = max((source.end_offset for source in _flat(groups)), default=0)
    # A segment may be clean at its beginning alone.
    return (groups, bound) if bound >= job.dirty_from else ((), job.dirty_from)


def _find_newest(
    folder: SourceFolder, job: CleaningJob, groups: Groups, known: Survey, bound: int
) -> tuple[KeyOffsets, int]:
    """The newest records of what is dirty, and the offset up to which they are known: the memory for them is
    bounded."""
    newest = KeyOffsets(job.max_keys)
    cleaned_to = bound
    for source in _flat(groups):
        if source.end_offset > job.dirty_from and source.base_offset < cleaned_to:
            full_at = _add_keys(folder, job, source, known, newest)
            cleaned_to = cleaned_to if full_at is None else full_at
    newest.finish()
    return newest, cleaned_to


def _add_keys(folder: SourceFolder, job: CleaningJob, source: Source, known: Survey, newest: KeyOffsets) -> int | None:
    """Add the keys of a segment. Returns the offset from which on there was no more room."""
    dirty_from, has_aborted, add = job.dirty_from, bool(known.aborted), newest.add
    with folder.open(source) as opened:
        for chunk in opened.chunks():
            for start, header in chunk.batches:
                if (
                    header.base_offset + header.last_offset_delta < dirty_from
                    or header.attributes & CONTROL_BIT
                    or (has_aborted and known.is_aborted(header))
                ):
                    continue
                opened.verify(chunk, start, header)
                try:
                    has_room = add(read_keys(header, *unpack(header, chunk.data, start)))
                except DecodeError:
                    has_room = newest.add_unreadable(header.base_offset)
                if not has_room:
                    return header.base_offset
    return None


def _flat(groups: Groups) -> Iterator[Source]:
    return (source for group in groups for source in group)


def _only(groups: Groups, wanted: Callable[[Source], bool]) -> Groups:
    """The groups without the sources that are not wanted, which are the last ones."""
    cut = (tuple(source for source in group if wanted(source)) for group in groups)
    return tuple(group for group in cut if group)
