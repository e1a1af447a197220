"""What commands on Spark have in common."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli.pipeline.jobs import ask_first, client_settings, spark_session, submitted_master
from penstock.testing import Broker
from tests.cli.pipelines import call


@pytest.fixture
def quick_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker of a machine on which no JVM may be started."""
    from penstock.spark import sessions

    def start(*_: object, **__: object) -> None:
        raise AssertionError("a JVM would be started")

    monkeypatch.setattr(sessions, "session", start)
    with Broker() as broker:
        broker.create_topic("orders")
        yield broker


@pytest.mark.parametrize(
    "command",
    [["stats", "order"], ["archive", "order", "--to", "lake"], ["replay", "lake", "--to", "order"]],
    ids=lambda command: command[0],
)
def test_an_unknown_topic_is_reported_with_the_near_name_before_a_jvm_is_started(
    quick_broker: Broker, command: list[str]
) -> None:
    _, errors = call(quick_broker, "pipeline", *command, exit_code=1)
    assert "topic 'order': there is no such topic; did you mean 'orders'?" in errors


def test_a_table_that_is_not_there_is_reported_before_a_jvm_is_started(quick_broker: Broker, tmp_path: Path) -> None:
    _, errors = call(quick_broker, "pipeline", "replay", str(tmp_path), "--to", "orders", exit_code=1)
    assert "there is no table in" in errors
    _, errors = call(quick_broker, "pipeline", "stats", "orders", "--lake", str(tmp_path), exit_code=1)
    assert "archive the topic first" in errors


def test_a_broker_that_cannot_be_reached_and_a_setting_that_does_not_exist_are_reported_before_a_jvm_is_started(
    quick_broker: Broker,
) -> None:
    _, errors = call(quick_broker, "pipeline", "stats", "orders", "--bootstrap", "127.0.0.1:1", exit_code=1)
    assert "no broker can be reached" in errors
    _, errors = call(quick_broker, "pipeline", "stats", "orders", "-X", "colour=red", exit_code=2)
    assert "colour is no setting of a consumer" in errors


def test_topics_that_are_there_are_asked_for_with_the_settings_of_the_client(quick_broker: Broker) -> None:
    asked = ask_first(client_settings(quick_broker.bootstrap, [("client.id", "archive")]), ["orders"])
    assert list(asked) == ["orders"]


def test_settings_of_the_client_join_the_bootstrap() -> None:
    given = [("security.protocol", "SSL"), ("client.id", "archive")]
    assert client_settings("a:1", given) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "client.id": "archive",
    }


def test_who_was_not_started_by_spark_submit_has_no_master_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert submitted_master() is None


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "penstock.spark.failures", None)
    needed = r"pip install 'penstock-mq\[spark\]'"
    with pytest.raises(click.ClickException, match=needed), spark_session(None, (), "test"):
        pass


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark import sessions
    from penstock.spark.java import JavaNotFoundError

    def none() -> None:
        raise JavaNotFoundError("Spark needs Java")

    monkeypatch.setattr(sessions, "ensure_java", none)
    with pytest.raises(click.ClickException, match="Spark needs Java"), spark_session(None, (), "test"):
        pass


def test_a_spark_that_does_not_start_says_so_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkRuntimeError

    from penstock.spark import sessions

    def fail(*_: object, **__: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(sessions, "session", fail)
    with pytest.raises(click.ClickException, match="Spark did not start: Java ended"), spark_session(None, (), "test"):
        pass
