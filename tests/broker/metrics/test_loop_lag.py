"""The timer that sees how late the loop is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.metrics import loop_lag
from penstock.broker.metrics.loop_lag import BUSY_INTERVAL_SECONDS, IDLE_INTERVAL_SECONDS, LoopLag
from tests.broker.harness import in_loop, until


class Loop:
    """A clock that the test moves, and one timer."""

    def __init__(self) -> None:
        self.now = 10.0
        self.due = 0.0
        self.callback: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> "Loop":
        self.due, self.callback = when, callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def fire(self, late: float) -> None:
        self.now = self.due + late
        assert self.callback is not None
        self.callback()


def test_lateness_is_measured_against_the_time_the_timer_was_due() -> None:
    loop = Loop()
    as_loop: Any = loop
    lag = LoopLag(as_loop)
    lag.start()
    assert loop.due == pytest.approx(10.0 + BUSY_INTERVAL_SECONDS)
    for late in (0.0005, 0.03, -1e-9, 0.0):
        loop.fire(late)
    assert lag.seconds.count == 4
    assert lag.seconds.sum == pytest.approx(0.0305)
    assert lag.recent.value == pytest.approx(0.03)


def test_a_late_call_is_no_debt_of_the_next_one() -> None:
    loop = Loop()
    as_loop: Any = loop
    lag = LoopLag(as_loop)
    lag.start()
    loop.fire(5.0)
    assert loop.due > loop.now


def test_a_busy_process_is_looked_at_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    used = 3.0
    monkeypatch.setattr(loop_lag, "process_time", lambda: used)
    loop = Loop()
    as_loop: Any = loop
    lag = LoopLag(as_loop)
    lag.start()
    used += 0.5 * BUSY_INTERVAL_SECONDS
    loop.fire(0.0)
    assert loop.due - loop.now == pytest.approx(BUSY_INTERVAL_SECONDS)
    used += 0.01 * BUSY_INTERVAL_SECONDS
    loop.fire(0.0)
    assert loop.due - loop.now == pytest.approx(IDLE_INTERVAL_SECONDS)


def test_closing_cancels_the_timer() -> None:
    loop = Loop()
    as_loop: Any = loop
    lag = LoopLag(as_loop)
    lag.close()
    lag.start()
    lag.close()
    assert loop.callback is None


@in_loop
async def test_it_runs_in_a_real_loop() -> None:
    lag = LoopLag(asyncio.get_running_loop())
    lag.start()
    await until(lambda: lag.seconds.count >= 3)
    lag.close()
    assert lag._timer is None
