"""Rows and files for tests of the lake, without a broker and without Spark."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from penstock.spark.lake.files import FileName, Manifest, arrow_schema, write_file
from penstock.spark.lake.lake import Lake, Source
from penstock.spark.planning import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = Source("orders", "an-id", 2)
RUN = "0123456789ab"


def rows(offsets: Iterable[int], partition: int = 0) -> pa.RecordBatch:
    """One for each offset, with something in every column, null here and there."""
    numbers = list(offsets)
    return pa.record_batch(
        [
            [None if number % 3 == 0 else b"key-%d" % number for number in numbers],
            [None if number % 5 == 4 else b"value-%d" % number for number in numbers],
            ["orders"] * len(numbers),
            [partition] * len(numbers),
            numbers,
            [1_700_000_000_000_000 + number * 1000 for number in numbers],
            [0] * len(numbers),
            [None if number % 2 else [{"key": "a", "value": b"%d" % number}] * 2 for number in numbers],
        ],
        schema=arrow_schema(),
    )


def span(start: int, end: int, partition: int = 0, *, source: Source = SOURCE) -> Range:
    return Range(source.topic, source.topic_id, partition, start, end)


def write(
    folder: Path, wanted: Range, offsets: Iterable[int] | None = None, *, run: str = RUN, attempt: int = 0
) -> Manifest:
    """A file as a task of an archive run writes it."""
    name = FileName(wanted.partition, wanted.start, wanted.end, run, attempt)
    batch = rows(range(wanted.start, wanted.end) if offsets is None else offsets, wanted.partition)
    made = write_file(LocalFileSystem(), str(folder), name, wanted, [batch])
    assert made is not None
    return made


def add(folder: Path, *ranges: Range, run: str = RUN, source: Source = SOURCE) -> Lake:
    """A whole archive run, to the present table."""
    files = [write(folder, each, run=run) for each in ranges]
    return Lake.load(folder).commit(source, ranges, files, run=run)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.glob("*.parquet"))


def contents(frame: "DataFrame") -> list[tuple[Any, ...]]:
    """All rows of a DataFrame in the order of the log."""
    found = frame.orderBy("partition", "offset").collect()
    return [
        (
            row.partition,
            row.offset,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.timestamp,
            row.timestampType,
            _headers(row.headers),
        )
        for row in found
    ]


def _headers(told: Sequence[tuple[str, bytes | None]] | None) -> list[tuple[str, bytes | None]] | None:
    return None if told is None else [(name, None if value is None else bytes(value)) for name, value in told]
