"""Data folders written by earlier versions: opened and read by this one, and refused where a newer one wrote them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.protocol.batch import split
from penstock.protocol.records import NewRecord, build
from penstock.storage.data_directory import FORMAT, DataDirectory
from penstock.storage.errors import UnsupportedFormatError
from penstock.storage.files import RealFiles
from tests.storage.store import make_newer
from tools.golden import BROKER_EPOCH, CONFIG, IDENTITY, START_MS, describe, write

GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(path.name for path in GOLDEN.iterdir())
NEWEST = GOLDEN / FORMATS[-1] / "data"
WITH_VERSION = sorted(
    path.relative_to(NEWEST).as_posix()
    for path in NEWEST.rglob("*")
    if path.is_file() and path.suffix != ".log" and path.name != "lock"
)
"""Every file of the newest folder that carries a version; batches have one of their own, and a lock is empty."""


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a golden folder, and beside it what should be in it."""
    shutil.copytree(GOLDEN / request.param, tmp_path / "golden")
    return tmp_path / "golden"


def expected(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return found


def described(directory: DataDirectory) -> dict[str, Any]:
    identities = {("payments", 0): IDENTITY, ("events.v2", 11): IDENTITY[::-1]}
    return {
        f"{topic}-{partition}": describe(directory.log(topic, partition, CONFIG, identity=identities[topic, partition]))
        for topic, partition in sorted(directory.partitions(), reverse=True)
    }


def test_there_is_a_golden_folder_of_the_first_format() -> None:
    assert "format-1" in FORMATS


def test_a_folder_without_an_id_gets_one_and_keeps_it(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "format-1" / "data", tmp_path / "data")
    ids = []
    for _ in range(2):
        directory = DataDirectory(str(tmp_path / "data"), RealFiles())
        ids.append(directory.folder_id)
        assert directory.cluster_id == "golden-cluster"
        directory.close()
    assert ids[0] == ids[1]
    assert len(ids[0]) == 32


def test_a_golden_folder_is_small_and_has_every_kind_of_file(folder: Path) -> None:
    files = [path for path in (folder / "data").rglob("*") if path.is_file()]
    assert {path.suffix or path.name for path in files} == {
        "clean-shutdown", "folder", "identity", "leader-epochs", "lock", "log-start", "recovery-points",
        ".index", ".log", ".snapshot", ".timeindex",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 30_000


def test_a_golden_folder_has_all_codecs_and_two_epochs_and_a_beginning_that_is_gone(folder: Path) -> None:
    payments = expected(folder)["payments-0"]
    assert {record["codec"] for record in payments["records"]} == {"NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"}
    assert len(payments["epochs"]) > 1
    assert payments["start"] > payments["segments"][0] > 0, "files are gone, and a batch is out of reach"


def test_a_golden_folder_has_everything_that_was_put_into_it(folder: Path) -> None:
    directory = DataDirectory(str(folder / "data"), RealFiles(), cluster_id="golden-cluster")
    assert directory.last_broker_epoch == BROKER_EPOCH
    assert described(directory) == expected(folder)
    assert all(report.scanned_bytes == 0 for report in directory.reports.values()), "a clean stop is trusted"
    directory.close()


def test_the_indexes_of_a_golden_folder_are_used_as_they_are(folder: Path) -> None:
    indexes = sorted((folder / "data").rglob("*index"))
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in indexes]
    assert before
    directory = DataDirectory(str(folder / "data"), RealFiles())
    described(directory)
    for topic, partition in directory.partitions():
        directory.log(topic, partition).find_timestamp(START_MS + 20_000)
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in indexes] == before
    directory.close()


def test_a_golden_folder_can_be_searched_by_time(folder: Path) -> None:
    directory = DataDirectory(str(folder / "data"), RealFiles())
    log = directory.log("payments", 0, CONFIG, identity=IDENTITY)
    for number in range(12, 30):
        found = log.find_timestamp(START_MS + 1000 * number)
        assert found is not None
        assert found.base_timestamp == START_MS + 1000 * number
    directory.close()


def test_a_golden_folder_of_a_process_that_was_killed_is_recovered(folder: Path) -> None:
    (folder / "data" / "clean-shutdown").unlink()
    directory = DataDirectory(str(folder / "data"), RealFiles())
    assert not directory.was_clean
    assert described(directory) == expected(folder)
    assert all(report.cut_bytes == 0 for report in directory.reports.values())
    directory.close()


def test_a_golden_folder_goes_on_growing(folder: Path) -> None:
    directory = DataDirectory(str(folder / "data"), RealFiles())
    log = directory.log("payments", 0, CONFIG, identity=IDENTITY)
    before = log.end_offset
    batch = build([NewRecord(b"new", timestamp=START_MS + 1_000_000)])
    assert log.append(split(batch), leader_epoch=9, now_ms=START_MS + 1_000_000) == before
    directory.close()
    directory = DataDirectory(str(folder / "data"), RealFiles())
    log = directory.log("payments", 0, CONFIG, identity=IDENTITY)
    assert log.epochs.entries[-1] == (9, before)
    records = describe(log)["records"]
    assert records[:-1] == expected(folder)["payments-0"]["records"]
    assert (records[-1]["offset"], records[-1]["value"]) == (before, "new")
    directory.close()


@pytest.mark.parametrize("name", WITH_VERSION)
def test_a_newer_version_is_refused_with_a_clear_message(tmp_path: Path, name: str) -> None:
    shutil.copytree(NEWEST, tmp_path / "data")
    make_newer(RealFiles(), str(tmp_path / "data" / name))
    newest = FORMAT if name == "folder" else 1
    told = f"{name} has format {newest + 1}, and this Penstock reads up to {newest}; upgrade"
    with pytest.raises(UnsupportedFormatError, match=told):
        described(DataDirectory(str(tmp_path / "data"), RealFiles()))


def test_the_present_code_writes_the_newest_format(tmp_path: Path) -> None:
    write(tmp_path / "again")
    newest = GOLDEN / FORMATS[-1]
    # Not the segments and what depends on their sizes: another release of a codec may compress them otherwise.
    names = ["folder", "clean-shutdown", "payments-0/identity", "payments-0/leader-epochs", "payments-0/log-start"]
    for name in names:
        assert (tmp_path / "again" / "data" / name).read_bytes() == (newest / "data" / name).read_bytes(), name
