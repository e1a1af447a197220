"""`archive` adds what a topic has to a Delta table, exactly once, and deletes it from the log if the user wants that.

Tasks fetch, decode and write Parquet by themselves and report to the driver only what they have written. The driver
makes one commit. No other state is kept: a run begins where the table ends.
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.client.admin.group_offsets import CommittedOffset, commit_offsets
from penstock.client.admin.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.errors import unwrap
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.opening import given_settings, to_milliseconds
from penstock.spark import planning, positions
from penstock.spark.lake.files import Compression, FileName, Manifest, arrow_schema, parse_name, write_file
from penstock.spark.lake.lake import Lake, LakeError, Source, list_names, open_filesystem
from penstock.spark.lake.truncating import prepare_retention, truncate_archived
from penstock.spark.link import SparkLink, connect
from penstock.spark.offsets import id_text
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.planning import Range
from penstock.spark.source.reader import read_range
from penstock.spark.tasks import attempt_number, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger(__name__)

FILE_BYTES: Final = 128 * 1024 * 1024
"""About how many bytes of the log go into one file, which one task writes."""


class LostRecordsError(LakeError):
    """Records are gone from the log that the table does not have."""


@dataclass(slots=True, frozen=True)
class ArchiveProgress:
    """How far a run is."""

    done: int
    total: int
    """Offsets that the log had when the run began; or rows, while they are checked."""
    stage: str
    """`archiving`, and before a truncation `checking`."""


@dataclass(slots=True, frozen=True)
class Archived:
    """What a run has added of one partition."""

    partition: int
    start: int
    end: int
    rows: int
    size: int
    files: int


@dataclass(slots=True, frozen=True)
class ArchiveResult:
    topic: str
    path: str
    version: int
    """The version of the table after the run."""
    added: tuple[Archived, ...]
    """Empty if there was nothing new."""
    ends: Mapping[int, int]
    """The offset up to which each partition is archived."""
    group: str
    truncated: Mapping[int, int]
    """Where the truncated logs begin."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.added)


Watch = Callable[[ArchiveProgress], None]


def archive(
    spark: "SparkSession",
    topic: str,
    to: str,
    *,
    bootstrap: str | Mapping[str, Any],
    truncate: bool = False,
    group: str | None = None,
    until: int | datetime | None = None,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    skip_lost: bool = False,
    compression: Compression = "zstd",
    watch: Watch = lambda _: None,
) -> ArchiveResult:
    """Add to the Delta table in the folder `to` what the topic has and the table lacks, in one commit.

    The run ends where the log ends now, or before `until` (milliseconds, or a datetime), or after about `max_messages`
    or `max_bytes`. With `truncate`, what the table has is read back and checked, and then deleted from the log. The
    group, by default `archive.<topic>`, commits how far the archive is, and `penstock.retention.hold.group` has
    retention wait for it. Records that were deleted before they were archived are an error, unless `skip_lost`; so is a
    truncation when the table has fewer rows than were archived, because rows were deleted or an old version was
    restored. Files in snappy are written sooner than in zstd, and are about twice as large.

    Example:
        archive(session(), "orders", "/lake/orders", bootstrap="localhost:9092", truncate=True)
    """
    options = source_options(topic, bootstrap)
    link = connect(options.settings)
    source = find_source(link, topic)
    run = Run(spark, link, options, source=source, lake=Lake.load(to), watch=watch)
    run.compression = compression
    added = run.add(until=until, max_messages=max_messages, max_bytes=max_bytes, skip_lost=skip_lost)
    group = group or f"archive.{topic}"
    ends = run.lake.ends(source)
    truncated: dict[int, int] = {}
    if truncate:
        watch_checks = partial(run.watch, "checking")
        truncated = truncate_archived(spark, link, run.lake, source, watch_checks, skip_lost=skip_lost)
    elif ends:
        prepare_retention(link, run.lake, source, group)
    # This comes last, because retention may wait for nothing else.
    run.commit_group(group, ends)
    return ArchiveResult(topic, run.lake.path, run.lake.version, added, ends, group, truncated)


