"""Brokers as the command line shows them."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.cluster.cluster import show_finding
from penstock.cli.cluster.findings import HealthFacts, Replicas
from penstock.cli.cluster.health import diagnose
from penstock.cli.main import penstock
from penstock.client.metadata import TopicPartition
from penstock.testing import Cluster
from tests.cli.conftest import Running

Call = Callable[..., Result]


def test_a_cluster_is_shown_as_a_whole(cli: Call, topic: str) -> None:
    told = json.loads(cli("cluster", "info", "-O", "json").stdout)
    assert (told["controller"], told["brokers_alive"], told["brokers_away"]) == (0, [0], [])
    assert told["topics"] >= 1
    assert (told["without_leader"], told["under_replicated"]) == (0, 0)
    shown = cli("cluster", "info").stdout
    assert told["cluster_id"] in shown


def test_a_healthy_broker_says_so_in_one_line(cli: Call, topic: str) -> None:
    shown = cli("cluster", "health").stdout
    assert shown.startswith("healthy: 1 broker, ")
    assert shown.count("\n") == 1
    assert json.loads(cli("cluster", "health", "-O", "json").stdout) == {"healthy": True, "findings": []}


def test_a_cluster_without_one_of_its_brokers_is_not_healthy_and_says_what_to_do() -> None:
    with Cluster(2, storage="memory", default_replication_factor=1) as cluster:
        cluster.create_topic("orders", 2)
        cluster.create_topic("bills", 2, min_insync_replicas=1)
        cluster.stop(1)
        cluster.until_leaders()
        bootstrap = cluster.brokers[0].bootstrap
        shown = CliRunner().invoke(penstock, ["-b", bootstrap, "cluster", "health"])
        assert shown.exit_code == 1
        first, _, *lines = shown.stdout.splitlines()
        assert first == "not healthy: 2 problems"
        assert lines[0] == "BROKEN: 2 partitions have no leader: bills-1, orders-1"
        assert "AT RISK: broker 1 is away" in lines
        as_json = CliRunner().invoke(penstock, ["-b", bootstrap, "cluster", "health", "-O", "json"])
        assert as_json.exit_code == 1
        told = json.loads(as_json.stdout)
        assert (told["healthy"], [each["kind"] for each in told["findings"]]) == (False, ["no_leader", "broker_away"])
        assert told["findings"][0]["partitions"] == ["bills-1", "orders-1"]
        info = json.loads(CliRunner().invoke(penstock, ["-b", bootstrap, "cluster", "info", "-O", "json"]).stdout)
        assert (info["without_leader"], info["below_min_isr"], info["brokers_away"]) == (2, 0, [1])


def test_a_cluster_that_does_not_answer_is_not_healthy() -> None:
    result = CliRunner().invoke(penstock, ["-b", "127.0.0.1:1", "cluster", "health"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("is_coloured", [False, True])
def test_a_finding_is_fitted_to_the_terminal_and_its_commands_can_be_copied(
    columns: int, is_coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "" if is_coloured else "1")
    command = "penstock topic alter orders-of-a-long-name --replication-factor 3"
    few = Replicas(TopicPartition("orders-of-a-long-name", 0), 0, (0,), (0,))
    [finding] = diagnose(HealthFacts(controller=0, alive={0, 1, 2}, partitions=[few], new_replicas=3))
    show_finding(finding)
    shown = capsys.readouterr().out
    assert f"    {command}\n" in shown
    assert ("\x1b[" in shown) == is_coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert all(len(line) <= columns for line in plain.splitlines() if command not in line)
    assert "HINT: 1 topic has" in plain


def test_each_broker_is_shown_with_what_it_leads_and_holds(cli: Call, broker: Running, topic: str) -> None:
    cli("produce", topic, input="a line\n")
    (told,) = json.loads(cli("cluster", "brokers", "-O", "json").stdout)
    assert (told["broker"], told["address"], told["state"], told["controller"]) == (0, broker.address, "alive", True)
    assert told["leads"] == told["holds"] >= 1
    assert told["size"] > 0
    assert told["free"] > 0
    assert broker.address in cli("cluster", "brokers").stdout


def test_an_adoption_says_what_is_wrong_with_the_address_or_the_folder(tmp_path: Path) -> None:
    for options, message in (
        (["--zookeeper", "localhost:2181/a,b/c"], "chroot"),
        (["--zookeeper", "localhost:2181", "--data-dir", str(tmp_path)], "has no metadata.sqlite"),
    ):
        result = CliRunner().invoke(penstock, ["cluster", "adopt", *options])
        assert result.exit_code == 1
        assert message in result.stderr
