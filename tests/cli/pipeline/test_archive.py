"""`penstock pipeline archive`, on a Spark of its own."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from penstock.cli.main import INTERRUPTED, penstock
from penstock.cli.pipeline.archive import _show
from penstock.spark.lake.archiving import Archived, ArchiveResult
from penstock.testing import Broker
from tests.cli.pipelines import LOCAL, TIMEOUT_SECONDS, call, fill, spark, start, submit

__all__ = ["spark"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        made.create_topic("orders", 2)
        fill(made, "orders", 100)
        fill(made, "orders", 50, 1)
        yield made


@pytest.mark.usefixtures("spark")
def test_a_topic_is_archived_and_truncated(broker: Broker, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    command = ["pipeline", "archive", "orders", "--to", lake]
    output, _ = call(broker, *command, "--truncate", "--max-messages", "60", "-O", "json")
    told = json.loads(output)
    assert told["version"] == 0
    assert [(each["partition"], each["messages"]) for each in told["added"]] == [(0, 40), (1, 20)]
    assert told["ends"] == told["truncated"] == {"0": 40, "1": 20}
    output, _ = call(broker, *command)
    assert f"90 messages added to {lake}, now at version 1" in output
    assert DeltaTable(lake).to_pyarrow_table().num_rows == 150


def test_spark_submit_runs_it_too(broker: Broker, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    process = start(broker, "archive", "orders", "--to", lake, program=submit())
    output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, errors
    assert f"150 messages added to {lake}, now at version 0" in output
    assert DeltaTable(lake).to_pyarrow_table().num_rows == 150


def test_ctrl_c_ends_it_and_leaves_nothing_behind(broker: Broker, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with broker.faults.delay_replies("2 s", api="Fetch") as fault:
        process = start(broker, "pipeline", "archive", "orders", "--to", str(lake), *LOCAL)
        # The driver has looked at the records, and tasks have begun to read them.
        while fault.struck < 2:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == INTERRUPTED, errors
    assert "Traceback" not in errors
    assert "WARN" not in errors
    assert not lake.exists() or list(lake.iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_what_goes_wrong_is_told_in_a_sentence(broker: Broker, tmp_path: Path) -> None:
    _, errors = call(broker, "pipeline", "archive", "order", "--to", str(tmp_path), exit_code=1)
    assert "did you mean 'orders'?" in errors
    call(broker, "pipeline", "archive", "orders", "--to", str(tmp_path), "--max-messages", "2")
    broker.create_topic("others")
    fill(broker, "others", 1)
    _, errors = call(broker, "pipeline", "archive", "others", "--to", str(tmp_path), exit_code=1)
    assert "does not belong to topic 'others'" in errors


def test_a_time_and_a_folder_are_needed_in_their_form() -> None:
    result = CliRunner().invoke(penstock, ["pipeline", "archive", "orders"])
    assert result.exit_code == 2
    assert "Missing option '--to'" in result.stderr
    result = CliRunner().invoke(penstock, ["pipeline", "archive", "orders", "--to", "x", "--until", "7"])
    assert result.exit_code == 2
    assert "'7' makes no sense here" in result.stderr


def test_the_result_is_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    added = (Archived(0, 10, 30, 20, 4096, 1), Archived(3, 0, 5, 5, 1000, 1))
    _show(ArchiveResult("orders", "/lake", 4, added, {0: 30, 3: 5}, "archive.orders", {0: 30, 3: 5}), "table")
    assert capsys.readouterr().out.splitlines() == [
        "PARTITION  START  END  MESSAGES     SIZE  FILES  TRUNCATED TO",
        "        0     10   30        20  4.0 KiB      1            30",
        "        3      0    5         5   1000 B      1             5",
        "25 messages added to /lake, now at version 4",
    ]
    _show(ArchiveResult("orders", "/lake", 4, (), {0: 30}, "archive.orders", {0: 30}), "table")
    assert capsys.readouterr().out.splitlines() == [
        "/lake has everything that orders has",
        "partition 0 begins at 30 now",
    ]
