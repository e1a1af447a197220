"""Reads the rows of a partition from the lake, in the order of the log, a piece at a time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.spark.lake.files import arrow_schema, parse_name
from penstock.spark.lake.lake import Lake, LakeFile, open_filesystem

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem


def read_rows(
    path: str, files: Iterable[LakeFile], partition: int, *, start: int = 0, end: int | None = None
) -> "Iterator[pa.Table]":
    """The rows of a partition that these files have from offset `start` on, before `end`. A file as it was archived is
    read a row group at a time. Files that were rewritten may overlap, and are then held in memory as a whole."""
    import pyarrow as pa

    filesystem, base = open_filesystem(path)
    wanted = [each for each in files if each.may_have(partition, start=start, end=end)]
    for cluster in _clusters(wanted):
        tables = (
            table
            for each in cluster
            for group in _row_groups(filesystem, f"{base}/{each.path}", start, end)
            if (table := _cut(group, partition, start, end)).num_rows
        )
        if len(cluster) == 1 and parse_name(cluster[0].path) is not None:
            yield from tables
        elif held := list(tables):
            # The spans of a rewritten file may cover a partition or offsets that none of its rows has.
            yield pa.concat_tables(held).sort_by("offset")


def read_present_rows(path: str, partition: int, *, start: int, end: int) -> "Iterator[pa.Table]":
    """The rows of a partition from `start` on, before `end`, of the present version of the table."""
    return read_rows(path, Lake.load(path).files(), partition, start=start, end=end)


def _clusters(files: Sequence[LakeFile]) -> list[list[LakeFile]]:
    """The files in the order of their offsets; those that overlap are together."""
    clusters: list[list[LakeFile]] = []
    last = -1
    for each in sorted(files, key=lambda each: each.offsets or (0, 0)):
        first, end = each.offsets or (0, 2**63 - 1)
        if clusters and first <= last:
            clusters[-1].append(each)
        else:
            clusters.append([each])
        last = max(last, end)
    return clusters


def _row_groups(filesystem: "FileSystem", path: str, start: int, end: int | None) -> "Iterator[pa.Table]":
    """The row groups that may have any of the offsets."""
    import pyarrow.parquet as pq

    with filesystem.open_input_file(path) as file:
        parquet = pq.ParquetFile(file)
        for number in range(parquet.num_row_groups):
            span = _offsets(parquet.metadata.row_group(number))
            if span is None or (span[1] >= start and (end is None or span[0] < end)):
                yield parquet.read_row_group(number).select(arrow_schema().names).cast(arrow_schema())


def _offsets(group: Any) -> tuple[int, int] | None:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "offset":
            stats = column.statistics
            return None if stats is None or not stats.has_min_max else (stats.min, stats.max)
    return None


def _cut(table: "pa.Table", partition: int, start: int, end: int | None) -> "pa.Table":
    import pyarrow.compute as pc

    is_wanted = pc.and_(pc.equal(table["partition"], partition), pc.greater_equal(table["offset"], start))
    if end is not None:
        is_wanted = pc.and_(is_wanted, pc.less(table["offset"], end))
    return table if pc.all(is_wanted).as_py() else table.filter(is_wanted)
