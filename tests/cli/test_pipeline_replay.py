"""`penstock pipeline replay`, on a Spark of its own."""

import json
from pathlib import Path

import pytest

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
