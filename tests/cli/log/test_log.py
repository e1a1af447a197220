"""`penstock log dump` over real folders."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.log.log import _COLUMNS, _row, columns_in
from penstock.cli.main import penstock
from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.records import NewRecord, build
from penstock.storage.data_directory import DataDirectory
from penstock.storage.files import RealFiles
from penstock.storage.log.log import LogConfig
from tests.cli.conftest import Running

T = 1_767_225_600_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In use: its lock is held until the test is over."""
    data = DataDirectory(str(tmp_path / "logs"), RealFiles(), cluster_id="example")
    log = data.log("orders", 0, LogConfig(index_interval_bytes=1), identity=bytes(range(16)))
    first = NewRecord(b"\x1b[31m", b"ann", [("via", b"web"), ("bin\x1b", b"\xff")], T)
    log.append(split(build([first, NewRecord(None, b"bob", timestamp=T + 1)])), leader_epoch=0, now_ms=T)
    sent = build(
        [NewRecord(b"3", timestamp=T + 2)],
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        transactional=True,
    )
    log.append(split(sent), leader_epoch=0, now_ms=T)
    marker = build_end_marker(ControlType.COMMIT, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp=T + 3)
    log.append(split(marker), leader_epoch=2, now_ms=T)
    log.advance_start(1)
    data.flusher.flush()
    yield tmp_path
    data.close()


def dump(*args: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(penstock, ["log", "dump", *args])
    assert result.exit_code == exit_code, (result.stdout, result.stderr, result.exception)
    return result


def objects(*args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump(*args, "--output", "json").stdout.splitlines()]


def test_people_see_segments_batches_indexes_and_checkpoints(folder: Path) -> None:
    lines = dump(str(folder)).stdout.splitlines()
    assert lines[0] == f"orders-0 in {folder}/logs/orders-0"
    assert lines[1].startswith("  topic id AAECAwQFBgcICQoLDA0ODw; log start 1; ")
    assert "leader epochs 0 from 1,2 from 3" in lines[1]
    assert lines[2].startswith("  00000000000000000000.log, ")
    titles, *rows = [line.split() for line in lines[3:7]]
    assert titles[:5] == ["POSITION", "FIRST", "LAST", "COUNT", "SIZE"]
    assert rows[0][:4] == ["0", "0", "1", "2"]
    assert rows[0][5:9] == ["none", "ok", "0", "-"]
    assert rows[0][9:] == ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z"]
    assert rows[1][5:9] == ["zstd", "ok", "0", "7/1/5"]
    assert rows[1][-1] == "transactional"
    assert rows[2][-1] == "transactional,control"
    assert "index" in lines[7]


def test_records_are_shown_when_asked_for_and_nothing_a_terminal_obeys(folder: Path) -> None:
    assert "ann" not in dump(str(folder)).stdout
    shown = dump(str(folder), "--records").stdout
    assert r"0  2026-01-01T00:00:00.000Z  key ann  value \x1b[31m  headers via=web,bin\x1b=0xff" in shown
    assert "1  2026-01-01T00:00:00.001Z  key bob  value -\n" in shown
    assert "2  2026-01-01T00:00:00.002Z  key -  value 3\n" in shown
    assert "\x1b" not in shown


def test_programs_get_an_object_a_line(folder: Path) -> None:
    told = objects(str(folder / "logs" / "orders-0"), "--records", "--entries")
    kinds = [each["kind"] for each in told]
    assert kinds[:5] == ["partition", "segment", "batch", "record", "record"]
    assert told[0]["leader_epochs"] == [{"epoch": 0, "start": 1}, {"epoch": 2, "start": 3}]
    batch = told[2]
    assert (batch["base_offset"], batch["last_offset"], batch["count"], batch["problem"]) == (0, 1, 2, None)
    assert told[3]["headers"] == [{"name": "via", "value": "web"}, {"name": "bin\x1b", "value_base64": "/w=="}]
    assert told[4]["value"] is None
    assert "index" in kinds


def test_index_entries_are_shown_when_asked_for(folder: Path) -> None:
    copy = folder / "copy"
    files = RealFiles()
    data = DataDirectory(str(copy), files)
    log = data.log("orders", 0, LogConfig(index_interval_bytes=1))
    log.append(split(build([NewRecord(b"x", timestamp=T)])), leader_epoch=0, now_ms=T)
    data.close()
    assert "index: 2 entries, all right\n" in dump(str(copy)).stdout
    assert "offset 1 at byte" not in dump(str(copy)).stdout
    shown = dump(str(copy), "--entries").stdout
    assert "      offset 0 at byte 0, before it nothing newer than -\n" in shown
    assert "before it nothing newer than 2026-01-01T00:00:00.000Z\n" in shown


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def test_nothing_is_changed_though_the_folder_is_in_use(folder: Path) -> None:
    before = state(folder)
    dump(str(folder), "--records")
    assert state(folder) == before


def test_damage_is_told_and_ends_with_1(folder: Path) -> None:
    path = folder / "logs" / "orders-0" / f"{0:020}.log"
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), b"\xff", 80)
    result = dump(str(folder), "--records", exit_code=1)
    assert "BAD" in result.stdout
    assert "DAMAGED: the record batch is damaged: its CRC32C is" in result.stdout
    assert "key ann" not in result.stdout, "records of a damaged batch mean nothing"
    assert "7/1/5" in result.stdout
    assert "something is damaged" in result.stderr
    told = [json.loads(line) for line in dump(str(folder), "-O", "json", exit_code=1).stdout.splitlines()]
    assert [each["problem"] is None for each in told if each["kind"] == "batch"] == [False, True, True]


def test_half_a_batch_at_the_end_is_told_and_is_no_damage(folder: Path) -> None:
    path = folder / "logs" / "orders-0" / f"{0:020}.log"
    os.truncate(path, path.stat().st_size - 5)
    shown = dump(str(folder)).stdout
    assert "goes beyond the" in shown
    assert "DAMAGED" not in shown
    assert [each["is_damage"] for each in objects(str(folder)) if each["kind"] == "fault"] == [False]


def test_what_is_no_data_folder_is_refused(tmp_path: Path) -> None:
    assert "has no partition in it" in dump(str(tmp_path), exit_code=1).stderr
    dump(str(tmp_path / "missing"), exit_code=2)


def test_the_folder_of_a_running_broker_is_shown(broker: Running, cli: Callable[..., Result], topic: str) -> None:
    cli("produce", topic, "-K", ":", input="key:a value of mine\n")
    shown = cli("log", "dump", f"{broker.data}/logs/{topic}-0", "--records").stdout
    assert "key key  value a value of mine" in shown
    assert f"{topic}-0 in {broker.data}/logs/{topic}-0\n" in cli("log", "dump", broker.data).stdout


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_columns_are_left_out_in_a_narrow_terminal(width: int) -> None:
    columns = columns_in(width)
    assert {"FIRST", "LAST", "COUNT", "CRC"} <= set(columns)
    assert len(_row({name: name for name in columns})) <= width


def test_a_wide_terminal_has_all_columns() -> None:
    assert columns_in(200) == list(_COLUMNS)
