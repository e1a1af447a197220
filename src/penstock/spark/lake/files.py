"""Writes, reads and checks one file of the lake: a range of offsets of one partition as Parquet, with its checksum."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from penstock.spark.lake.checksums import Checksum
from penstock.spark.planning import Range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

GROUP_BYTES: Final = 32 * 1024 * 1024
"""About how many bytes a row group has: a task holds as much in memory, and a reader reads as much at once."""
GROUP_ROWS: Final = 1_000_000
BATCH_ROWS: Final = 20_000
"""Limits the rows that are read back at a time."""
Compression: TypeAlias = Literal["zstd", "snappy", "none"]
LEVELS: Final = {"zstd": 1}
"""The levels of codecs; higher ones cost far more than they save."""
FOOTER: Final = "penstock"
"""The entry of a file's metadata that holds its manifest."""


class DamagedFileError(Exception):
    """A file of the lake is not what was written."""


@dataclass(slots=True, frozen=True)
class FileName:
    """`penstock-<partition>-<start>-<end>-<run>-<attempt>.parquet`: what a file has, and which run and attempt wrote
    it. Two attempts at a task never write one file."""

    partition: int
    start: int
    end: int
    run: str
    attempt: int

    def __str__(self) -> str:
        return f"penstock-{self.partition}-{self.start}-{self.end}-{self.run}-{self.attempt}.parquet"


def parse_name(name: str) -> FileName | None:
    """The parts of a name; None if `archive` did not write the file."""
    found = _NAME.fullmatch(name)
    return None if found is None else FileName(int(found[1]), int(found[2]), int(found[3]), found[4], int(found[5]))


@dataclass(slots=True, frozen=True)
class Manifest:
    """What a file has, as its writer knows it."""

    path: str
    """Its name in the folder of the table."""
    range: Range
    rows: int
    size: int
    checksum: int
    first_offset: int
    last_offset: int
    first_ms: int | None
    last_ms: int | None
    """The first and the last timestamp; None if a row has none."""

    def stats(self) -> dict[str, Any]:
        """Statistics in the words of the Delta protocol, by which readers skip files."""
        first: dict[str, Any] = {"partition": self.range.partition, "offset": self.first_offset}
        last: dict[str, Any] = {"partition": self.range.partition, "offset": self.last_offset}
        nulls = {"partition": 0, "offset": 0}
        # A date beyond the year 9999 cannot be written.
        if (
            self.first_ms is not None
            and self.last_ms is not None
            and 0 <= self.first_ms <= self.last_ms <= _LAST_DATE_MS
        ):
            first["timestamp"], last["timestamp"] = _date(self.first_ms), _date(self.last_ms)
            nulls["timestamp"] = 0
        return {"numRecords": self.rows, "minValues": first, "maxValues": last, "nullCount": nulls}


@cache
def arrow_schema() -> "pa.Schema":
    """The columns of the source, including headers, as a schema of Arrow."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("timestampType", pa.int32()),
            pa.field("headers", pa.list_(pa.field("element", header))),
        ]
    )


def write_file(
    filesystem: "FileSystem",
    base: str,
    name: FileName,
    wanted: Range,
    batches: "Iterable[pa.RecordBatch]",
    *,
    compression: Compression = "zstd",
) -> Manifest | None:
    """Write the rows of a range, which come in order, and return what was written. None if there are no rows, because
    compaction has taken all of them: then there is no file."""
    writer: _Writer | None = None
    try:
        for group in _groups(batches):
            if writer is None:
                filesystem.create_dir(base, recursive=True)
                writer = _Writer(filesystem, f"{base}/{name}", compression)
            writer.write(group)
        return None if writer is None else writer.finish(str(name), wanted)
    finally:
        if writer is not None:
            writer.close()


def check_file(filesystem: "FileSystem", path: str, *, rows: int) -> int:
    """Read a file and compare its content with its checksum and its rows with the number that the table has. Returns
    its bytes. A file without our checksum, written when the table was optimized, must at least be readable and
    whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with filesystem.open_input_file(path) as file:
            parquet = pq.ParquetFile(file)
            told = (parquet.metadata.metadata or {}).get(FOOTER.encode())
            total, checksum = 0, Checksum()
            for batch in parquet.iter_batches(BATCH_ROWS):
                total += batch.num_rows
                checksum.add(batch)
            size: int = file.size()
    except (OSError, pa.ArrowException) as error:
        raise DamagedFileError(f"{path} cannot be read: {error}") from error
    if total != rows:
        raise DamagedFileError(f"{path} has {total} rows, and the table says {rows}")
    if told is not None and json.loads(told)["checksum"] != checksum.value:
        raise DamagedFileError(f"{path} is not what was written: its checksum is another")
    return size


