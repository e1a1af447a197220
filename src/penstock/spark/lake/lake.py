"""`Lake` is a version of the Delta table that a topic is archived in, and knows how far each partition is archived.

Only the table keeps that: each commit carries, as application transactions of the Delta protocol, the end of every
partition that it adds to. A commit that would add offsets twice or leave some out is not made.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.spark.lake.files import Manifest, parse_name
from penstock.spark.planning import Range

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.fs import FileSystem

TRIES: Final = 10
"""Limits how often a commit is tried while other writers, such as an optimization, commit as well."""


class LakeError(Exception):
    """The table belongs to another topic, or cannot be added to."""


class OverlapError(LakeError):
    """The table does not end where the offsets to be added begin: another run has archived as well."""


@dataclass(slots=True, frozen=True)
class Source:
    """The topic that is archived. A topic that is deleted and made again has another id, and is another topic."""

    topic: str
    topic_id: str
    partitions: int

    def key(self, partition: int) -> str:
        """The key under which the table keeps how far a partition is archived."""
        return f"penstock:{self.topic}:{self.topic_id}:{partition}"

    @property
    def rows_key(self) -> str:
        """The key under which the table keeps how many rows were archived, including deleted ones."""
        return f"penstock:{self.topic}:{self.topic_id}:rows"

    def __str__(self) -> str:
        return f"topic {self.topic!r} (id {self.topic_id or 'unknown'})"


@dataclass(slots=True, frozen=True)
class LakeFile:
    """A file of the table, as the table describes it; a field is None where the table does not say."""

    path: str
    rows: int
    size: int
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None
    times_ms: tuple[int, int] | None
    """The first and the last timestamp, both included."""

    def may_have(self, partition: int, *, start: int = 0, end: int | None = None) -> bool:
        """Whether it may have offsets of a partition from `start` on, before `end`."""
        if self.partitions is not None and not self.partitions[0] <= partition <= self.partitions[1]:
            return False
        return self.offsets is None or (self.offsets[1] >= start and (end is None or self.offsets[0] < end))


class Lake:
    """A version of the table, which never changes; `load` gets the present one."""

    def __init__(self, path: str, table: "DeltaTable | None") -> None:
        self.path = path
        self._table = table

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The table in a folder, or under a URI; it need not be there yet."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        location = locate(path)
        try:
            table = DeltaTable(location)
        except TableNotFoundError:
            return cls(location, None)
        except (DeltaError, OSError) as error:
            raise LakeError(f"{location} cannot be opened as a Delta table: {error}") from error
        _check_readable(location, table)
        return cls(location, table)

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def version(self) -> int:
        return -1 if self._table is None else self._table.version()

    @property
    def id(self) -> str:
        """The id of the table, whatever its folder is called."""
        return "" if self._table is None else str(self._table.metadata().id)

    def ends(self, source: Source) -> dict[int, int]:
        """The offset up to which each partition is archived, of those that have begun. LakeError if the table belongs
        to another topic."""
        if self._table is None:
            return {}
        found = {number: self._table.transaction_version(source.key(number)) for number in range(source.partitions)}
        ends = {number: end for number, end in found.items() if end is not None}
        if not ends:
            about = self._table.metadata().description or "something that penstock has not archived"
            raise LakeError(
                f"the table {self.path} does not belong to {source}: it has {about}. If the topic was deleted and made "
                "again, archive the new one into another folder"
            )
        return ends

    def files(self) -> list[LakeFile]:
        """All files of this version."""
        if self._table is None:
            return []
        import pyarrow as pa

        told = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [
            LakeFile(
                path=each["path"],
                rows=each["num_records"],
                size=each["size_bytes"],
                partitions=_span(each, "partition"),
                offsets=_span(each, "offset"),
                times_ms=_milliseconds(_span(each, "timestamp")),
            )
            for each in told
        ]

    def check_whole(self, source: Source) -> None:
        """LakeError unless the table has as many rows as were archived. Optimizing the table does not change their
        number. Deleting rows and restoring an old version do, while the offsets that it is archived up to stay."""
        archived, there = self._archived_rows(source), sum(each.rows for each in self.files())
        if archived is not None and archived != there:
            raise LakeError(
                f"the table {self.path} has {there} rows, but {archived} were archived: somebody has deleted some, or "
                "restored an old version. Nothing was truncated, for the log may be the only one that has them. If "
                "that is fine, go on with skip_lost (--skip-lost)"
            )

    def commit(
        self,
        source: Source,
        ranges: Sequence[Range],
        files: Sequence[Manifest],
        *,
        run: str,
        lost: Sequence[Range] = (),
        recount: bool = False,
    ) -> "Lake":
        """Add files that have these ranges, one of each partition, and return the new version of the table.
        OverlapError if the table does not end where a range begins; then nothing has happened. What is `lost` lies
        before the ranges and is left out knowingly; with `recount`, so are rows that were deleted from the table."""
        from deltalake.exceptions import CommitFailedError

        begins = {each.partition: each.start for each in (*ranges, *lost)}
        lake = self
        for _ in range(TRIES):
            lake._check_begins(source, begins)
            try:
                lake._commit_once(source, ranges, files, run=run, lost=lost, recount=recount)
            except CommitFailedError:
                lake = Lake.load(self.path)
                continue
            return Lake.load(self.path)
        raise LakeError(f"others commit to the table {self.path} all the time: stop them, and archive again")

    def runs(self) -> set[str]:
        """The archive runs in the table's history."""
        return set() if self._table is None else _runs(self._table.history())

    def remove_leftovers(self, source: Source) -> list[str]:
        """Delete files of runs that ended before they could commit, and return their names. Such a run can never
        commit, because the table has the offsets that its files begin with. Files of runs under way begin where the
        table ends, or later.

        Files that are older than the table's history may have been committed and replaced since: VACUUM removes
        them."""
        if self._table is None:
            return []
        filesystem, base = open_filesystem(self.path)
        known, ends, history = {each.path for each in self.files()}, self.ends(source), self._table.history()
        runs = _runs(history)
        is_complete = any(each["version"] == 0 for each in history)
        oldest_ms = 0 if is_complete else min(int(each["timestamp"]) for each in history)
        gone = []
        for name, changed_ms in list_files(filesystem, base):
            told = parse_name(name)
            if told is None or name in known or told.run in runs or changed_ms < oldest_ms:
                continue
            if told.start < ends.get(told.partition, 0):
                filesystem.delete_file(f"{base}/{name}")
                gone.append(name)
        return gone

    def _check_begins(self, source: Source, begins: Mapping[int, int]) -> None:
        ends = self.ends(source)
        for number, begin in begins.items():
            end = ends.get(number)
            if end is not None and end != begin:
                relation = "an overlap" if end > begin else "a gap"
                raise OverlapError(
                    f"{self.path} has partition {number} up to offset {end}, and offsets from {begin} on were to be "
                    f"added: {relation}. Another archive run was faster; nothing was added, run it again"
                )

    def _archived_rows(self, source: Source) -> int | None:
        return None if self._table is None else self._table.transaction_version(source.rows_key)

    def _commit_once(
        self,
        source: Source,
        ranges: Sequence[Range],
        files: Sequence[Manifest],
        *,
        run: str,
        lost: Sequence[Range],
        recount: bool,
    ) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        from penstock.spark.lake.files import arrow_schema

        metadata: dict[str, Any] = {
            "penstock.run": run,
            "penstock.topic": source.topic,
            "penstock.topicId": source.topic_id,
            "penstock.ranges": [_told(each) for each in ranges],
        }
        if lost:
            metadata["penstock.lost"] = [_told(each) for each in lost]
        archived = None if recount else self._archived_rows(source)
        before = sum(each.rows for each in self.files()) if archived is None else archived
        total = before + sum(each.rows for each in files)
        ends = [Transaction(source.key(each.partition), each.end) for each in ranges]
        properties = CommitProperties(
            custom_metadata=metadata,
            # A run that has committed meanwhile may have added these offsets: that is checked first.
            max_commit_retries=0,
            app_transactions=[*ends, Transaction(source.rows_key, total)],
        )
        now_ms = time.time_ns() // 1_000_000
        adds = [AddAction(each.path, each.size, {}, now_ms, True, json.dumps(each.stats())) for each in files]
        schema = Schema.from_arrow(arrow_schema())
        if self._table is not None:
            self._table.create_write_transaction([*adds], "append", schema, commit_properties=properties)
            return
        try:
            create_table_with_add_actions(
                self.path,
                schema,
                adds,
                mode="error",
                name=source.topic,
                description=f"the archive of {source}",
                commit_properties=properties,
            )
        except DeltaError as error:
            if not isinstance(error, CommitFailedError) and not Lake.load(self.path).exists:
                raise
            raise CommitFailedError(str(error)) from error


