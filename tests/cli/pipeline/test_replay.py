"""`penstock pipeline replay`, on a Spark of its own."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli.pipeline.replay import replay
from penstock.spark.lake import replaying
from penstock.testing import Broker
from tests.cli.pipelines import call, fill, spark

__all__ = ["spark"]


@pytest.mark.usefixtures("spark")
def test_what_was_archived_is_sent_to_another_topic(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    with Broker() as broker:
        broker.create_topic("orders", 2)
        broker.create_topic("again", 2)
        fill(broker, "orders", 20)
        fill(broker, "orders", 30, 1)
        call(broker, "pipeline", "archive", "orders", "--to", lake)
        output, _ = call(broker, "pipeline", "replay", lake, "--to", "again", "--from-offset", "15", "--since", "-1h")
        assert output.splitlines() == [
            "PARTITION  MESSAGES",
            "        0         5",
            "        1        15",
            "20 messages sent to again",
        ]
        output, _ = call(broker, "pipeline", "replay", lake, "--to", "again", "-p", "1", "-O", "json")
        assert json.loads(output) == {
            "path": lake,
            "topic": "again",
            "sent": [{"partition": 1, "messages": 30}],
            "sent_before": 0,
        }
        output, _ = call(broker, "consume", "again", "-p", "1", "-F", "%o %s\\n")
        assert output.splitlines()[14:17] == ["14 29", "15 0", "16 1"]
        _, errors = call(broker, "pipeline", "replay", str(tmp_path / "none"), "--to", "again", exit_code=1)
        assert "there is no table in" in errors


def fail(job: Any, partition: int) -> int:
    raise OSError("interrupted")


@pytest.mark.usefixtures("spark")
def test_the_same_command_goes_on_with_the_times_of_the_one_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    command = ("pipeline", "replay", lake, "--to", "again", "--since", "-1h")
    with Broker() as broker:
        broker.create_topic("orders", 1)
        broker.create_topic("again", 1)
        fill(broker, "orders", 20)
        call(broker, "pipeline", "archive", "orders", "--to", lake)
        monkeypatch.setattr(replaying, "_replay_partition", fail)
        call(broker, *command, exit_code=1)
        monkeypatch.undo()
        output, _ = call(broker, *command)
        assert "20 messages sent to again\nso long ago was counted from the start of the run that was" in output
        output, _ = call(broker, *command)
        assert "so long ago" not in output


def test_so_long_ago_is_not_made_a_point_in_time_by_the_command() -> None:
    def times(*args: str) -> tuple[Any, Any]:
        params = replay.make_context("replay", ["lake", "--to", "again", *args]).params
        return params["since"], params["until"]

    assert times() == (None, None)
    assert times("--since", "-1d12h", "--until", "@5") == (timedelta(days=1, hours=12), 5)
    assert times("--until", "@1970-01-01T00:00:01Z") == (None, 1000)
    for text in ("-5", "5", "end", "-1y", "-99999999999d"):
        with pytest.raises(click.BadParameter):
            times("--since", text)
