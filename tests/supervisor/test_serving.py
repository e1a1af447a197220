"""The supervisor as a process, with scripted brokers and real metadata."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.machines.cluster_records import PartitionsCreated, Record, TopicCreated, encode
from penstock.metadata.sqlite import SqliteStore
from penstock.supervisor import restarts, serving
from penstock.supervisor.left_processes import LeftProcess, birth_of, write_down
from penstock.supervisor.plan import BrokerPlan, plan_brokers
from penstock.supervisor.readiness import Readiness
from penstock.supervisor.serving import METADATA_FILE, SupervisorError, run
from tests.supervisor.scripted import REFUSES, SERVES, command
from tests.waiting import in_loop

TOPIC = bytes(15) + b"\1"


def plans(folder: Path, count: int) -> list[BrokerPlan]:
    return plan_brokers({"log.dirs": str(folder), "listeners": "127.0.0.1:0"}, count)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The signals of this process, as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Stopping:
    """Sends a signal when the brokers are ready."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number
        self.told: list[Readiness] = []

    def __call__(self, told: list[Readiness], refused: list[int]) -> None:
        self.told = told
        os.kill(os.getpid(), self._number)


@in_loop
async def _hold(folder: Path, *replicas: int) -> None:
    """Metadata of a topic with a partition on each of these brokers."""
    folder.mkdir()
    store = SqliteStore(str(folder / METADATA_FILE))
    await store.open()
    epoch = await store.take_controller_lease(0)
    assert epoch is not None
    records: list[Record] = [
        TopicCreated(TOPIC, "orders", {}),
        PartitionsCreated(TOPIC, 0, tuple((broker_id,) for broker_id in replicas)),
    ]
    await store.append(epoch, 1, encode(records, controller_epoch=epoch, index=1))
    await store.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_brokers_in_order(tmp_path: Path, number: signal.Signals) -> None:
    stopping = Stopping(number)
    run(plans(tmp_path / "data", 2), lambda plan, _: command(SERVES, plan.node_id), stopping)
    assert [told.node_id for told in stopping.told] == [0, 1]
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


def test_brokers_find_the_socket_of_the_metadata(tmp_path: Path) -> None:
    connects = "import socket; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
    script = f"stop_at_sigterm(); begin(); {connects}; ready({{number}}); signal.pause()"
    stopping = Stopping(signal.SIGTERM)
    run(plans(tmp_path, 2), lambda plan, socket: [*command(script, plan.node_id), socket], stopping)
    assert len(stopping.told) == 2


def test_brokers_that_all_refuse_their_start_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "FIRST_SECONDS", 0.001)
    with pytest.raises(SupervisorError, match="none of 2 brokers starts"):
        run(plans(tmp_path, 2), lambda plan, _: command(REFUSES), Stopping(signal.SIGTERM))


def test_fewer_brokers_than_hold_partitions_are_refused(tmp_path: Path) -> None:
    _hold(tmp_path / "data", 0, 1, 2)
    with pytest.raises(SupervisorError, match=r"broker 2 holds 1 partition \(orders\)"):
        run(plans(tmp_path / "data", 2), lambda plan, _: command(SERVES, plan.node_id), Stopping(signal.SIGTERM))
    run(plans(tmp_path / "data", 3), lambda plan, _: command(SERVES, plan.node_id), Stopping(signal.SIGTERM))


def test_brokers_that_hold_nothing_may_be_left_out(tmp_path: Path) -> None:
    _hold(tmp_path / "data", 0, 1)
    run(plans(tmp_path / "data", 2), lambda plan, _: command(SERVES, plan.node_id), Stopping(signal.SIGTERM))


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SupervisorError, match="too long a path"):
        run(plans(tmp_path / ("x" * 100), 2), lambda plan, _: command(SERVES), Stopping(signal.SIGTERM))


def test_metadata_in_use_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / f"{METADATA_FILE}.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SupervisorError, match="in use"):
            run(plans(tmp_path, 2), lambda plan, _: command(SERVES), Stopping(signal.SIGTERM))


def leave(folder: Path, script: str) -> "subprocess.Popen[bytes]":
    """A process as a supervisor that was killed leaves it."""
    process = subprocess.Popen(command(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    birth = birth_of(process.pid)
    assert birth is not None
    write_down(str(folder), [LeftProcess(0, process.pid, birth)])
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"begin\n")
    process.stdin.flush()
    process.stdout.readline()
    return process


def test_brokers_that_an_earlier_supervisor_left_are_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This one never finds its metadata again.
    monkeypatch.setattr(serving, "RETURN_SECONDS", 0.01)
    with leave(tmp_path, SERVES) as left:
        try:
            stopping = Stopping(signal.SIGTERM)
            run(plans(tmp_path, 2), lambda plan, _: command(SERVES, plan.node_id), stopping)
            assert left.wait(30) == 0
            assert len(stopping.told) == 2
        finally:
            left.kill()
