"""Lag on a real broker: once, over an interval, and watched."""

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import Result

from penstock.cli.group.lag import lag_fields, partition_row, show, total_fields
from penstock.client.admin.groups import GroupDescription, GroupMember
from penstock.client.admin.lag import GroupLag, PartitionLag, Rates
from penstock.client.metadata import TopicPartition
from tests.cli.conftest import Running
from tests.cli.groups import commit, member_of

Call = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[bytes]"]

WORKER = GroupMember("worker-1", None, "worker", "127.0.0.1", (), b"", b"")


def group_of(*partitions: PartitionLag) -> GroupLag:
    return GroupLag(GroupDescription("g", "Stable", "consumer", "range", (WORKER,)), partitions)


def test_lag_is_shown_in_messages_and_seconds(cli: Call, broker: Running, topic: str) -> None:
    cli("produce", topic, input="a\nb\nc\n")
    commit(broker, "lagging", {(topic, 0): 1})
    told = json.loads(cli("group", "lag", "lagging", "--interval", "0", "--output", "json").stdout)
    assert (told["group"], told["state"], told["members"]) == ("lagging", "Empty", 0)
    (partition,) = told["partitions"]
    assert (partition["topic"], partition["partition"]) == (topic, 0)
    assert (partition["committed"], partition["end"], partition["lag"]) == (1, 3, 2)
    assert partition["lag_seconds"] >= 0
    assert partition["consumed_per_second"] is None
    assert told["total"]["lag"] == 2

    shown = cli("group", "lag", "lagging", "--interval", "0.05").stdout.splitlines()
    fields = dict(line.split(maxsplit=1) for line in shown[: shown.index("")])
    assert fields["lag"] == "2 messages"
    assert fields["state"] == "Empty, 0 members"
    assert (fields["rate"], fields["produced"]) == ("0.0/s", "0.0/s")
    assert fields["catch"] == "up  never"
    assert shown[-2].split() == [
        "TOPIC",
        "PARTITION",
        "COMMITTED",
        "END",
        "LAG",
        "BEHIND",
        "RATE",
        "CATCH",
        "UP",
        "CLIENT",
    ]
    assert shown[-1].split()[:5] == [topic, "0", "1", "3", "2"]


def test_a_group_that_has_caught_up_has_no_lag(cli: Call, broker: Running, topic: str) -> None:
    cli("produce", topic, input="a\n")
    commit(broker, "caught-up", {(topic, 0): 1})
    told = json.loads(cli("group", "lag", "caught-up", "--interval", "0.01", "-O", "json").stdout)["total"]
    assert told == {
        "lag": 0,
        "lag_seconds": 0.0,
        "consumed_per_second": 0.0,
        "produced_per_second": 0.0,
        "catch_up_seconds": 0.0,
        "never_catches_up": False,
    }


def test_members_without_commits_are_told_of(cli: Call, broker: Running, topic: str) -> None:
    with member_of(broker, "only-members", {topic: [0]}):
        shown = cli("group", "lag", "only-members", "--interval", "0").stdout
    assert shown.splitlines()[-1].split() == [topic, "0", "-", "0", "-", "-", "-", "-", "worker"]
    with member_of(broker, "without-partitions"):
        assert "nothing is committed" in cli("group", "lag", "without-partitions", "-i", "0").stdout


def test_a_watch_goes_on_until_it_is_interrupted(broker: Running, cli: Call, program: Start, topic: str) -> None:
    cli("produce", topic, input="a\nb\nc\n")
    commit(broker, "watched", {(topic, 0): 1})
    args = ["group", "lag", "watched", "--watch", "--interval", "0.05", "--output", "json"]
    watch = program(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert watch.stdout is not None
    assert watch.stderr is not None
    first = json.loads(watch.stdout.readline())
    assert (first["total"]["lag"], first["total"]["consumed_per_second"]) == (2, None)
    commit(broker, "watched", {(topic, 0): 2})
    while (told := json.loads(watch.stdout.readline()))["total"]["lag"] != 1:
        pass
    assert told["total"]["consumed_per_second"] > 0
    watch.send_signal(signal.SIGINT)
    assert watch.wait(30) == 0
    assert watch.stderr.read() == b""


def test_a_watch_needs_time_between_its_looks(cli: Call) -> None:
    assert "--watch needs an --interval" in cli("group", "lag", "x", "--watch", "-i", "0", exit_code=2).stderr
    cli("group", "lag", "x", "--interval", "-1", exit_code=2)


def test_rates_are_shown_with_what_follows_from_them() -> None:
    key = TopicPartition("orders", 0)
    row = partition_row(PartitionLag(key, 10, 100, 125.0, Rates(30.0, 12.0), WORKER))
    assert [str(row[name]) for name in ("lag", "behind", "rate", "catch_up", "client")] == [
        "90",
        "2m 5s",
        "30.0/s",
        "5.0 s",
        "worker",
    ]
    never = partition_row(PartitionLag(key, 10, 100, None, Rates(3.0, 12.0), WORKER))
    assert str(never["catch_up"]) == "never"
    assert never["behind"] is None


def test_a_group_that_did_not_commit_while_we_looked_is_said_to_have_no_rate() -> None:
    fields = total_fields(group_of(PartitionLag(TopicPartition("orders", 0), 1, 5, 2.0, Rates(None, 1.0), WORKER)))
    assert "no commit came while we looked: try --interval 10" in str(fields["rate"])
    assert fields["catch_up"] is None
    assert str(fields["produced"]) == "1.0/s"


def test_a_total_says_what_it_leaves_out() -> None:
    key = TopicPartition("orders", 0)
    known, unknown = PartitionLag(key, 1, 5, 2.0, None, WORKER), PartitionLag(key, None, 5, None, None, WORKER)
    assert total_fields(group_of(known))["lag"] == "4 messages"
    assert total_fields(group_of(known, unknown))["lag"] == (
        "4 messages, not counting 1 partition of which nothing is known"
    )


def test_never_is_no_number_for_programs() -> None:
    group = group_of(PartitionLag(TopicPartition("orders", 0), 1, 5, 2.0, Rates(0.0, 1.0), None))
    assert group.catch_up_seconds == math.inf
    (partition,) = json.loads(json.dumps(lag_fields(group), allow_nan=False))["partitions"]
    assert (partition["catch_up_seconds"], partition["never_catches_up"]) == (None, True)
    assert (partition["member"], partition["client"]) == (None, None)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_watch_clears_the_screen_if_escapes_are_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_color: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(click, "clear", lambda: click.echo("\x1b[2J"))
    show(group_of(PartitionLag(TopicPartition("orders", 0), 1, 5, 2.0, None, None)), "table", watch=True)
    assert ("\x1b" in capsys.readouterr().out) == (not no_color)
