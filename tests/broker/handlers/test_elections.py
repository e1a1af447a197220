"""ElectLeaders over the wire: which partitions get another leader, and what is said of the others."""

import logging
from typing import Any

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.topics import ElectLeadersRequest, TopicPartitions
from penstock.testing import Cluster
from tests.broker.harness import Client, in_loop, running
from tests.waiting import until

PREFERRED, UNCLEAN = 0, 1
REPLICATED: dict[str, Any] = {"storage": "memory", "default_replication_factor": 2}


def elections(*partitions: tuple[str, int], kind: int = PREFERRED) -> ElectLeadersRequest:
    named = [TopicPartitions(topic=topic, partitions=[index]) for topic, index in partitions]
    return ElectLeadersRequest(election_type=kind, topic_partitions=named)


def codes(response: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.topic, each.partition_id): ErrorCode(each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_every_version_says_of_each_partition_why_it_gets_no_leader(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            await client.create_topic("orders")
            request = elections(("orders", 0), ("orders", 1), ("nowhere", 0), ("orders", 0))
            response = await client.ask(request, version)
            assert codes(response) == {
                ("orders", 0): ErrorCode.ELECTION_NOT_NEEDED,
                ("orders", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            messages = [
                each.error_message for topic in response.replica_election_results for each in topic.partition_result
            ]
            assert all(messages)

    run()


@in_loop
async def test_an_election_of_an_unknown_type_is_refused() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        response = await client.ask(elections(("orders", 0), kind=2))
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert codes(response) == {("orders", 0): ErrorCode.INVALID_REQUEST}


@in_loop
async def test_of_all_partitions_those_that_have_their_leader_are_left_out() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        for kind in (PREFERRED, UNCLEAN):
            response = await client.ask(ElectLeadersRequest(election_type=kind, topic_partitions=None))
            assert (response.error_code, codes(response)) == (ErrorCode.NONE, {})


@in_loop
async def test_preferred_replicas_lead_again_by_one_entry_whichever_broker_is_asked() -> None:
    async with Cluster(brokers=2, **REPLICATED) as cluster:
        cluster.create_topic("orders", 4)
        cluster.restart(1)
        cluster.until_leaders()
        assert [cluster.leader_of("orders", index) for index in range(4)] == [0, 0, 0, 0]
        images = [node._production().services for node in cluster.brokers]
        await until(lambda: all(len(each.isr) == 2 for each in images[0].image.topics["orders"].partitions))
        index = images[0].cluster.index
        client = await Client.open(cluster.brokers[1].address)
        response = await client.ask(ElectLeadersRequest(topic_partitions=None))
        client.close()
        assert codes(response) == {("orders", 1): ErrorCode.NONE, ("orders", 3): ErrorCode.NONE}
        assert [cluster.leader_of("orders", index) for index in range(4)] == [0, 1, 0, 1]
        assert images[0].cluster.index == index + 1


@in_loop
async def test_a_preferred_replica_that_is_away_cannot_lead() -> None:
    async with Cluster(brokers=2, **REPLICATED) as cluster:
        cluster.create_topic("orders", 2)
        cluster.stop(1)
        client = await Client.open(cluster.brokers[0].address)
        response = await client.ask(elections(("orders", 1)))
        client.close()
        assert codes(response) == {("orders", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


@in_loop
async def test_an_unclean_election_is_made_on_command_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async with Cluster(brokers=2, **REPLICATED) as cluster:
        cluster.create_topic("orders")
        cluster.stop(1)
        cluster.stop(0)
        cluster.start(1)
        cluster.until_controller()
        assert cluster.leader_of("orders") is None
        client = await Client.open(cluster.brokers[1].address)
        assert codes(await client.ask(elections(("orders", 0)))) == {
            ("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        }
        with caplog.at_level(logging.WARNING, "penstock.broker.handlers.elections"):
            response = await client.ask(ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None))
        again = await client.ask(elections(("orders", 0), kind=UNCLEAN))
        client.close()
        assert codes(response) == {("orders", 0): ErrorCode.NONE}
        assert codes(again) == {("orders", 0): ErrorCode.ELECTION_NOT_NEEDED}
        assert cluster.leader_of("orders") == 1
        assert cluster.brokers[1]._production().services.controlling.unclean_elections == 1
        [told] = [each for each in caplog.records if each.name == "penstock.broker.handlers.elections"]
        assert (told.levelname, told.topic, told.partition, told.leader) == ("WARNING", "orders", 0, 1)  # type: ignore[attr-defined]
