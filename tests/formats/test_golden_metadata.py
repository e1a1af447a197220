"""Metadata logs written by earlier versions are read by this one, and give the same image of the cluster."""

import json
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import Record, decode, encode
from penstock.machines.log_reader import LogReader
from tools.golden_metadata import describe, write

GOLDEN = Path(__file__).parent / "golden_metadata"
FORMATS = sorted(path.name for path in GOLDEN.iterdir())


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / str(request.param)


def entries(folder: Path) -> list[bytes]:
    return [(folder / f"{index}.entry").read_bytes() for index in range(1, len(list(folder.glob("*.entry"))) + 1)]


def test_there_is_a_golden_log_of_the_first_format() -> None:
    assert "format-1" in FORMATS


def test_the_newest_golden_log_has_every_type_of_record() -> None:
    found = {type(record) for entry in entries(GOLDEN / FORMATS[-1]) for record in decode(entry).records}

    assert found == set(get_args(Record))


def test_a_golden_log_gives_the_image_that_was_written(folder: Path) -> None:
    reader, image = LogReader(), ClusterImage()

    for index, entry in enumerate(entries(folder), 1):
        image.apply_all(reader.read(index, entry))

    assert describe(image) == json.loads((folder / "expected.json").read_text())


def test_a_golden_snapshot_and_what_follows_it_give_the_same_image(folder: Path) -> None:
    reader, image = LogReader(), ClusterImage()
    [snapshot] = folder.glob("*.snapshot")
    image.apply_all(reader.read_snapshot(int(snapshot.stem), snapshot.read_bytes()))

    for index, entry in enumerate(entries(folder)[reader.index :], reader.index + 1):
        image.apply_all(reader.read(index, entry))

    assert describe(image) == json.loads((folder / "expected.json").read_text())


def test_what_is_written_today_is_the_newest_format() -> None:
    for entry in entries(GOLDEN / FORMATS[-1]):
        found = decode(entry)
        again = encode(found.records, controller_epoch=found.controller_epoch, index=found.index)
        # The checksum and the version of Penstock aside.
        assert msgspec.msgpack.decode(again[4:])[1:] == msgspec.msgpack.decode(entry[4:])[1:]


def test_the_tool_writes_the_same_log_again(tmp_path: Path) -> None:
    write(tmp_path / "again")

    assert json.loads((tmp_path / "again" / "expected.json").read_text()) == json.loads(
        (GOLDEN / FORMATS[-1] / "expected.json").read_text()
    )
