"""What commands on Spark have in common."""

import sys

import click
import pytest

from penstock.cli.spark_jobs import client_settings, spark_session, submitted_master


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
    with pytest.raises(click.ClickException, match=r"pip install 'penstock\[spark\]'"), spark_session(None, (), "test"):
        pass


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark import sessions
    from penstock.spark.java import JavaNotFoundError

    def none() -> None:
        raise JavaNotFoundError("Spark needs Java")

    monkeypatch.setattr(sessions, "ensure_java", none)
    with pytest.raises(click.ClickException, match="Spark needs Java"), spark_session(None, (), "test"):
        pass
