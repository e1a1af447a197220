"""A broker that owns its process: real processes, real signals."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.broker.config.typed import BrokerConfig
from penstock.broker.serving import ServeError, refuse_open_listeners, run
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import Client, batch, in_loop

# Tells where it listens and how the process is set up, and then waits for a signal.
PROGRAM = """
import gc, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.serving import ServeError, run

def started(broker):
    interval, frozen = round(sys.getswitchinterval(), 4), gc.get_freeze_count() > 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(broker.address[1], gc.get_threshold()[0], interval, frozen, soft == min(hard, 1_000_000), flush=True)

try:
    run(BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:" + sys.argv[2], "log.dirs": sys.argv[1]}),
        started=started, insecure=False)
except ServeError as error:
    sys.exit(f"refused: {error}")
print("stopped", flush=True)
"""


def start(folder: Path, port: int = 0) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(folder: Path, port: int = 0) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """A process that has told that it has started."""
    process = start(folder, port)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def config(listeners: str) -> BrokerConfig:
    return BrokerConfig.parse({"listeners": listeners, "log.dirs": "/nowhere"})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as (process, told):
        with socket.create_connection(("127.0.0.1", int(told[0]))):
            process.send_signal(number)
            output, errors = process.communicate(timeout=30)
        assert (process.returncode, output, errors) == (0, "stopped\n", "")
    assert (tmp_path / "logs" / "clean-shutdown").exists()


def test_a_process_is_set_up_for_a_broker(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, told):
        assert told[1:] == ["50000", "0.0005", "True", "True"]


def test_a_broker_that_was_killed_starts_again(tmp_path: Path) -> None:
    with serving(tmp_path) as (process, told):
        assert told
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "logs" / "clean-shutdown").exists()
    with serving(tmp_path) as (_, told):
        assert int(told[0]) > 0


def test_what_keeps_a_broker_from_starting_is_told_in_a_sentence(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as (_, told):
        (tmp_path / "file").write_text("in the way")
        for folder, port, words in [
            (tmp_path / "two", int(told[0]), "address already in use"),
            (tmp_path / "one", 0, "in use"),
            (tmp_path / "file", 0, "exists"),
        ]:
            process = start(folder, port)
            _, errors = process.communicate(timeout=30)
            assert process.returncode == 1
            assert errors.startswith("refused: ")
            assert words in errors.lower()
            assert "Traceback" not in errors


# A disk whose syncs fail once there is a file that says so.
FAILING_DISK = """
import errno, os, sys
from penstock.storage.files import RealFiles

folder = sys.argv[1]
healthy = RealFiles.sync

def sync(files, fd):
    if os.path.exists(folder + "/broken"):
        raise OSError(errno.EIO, "input/output error")
    healthy(files, fd)

RealFiles.sync = sync
"""


def test_a_disk_that_fails_ends_the_process_with_a_sentence_exit_code_1_and_no_clean_marker(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FAILING_DISK + PROGRAM, str(tmp_path), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline().split()[0]))

        @in_loop
        async def produce() -> None:
            client = await Client.open(address)
            await client.create_topic("orders")
            assert (await client.produce("orders", batch(b"a"))).error_code == ErrorCode.NONE
            (tmp_path / "broken").touch()
            assert (await client.produce("orders", batch(b"b"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            client.close()

        produce()
        output, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert process.returncode == 1
    assert "stopped" not in output
    assert f"refused: the disk of {tmp_path} has failed: [Errno 5] input/output error" in errors
    assert "start the broker again" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "logs" / "clean-shutdown").exists()
    (tmp_path / "broken").unlink()
    with serving(tmp_path) as (_, told):

        @in_loop
        async def read() -> None:
            client = await Client.open(("127.0.0.1", int(told[0])))
            assert (await client.values("orders"))[0] == b"a"
            client.close()

        read()


@pytest.mark.parametrize(
    "listeners",
    ["PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://:9092", "PLAINTEXT://192.0.2.1:9092", "PLAINTEXT://[::]:9092"],
)
def test_a_listener_that_is_open_to_others_is_refused_unless_the_operator_insists(listeners: str) -> None:
    with pytest.raises(ServeError, match="--insecure"):
        refuse_open_listeners(config(listeners), insecure=False)
    refuse_open_listeners(config(listeners), insecure=True)
    with pytest.raises(ServeError, match="no authentication"):
        run(config(listeners), started=lambda broker: None, insecure=False)


@pytest.mark.parametrize(
    "listeners", ["PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://localhost:9092", "PLAINTEXT://[::1]:9092"]
)
def test_a_listener_for_this_machine_is_fine(listeners: str) -> None:
    refuse_open_listeners(config(listeners), insecure=False)


def test_one_open_listener_among_several_is_refused() -> None:
    mixed = BrokerConfig.parse(
        {
            "listeners": "PLAINTEXT://127.0.0.1:9092,OUTSIDE://0.0.0.0:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:9092,OUTSIDE://broker.example:9093",
            "log.dirs": "/nowhere",
        }
    )
    with pytest.raises(ServeError, match=r"0\.0\.0\.0:9093"):
        refuse_open_listeners(mixed, insecure=False)


@pytest.mark.parametrize("address", ["0.0.0.0:9404", ":9404", "192.0.2.1:0"])
def test_metrics_that_others_can_read_are_refused_unless_the_operator_insists(address: str) -> None:
    opened = BrokerConfig.parse({"log.dirs": "/nowhere", "penstock.metrics.listen": address})
    with pytest.raises(ServeError, match=r"HTTP://.*--insecure"):
        refuse_open_listeners(opened, insecure=False)
    refuse_open_listeners(opened, insecure=True)
    own = BrokerConfig.parse({"log.dirs": "/nowhere", "penstock.metrics.listen": "127.0.0.1:9404"})
    refuse_open_listeners(own, insecure=False)
