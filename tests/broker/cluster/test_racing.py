"""Several parts of some work: the first that ends ends all."""

import asyncio

import pytest

from penstock.broker.cluster.racing import race
from tests.broker.harness import in_loop, turns


class Part:
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self.is_cancelled = False

    async def run(self) -> None:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        if self.error is not None:
            raise self.error


@in_loop
async def test_the_others_are_cancelled_when_the_first_ends() -> None:
    first, second = Part(), Part()
    first.gate.set()
    await race(second.run(), first.run())
    assert second.is_cancelled
    assert not first.is_cancelled


@in_loop
async def test_what_the_first_raised_is_raised() -> None:
    first, second = Part(), Part()
    first.error = ValueError("broken")
    first.gate.set()
    with pytest.raises(ValueError, match="broken"):
        await race(first.run(), second.run())
    assert second.is_cancelled


@in_loop
async def test_a_race_that_is_cancelled_leaves_nothing_behind() -> None:
    parts = [Part(), Part()]
    racing = asyncio.create_task(race(*(part.run() for part in parts)))
    await turns()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert all(part.is_cancelled for part in parts)
