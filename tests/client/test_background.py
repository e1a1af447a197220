"""Tasks and timers end with whom they work for."""

import asyncio

from penstock.client.background import Background
from tests.client.peer import in_loop


@in_loop
async def test_a_timer_calls_once() -> None:
    background, called = Background(), asyncio.Event()
    background.later(0.001, called.set)
    await called.wait()
    await background.end()


@in_loop
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
    await asyncio.sleep(0.005)

    assert called == ["task ended"]
