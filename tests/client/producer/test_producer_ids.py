"""A producer id is waited for while nobody can be reached, and not when it is refused."""

import asyncio
from typing import Any

import pytest

from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError, ClientError
from penstock.client.producer.producer_ids import ask_for_id
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse
from tests.client.peer import HANG_UP, peer
from tests.waiting import in_loop


@in_loop
async def test_an_id_is_asked_for_until_a_broker_has_one() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        answers: list[Any] = [
            HANG_UP,
            InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            InitProducerIdResponse(producer_id=9, producer_epoch=0),
        ]
        broker.answers[InitProducerIdRequest] = lambda _: answers.pop(0)

        assert await ask_for_id(cluster, lambda _: None) == (9, 0)


@in_loop
async def test_a_refusal_says_what_to_do() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        refusal = InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        broker.answers[InitProducerIdRequest] = lambda _: refusal
        with pytest.raises(BrokerError, match="a producer id: you may not do this") as refused:
            await ask_for_id(cluster, lambda _: None)

        assert "enable.idempotence=False" in refused.value.__notes__[0]


@in_loop
async def test_brokers_that_are_away_are_waited_for() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        await cluster.all_topics()
        await broker.stop()
        told: list[ClientError] = []
        asking = asyncio.ensure_future(ask_for_id(cluster, told.append))
        broker.answers[InitProducerIdRequest] = lambda _: InitProducerIdResponse(producer_id=9, producer_epoch=0)
        await asyncio.sleep(0)
        await broker.start()

        assert await asking == (9, 0)
