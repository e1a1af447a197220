"""The helper of a broker in memory: the same interface, on the loop."""

import asyncio
from contextlib import aclosing

import pytest

from penstock.broker.helper.inline import InlineHelper
from penstock.broker.helper.task import JobFailedError
from penstock.storage.files.memory import MemoryFiles
from tests.broker.harness import in_loop
from tests.broker.helper.sample_tasks import COUNT, Count, Number, Total


@in_loop
async def test_a_job_gives_its_results_one_a_turn() -> None:
    turns = 0

    async def go_round() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    going = asyncio.create_task(go_round())
    found = [result async for result in InlineHelper(MemoryFiles()).run(COUNT, Count(5))]
    assert [result.value for result in found] == [0, 1, 2, 3, 4, 5]
    assert isinstance(found[-1], Total)
    assert turns >= 5
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)


@in_loop
async def test_a_job_that_fails_says_why() -> None:
    with pytest.raises(JobFailedError, match="count: ValueError: 1 is too much"):
        async for _ in InlineHelper(MemoryFiles()).run(COUNT, Count(5, fails_at=1)):
            pass


@in_loop
async def test_the_next_job_waits_for_the_first_and_goes_on_when_nobody_listens_to_it_any_more() -> None:
    helper = InlineHelper(MemoryFiles())

    async def total() -> int:
        return [result.value async for result in helper.run(COUNT, Count(2))][-1]

    async with aclosing(helper.run(COUNT, Count(1000))) as numbers:
        assert isinstance(await anext(numbers), Number)
        second = asyncio.create_task(total())
        await anext(numbers)
        assert not second.done()
    assert await second == 2
    await helper.close()
