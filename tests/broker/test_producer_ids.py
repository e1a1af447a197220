"""Producer ids: nobody gets one twice, and few of them cost a change of the cluster."""

import asyncio

from penstock.broker.producer_ids import BLOCK, ProducerIds
from tests.broker.harness import in_loop, running


@in_loop
async def test_ids_asked_for_at_once_are_all_different() -> None:
    async with running() as node:
        ids = ProducerIds(node.broker.cluster)
        given = await asyncio.gather(*(ids.next() for _ in range(50)))
    assert len(set(given)) == 50


@in_loop
async def test_a_block_is_fetched_from_the_cluster_and_then_the_next() -> None:
    async with running() as node:
        before = node.shared.last
        ids = ProducerIds(node.broker.cluster)
        given = [await ids.next() for _ in range(BLOCK + 1)]
        assert node.shared.last == before + 2
    assert given == list(range(given[0], given[0] + BLOCK + 1))


@in_loop
async def test_what_is_left_of_a_block_is_never_given_away_after_a_restart() -> None:
    async with running() as node:
        first = await node.broker.producer_ids.next()
        await node.restart()
        assert await node.broker.producer_ids.next() >= first + BLOCK
        await node.crash()
        assert await node.broker.producer_ids.next() >= first + 2 * BLOCK
