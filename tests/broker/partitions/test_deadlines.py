"""Deadlines, on a loop whose time a test moves."""

import asyncio
import heapq
from collections.abc import Callable
from typing import cast

from penstock.broker.partitions.deadlines import TICK_SECONDS, Deadlines


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualLoop:
    """As much of an event loop as timers need."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, int, Callable[[], None], Timer]] = []
        self.made = 0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = Timer()
        self.made += 1
        heapq.heappush(self._timers, (self.now + delay, self.made, callback, timer))
        return timer

    @property
    def is_idle(self) -> bool:
        return all(timer.cancelled for *_, timer in self._timers)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, callback, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                callback()
        self.now = end

    def leap(self, seconds: float) -> None:
        """All at once, so that timers come late."""
        self.now += seconds
        _, _, callback, _ = heapq.heappop(self._timers)
        callback()


class Waiter:
    def __init__(self, loop: ManualLoop) -> None:
        self._loop = loop
        self.told_at: list[float] = []

    def timed_out(self) -> None:
        self.told_at.append(self._loop.time())


class Setting:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.deadlines = Deadlines(cast(asyncio.AbstractEventLoop, self.loop))


def test_a_waiter_is_told_once_never_early_and_little_later() -> None:
    for wait in (0.0, 0.001, 0.01, 0.0149, 0.1, 3.0):
        setting = Setting()
        began = setting.loop.now
        waiter = Waiter(setting.loop)
        setting.deadlines.add(waiter, wait)
        setting.loop.advance(10)
        [told_at] = waiter.told_at
        assert wait <= told_at - began <= wait + 2 * TICK_SECONDS + 1e-9, f"a wait of {wait} took {told_at - began}"


def test_many_waiters_share_one_timer() -> None:
    setting = Setting()
    waiters = [Waiter(setting.loop) for _ in range(100)]
    for number, waiter in enumerate(waiters):
        setting.deadlines.add(waiter, number / 1000)
    assert setting.loop.made == 1
    setting.loop.advance(1)
    assert all(len(waiter.told_at) == 1 for waiter in waiters)


def test_a_clock_that_leaps_by_a_year_tells_those_whose_time_is_up_in_their_order() -> None:
    setting = Setting()
    told: list[float] = []

    class Ordered(Waiter):
        def __init__(self, wait: float) -> None:
            super().__init__(setting.loop)
            self.wait = wait

        def timed_out(self) -> None:
            told.append(self.wait)

    year = 365 * 86_400.0
    for wait in (year + 60, 30.0, 0.5, 3600.0):
        setting.deadlines.add(Ordered(wait), wait)
    setting.loop.leap(year)
    assert told == [0.5, 30.0, 3600.0]
    setting.loop.advance(61)
    assert told == [0.5, 30.0, 3600.0, year + 60]


def test_the_timer_rests_while_nobody_waits_and_starts_again() -> None:
    setting = Setting()
    first, second = Waiter(setting.loop), Waiter(setting.loop)
    setting.deadlines.add(first, 0.05)
    setting.loop.advance(1)
    assert setting.loop.is_idle
    setting.loop.advance(1000)
    began = setting.loop.now
    setting.deadlines.add(second, 0.05)
    setting.loop.advance(1)
    assert second.told_at[0] - began < 0.1


def test_a_cancelled_wait_is_never_told() -> None:
    setting = Setting()
    waiter, other = Waiter(setting.loop), Waiter(setting.loop)
    bucket = setting.deadlines.add(waiter, 0.05)
    setting.deadlines.add(other, 0.05)
    setting.deadlines.cancel(waiter, bucket)
    setting.deadlines.cancel(waiter, bucket + 77)
    setting.loop.advance(1)
    assert (len(waiter.told_at), len(other.told_at)) == (0, 1)


def test_a_loop_that_was_held_up_tells_everybody_who_is_late() -> None:
    setting = Setting()
    waiters = [Waiter(setting.loop) for _ in range(10)]
    for number, waiter in enumerate(waiters):
        setting.deadlines.add(waiter, 0.02 * number)
    setting.loop.now += 5
    setting.loop.advance(TICK_SECONDS)
    assert all(len(waiter.told_at) == 1 for waiter in waiters)


def test_all_can_be_told_at_once_that_waiting_is_over() -> None:
    setting = Setting()
    waiters = [Waiter(setting.loop) for _ in range(3)]
    for number, waiter in enumerate(waiters):
        setting.deadlines.add(waiter, 100.0 * number)
    setting.deadlines.expire_all()
    assert all(len(waiter.told_at) == 1 for waiter in waiters)
    setting.loop.advance(1000)
    assert all(len(waiter.told_at) == 1 for waiter in waiters)


def test_after_a_close_nobody_is_told() -> None:
    setting = Setting()
    waiter = Waiter(setting.loop)
    setting.deadlines.add(waiter, 0.05)
    setting.deadlines.close()
    assert setting.loop.is_idle
    setting.loop.advance(1)
    assert waiter.told_at == []
