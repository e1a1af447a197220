"""InitProducerId over the wire."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.transactions import InitProducerIdRequest
from tests.broker.harness import batch, in_loop, running


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_a_number_of_its_own(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            first, second = await node.connect(), await node.connect()
            given = []
            for client in (first, second, first):
                response = await client.ask(InitProducerIdRequest(transactional_id=None), version)
                assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
                given.append(response.producer_id)
            assert len(set(given)) == 3
            assert min(given) >= 0

    run()


@in_loop
async def test_the_number_can_be_produced_with() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        number = (await client.ask(InitProducerIdRequest(transactional_id=None), 5)).producer_id
        for _ in range(2):
            answer = await client.produce("orders", batch(b"a", producer=(number, 0, 0)))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("transactional_id", ["tx", ""])
def test_transactions_are_refused_for_good(transactional_id: str) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            for version in range(6):
                response = await client.ask(InitProducerIdRequest(transactional_id=transactional_id), version)
                assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                assert not ErrorCode(response.error_code).retriable
                assert (response.producer_id, response.producer_epoch) == (-1, -1)

    run()
