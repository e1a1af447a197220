"""A loop in its own thread, whose timers leap with the clock."""

import asyncio
import threading

import pytest

from penstock.testing.clock import Clock
from penstock.testing.hosting import Host
from tests.testing.clients import others


@pytest.fixture
def clock() -> Clock:
    return Clock(lambda by_ms: None)


def test_coroutines_run_in_another_thread_and_their_errors_come_back(clock: Clock) -> None:
    host = Host(clock)

    async def fail() -> None:
        raise LookupError("of the coroutine")

    try:
        assert host.call(threading.current_thread) is not threading.current_thread()
        with pytest.raises(LookupError):
            host.run(fail())
    finally:
        host.close()


def test_timers_sleeps_and_timeouts_leap_with_the_clock(clock: Clock) -> None:
    host = Host(clock)

    async def three_waits() -> list[str]:
        done: list[str] = []
        loop = asyncio.get_running_loop()
        timer = asyncio.Event()
        loop.call_later(3600, timer.set)

        async def sleep() -> None:
            await asyncio.sleep(3600)
            done.append("sleep")

        async def time_out() -> None:
            try:
                async with asyncio.timeout(3600):
                    await asyncio.Event().wait()
            except TimeoutError:
                done.append("timeout")

        waiting = asyncio.gather(sleep(), time_out(), timer.wait())
        await asyncio.sleep(0)
        clock.set_lead(3_600_001)
        await waiting
        return done

    try:
        assert sorted(host.run(three_waits())) == ["sleep", "timeout"]
    finally:
        host.close()


def test_close_ends_the_thread_and_what_is_left_in_it(clock: Clock) -> None:
    before = others()
    host = Host(clock)
    cancelled = threading.Event()

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def leave_it() -> None:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        task = asyncio.ensure_future(linger())
        await asyncio.sleep(0)
        assert not task.done()

    host.run(leave_it())
    host.close()
    assert cancelled.is_set()
    assert set(others()) <= set(before)