def source_options(topic: str, bootstrap: str | Mapping[str, Any]) -> SourceOptions:
    """The options that the topic is read with: all columns, and only committed records unless the settings say
    otherwise."""
    settings = {f"kafka.{name}": str(value) for name, value in given_settings(bootstrap).items()}
    return read_options({**settings, "subscribe": topic, "includeHeaders": "true"}, "batch")


def find_source(link: SparkLink, topic: str) -> Source:
    return source_of(unwrap(link.run(link.cluster.topics([topic], fresh=True)))[topic])


def source_of(topic: Topic) -> Source:
    return Source(topic.name, id_text(topic.topic_id), len(topic.partitions))


class Run:
    """One run of `archive`."""

    def __init__(
        self,
        spark: "SparkSession",
        link: SparkLink,
        options: SourceOptions,
        *,
        source: Source,
        lake: Lake,
        watch: Watch = lambda _: None,
    ) -> None:
        self.lake = lake
        self.compression: Compression = "zstd"
        self._spark = spark
        self._link = link
        self._options = options
        self._source = source
        self._watch = watch
        self._name = uuid.uuid4().hex[:12]

    def watch(self, stage: str, done: int, total: int) -> None:
        self._watch(ArchiveProgress(done, total, stage))

    def add(
        self,
        *,
        until: int | datetime | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        skip_lost: bool = False,
    ) -> tuple[Archived, ...]:
        """Write what is new and commit it."""
        ranges, lost = self._link.run(self._plan(until, max_messages, max_bytes, skip_lost=skip_lost))
        # Ends without a file must be in the table, too.
        going_on = {each.partition for each in ranges}
        passed = [replace(each, start=each.end) for each in lost if each.partition not in going_on]
        if not ranges and not passed:
            return ()
        try:
            written = self._write(ranges) if ranges else []
            self.lake = self.lake.commit(
                self._source, [*ranges, *passed], written, run=self._name, lost=lost, recount=skip_lost
            )
        except BaseException:
            self._clean_up()
            raise
        # Attempts that failed, or that Spark ran in vain, have left files.
        self._remove_others({each.path for each in written})
        self.lake.remove_leftovers(self._source)
        return tuple(_sum_up(each, written) for each in ranges)

    def commit_group(self, group: str, ends: Mapping[int, int]) -> None:
        """Commit to the group how far the archive is."""
        offsets = {
            TopicPartition(self._source.topic, number): CommittedOffset(
                end, metadata=f"archived in {self.lake.path}"[:1000]
            )
            for number, end in ends.items()
        }
        if offsets:
            unwrap(self._link.run(commit_offsets(self._link.cluster, group, offsets)))

    async def _plan(
        self, until: int | datetime | None, max_messages: int | None, max_bytes: int | None, *, skip_lost: bool
    ) -> tuple[list[Range], list[Range]]:
        """The ranges that the table lacks, and those of them that the log has lost."""
        cluster, source = self._link.cluster, self._source
        keys = [TopicPartition(source.topic, number) for number in range(source.partitions)]
        first = await positions.list_ends(cluster, dict.fromkeys(keys, EARLIEST), self._options)
        last = await positions.list_ends(cluster, dict.fromkeys(keys, LATEST), self._options)
        archived = self.lake.ends(source)
        starts, lost = {}, []
        for key in keys:
            known = archived.get(key.partition, first[key])
            if last[key] < known:
                raise LakeError(
                    f"{key} is archived up to offset {known}, but its log ends at {last[key]}: it was cut off, or the "
                    "table is one of another cluster; archive into another folder"
                )
            starts[key] = max(known, first[key])
            if first[key] > known:
                lost.append(Range(source.topic, source.topic_id, key.partition, known, first[key]))
        if lost and not skip_lost:
            raise LostRecordsError(
                f"{'; '.join(map(str, lost))}: deleted before they were archived. Restore them, or go on without them "
                "(skip_lost, --skip-lost); penstock.retention.hold.group keeps retention from it"
            )
        ends = await self._limit(starts, last, until, max_messages, max_bytes)
        ranges = [
            Range(source.topic, source.topic_id, key.partition, starts[key], ends[key])
            for key in keys
            if ends[key] > starts[key]
        ]
        return ranges, lost

    async def _limit(
        self,
        starts: Mapping[TopicPartition, int],
        last: Mapping[TopicPartition, int],
        until: int | datetime | None,
        max_messages: int | None,
        max_bytes: int | None,
    ) -> dict[TopicPartition, int]:
        ends = dict(last)
        if until is not None:
            asked = dict.fromkeys(ends, to_milliseconds(until))
            listed = unwrap(await list_offsets(self._link.cluster, asked))
            ends = {
                key: max(starts[key], min(end, listed[key].offset)) if listed[key].offset >= 0 else end
                for key, end in ends.items()
            }
        if max_messages is not None:
            ends = planning.limit(starts, ends, max_messages)
        if max_bytes is not None:
            probed = {key: starts[key] for key, end in ends.items() if end > starts[key]}
            sizes = await positions.probe_sizes(self._link.cluster, probed)
            ends = planning.limit_bytes(starts, ends, max_bytes, sizes)
        return ends

    def _write(self, ranges: Sequence[Range]) -> list[Manifest]:
        sizes = self._link.run(positions.probe_sizes(self._link.cluster, {each.key: each.start for each in ranges}))
        parts = planning.split(
            ranges,
            min_parts=min(self._spark.sparkContext.defaultParallelism, _worthwhile(ranges, sizes)),
            max_bytes=FILE_BYTES,
            bytes_each=sizes,
        )
        total = sum(each.size for each in ranges)
        written = run_tasks(
            self._spark,
            f"archive {self._source.topic}",
            parts,
            partial(_archive_range, self._options, self.lake.path, self._name, self.compression),
            counted=_count_offsets,
            watch=lambda done: self.watch("archiving", done, total),
        )
        return [each for each, _ in written if each is not None]

    def _clean_up(self) -> None:
        """Remove this run's files after a failure, unless the table has them. A later run removes what stays."""
        try:
            if self._name not in Lake.load(self.lake.path).runs():
                self._remove_others(set())
        except Exception:
            log.warning("files of a run that failed stay in %s for now", self.lake.path, exc_info=True)

    def _remove_others(self, kept: Set[str]) -> None:
        """Delete the files of this run that are not part of the table."""
        filesystem, base = open_filesystem(self.lake.path)
        for name in list_names(filesystem, base):
            told = parse_name(name)
            if told is not None and told.run == self._name and name not in kept:
                filesystem.delete_file(f"{base}/{name}")


