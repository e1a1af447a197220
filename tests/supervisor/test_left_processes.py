"""Processes that outlived their supervisor."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.supervisor.left_processes import FILE_NAME, LeftProcess, birth_of, end_left, read_left, write_down
from tests.waiting import in_loop

IDLE = "import signal; print(flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {IDLE}"
POLITE = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); print(flush=True); signal.pause()"


class Started:
    """Processes of a test, none of which outlives it."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, program: str = IDLE) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        self.processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def left(self, process: subprocess.Popen[bytes], node_id: int = 0) -> LeftProcess:
        birth = birth_of(process.pid)
        assert birth is not None
        return LeftProcess(node_id, process.pid, birth)


@pytest.fixture
def started() -> Iterator[Started]:
    made = Started()
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_process_has_one_birth_and_none_after_its_end(started: Started) -> None:
    one, other = started.start(), started.start()
    assert birth_of(one.pid) == birth_of(one.pid) is not None
    assert birth_of(os.getpid()) not in (None, birth_of(one.pid))
    assert birth_of(other.pid) is not None
    one.kill()
    one.wait()
    assert birth_of(one.pid) is None


def test_those_that_are_alive_are_found_again(tmp_path: Path, started: Started) -> None:
    alive, dead = started.left(started.start(), 1), started.left(started.start(), 2)
    write_down(str(tmp_path), [alive, dead])
    started.processes[1].kill()
    started.processes[1].wait()
    assert read_left(str(tmp_path)) == [alive]


def test_another_process_with_the_same_number_is_not_taken_for_it(tmp_path: Path, started: Started) -> None:
    process = started.start()
    write_down(str(tmp_path), [LeftProcess(0, process.pid, "another birth")])
    assert read_left(str(tmp_path)) == []


@pytest.mark.parametrize("content", [None, "", "[{", '[{"pid": 1}]', "3", '[{"node_id": 0, "pid": "x", "birth": ""}]'])
def test_a_file_that_says_nothing_names_nothing(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / FILE_NAME).write_text(content)
    assert read_left(str(tmp_path)) == []


def test_they_are_asked_to_stop_and_waited_for(started: Started) -> None:
    process = started.start(POLITE)
    in_loop(end_left)([started.left(process)])
    assert process.wait(30) == 3


def test_what_does_not_stop_is_killed(started: Started) -> None:
    process = started.start(STUBBORN)
    in_loop(end_left)([started.left(process)], stop_seconds=0.01)
    assert process.wait(30) == -signal.SIGKILL


def test_what_is_gone_already_gets_no_signal() -> None:
    in_loop(end_left)([LeftProcess(0, os.getpid(), "another birth")])
