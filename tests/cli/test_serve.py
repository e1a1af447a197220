"""`penstock serve` as its operator sees it: the line that says where, refusals, and a stop in order."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

PROGRAM = [sys.executable, "-c", "from penstock.cli.main import main; main()", "serve"]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


@contextmanager
def serving(data: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and where it says that clients connect."""
    command = [*PROGRAM, "--data-dir", str(data), "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            assert process.stdout is not None
            first, second = process.stdout.readline(), process.stdout.readline()
            assert first.startswith("Penstock "), process.communicate()
            yield process, second.split(" to ")[1].split(";")[0]
        finally:
            if process.poll() is None:
                process.kill()


def refused(*options: str) -> str:
    done = subprocess.run(
        [*PROGRAM, *options], capture_output=True, text=True, timeout=60, check=False, env=environment()
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order_and_everything_is_there_afterwards(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "data") as (process, address):
        producer = Producer({"bootstrap.servers": address})
        for value in (b"a", b"b"):
            producer.produce("orders", value)
        assert producer.flush(30) == 0
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "stopped" in errors
    with serving(tmp_path / "data") as (process, address):
        consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 0, 0)])
        found = consumer.consume(2, 30)
        assert [message.value() for message in found] == [b"a", b"b"]
        consumer.close()


def test_configs_come_by_flag_and_by_environment_and_unused_ones_are_told(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "-X", "num.io.threads=3", "--node-id", "7") as (process, _):
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert "num.io.threads is accepted, but has no effect" in errors


def test_logs_can_be_json(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--log-format", "json") as (process, _):
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert '"message": "stopped"' in errors


def test_it_says_where_metrics_are_and_they_are_there(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "-X", "penstock.metrics.listen=127.0.0.1:0") as (process, _):
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].rstrip().removesuffix(".")
        with urllib.request.urlopen(url, timeout=30) as response:
            assert b"\npenstock_process_open_fds " in response.read()


def test_a_config_that_cannot_be_is_refused_with_the_near_name(tmp_path: Path) -> None:
    message = refused("--data-dir", str(tmp_path), "-X", "num.partition=3")
    assert "num.partitions" in message


def test_a_secret_comes_from_a_file_or_the_environment_and_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "s3cret-of-env")
    (tmp_path / "secret").write_text("s3cret-of-file\n")
    options = ["-X", f"ssl.key.password@file={tmp_path / 'secret'}", "-X", "ssl.keystore.password@env=A_SECRET"]
    with serving(tmp_path / "data", *options) as (process, _):
        command = Path(f"/proc/{process.pid}/cmdline")
        assert not command.exists() or b"s3cret" not in command.read_bytes()
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert "ssl.key.password is accepted" in errors
        assert "ssl.keystore.password is accepted" in errors
        assert "s3cret" not in errors


def test_a_listener_for_everybody_is_refused_unless_the_operator_insists(tmp_path: Path) -> None:
    message = refused("--data-dir", str(tmp_path), "--listen", "0.0.0.0:0")
    assert "--insecure" in message


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as (_, _):
        message = refused("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
        assert "in use" in message


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as (_, address):
        message = refused("--data-dir", str(tmp_path / "two"), "--listen", address)
        assert "in use" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--zookeeper", "localhost:2181"], "--zookeeper: zookeeper.connect: --processes keeps the metadata"),
        (["--node-id", "3"], "--node-id: node.id: --processes numbers its brokers itself"),
        (["--listen", "0.0.0.0:9092"], "--insecure"),
        (["--listen", "127.0.0.1:9092,9192"], "2 ports for 3 brokers"),
        (["-X", "num.partition=3"], "num.partitions"),
        (["-X", "penstock.metrics.listen=127.0.0.1:9093"], "at least 3 apart"),
    ],
)
def test_what_several_brokers_cannot_be_started_with_is_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    shown = refused("--processes", "3", "--data-dir", str(tmp_path / "data"), *options)
    assert message in shown
    assert not (tmp_path / "data").exists()


def test_a_broker_whose_supervisor_ended_before_it_began_does_not_begin(tmp_path: Path) -> None:
    command = [*PROGRAM, "--data-dir", str(tmp_path / "data"), "-X", f"penstock.metadata.socket={tmp_path / 'socket'}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert not (tmp_path / "data").exists()