def sync(filesystem: "FileSystem", path: str) -> None:
    """Sync a file or a folder of the local filesystem; other filesystems do that by themselves."""
    from pyarrow.fs import LocalFileSystem

    if not isinstance(filesystem, LocalFileSystem):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_NAME: Final = re.compile(r"penstock-(\d+)-(\d+)-(\d+)-([0-9a-f]{12})-(\d+)\.parquet")
_LAST_DATE_MS: Final = 253_402_300_799_999


@dataclass(slots=True)
class _Writer:
    filesystem: "FileSystem"
    path: str
    compression: Compression
    rows: int = 0
    checksum: Checksum = field(default_factory=Checksum)
    first_offset: int = -1
    last_offset: int = -1
    times: list[tuple[int, int] | None] = field(default_factory=list)
    _file: Any = None
    _parquet: Any = None

    def write(self, group: "pa.Table") -> None:
        import pyarrow.compute as pc

        if self._parquet is None:
            self._open()
        self._parquet.write_table(group, row_group_size=group.num_rows)
        offsets, times = group.column("offset"), group.column("timestamp")
        if self.last_offset < 0:
            self.first_offset = offsets[0].as_py()
        self.last_offset = offsets[-1].as_py()
        self.rows += group.num_rows
        for batch in group.to_batches():
            self.checksum.add(batch)
        span = pc.min_max(times.cast("int64"))
        self.times.append(None if times.null_count else (span["min"].as_py() // 1000, span["max"].as_py() // 1000))

    def finish(self, name: str, wanted: Range) -> Manifest:
        told = {
            "topic": wanted.topic,
            "topicId": wanted.topic_id,
            "partition": wanted.partition,
            "start": wanted.start,
            "end": wanted.end,
            "rows": self.rows,
            "checksum": self.checksum.value,
        }
        self._parquet.add_key_value_metadata({FOOTER: json.dumps(told)})
        self.close()
        spans = [span for span in self.times if span is not None]
        is_timed = len(spans) == len(self.times)
        manifest = Manifest(
            path=name,
            range=wanted,
            rows=self.rows,
            size=self.filesystem.get_file_info(self.path).size,
            checksum=self.checksum.value,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            first_ms=min(first for first, _ in spans) if is_timed else None,
            last_ms=max(last for _, last in spans) if is_timed else None,
        )
        self._check(manifest)
        return manifest

    def close(self) -> None:
        if self._parquet is not None:
            parquet, self._parquet = self._parquet, None
            parquet.close()
            self._file.close()

    def _open(self) -> None:
        import pyarrow.parquet as pq

        self._file = self.filesystem.open_output_stream(self.path)
        self._parquet = pq.ParquetWriter(
            self._file,
            arrow_schema(),
            compression=self.compression,
            compression_level=LEVELS.get(self.compression),
            # Keys and values seldom repeat, and a dictionary costs more than the rest of the encoding.
            use_dictionary=["topic", "partition", "timestampType"],
            column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
            write_statistics=["partition", "offset", "timestamp"],
        )

    def _check(self, manifest: Manifest) -> None:
        """Check that the file on the disk has as many rows as were written, and only offsets of its range."""
        import pyarrow.parquet as pq

        with self.filesystem.open_input_file(self.path) as file:
            metadata = pq.read_metadata(file)
        if metadata.num_rows != manifest.rows:
            raise DamagedFileError(f"{self.path} has {metadata.num_rows} rows, and {manifest.rows} were written")
        if not manifest.range.start <= manifest.first_offset <= manifest.last_offset < manifest.range.end:
            raise DamagedFileError(
                f"{self.path} has offsets {manifest.first_offset} to {manifest.last_offset}, and {manifest.range} "
                "were asked for"
            )


def _groups(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.Table]":
    """The rows in pieces of the size of a row group."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if size >= GROUP_BYTES or rows >= GROUP_ROWS:
            yield pa.Table.from_batches(gathered)
            gathered, size, rows = [], 0, 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _date(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
