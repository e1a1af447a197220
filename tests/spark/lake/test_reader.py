"""Rows of the lake, in the order of the log."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem

from penstock.spark.lake import files as lake_files
from penstock.spark.lake.files import FileName, write_file
from penstock.spark.lake.lake import Lake, Source
from penstock.spark.lake.reader import read_present_rows, read_rows
from tests.spark.lakes import SOURCE, add, rows, span


def read(folder: Path, partition: int = 0, *, start: int = 0, end: int | None = None) -> list[pa.Table]:
    return list(read_rows(str(folder), Lake.load(folder).files(), partition, start=start, end=end))


def offsets(tables: list[pa.Table]) -> list[int]:
    return [offset for table in tables for offset in table["offset"].to_pylist()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs, of which the last begins with partition 1."""
    add(tmp_path, span(0, 100), span(0, 50, 1))
    add(tmp_path, span(100, 150), run="b" * 12)
    add(tmp_path, span(50, 80, 1), span(150, 160), run="c" * 12)
    return tmp_path


def test_a_partition_comes_in_order_and_alone(folder: Path) -> None:
    assert offsets(read(folder)) == list(range(160))
    assert offsets(read(folder, 1)) == list(range(80))
    assert read(folder, 7) == []
    assert pa.concat_tables(read(folder, 1)) == pa.Table.from_batches([rows(range(50), 1), rows(range(50, 80), 1)])


def test_a_range_is_all_that_comes(folder: Path) -> None:
    assert offsets(read(folder, start=90, end=110)) == list(range(90, 110))
    assert offsets(read(folder, start=155)) == list(range(155, 160))
    assert offsets(list(read_present_rows(str(folder), 1, start=40, end=60))) == list(range(40, 60))


def test_only_the_row_groups_that_have_it_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_files, "GROUP_ROWS", 10)
    batches = [rows(range(start, start + 10)) for start in range(0, 100, 10)]
    name = FileName(0, 0, 100, "a" * 12, 0)
    made = write_file(LocalFileSystem(), str(tmp_path), name, span(0, 100), batches)
    assert made is not None
    Lake.load(tmp_path).commit(SOURCE, [span(0, 100)], [made], run="a" * 12)
    assert [table.num_rows for table in read(tmp_path, start=35, end=61)] == [5, 10, 10, 1]


def test_a_table_that_somebody_has_rewritten_still_comes_in_order(folder: Path) -> None:
    DeltaTable(folder).optimize.compact()
    assert len(Lake.load(folder).files()) == 1
    assert offsets(read(folder)) == list(range(160))
    assert offsets(read(folder, 1, start=45, end=55)) == list(range(45, 55))
    add(folder, span(160, 170), run="d" * 12)
    assert offsets(read(folder)) == list(range(170))


def test_a_rewritten_file_has_nothing_of_a_partition_between_those_that_it_has(tmp_path: Path) -> None:
    source = Source("orders", "an-id", 3)
    add(tmp_path, span(0, 10, source=source), span(0, 10, 2, source=source), source=source)
    DeltaTable(tmp_path).optimize.compact()
    assert [each.partitions for each in Lake.load(tmp_path).files()] == [(0, 2)]
    assert read(tmp_path, 1) == []
    assert offsets(read(tmp_path, 2)) == list(range(10))


def test_behind_the_end_of_a_partition_a_rewritten_file_has_nothing(folder: Path) -> None:
    DeltaTable(folder).optimize.compact()
    assert read(folder, 1, start=80) == []
    assert read(folder, 1, start=80, end=120) == []
