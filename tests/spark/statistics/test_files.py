"""Statistics as Parquet."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from penstock.spark.statistics.files import make_tables, write_tables
from tests.spark.counted import EMPTY, NOON_MS, made


def test_every_table_is_a_file_that_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "counts"
    paths = write_tables(made(), folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.rpartition("/")[2] for path in paths)
    assert len(paths) == 6
    topics = pq.read_table(folder / "topics.parquet").to_pylist()
    assert [(each["topic"], each["messages"], each["size_p95"], each["latency_ms_p99"]) for each in topics] == [
        ("nothing", 0, None, None),
        ("orders", 30, 300, 45),
    ]
    hours = pq.read_table(folder / "hours.parquet").to_pylist()
    assert [each["hour"] for each in hours[:2]] == [None, datetime.fromtimestamp(NOON_MS / 1000, UTC)]
    assert pq.read_table(folder / "keys.parquet")["key"].to_pylist() == [b"ada", b"\xff\x00"]
    assert pq.read_table(folder / "findings.parquet")["kind"].to_pylist() == ["duplicate", "removed"]
    assert pq.read_table(folder / "audits.parquet")["gaps"].to_pylist() == [4, 0]


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    write_tables(made(), tmp_path)
    write_tables(made(EMPTY), tmp_path)
    assert pq.read_table(tmp_path / "topics.parquet")["topic"].to_pylist() == ["nothing"]


def test_tables_have_their_types_without_rows_too() -> None:
    full, empty = make_tables(made()), make_tables(made(EMPTY))
    assert {name: table.schema for name, table in full.items()} == {name: table.schema for name, table in empty.items()}
