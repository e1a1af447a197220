"""Tasks and timers end with the client that they work for."""

import asyncio

import pytest

from penstock.client.producer.background import Background
from tests.client.virtual_time import in_virtual_time

LONG_AFTER_S = 60


@in_virtual_time
async def test_a_timer_calls_once() -> None:
    background, loop = Background(), asyncio.get_running_loop()
    called_at: list[float] = []
    began = loop.time()
    background.later(5, lambda: called_at.append(loop.time() - began))
    await asyncio.sleep(LONG_AFTER_S)

    assert called_at == [pytest.approx(5, abs=0.001)]
    await background.end()


@in_virtual_time
async def test_nothing_is_left_in_the_end() -> None:
    background = Background()
    called: list[str] = []
    background.later(0.001, lambda: called.append("timer"))

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            called.append("task ended")

    background.start(work())
    await asyncio.sleep(0)
    await background.end()
    assert called == ["task ended"]
    await asyncio.sleep(LONG_AFTER_S)

    assert called == ["task ended"]
