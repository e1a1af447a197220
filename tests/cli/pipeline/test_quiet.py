"""What a pipeline lets through of Spark's lines."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.cli.pipeline.quiet import LOG_SETTINGS, MAX_BLOCK_LINES, Quieted, has_own_logging, quiet_start
from penstock.testing import Broker
from tests.cli.pipelines import LOCAL, TIMEOUT_SECONDS, fill, start

START = "Traceback (most recent call last):\n"
DAEMON = '  File "/x/pyspark.zip/pyspark/daemon.py", line 264, in manager\n'
BROKEN = "BrokenPipeError: [Errno 32] Broken pipe\n"


def shown(*lines: str) -> list[str]:
    quieted = Quieted()
    return [*(kept for line in lines for kept in quieted.feed(line)), *quieted.finish()]


def test_what_java_prints_at_every_start_is_left_out_and_its_errors_are_not() -> None:
    wrong = "Error occurred during initialization of VM\n"
    assert shown("WARNING: Using incubator modules: jdk.incubator.vector\n", wrong) == [wrong]


def test_a_farewell_that_the_jvm_does_not_wait_for_is_left_out_and_other_tracebacks_are_not() -> None:
    assert shown("a\n", START, DAEMON, BROKEN, "b\n") == ["a\n", "b\n"]
    other = [START, DAEMON, "ValueError: 5\n"]
    assert shown(*other) == other
    users = [START, '  File "/home/ada/job.py", line 3\n', BROKEN]
    assert shown(*users) == users
    assert shown(START, DAEMON, *other) == [START, DAEMON, *other]


def test_a_traceback_that_does_not_end_is_shown_when_it_is_long_or_the_jvm_ends() -> None:
    assert shown(START, DAEMON) == [START, DAEMON]
    quieted = Quieted()
    assert quieted.feed(START) == []
    held = [quieted.feed(DAEMON) for _ in range(MAX_BLOCK_LINES - 1)]
    assert len(held[-1]) == MAX_BLOCK_LINES
    assert not any(held[:-1])


@pytest.mark.parametrize(
    ("conf", "environment"),
    [
        ({"spark.log.level": "INFO"}, {}),
        ({"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine"}, {}),
        ({}, {"SPARK_SUBMIT_OPTS": "-Dlog4j.configurationFile=mine"}),
        ({}, {"SPARK_CONF_DIR": "."}),
        ({}, {"SPARK_HOME": "home"}),
    ],
)
def test_who_has_set_how_spark_logs_gets_that(
    conf: Mapping[str, str], environment: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "conf").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "home" / "conf"):
        (folder / "log4j2.properties").touch()
    monkeypatch.chdir(tmp_path)
    assert has_own_logging(conf, environment)
    assert not has_own_logging({}, {"SPARK_HOME": "elsewhere", "SPARK_SUBMIT_OPTS": "-Xmx1g"})


_CHILD = "import os, sys; print(os.environ['SPARK_SUBMIT_OPTS'], file=sys.stderr); print({line!r}, file=sys.stderr)"


def test_what_is_started_within_writes_through_the_filter_and_the_rest_as_before(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g")
    line = "WARNING: Using incubator modules: x"
    with pytest.raises(ValueError, match="no"), quiet_start({}):  # noqa: PT012
        subprocess.run([sys.executable, "-c", _CHILD.format(line=line)], check=True)
        raise ValueError("no")
    os.write(2, line.encode())
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xmx1g"
    told = capfd.readouterr().err
    assert told.splitlines() == [f"-Xmx1g -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", line]


def test_a_pipeline_prints_nothing_on_standard_error_but_its_own() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        fill(broker, "orders", 10)
        process = start(broker, "pipeline", "stats", "orders", *LOCAL)
        output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, errors
    assert "sizes in bytes" in output
    assert errors == ""
