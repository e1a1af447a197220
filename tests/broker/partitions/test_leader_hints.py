"""Clients that ask a broker which does not lead are told who does (KIP-951)."""

import pytest

from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.machines.cluster_records import BrokerRegistered, PartitionImage, PartitionsChanged, Record
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import ProduceRequest, TopicProduceData
from tests.broker.harness import (
    Client,
    GatedFiles,
    Node,
    batch,
    fetch_request,
    in_loop,
    produce_request,
    running,
    until,
)


async def give_away(node: Node, topic_id: bytes) -> None:
    """Broker 5 leads in epoch 1, and is known."""
    listener = node.broker.config.listeners[0].name
    image = node.broker.services.image
    records: list[Record] = [
        BrokerRegistered(5, 11, {listener: ("b5", 9095)}, "r5", "f5", "f5"),
        PartitionsChanged(topic_id, (PartitionImage(0, (0, 5), (5,), (), 5, 1, 1),)),
    ]
    await node.broker._image_changed(image.apply_all(records))


async def given_away(node: Node) -> tuple[Client, bytes]:
    client = await node.connect()
    created = await client.create_topic("orders")
    await give_away(node, created.topic_id)
    return client, created.topic_id


@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_a_producer_is_sent_to_the_leader(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client, topic_id = await given_away(node)
            request = produce_request("orders", batch(b"a"))
            if version >= 13:
                [data] = request.topic_data
                request = ProduceRequest(
                    acks=-1, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data.partition_data)]
                )
            response = await client.ask(request, version)
            [partition] = response.responses[0].partition_responses
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = partition.current_leader
            assert (leader.leader_id, leader.leader_epoch) == ((5, 1) if version >= 10 else (-1, -1))
            told = [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
            assert told == ([(5, "b5", 9095, "r5")] if version >= 10 else [])

    run()


@pytest.mark.parametrize("version", [11, 12, 15, 16, 18])
def test_a_consumer_is_sent_to_the_leader(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client, topic_id = await given_away(node)
            request = fetch_request("orders", 0)
            request.topics[0].topic_id = topic_id
            response = await client.ask(request, version)
            [partition] = response.responses[0].partitions
            assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = partition.current_leader
            assert (leader.leader_id, leader.leader_epoch) == ((5, 1) if version >= 12 else (-1, -1))
            told = [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
            assert told == ([(5, "b5", 9095, "r5")] if version >= 16 else [])

    run()


@in_loop
async def test_those_that_wait_when_the_lead_goes_hear_of_the_new_leader_too() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client, reader = await node.connect(), await node.connect()
        created = await client.create_topic("orders")
        partition = node.partition("orders")
        request = fetch_request("orders", 0, max_wait_ms=60_000)
        request.topics[0].topic_id = created.topic_id
        reader.send(request, 16)
        await until(lambda: partition.fetch_waiters)
        files.gate.clear()
        client.send(produce_request("orders", batch(b"a")), 12)
        await until(lambda: partition.has_waiters)
        await give_away(node, created.topic_id)
        produced, fetched = await client.reply(), await reader.reply()
        assert produced.responses[0].partition_responses[0].current_leader.leader_id == 5
        assert fetched.responses[0].partitions[0].current_leader.leader_id == 5
        assert [node.node_id for node in (*produced.node_endpoints, *fetched.node_endpoints)] == [5, 5]
        files.gate.set()


@in_loop
async def test_of_a_partition_that_does_not_exist_there_is_no_leader() -> None:
    async with running() as node:
        created = await (await node.connect()).create_topic("orders")
        hints = LeaderHints(node.broker.services)
        assert hints.find("orders", 0) == hints.find(created.topic_id, 0) == (0, 0)
        assert hints.find("orders", 1) is hints.find("payments", 0) is None