def locate(path: str | os.PathLike[str]) -> str:
    """A folder as an absolute path, which is valid in all processes; a URI as it is."""
    text = os.fspath(path)
    if not text:
        raise LakeError("the folder of the table has no name: give one")
    return text.rstrip("/") if "://" in text else os.path.abspath(text)


def open_filesystem(path: str) -> "tuple[FileSystem, str]":
    """The filesystem that a table lies in, and its path there."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        found: tuple[FileSystem, str] = FileSystem.from_uri(path)
    except (pa.ArrowException, OSError) as error:
        raise LakeError(f"{path} cannot be opened: {error}") from error
    return found


def list_names(filesystem: "FileSystem", base: str) -> list[str]:
    """The names of the files right in a folder."""
    return [name for name, _ in list_files(filesystem, base)]


def list_files(filesystem: "FileSystem", base: str) -> list[tuple[str, int]]:
    """The names of the files right in a folder, each with the time of its last change in milliseconds; 0 if unknown."""
    from pyarrow.fs import FileSelector, FileType

    listed = filesystem.get_file_info(FileSelector(base, allow_not_found=True))
    return [(each.base_name, (each.mtime_ns or 0) // 1_000_000) for each in listed if each.type == FileType.File]


# Features of the Delta protocol that we understand; others change what the rows of a file mean.
_HARMLESS: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})


def _check_readable(path: str, table: "DeltaTable") -> None:
    protocol = table.protocol()
    unknown = set(protocol.reader_features or ()) - _HARMLESS
    if unknown or protocol.min_reader_version == 2:
        what = ", ".join(sorted(unknown)) or "columnMapping"
        raise LakeError(f"the table {path} uses {what}, which penstock does not read: use a table without it")


def _runs(history: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(each["penstock.run"]) for each in history if "penstock.run" in each}


def _told(each: Range) -> dict[str, int]:
    return {"partition": each.partition, "start": each.start, "end": each.end}


def _span(told: Mapping[str, Any], column: str) -> Any:
    first, last = told.get(f"min.{column}"), told.get(f"max.{column}")
    return None if first is None or last is None else (first, last)


def _milliseconds(span: Any) -> tuple[int, int] | None:
    if span is None:
        return None
    first, last = (round(each.timestamp() * 1000) for each in span)
    return first, last
