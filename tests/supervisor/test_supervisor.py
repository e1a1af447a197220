"""Processes of several brokers: started, started again, and stopped."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.supervisor import restarts
from penstock.supervisor.left_processes import read_left
from penstock.supervisor.readiness import Readiness
from penstock.supervisor.restarts import MANY_REFUSALS
from penstock.supervisor.supervisor import Supervisor
from tests.supervisor.scripted import NEVER_STOPS, REFUSES, SERVES, command
from tests.waiting import in_loop, until


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "FIRST_SECONDS", 0.001)


class Told:
    """What the supervisor has reported."""

    def __init__(self) -> None:
        self.ready: list[Readiness] = []
        self.refused: list[int] = []
        self.times = 0

    def __call__(self, ready: list[Readiness], refused: list[int]) -> None:
        self.ready, self.refused = ready, refused
        self.times += 1


@asynccontextmanager
async def supervising(
    folder: Path, scripts: Sequence[str], *, stop_seconds: float = 20.0
) -> AsyncIterator[tuple[Supervisor, Told]]:
    told = Told()
    commands = {number: command(script, number) for number, script in enumerate(scripts)}
    supervisor = Supervisor(commands, str(folder), told, stop_seconds=stop_seconds)
    supervisor.start()
    try:
        yield supervisor, told
    finally:
        await supervisor.stop()


def pids(folder: Path) -> dict[int, int]:
    return {each.node_id: each.pid for each in read_left(str(folder))}


@in_loop
async def test_all_brokers_are_started_written_down_and_stopped(tmp_path: Path) -> None:
    async with supervising(tmp_path, [SERVES] * 3) as (_, told):
        await until(lambda: told.times)
        assert [each.address for each in told.ready] == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
        assert told.refused == []
        assert sorted(pids(tmp_path)) == [0, 1, 2]
    assert pids(tmp_path) == {}


@in_loop
async def test_one_that_is_killed_is_started_again_and_the_others_stay(tmp_path: Path) -> None:
    async with supervising(tmp_path, [SERVES] * 3) as (_, told):
        await until(lambda: told.times)
        before = pids(tmp_path)
        os.kill(before[1], signal.SIGKILL)
        await until(lambda: pids(tmp_path).get(1, before[1]) != before[1])
        after = pids(tmp_path)
        assert (after[0], after[2]) == (before[0], before[2])
    assert told.times == 1


@in_loop
async def test_one_that_refuses_its_start_does_not_keep_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervising(tmp_path, [SERVES, REFUSES]) as (_, told):
        await until(lambda: told.times)
        assert [each.node_id for each in told.ready] == [0]
        assert told.refused == [1]
    (said,) = [each for each in caplog.records if "has refused to start" in each.getMessage()]
    assert said.__dict__["broker"] == 1


@in_loop
async def test_when_all_refuse_their_start_there_is_no_hope(tmp_path: Path) -> None:
    async with supervising(tmp_path, [REFUSES, REFUSES]) as (supervisor, told):
        assert f"each has refused {MANY_REFUSALS} times" in await supervisor.failed()
        assert told.times == 0


@in_loop
async def test_the_controller_is_asked_to_stop_after_the_others_are_gone(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    # The others give the controller the time to be too early.
    script = f"""
import time
def stop(*_):
    for _ in range(20 if {{number}} != 1 else 0):
        if open({str(mark)!r}).read():
            break
        time.sleep(0.01)
    open({str(mark)!r}, "a").write("{{number}}")
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
begin()
ready({{number}})
signal.pause()
"""
    async with supervising(tmp_path, [script] * 3) as (supervisor, told):
        await until(lambda: told.times)
        await supervisor.stop(last=1)
    order = mark.read_text()
    assert sorted(order) == ["0", "1", "2"]
    assert order[-1] == "1"


@in_loop
async def test_one_that_does_not_stop_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with supervising(tmp_path, [NEVER_STOPS, SERVES], stop_seconds=0.05) as (_, told):
        await until(lambda: told.times)
    assert "is killed" in caplog.text
    assert pids(tmp_path) == {}


@in_loop
async def test_all_can_be_killed_at_once(tmp_path: Path) -> None:
    async with supervising(tmp_path, [NEVER_STOPS] * 2) as (supervisor, told):
        await until(lambda: told.times)
        supervisor.kill()
    assert pids(tmp_path) == {}


@in_loop
async def test_a_process_that_cannot_be_made_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor({0: [str(tmp_path / "nothing")]}, str(tmp_path), Told())
    supervisor.start()
    await until(lambda: len(caplog.records) > 4)
    await supervisor.stop()
    assert "cannot be made" in caplog.text
    assert not [each for each in caplog.records if "refused" in each.getMessage()]


@in_loop
async def test_a_list_that_cannot_be_written_keeps_no_broker_from_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervising(tmp_path / "nothing", [SERVES]) as (_, told):
        await until(lambda: told.times)
    assert "cannot be written" in caplog.text
