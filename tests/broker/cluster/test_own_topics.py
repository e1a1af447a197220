"""Topics that brokers ask for themselves."""

import pytest

from penstock.broker.cluster.own_topics import create_topic
from penstock.machines.decisions import Refused
from penstock.machines.groups.sharding import OFFSETS_TOPIC
from penstock.protocol.error_codes import ErrorCode
from tests.broker.harness import in_loop, running


@in_loop
async def test_a_broker_creates_topics_also_internal_ones_as_it_says() -> None:
    async with running() as node:
        services = node.broker.services
        ask = services.forwarder.ask
        await create_topic(ask, "t", partitions=3, replication_factor=1, configs={"retention.ms": "5"})
        await create_topic(ask, OFFSETS_TOPIC, partitions=2, replication_factor=1)
        assert len(services.image.topics["t"].partitions) == 3
        assert services.image.topics["t"].configs == {"retention.ms": "5"}
        assert len(services.image.topics[OFFSETS_TOPIC].partitions) == 2
        with pytest.raises(Refused) as caught:
            await create_topic(ask, "t", partitions=3, replication_factor=1)
        assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


@in_loop
async def test_a_topic_that_clients_ask_about_is_not_there_yet_while_there_is_no_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.broker.cluster.own_topics.TIMEOUT_SECONDS", 0.02)
    async with running() as node:
        services = node.broker.services
        services.controlling.is_controller = False
        services.image.controller_id = -1
        refused = await services.create_topic("t")
        assert refused is not None
        assert refused.code == ErrorCode.LEADER_NOT_AVAILABLE
