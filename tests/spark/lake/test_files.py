"""Files of the lake: what goes in comes out, and what has changed is noticed."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from penstock.spark.lake import files as lake_files
from penstock.spark.lake.files import (
    FOOTER,
    Compression,
    DamagedFileError,
    FileName,
    arrow_schema,
    check_file,
    parse_name,
    sync,
    write_file,
)
from tests.spark.lakes import RUN, rows, span, write

FILES = LocalFileSystem()


def test_a_name_tells_what_a_file_has_and_who_wrote_it() -> None:
    name = FileName(3, 100, 200, RUN, 7)
    assert str(name) == f"penstock-3-100-200-{RUN}-7.parquet"
    assert parse_name(str(name)) == name
    assert parse_name("part-00000-32574f56.zstd.parquet") is None


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = write(tmp_path, span(10, 60))
    assert pq.read_table(tmp_path / made.path) == pa.Table.from_batches([rows(range(10, 60))])


@pytest.mark.parametrize(("compression", "codec"), [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("none", "UNCOMPRESSED")])
def test_a_file_is_compressed_as_the_user_likes(tmp_path: Path, compression: Compression, codec: str) -> None:
    name = FileName(0, 0, 60, RUN, 0)
    made = write_file(FILES, str(tmp_path), name, span(0, 60), [rows(range(60))], compression=compression)
    assert made is not None
    assert pq.read_metadata(tmp_path / made.path).row_group(0).column(1).compression == codec
    assert check_file(FILES, str(tmp_path / made.path), rows=60) == made.size


def test_a_manifest_tells_what_was_written(tmp_path: Path) -> None:
    made = write(tmp_path, span(10, 60), [12, 30, 55])
    assert (made.rows, made.first_offset, made.last_offset) == (3, 12, 55)
    assert made.size == (tmp_path / made.path).stat().st_size
    assert (made.first_ms, made.last_ms) == (1_700_000_000_012, 1_700_000_000_055)
    assert made.stats() == {
        "numRecords": 3,
        "minValues": {"partition": 0, "offset": 12, "timestamp": "2023-11-14T22:13:20.012Z"},
        "maxValues": {"partition": 0, "offset": 55, "timestamp": "2023-11-14T22:13:20.055Z"},
        "nullCount": {"partition": 0, "offset": 0, "timestamp": 0},
    }


def test_a_time_that_no_date_has_is_left_out_of_the_statistics(tmp_path: Path) -> None:
    batch = rows(range(2))
    beyond = pa.array([0, 300_000_000_000_000_000], arrow_schema().field("timestamp").type)
    batch = batch.set_column(5, arrow_schema().field("timestamp"), beyond)
    made = write_file(FILES, str(tmp_path), FileName(0, 0, 2, RUN, 0), span(0, 2), [batch])
    assert made is not None
    assert "timestamp" not in made.stats()["maxValues"]
    without = batch.set_column(5, arrow_schema().field("timestamp"), pa.nulls(2, beyond.type))
    made = write_file(FILES, str(tmp_path), FileName(0, 0, 2, RUN, 1), span(0, 2), [without])
    assert made is not None
    assert "timestamp" not in made.stats()["minValues"]


def test_a_range_without_rows_makes_no_file(tmp_path: Path) -> None:
    assert write_file(FILES, str(tmp_path), FileName(0, 0, 2, RUN, 0), span(0, 2), []) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_row_groups_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_files, "GROUP_BYTES", 2000)
    batches = [rows(range(start, start + 10)) for start in range(0, 200, 10)]
    made = write_file(FILES, str(tmp_path), FileName(0, 0, 200, RUN, 0), span(0, 200), batches)
    assert made is not None
    assert pq.read_metadata(tmp_path / made.path).num_row_groups > 5
    assert check_file(FILES, str(tmp_path / made.path), rows=200) == made.size


def test_offsets_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="has offsets 5 to 14, and offsets 5 to 14 of orders-0 were asked for"):
        write(tmp_path, span(5, 14), range(5, 15))


def test_a_file_that_has_changed_is_noticed(tmp_path: Path) -> None:
    made = write(tmp_path, span(0, 1000))
    path = tmp_path / made.path
    assert check_file(FILES, str(path), rows=1000) == made.size
    whole = path.read_bytes()
    for place in range(100, made.size - 2000, made.size // 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedFileError):
            check_file(FILES, str(path), rows=1000)


def test_a_file_with_other_rows_under_the_same_footer_is_noticed(tmp_path: Path) -> None:
    made = write(tmp_path, span(0, 100))
    path = tmp_path / made.path
    table = pq.read_table(path)
    footer = pq.read_metadata(path).metadata[FOOTER.encode()]
    with pq.ParquetWriter(path, arrow_schema()) as writer:
        writer.write_table(table.set_column(1, "value", pa.array([b"x"] * 100)))
        writer.add_key_value_metadata({FOOTER: footer})
    with pytest.raises(DamagedFileError, match="its checksum is another"):
        check_file(FILES, str(path), rows=100)


def test_a_file_that_is_gone_or_has_too_few_rows_is_noticed(tmp_path: Path) -> None:
    made = write(tmp_path, span(0, 100))
    with pytest.raises(DamagedFileError, match="has 100 rows, and the table says 101"):
        check_file(FILES, str(tmp_path / made.path), rows=101)
    with pytest.raises(DamagedFileError, match="cannot be read"):
        check_file(FILES, str(tmp_path / "missing.parquet"), rows=100)


def test_a_file_that_somebody_rewrote_needs_only_be_whole(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_batches([rows(range(10))]), tmp_path / "theirs.parquet")
    assert check_file(FILES, str(tmp_path / "theirs.parquet"), rows=10) > 0


def test_files_and_folders_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, int]] = []
    sync_descriptor = os.fsync

    def see(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.append((found.st_dev, found.st_ino))
        sync_descriptor(descriptor)

    made = write(tmp_path, span(0, 10))
    monkeypatch.setattr(os, "fsync", see)
    for path in (tmp_path / made.path, tmp_path):
        sync(FILES, str(path))
        found = path.stat()
        assert synced.pop() == (found.st_dev, found.st_ino)
        assert synced == []