# A task for fewer bytes costs more than it gains.
_LEAST_BYTES: Final = 4 * 1024 * 1024


def _worthwhile(ranges: Sequence[Range], sizes: Mapping[TopicPartition, float]) -> int:
    total = sum(each.size * sizes.get(each.key, planning.USUAL_BYTES) for each in ranges)
    return max(len(ranges), int(total / _LEAST_BYTES))


def _archive_range(
    options: SourceOptions, path: str, run: str, compression: Compression, wanted: Range
) -> tuple[Manifest | None, int]:
    """The work of a task: write the file of a range. Returns what was written, if there are any rows, and the range."""
    filesystem, base = open_filesystem(path)
    name = FileName(wanted.partition, wanted.start, wanted.end, run, attempt_number())
    rows = read_range(options, wanted, arrow_schema())
    return write_file(filesystem, base, name, wanted, rows, compression=compression), wanted.size


def _count_offsets(result: tuple[Manifest | None, int]) -> int:
    return result[1]


def _sum_up(whole: Range, written: Sequence[Manifest]) -> Archived:
    files = [each for each in written if each.range.partition == whole.partition]
    return Archived(
        partition=whole.partition,
        start=whole.start,
        end=whole.end,
        rows=sum(each.rows for each in files),
        size=sum(each.size for each in files),
        files=len(files),
    )
