"""Makes one segment of neighbouring ones: it writes what stays of their batches, or nothing if all of them stay."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.protocol.batch import LENGTH_OVERHEAD, BatchHeader, read_header
from penstock.storage.compaction.rewriting import build_filler, build_producer_filler, is_filler
from penstock.storage.compaction.segment_writer import SegmentWriter
from penstock.storage.compaction.sources import Chunk, OpenSource, SourceFolder
from penstock.storage.compaction.verdicts import Fate, Verdicts
from penstock.storage.log.cleaned import Source
from penstock.storage.log.index import read_created_ms
from penstock.storage.log.segment import LOG_FILE


@dataclass(slots=True)
class Counts:
    """What a round has gone through, and what is left of it."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0


class GroupCleaning:
    def __init__(
        self,
        folder: SourceFolder,
        group: Sequence[Source],
        verdicts: Verdicts,
        counts: Counts,
        *,
        index_interval_bytes: int,
    ) -> None:
        self._folder = folder
        self._group = group
        self._verdicts = verdicts
        self._counts = counts
        self._end_offset = group[-1].end_offset
        self._leader_epoch = -1
        self._writer = SegmentWriter(
            folder,
            group[0].base_offset,
            created_ms=self._created_ms(),
            index_interval_bytes=index_interval_bytes,
        )

    def run(self) -> int | None:
        """The size of the new segment, None if none is needed. After an error nothing is left."""
        with _removed_after_an_error(self._writer):
            return self._run()

    def _run(self) -> int | None:
        writer, counts = self._writer, self._counts
        if len(self._group) > 1:
            writer.begin()
        for source in self._group:
            with self._folder.open(source) as opened:
                self._go_through(opened)
            counts.bytes_read += source.size
        if writer.next_offset < self._end_offset:
            # A segment ends where the next one begins.
            self._replace(build_filler(writer.next_offset, self._end_offset, self._leader_epoch))
        if not writer.has_begun:
            return None
        writer.finish()
        counts.bytes_written += writer.size
        return writer.size

    def _go_through(self, opened: OpenSource) -> None:
        source, verdicts = opened.source, self._verdicts
        facts = verdicts.survey.sources[source]
        self._counts.records_read += facts.records
        if verdicts.are_all_dead(source.base_offset, source.end_offset):
            self._begin(opened)
        else:
            for chunk in opened.chunks():
                if verdicts.are_all_dead(chunk.batches[0][1].base_offset, chunk.batches[-1][1].next_offset):
                    self._begin(opened)
                else:
                    self._judge(opened, chunk)
        self._leader_epoch = facts.leader_epoch

    def _begin(self, source: OpenSource) -> None:
        """From here on the new segment differs from its source."""
        if not self._writer.has_begun:
            self._writer.begin(source)

    def _judge(self, source: OpenSource, chunk: Chunk) -> None:
        writer, judge, counts = self._writer, self._verdicts.judge, self._counts
        view = memoryview(chunk.data)
        # Batches that stay as they are and lie side by side are copied at a stroke.
        copied = copied_to = 0
        for start, header in chunk.batches:
            source.verify(chunk, start, header)
            fate = judge(header, chunk.data, start)
            if fate is Fate.DROP and self._is_end(header):
                fate = Fate.KEEP
            if fate is Fate.KEEP:
                size = header.batch_length + LENGTH_OVERHEAD
                writer.note(header, size)
                if not header.is_control:
                    counts.records_kept += header.record_count
                if start != copied_to:
                    if writer.has_begun and copied < copied_to:
                        writer.add(view[copied:copied_to])
                    copied = start
                copied_to = start + size
                continue
            if not writer.has_begun:
                self._begin(source)
            elif copied < copied_to:
                writer.add(view[copied:copied_to])
            copied = copied_to = start + header.batch_length + LENGTH_OVERHEAD
            if fate is Fate.FILL:
                self._replace(build_producer_filler(header))
            elif isinstance(fate, bytearray):
                self._replace(fate)
                counts.records_kept += read_header(fate).record_count
        if writer.has_begun:
            if copied < copied_to:
                writer.add(view[copied:copied_to])
            writer.flush()

    def _replace(self, batch: bytearray) -> None:
        self._writer.note(read_header(batch), len(batch))
        self._writer.add(batch)

    def _is_end(self, header: BatchHeader) -> bool:
        """Whether the batch is a filler that would have to be written again in this place."""
        return (
            is_filler(header)
            and header.producer_id < 0
            and header.base_offset == self._writer.next_offset
            and header.next_offset == self._end_offset
        )

    def _created_ms(self) -> int:
        """When the first of the segments was begun: none of it is younger."""
        files, stem = self._folder.files, f"{self._folder.directory}/{self._group[0].base_offset:020}"
        created_ms = read_created_ms(files, stem)
        if created_ms is None:
            stat = files.stat(stem + LOG_FILE)
            created_ms = stat.modified_ms if stat else 0
        return created_ms


@contextmanager
def _removed_after_an_error(writer: SegmentWriter) -> Iterator[None]:
    try:
        yield
    except BaseException:
        writer.remove()
        raise
