"""What brokers ask of their controller: requests in Envelopes, producer ids, a shutdown in order."""

from typing import Any

import pytest

from penstock.broker.network.call import Call
from penstock.machines.broker_proof import Identity
from penstock.protocol.apis import api
from penstock.protocol.codec import encode
from penstock.protocol.enclosed import enclose_request, read_reply
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.protocol.schemas.replication import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    EnvelopeRequest,
    EnvelopeResponse,
)
from penstock.protocol.schemas.topics import CreateTopicsRequest
from tests.broker.harness import Client, Node, create_topics, in_loop, running
from tests.broker.peering import OTHER, prove, secret_of


async def broker_of(node: Node, own: Identity = OTHER) -> Client:
    client = await node.connect()
    assert await prove(client, await secret_of(node), own=own) == ErrorCode.NONE
    return client


def enclosed(message: Message, version: int, *, of_broker: bool = False) -> EnvelopeRequest:
    key = type(message).schema.key
    assert key is not None
    call = Call(api(key), version, 5, "client", memoryview(encode(message, version)))
    return EnvelopeRequest(
        request_data=enclose_request(call),
        request_principal=None,
        client_host_address=bytes([10, 1, 2, 3]),
        listener_name="PLAINTEXT",
        of_broker=of_broker,
    )


def opened(message: type[Message], version: int, reply: EnvelopeResponse) -> Any:
    assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code).name
    assert reply.response_data is not None
    key = message.schema.key
    assert key is not None
    return read_reply(api(key), version, 5, reply.response_data)


@in_loop
async def test_a_request_in_an_envelope_is_answered_in_one_with_the_index_that_it_needs() -> None:
    async with running() as node:
        broker = await broker_of(node)
        for version in range(2, 8):
            request = create_topics(f"t{version}", 3)
            reply = await broker.ask(enclosed(request, version))
            [result] = opened(CreateTopicsRequest, version, reply).topics
            assert (result.name, result.error_code) == (f"t{version}", ErrorCode.NONE)
            assert reply.metadata_index == node.broker.services.cluster.index
        assert set(node.broker.services.image.topics) == {f"t{version}" for version in range(2, 8)}


@in_loop
async def test_an_envelope_in_an_envelope_is_refused() -> None:
    async with running() as node:
        broker = await broker_of(node)
        inner = enclosed(create_topics("t"), 7)
        for of_broker in (False, True):
            reply = await broker.ask(enclosed(inner, 0, of_broker=of_broker))
            assert reply.error_code == ErrorCode.INVALID_REQUEST
        assert not node.broker.services.image.topics


@in_loop
async def test_an_envelope_around_what_any_broker_answers_is_refused() -> None:
    async with running() as node:
        broker = await broker_of(node)
        reply = await broker.ask(enclosed(ProduceRequest(acks=1), 9))
        assert reply.error_code == ErrorCode.INVALID_REQUEST


@in_loop
async def test_a_client_gets_nothing_for_brokers_by_way_of_an_envelope() -> None:
    async with running() as node:
        own = node.broker.services.image.brokers[node.broker.node_id]
        broker = await broker_of(node, Identity(own.broker_id, own.broker_epoch))
        request = AllocateProducerIdsRequest(broker_id=own.broker_id, broker_epoch=own.broker_epoch)
        assert (await broker.ask(enclosed(request, 0))).error_code == ErrorCode.INVALID_REQUEST
        reply = await broker.ask(enclosed(request, 0, of_broker=True))
        assert opened(AllocateProducerIdsRequest, 0, reply).producer_id_len == 1000


@in_loop
async def test_an_internal_topic_is_created_for_a_broker_and_not_for_the_client_of_one() -> None:
    async with running() as node:
        broker = await broker_of(node)
        request = create_topics("__consumer_offsets", 2)
        reply = await broker.ask(enclosed(request, 7))
        [result] = opened(CreateTopicsRequest, 7, reply).topics
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        reply = await broker.ask(enclosed(request, 7, of_broker=True))
        [result] = opened(CreateTopicsRequest, 7, reply).topics
        assert result.error_code == ErrorCode.NONE


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x13\x00\x07", b"\xff" * 40])
def test_an_envelope_around_what_is_no_request_is_refused(data: bytes) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            broker = await broker_of(node)
            reply = await broker.ask(EnvelopeRequest(request_data=data))
            assert reply.error_code == ErrorCode.INVALID_REQUEST

    run()


@in_loop
async def test_a_version_that_the_controller_does_not_offer_is_refused() -> None:
    async with running() as node:
        broker = await broker_of(node)
        envelope = enclosed(create_topics("t"), 7)
        envelope.request_data = envelope.request_data[:2] + b"\x00\x09" + envelope.request_data[4:]
        assert (await broker.ask(envelope)).error_code == ErrorCode.UNSUPPORTED_VERSION


@in_loop
async def test_a_broker_that_is_not_the_controller_says_so() -> None:
    async with running() as node:
        broker = await broker_of(node)
        node.broker.services.controlling.is_controller = False
        reply = await broker.ask(enclosed(create_topics("t"), 7))
        assert (reply.error_code, reply.response_data) == (ErrorCode.NOT_CONTROLLER, None)


@in_loop
async def test_blocks_of_producer_ids_do_not_overlap() -> None:
    async with running() as node:
        own = node.broker.services.image.brokers[node.broker.node_id]
        broker = await broker_of(node, Identity(own.broker_id, own.broker_epoch))
        request = AllocateProducerIdsRequest(broker_id=own.broker_id, broker_epoch=own.broker_epoch)
        one, other = await broker.ask(request), await broker.ask(request)
        assert one.producer_id_len == other.producer_id_len == 1000
        assert other.producer_id_start == one.producer_id_start + 1000


@in_loop
async def test_a_broker_asks_for_itself_alone_and_as_it_is_registered() -> None:
    async with running() as node:
        own = node.broker.services.image.brokers[node.broker.node_id]
        stranger = await broker_of(node)
        honest = await broker_of(node, Identity(own.broker_id, own.broker_epoch))
        for kind in (AllocateProducerIdsRequest, BrokerHeartbeatRequest):
            now = kind(broker_id=own.broker_id, broker_epoch=own.broker_epoch)
            before = kind(broker_id=own.broker_id, broker_epoch=own.broker_epoch - 1)
            assert (await stranger.ask(now)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert (await honest.ask(before)).error_code == ErrorCode.STALE_BROKER_EPOCH


@in_loop
async def test_a_broker_that_wants_to_shut_down_leads_nothing_any_more() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("t", 3)
        image = node.broker.services.image
        own = image.brokers[node.broker.node_id]
        broker = await broker_of(node, Identity(own.broker_id, own.broker_epoch))
        alive = await broker.ask(BrokerHeartbeatRequest(broker_id=own.broker_id, broker_epoch=own.broker_epoch))
        assert (alive.error_code, alive.is_fenced, alive.should_shut_down) == (ErrorCode.NONE, False, False)
        request = BrokerHeartbeatRequest(broker_id=own.broker_id, broker_epoch=own.broker_epoch, want_shut_down=True)
        leaves = await broker.ask(request)
        assert (leaves.error_code, leaves.is_fenced, leaves.should_shut_down) == (ErrorCode.NONE, True, True)
        assert {partition.leader for partition in image.topics["t"].partitions} == {-1}
