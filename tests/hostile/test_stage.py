"""The stage itself: it sees the loop held, answers withheld, and memory taken."""

import asyncio

import pytest

from tests.broker.harness import in_loop
from tests.hostile.stage import HONEST_TOPIC, beside_an_honest_client


@in_loop
async def test_a_quiet_broker_costs_the_honest_client_little() -> None:
    async with beside_an_honest_client() as stage:
        async with stage.measured(memory=True) as cost:
            await stage.honest.answers_more(10)
        assert cost.answers > 10
        assert 0 < cost.turns_between_answers < 50
        assert 0 < cost.longest_turn_calls < 5_000
        assert 0 < cost.peak_bytes < 1 << 20


@in_loop
async def test_the_stage_sees_a_long_turn_and_much_memory() -> None:
    def hold_the_loop() -> list[bytes]:
        return [number.to_bytes(1_000) for number in range(2_000)]

    async with beside_an_honest_client() as stage:
        async with stage.measured(memory=True) as cost:
            asyncio.get_running_loop().call_soon(hold_the_loop)
            await stage.honest.answers_more(1)
        assert cost.longest_turn_calls >= 2_000
        assert cost.peak_bytes > 2_000 * 1_000


@in_loop
async def test_the_stage_sees_that_others_go_first() -> None:
    async with beside_an_honest_client() as stage:
        async with stage.measured() as cost:
            # The honest client's bytes lie in the socket meanwhile.
            connections = list(stage.node.broker.listener.connections)
            for connection in connections:
                connection._transport.pause_reading()
            for _ in range(200):
                await asyncio.sleep(0)
            for connection in connections:
                connection._transport.resume_reading()
            await stage.honest.answers_more(1)
        assert cost.turns_between_answers >= 200


@in_loop
async def test_the_honest_client_notices_wrong_answers() -> None:
    async def break_the_disk() -> None:
        async with beside_an_honest_client() as stage:
            stage.node.partition(HONEST_TOPIC).log.fail(OSError("the disk is gone"))
            await stage.honest.answers_more(3)

    with pytest.raises(AssertionError, match="KAFKA_STORAGE_ERROR"):
        await break_the_disk()
