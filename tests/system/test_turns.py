"""Frames cut at every byte and glued in every way, and the order of replies when some wait, some are held, and some are
not wanted: on the loop where the engine serves clients, and on one where asyncio does."""

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from penstock.broker.engine import EngineLoop
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import FetchResponse
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.schemas.produce import ProduceResponse
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.harness import (
    Client,
    Node,
    batch,
    fetch_request,
    fetched,
    in_every_loop,
    in_loop,
    produce_request,
    produced,
    records_of,
    running,
    turns,
    until,
)

TOPIC = "t"


def mixture(random: Random, count: int) -> Iterator[tuple[Message, int]]:
    """Requests of both generations of versions: quick ones, ordinary ones, some without a reply, one that is held."""
    for number in range(count):
        value = b"%d" % number * random.choice((1, 20, 400))
        acks = random.choice((-1, 1, 0))
        yield random.choice(
            (
                (produce_request(TOPIC, batch(value), acks=acks), random.choice((3, 7, 9, 12))),
                (produce_request(TOPIC, batch(value, b"x"), acks=acks), random.choice((5, 8, 10))),
                (fetch_request(TOPIC, 0, max_wait_ms=0), random.choice((4, 11, 12))),
                (ApiVersionsRequest(), 0),
                (MetadataRequest(topics=None), 12),
            )
        )


def written(client: Client, requests: list[tuple[Message, int]]) -> bytes:
    return b"".join(bytes(chunk) for request in requests for chunk in client._session.send(*request)[1])


def wants_reply(message: Any) -> bool:
    return getattr(message, "acks", 1) != 0


async def check_replies(client: Client, requests: list[tuple[Message, int]]) -> None:
    """They come in the order of the requests, with the offsets in the order of the batches."""
    last = -1
    for request, _ in requests:
        if wants_reply(request):
            response = await client.reply()
            assert type(response).__name__ == type(request).__name__.replace("Request", "Response")
            if isinstance(response, ProduceResponse):
                assert produced(response).error_code == ErrorCode.NONE
                assert produced(response).base_offset > last
                last = produced(response).base_offset
            elif isinstance(response, FetchResponse):
                assert fetched(response).error_code == ErrorCode.NONE


def records_in(requests: list[tuple[Message, int]]) -> int:
    return sum(
        int.from_bytes(data.records[57:61], "big")
        for request, _ in requests
        for topic in getattr(request, "topic_data", ())
        for data in topic.partition_data
    )


async def settled(node: Node, end: int) -> None:
    await until(lambda: node.partition(TOPIC).high_watermark == end)
    assert node.partition(TOPIC).log.end_offset == end
    assert node.broker.listener.budget.used_bytes == 0
    assert node.pinned() == 0


@pytest.mark.parametrize(("new_loop", "step"), [(EngineLoop, 1), (asyncio.SelectorEventLoop, 9)])
def test_requests_may_be_cut_at_every_byte(new_loop: Callable[[], asyncio.AbstractEventLoop], step: int) -> None:
    in_loop(cut_at_every_byte, new_loop=new_loop)(step)


async def cut_at_every_byte(step: int) -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic(TOPIC)
        requests: list[tuple[Message, int]] = [
            (produce_request(TOPIC, batch(b"a"), acks=1), 7),
            (fetch_request(TOPIC, 0, max_wait_ms=0, max_bytes=1), 11),
            (produce_request(TOPIC, batch(b"b"), acks=0), 12),
            (fetch_request(TOPIC, 0, max_wait_ms=0, max_bytes=1), 12),
        ]
        size, end = len(written(await node.connect(), requests)), 0
        for cut in range(1, size, step):
            data = written(client, requests)
            client.send_bytes(data[:cut])
            await client.drain()
            await asyncio.sleep(0)
            client.send_bytes(data[cut:])
            await check_replies(client, requests)
            end += 2
        await settled(node, end)
        assert records_of(await client.fetch(TOPIC, end - 1))[-1].value == b"b"


@pytest.mark.parametrize("seed", range(4))
def test_requests_may_be_glued_in_every_way_while_others_send_theirs(seed: int) -> None:
    @in_every_loop
    async def run() -> None:
        random = Random(seed)
        async with running() as node:
            clients = [await node.connect() for _ in range(3)]
            await clients[0].create_topic(TOPIC)
            end = 0
            for _ in range(5):
                plans = [list(mixture(random, random.randrange(1, 60))) for _ in clients]
                streams = [written(client, plan) for client, plan in zip(clients, plans, strict=True)]
                while any(streams):
                    number = random.randrange(len(clients))
                    size = random.choice((1, 7, 100, 1000, 70_000))
                    piece, streams[number] = streams[number][:size], streams[number][size:]
                    clients[number].send_bytes(piece)
                    if random.random() < 0.3:
                        await asyncio.sleep(0)
                for client, plan in zip(clients, plans, strict=True):
                    await check_replies(client, plan)
                    end += records_in(plan)
            await settled(node, end)

    run()


@in_every_loop
async def test_replies_wait_for_an_earlier_fetch_and_a_request_without_a_reply_keeps_its_place() -> None:
    async with running() as node:
        client, other = await node.connect(), await node.connect()
        await client.create_topic(TOPIC)
        await client.produce(TOPIC, batch(b"first"))
        client.send_together(
            (fetch_request(TOPIC, 1, max_wait_ms=60_000), 12),
            (produce_request(TOPIC, batch(b"second"), acks=0), 12),
            (ApiVersionsRequest(), 0),
            (MetadataRequest(topics=None), 12),
        )
        # What the client itself sends after its fetch ends the wait.
        assert [record.value for record in records_of(fetched(await client.reply()))] == [b"second"]
        assert isinstance(await client.reply(), ApiVersionsResponse)
        assert isinstance(await client.reply(), MetadataResponse)
        client.send_together(
            (fetch_request(TOPIC, 2, max_wait_ms=60_000), 11),
            (fetch_request(TOPIC, 0, max_wait_ms=0), 11),
            (ApiVersionsRequest(), 0),
        )
        await until(lambda: node.partition(TOPIC).fetch_waiters)
        await turns()
        assert not client._reader._buffer  # type: ignore[attr-defined]
        await other.produce(TOPIC, batch(b"third"), acks=1)
        assert [record.value for record in records_of(fetched(await client.reply()))] == [b"third"]
        assert len(records_of(fetched(await client.reply()))) == 2
        assert isinstance(await client.reply(), ApiVersionsResponse)
        await settled(node, 3)


@in_every_loop
async def test_a_client_that_leaves_with_its_batches_staged_loses_none_of_what_it_was_promised() -> None:
    async with running() as node:
        client, other = await node.connect(), await node.connect()
        await other.create_topic(TOPIC)
        for _ in range(20):
            await client.produce(TOPIC, batch(b"kept"))
        client.send(produce_request(TOPIC, batch(b"perhaps"), acks=1), 12)
        client.abort()
        await until(lambda: len(node.broker.listener.connections) == 1)
        assert (await other.values(TOPIC))[:20] == [b"kept"] * 20
        await other.produce(TOPIC, batch(b"after"))
        assert (await other.values(TOPIC))[-1] == b"after"
