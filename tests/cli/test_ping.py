"""A broker that answers, one that is away, and one that comes later."""

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from penstock.cli import ping as module
from penstock.cli.main import penstock
from penstock.client.admin.brokers import ClusterDescription, describe_cluster
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import AuthenticationError, ConnectionLostError
from tests.cli.conftest import Running
from tests.client.peer import closed_port

Call = Callable[..., Result]


def test_a_broker_that_answers_is_reported(cli: Call, broker: Running) -> None:
    shown = cli("ping").stdout
    assert "with 1 broker has answered in " in shown
    told = json.loads(cli("ping", "-O", "json").stdout)
    host, _, port = broker.address.partition(":")
    assert told["brokers"] == [{"broker": 0, "host": host, "port": int(port)}]
    assert told["cluster_id"] in shown


def test_no_answer_ends_with_1() -> None:
    result = CliRunner().invoke(penstock, ["ping", "-b", f"127.0.0.1:{closed_port()}"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "no broker can be reached" in result.stderr


def test_a_broker_is_waited_for(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def later(cluster: Cluster, *, timeout_ms: int | None = None) -> ClusterDescription:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise ConnectionLostError("none yet")
        return await describe_cluster(cluster, timeout_ms=timeout_ms)

    monkeypatch.setattr(module, "AGAIN_SECONDS", 0)
    monkeypatch.setattr("penstock.client.admin.brokers.describe_cluster", later)
    cli("ping", exit_code=1)
    assert tries == 1, "without --wait one try decides"
    cli("ping", "--wait", "30")
    assert tries == 3


def test_the_wait_ends(monkeypatch: pytest.MonkeyPatch, cli: Call) -> None:
    now = time.monotonic()

    async def never(*_: object, **__: object) -> ClusterDescription:
        nonlocal now
        now += 1
        raise ConnectionLostError("none yet")

    monkeypatch.setattr(module, "AGAIN_SECONDS", 0)
    monkeypatch.setattr("penstock.client.admin.brokers.describe_cluster", never)
    began = now
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: now)
        cli("ping", "--wait", "10", exit_code=1)
    assert now - began == 10


def test_a_wrong_password_is_not_waited_for(cli: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> ClusterDescription:
        raise AuthenticationError("wrong password")

    monkeypatch.setattr("penstock.client.admin.brokers.describe_cluster", refuse)
    assert "wrong password" in cli("ping", "--wait", "30", exit_code=1).stderr
