"""What is counted of each request."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.metrics.requests import ApiMeter, RequestMeter
from penstock.broker.network.call import Call
from penstock.protocol.apis import api
from penstock.protocol.codec import encode
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from penstock.protocol.session import ClientSession
from tests.broker.harness import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Node,
    batch,
    fetch_request,
    in_loop,
    produce_request,
    running,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def a_call(meter: RequestMeter, clock: Clock) -> Call:
    call = Call(api(0), 9, 1, None, memoryview(bytes(50)))
    call.received_at = clock.now
    connection: Any = SimpleNamespace(peer="?", waited=meter.waited)
    call.connection = connection
    return call


def of(node: Node, name: str) -> ApiMeter:
    [meter] = [meter for meter in node.broker.services.meters.requests.all() if meter.api.name == name]
    return meter


def test_sizes_and_times_add_up() -> None:
    clock = Clock()
    meter = RequestMeter([api(0)], clock)
    [produce] = meter.all()
    for milliseconds, written in ((1, [b"12345"]), (20, [b"1234", b"56", b"7"]), (300, None)):
        call = a_call(meter, clock)
        call.written = written
        clock.now += milliseconds / 1000
        meter.answered(call)
    assert (produce.bytes_in, produce.bytes_out) == (150, 12)
    assert produce.seconds.count == 3
    assert produce.seconds.sum == pytest.approx(0.321)
    assert produce.waits.count == 0


def test_a_wait_that_was_asked_for_is_no_time_of_service() -> None:
    clock = Clock()
    meter = RequestMeter([api(0)], clock)
    [produce] = meter.all()
    call = a_call(meter, clock)
    clock.now += 5.25
    call.waited(5.0)
    meter.answered(call)
    assert produce.seconds.sum == pytest.approx(0.25)
    assert (produce.waits.count, produce.waits.sum) == (1, 5.0)


def test_what_took_longer_than_the_threshold_is_slow() -> None:
    clock = Clock()
    meter = RequestMeter([api(0)], clock)
    meter.slow.set_threshold_ms(500)
    for seconds in (0.25, 0.5, 0.75, 8.0):
        call = a_call(meter, clock)
        clock.now += seconds
        meter.answered(call)
    assert meter.slow.total == 2


def test_errors_in_replies_are_counted_by_code() -> None:
    meter = RequestMeter([api(0)])
    [produce] = meter.all()
    partitions = [PartitionProduceResponse(error_code=code) for code in (0, 3, 3, 6)]
    meter.replied(
        a_call(meter, Clock()), ProduceResponse(responses=[TopicProduceResponse(partition_responses=partitions)])
    )
    assert produce.errors == {3: 2, 6: 1}


@in_loop
async def test_the_bytes_of_requests_and_replies_are_exact() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        requests = [
            (MetadataRequest(), 12, "Metadata"),
            (produce_request("orders", batch(b"a", b"b")), PRODUCE_VERSION, "Produce"),
            (produce_request("orders", batch(b"c")), 3, "Produce"),
            (fetch_request("orders"), FETCH_VERSION, "Fetch"),
        ]
        for message, version, name in requests:
            meter = of(node, name)
            before = meter.seconds.count, meter.bytes_in, meter.bytes_out
            _, chunks = ClientSession("test").send(message, version)
            client.send_bytes(b"".join(bytes(chunk) for chunk in chunks))
            length = await client._reader.readexactly(4)
            await client._reader.readexactly(struct.unpack(">i", length)[0])
            counted = meter.seconds.count, meter.bytes_in, meter.bytes_out
            body = len(encode(message, version))
            reply = 4 + struct.unpack(">i", length)[0]
            assert counted == (before[0] + 1, before[1] + body, before[2] + reply), name


@in_loop
async def test_a_produce_that_wants_no_reply_is_counted_without_one() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        client.send(produce_request("orders", batch(b"a"), acks=0), PRODUCE_VERSION)
        await client.produce("orders", batch(b"b"), acks=1)
        meter = of(node, "Produce")
        assert meter.seconds.count == 2
        client.send(produce_request("orders", batch(b"a"), acks=0), PRODUCE_VERSION)
        bytes_out = meter.bytes_out
        await client.ask(MetadataRequest(), 12)
        assert (meter.seconds.count, meter.bytes_out) == (3, bytes_out)


@in_loop
async def test_errors_of_real_requests_are_counted() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        await client.produce("nowhere", batch(b"a"))
        await client.produce("orders", batch(b"a"), partition=9)
        await client.fetch("orders", 77)
        assert of(node, "Produce").errors == {3: 2}
        assert of(node, "Fetch").errors == {1: 1}
        assert of(node, "CreateTopics").errors == {}


@in_loop
async def test_the_wait_of_a_fetch_is_taken_out_of_its_time() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        requests, meter = node.broker.services.meters.requests, of(node, "Fetch")
        await client.fetch("orders", max_wait_ms=0)
        assert (meter.seconds.count, meter.waits.count) == (1, 0)
        before = meter.seconds.sum
        answered_at = []

        def clock() -> float:
            answered_at.append(node.broker.services.loop.time())
            return answered_at[-1]

        requests._clock = clock
        await client.fetch("orders", max_wait_ms=20)
        assert (meter.seconds.count, meter.waits.count) == (2, 1)
        assert meter.waits.sum >= 0.02
        [connection] = node.broker.listener.connections
        in_all = answered_at[0] - connection._last_used
        assert meter.seconds.sum - before == pytest.approx(in_all - meter.waits.sum, abs=1e-6)
