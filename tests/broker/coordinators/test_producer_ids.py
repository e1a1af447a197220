"""Producer ids: no producer gets one twice, and few of them cost a change of the cluster."""

import asyncio

import pytest

from penstock.broker.coordinators.producer_ids import ProducerIds
from penstock.broker.handlers.replication import PRODUCER_IDS_AT_ONCE as BLOCK
from penstock.machines.decisions import Refused
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.transactions import InitProducerIdRequest
from tests.broker.harness import Node, in_loop, running


def ids_of(node: Node) -> ProducerIds:
    services = node.broker.services
    return ProducerIds(services.forwarder.ask, services.peers.own)


@in_loop
async def test_ids_asked_for_at_once_are_all_different() -> None:
    async with running() as node:
        ids = ids_of(node)
        given = await asyncio.gather(*(ids.next() for _ in range(50)))
    assert len(set(given)) == 50


@in_loop
async def test_a_block_is_fetched_from_the_cluster_and_then_the_next() -> None:
    async with running() as node:
        before = node.shared.last
        ids = ids_of(node)
        given = [await ids.next() for _ in range(BLOCK + 1)]
        assert node.shared.last == before + 2
    assert given == list(range(given[0], given[0] + BLOCK + 1))


@in_loop
async def test_what_is_left_of_a_block_is_never_given_away_after_a_restart() -> None:
    async with running() as node:
        first = await node.broker.services.producer_ids.next()
        await node.restart()
        assert await node.broker.services.producer_ids.next() >= first + BLOCK
        await node.crash()
        assert await node.broker.services.producer_ids.next() >= first + 2 * BLOCK


@in_loop
async def test_a_producer_asks_again_while_the_controller_gives_no_ids() -> None:
    async with running() as node:
        ids, own = ids_of(node), node.broker.services.peers.own
        node.broker.services.peers.own = lambda: own()._replace(broker_epoch=-1)
        with pytest.raises(Refused, match="the controller gives no producer ids"):
            await ProducerIds(node.broker.services.forwarder.ask, node.broker.services.peers.own).next()
        node.broker.services.producer_ids = ProducerIds(
            node.broker.services.forwarder.ask, node.broker.services.peers.own
        )
        client = await node.connect()
        response = await client.ask(InitProducerIdRequest(transactional_id=None), 5)
        assert (response.error_code, response.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert await ids.next() >= 0
