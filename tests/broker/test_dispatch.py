"""From requests to handlers: what is not offered, what cannot be read, what fails, and replies in order."""

import asyncio
import logging
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker import dispatch
from penstock.broker.log_rates import BURST
from penstock.broker.network.call import Call
from penstock.broker.router import LATER, Router
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.harness import (
    Client,
    GatedFiles,
    Node,
    batch,
    frame,
    in_loop,
    produce_request,
    produced,
    running,
    turns,
    until,
)


def route(node: Node, handler: Callable[..., Any]) -> None:
    """Let a running broker answer Heartbeat, which it does not offer, by this function."""
    router = Router()
    router.handles(HeartbeatRequest, versions=(0, 4))(handler)
    node.broker.services.routes[12] = router.routes[0]


def header(key: int, version: int, correlation_id: int = 7) -> bytes:
    """Of a request from nobody, as in the versions that are not flexible."""
    return struct.pack(">hhih", key, version, correlation_id, -1)


async def is_closed_by(node: Node, request: bytes) -> str:
    """Send a frame, see the connection closed without a reply, and return the reason."""
    client, bystander = await node.connect(), await node.connect()
    before = node.broker.listener.aborted.copy()
    client.send_bytes(frame(request))
    assert await client.closed() == b""
    assert isinstance(await bystander.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
    [reason] = node.broker.listener.aborted - before
    return reason


@in_loop
async def test_an_api_that_nobody_knows_closes_the_connection() -> None:
    async with running() as node:
        assert await is_closed_by(node, header(999, 0)) == "unknown API key 999"
        assert await is_closed_by(node, header(-5, 0)) == "unknown API key -5"


@in_loop
async def test_an_api_that_is_not_offered_closes_the_connection() -> None:
    async with running() as node:
        assert await is_closed_by(node, header(26, 0) + bytes(10)) == "EndTxn is not offered"


@in_loop
async def test_a_version_that_is_not_offered_closes_the_connection() -> None:
    async with running() as node:
        assert await is_closed_by(node, header(1, 3)) == "Fetch is offered in versions 4 to 18, not 3"
        assert await is_closed_by(node, header(3, 99) + b"\0\0") == "Metadata is offered in versions 0 to 13, not 99"
        assert await is_closed_by(node, header(3, -1)) == "Metadata is offered in versions 0 to 13, not -1"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_oldest_versions_of_produce_are_advertised_and_close_the_connection(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            reason = await is_closed_by(node, header(0, version) + bytes(10))
            assert reason == f"Produce is offered in versions 3 to 13, not {version}"

    run()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_ranges(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            client = await node.connect()
            # A flexible header, and a body that nobody can know.
            client.send_bytes(frame(header(18, version, 41) + b"\0" + b"whatever"))
            # Then the client asks in a version that both know: the connection goes on.
            client.send(ApiVersionsRequest(), 0)
            client._session._awaited.appendleft((41, *client._session._awaited[0][1:]))
            response = await client.reply()
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            offered = {key for key, route in node.broker.services.routes.items() if not route.brokers_only}
            assert {item.api_key for item in response.api_keys} == offered
            assert (await client.reply()).error_code == ErrorCode.NONE

    run()


@in_loop
async def test_a_body_that_cannot_be_read_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        with caplog.at_level(logging.INFO, "penstock"):
            await is_closed_by(node, header(3, 1) + b"\x7f\xff\xff\xff")
            await is_closed_by(node, header(3, 1) + b"\xff\xff\xff\xff" + b"trailing")
        reasons = [vars(record)["reason"] for record in caplog.records if record.message == "connection closed"]
        assert len(reasons) == 2
        assert "MetadataRequest v1: 8 bytes too many behind it" in reasons
        assert "Traceback" not in caplog.text


@in_loop
async def test_a_request_without_a_header_closes_the_connection() -> None:
    async with running() as node:
        for body in (b"", b"\0", b"\0\x03\0\0\0\0\0"):
            assert await is_closed_by(node, body) == f"a request of {len(body)} bytes has no header"


@in_loop
async def test_a_handler_may_reply_at_once_or_later_or_by_a_coroutine() -> None:
    async with running() as node:
        client = await node.connect()
        calls: list[Call] = []

        def at_once(broker: object, call: Call, request: HeartbeatRequest) -> object:
            return HeartbeatResponse(error_code=1)

        def later(broker: object, call: Call, request: HeartbeatRequest) -> object:
            calls.append(call)
            return LATER

        async def by_coroutine(broker: object, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
            await asyncio.sleep(0)
            return HeartbeatResponse(error_code=3)

        route(node, at_once)
        assert (await client.ask(HeartbeatRequest(), 4)).error_code == 1
        route(node, later)
        client.send(HeartbeatRequest(), 4)
        await until(lambda: calls)
        calls[0].reply(HeartbeatResponse(error_code=2))
        assert (await client.reply()).error_code == 2

        async def later_by_coroutine(broker: object, call: Call, request: HeartbeatRequest) -> object:
            await asyncio.sleep(0)
            call.reply(HeartbeatResponse(error_code=4))
            return LATER

        route(node, by_coroutine)
        assert (await client.ask(HeartbeatRequest(), 4)).error_code == 3
        route(node, later_by_coroutine)
        assert (await client.ask(HeartbeatRequest(), 4)).error_code == 4


@in_loop
async def test_a_handler_that_fails_closes_its_connection_alone_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as node:

        def at_once(broker: object, call: Call, request: HeartbeatRequest) -> object:
            raise RuntimeError("a bug")

        async def by_coroutine(broker: object, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
            raise RuntimeError("a bug")

        for handler in (at_once, by_coroutine):
            route(node, handler)
            caplog.clear()
            client, bystander = await node.connect(), await node.connect()
            with caplog.at_level(logging.ERROR, "penstock"):
                client.send(HeartbeatRequest(), 4)
                assert await client.closed() == b""
            assert [record.getMessage() for record in caplog.records] == ["a request failed"]
            assert caplog.records[0].exc_info is not None
            assert isinstance(await bystander.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)


@in_loop
async def test_a_handler_that_finds_the_request_unreadable_later_closes_the_connection_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as node:

        async def handler(broker: object, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
            raise DecodeError("nonsense inside")

        route(node, handler)
        client = await node.connect()
        client.send(HeartbeatRequest(), 4)
        assert await client.closed() == b""
        assert node.broker.listener.aborted["nonsense inside"] == 1
        assert "Traceback" not in caplog.text


@in_loop
async def test_replies_come_in_the_order_of_requests_however_long_each_takes() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        files.gate.clear()
        # Slow, by the disk; at once; by a coroutine; at once, though the first is not flushed yet; and slow again.
        client.send_together(
            (produce_request("orders", batch(b"a")), 12),
            (ApiVersionsRequest(), 0),
            (MetadataRequest(topics=[]), 12),
            (produce_request("orders", batch(b"b"), acks=1), 12),
            (produce_request("orders", batch(b"c")), 12),
        )
        [connection] = node.broker.listener.connections
        await until(lambda: node.partition("orders").log.end_offset == 3)
        await turns()
        assert connection.unanswered == 5
        files.gate.set()
        replies = [await client.reply() for _ in range(5)]
        assert produced(replies[0]).base_offset == 0
        assert isinstance(replies[1], ApiVersionsResponse)
        assert replies[2].cluster_id == node.broker.cluster_id
        assert [produced(reply).base_offset for reply in replies[3:]] == [1, 2]


@in_loop
async def test_a_stop_waits_for_handlers_under_way() -> None:
    async with running() as node:
        gate = asyncio.Event()

        async def slow(broker: object, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
            await gate.wait()
            return HeartbeatResponse(error_code=5)

        route(node, slow)
        client: Client = await node.connect()
        client.send(HeartbeatRequest(), 4)
        [connection] = node.broker.listener.connections
        await until(lambda: connection.unanswered)
        stopping = asyncio.create_task(node.broker.stop())
        await turns()
        assert not stopping.done()
        gate.set()
        assert (await client.reply()).error_code == 5
        await stopping


@in_loop
async def test_requests_that_fail_write_a_few_tracebacks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch.log, "_clock", lambda: 0.0)

    def broken(broker: object, call: Call, request: HeartbeatRequest) -> object:
        raise RuntimeError("a bug")

    async with running() as node:
        route(node, broken)
        for _ in range(3 * BURST):
            client = await node.connect()
            client.send(HeartbeatRequest(), 4)
            assert await client.closed() == b""
        failed = [record for record in caplog.records if record.message == "a request failed"]
        assert len(failed) == BURST
        assert all(record.exc_info for record in failed)
        assert node.broker.listener.closed["error"] == 3 * BURST


def long_metadata(count: int = 3000) -> MetadataRequest:
    """A request for topics that do not exist, long enough to be decoded in a thread."""
    topics = [MetadataRequestTopic(name=f"there-is-no-topic-{number}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


@in_loop
async def test_a_long_request_is_decoded_in_a_thread_and_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded_by: list[bool] = []
    decode = Call.decode

    def watched(call: Call) -> Any:
        decoded_by.append(threading.current_thread() is threading.main_thread())
        return decode(call)

    monkeypatch.setattr(Call, "decode", watched)
    async with running() as node:
        client = await node.connect()
        # What comes behind it overwrites the receive buffer meanwhile.
        client.send_together((long_metadata(), 12), (MetadataRequest(topics=[]), 12), (long_metadata(2000), 12))
        first, second, third = [await client.reply() for _ in range(3)]
        assert [topic.name for topic in first.topics] == [topic.name for topic in long_metadata().topics or ()]
        assert not second.topics
        assert len(third.topics) == 2000
    assert decoded_by == [False, True, False]


@in_loop
async def test_who_sends_a_long_request_that_has_its_reply_later_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "DECODED_AT_ONCE_BYTES", 10)
    waiting: list[Call] = []

    def handler(broker: object, call: Call, request: HeartbeatRequest) -> object:
        waiting.append(call)
        return LATER

    async with running() as node:
        route(node, handler)
        client = await node.connect()
        client.send_together(*[(HeartbeatRequest(group_id="a-group"), 0)] * 2)
        await until(lambda: len(waiting) == 2)
        for call in waiting:
            call.reply(HeartbeatResponse())
        assert isinstance(await client.reply(), HeartbeatResponse)
        assert isinstance(await client.reply(), HeartbeatResponse)


@in_loop
async def test_a_long_request_that_cannot_be_read_closes_the_connection() -> None:
    async with running() as node:
        reason = await is_closed_by(node, header(3, 0) + struct.pack(">i", 1 << 20) + bytes(40_000))
        assert "MetadataRequest" in reason or "topics" in reason or "array" in reason, reason


@in_loop
async def test_a_request_of_many_things_has_a_limit_and_one_of_records_has_another() -> None:
    async with running() as node:
        size = dispatch.MAX_BYTES + 1
        reason = await is_closed_by(node, header(3, 0) + bytes(size))
        assert reason.startswith(f"a request of {size} bytes to Metadata, which takes")
        client = await node.connect()
        configs = {"max.message.bytes": str(2 * size)}
        await client.create_topic("large", configs=configs)
        produced = await client.produce("large", batch(bytes(size)))
        assert produced.error_code == ErrorCode.NONE


@in_loop
async def test_a_reply_that_would_be_too_large_closes_the_connection_and_says_why() -> None:
    async with running({"penstock.reply.max.bytes": str(1 << 20)}) as node:
        client = await node.connect()
        await client.create_topic("wide", 3000)
        wide = [MetadataRequestTopic(name="x" * 900 + str(number)) for number in range(1200)]
        client.send(MetadataRequest(topics=wide, allow_auto_topic_creation=False), 12)
        assert await client.closed() == b""
        [reason] = node.broker.listener.aborted
        assert reason.startswith("a reply to Metadata would have more than 1048576 bytes")
        client = await node.connect()
        response = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="wide")]), 12)
        assert len(response.topics[0].partitions) == 3000


@in_loop
async def test_work_on_a_long_request_ends_when_its_client_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as node:
        client, bystander = await node.connect(), await node.connect()
        asked = 0
        check = node.broker.services.check_topic_name

        def counting(name: str) -> ErrorCode | None:
            nonlocal asked
            asked += 1
            return check(name)

        monkeypatch.setattr(node.broker.services, "check_topic_name", counting)
        client.send(long_metadata(20_000), 12)
        await until(lambda: asked)
        client.abort()
        await until(lambda: len(node.broker.listener.connections) == 1)
        await turns(100)
        seen = asked
        assert isinstance(await bystander.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
        assert asked == seen < 20_000
