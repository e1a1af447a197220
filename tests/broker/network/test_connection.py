"""A connection and its bytes: whole frames, broken frames, backpressure, and what is left when it goes."""

import asyncio
import logging
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.network import connection as connection_module
from penstock.broker.network.call import Call
from penstock.broker.network.connection import Connection
from penstock.broker.network.sender import Sender
from penstock.broker.router import Router
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.groups import (
    Coordinator,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.produce import ProduceResponse
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.session import ClientSession
from tests.broker.harness import (
    GatedFiles,
    Node,
    batch,
    create_topics,
    fetch_request,
    fetched,
    frame,
    in_every_loop,
    in_loop,
    produce_request,
    produced,
    records_of,
    running,
    turns,
    until,
    values_of,
)


def only_connection(node: Node) -> Connection:
    [connection] = node.broker.listener.connections
    return connection


async def reason_for_closing(node: Node, data: bytes, caplog: pytest.LogCaptureFixture) -> str:
    """Send bytes, see the connection closed and everybody else served, and return the reason that is logged."""
    client, bystander = await node.connect(), await node.connect()
    caplog.clear()
    with caplog.at_level(logging.INFO, "penstock"):
        client.send_bytes(data)
        assert await client.closed() == b""
    assert isinstance(await bystander.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
    [record] = [record for record in caplog.records if record.getMessage() == "connection closed"]
    assert "Traceback" not in caplog.text
    reason = vars(record)["reason"]
    assert isinstance(reason, str)
    return reason


@in_every_loop
async def test_a_request_may_come_byte_by_byte() -> None:
    async with running() as node:
        client = await node.connect()
        _, chunks = client._session.send(MetadataRequest(topics=None), 12)
        for byte in b"".join(chunks):
            client.send_bytes(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.reply()).cluster_id == node.broker.cluster_id


@in_every_loop
async def test_a_batch_that_comes_in_pieces_while_others_send_is_stored_as_it_was_sent() -> None:
    async with running() as node:
        slow, fast = await node.connect(), await node.connect()
        await fast.create_topic("orders")
        value = bytes(range(256)) * 300
        _, chunks = slow._session.send(produce_request("orders", batch(value)), 12)
        data = b"".join(bytes(chunk) for chunk in chunks)
        for start in range(0, len(data), 10_000):
            slow.send_bytes(data[start : start + 10_000])
            await fast.produce("orders", batch(b"\xff" * 20_000), acks=1)
        assert produced(await slow.reply()).error_code == ErrorCode.NONE
        assert (await fast.values("orders")).count(value) == 1


@in_every_loop
async def test_replies_to_requests_that_came_together_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = Sender.send

    def spy(self: Sender, chunks: list[Any]) -> None:
        sent.append(len(chunks))
        send(self, chunks)

    monkeypatch.setattr(Sender, "send", spy)
    async with running() as node:
        client = await node.connect()
        client.send_together(*[(ApiVersionsRequest(), 0)] * 20)
        for _ in range(20):
            await client.reply()
    assert len(sent) == 1


@in_every_loop
async def test_hundreds_of_requests_in_one_packet_are_answered_in_their_order() -> None:
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        requests: list[tuple[Message, int]] = []
        for number in range(350):
            # Some that are answered at once, some by a coroutine, some at the end of the turn or after a flush.
            requests.append(
                [
                    (ApiVersionsRequest(), 0),
                    (MetadataRequest(topics=[]), 12),
                    (produce_request("orders", batch(b"%d" % number), acks=1), 12),
                    (produce_request("orders", batch(b"%d" % number)), 12),
                    (fetch_request("orders"), 12),
                ][number % 5]
            )
        client.send_together(*requests)
        offsets = []
        for request, _ in requests:
            response = await client.reply()
            assert type(response).__name__ == type(request).__name__.replace("Request", "Response")
            if isinstance(response, ProduceResponse):
                offsets.append(produced(response).base_offset)
        assert offsets == list(range(140))
        await until(lambda: node.pinned() == 0)
        assert node.broker.listener.budget.used_bytes == 0


@in_every_loop
async def test_garbage_behind_hundreds_of_requests_closes_the_connection_and_leaves_nothing() -> None:
    async with running() as node:
        client = await node.connect()
        _, chunks = ClientSession().send(ApiVersionsRequest(), 0)
        client.send_bytes(b"".join(chunks) * 250 + struct.pack(">i", -1))
        await client.closed()
        await until(lambda: not node.broker.listener.connections)
        assert node.broker.listener.aborted["a frame of negative length (-1)"] == 1
        assert node.broker.listener.budget.used_bytes == 0


@in_every_loop
async def test_a_reply_that_cannot_be_written_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        router = Router()
        # Older versions have no room for this, and it is not to be left out.
        unfit = FindCoordinatorResponse(coordinators=[Coordinator(key="x")])
        router.handles(HeartbeatRequest, versions=(0, 4))(lambda *_: unfit)
        node.broker.services.routes[12] = router.routes[0]
        client, other = await node.connect(), await node.connect()
        client.send(HeartbeatRequest(), 0)
        assert await client.closed() == b""
        assert "a reply could not be written" in caplog.text
        assert isinstance(await other.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
        assert node.broker.listener.budget.used_bytes == 0


# Frames


@in_every_loop
async def test_a_frame_over_the_limit_closes_the_connection_before_its_bytes_have_come(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running({"socket.request.max.bytes": "10000"}) as node:
        reason = await reason_for_closing(node, struct.pack(">i", 10_001), caplog)
        assert reason == "a frame of 10001 bytes is over the limit of 10000"


@in_every_loop
async def test_a_frame_of_negative_length_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        assert await reason_for_closing(node, struct.pack(">i", -1), caplog) == "a frame of negative length (-1)"


@in_every_loop
async def test_a_tls_handshake_is_recognised_and_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        hello = bytes.fromhex("160301020001000001fc0303") + bytes(100)
        assert "TLS handshake on a plaintext port" in await reason_for_closing(node, hello, caplog)


@in_every_loop
async def test_an_http_request_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        reason = await reason_for_closing(node, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", caplog)
        assert "is over the limit" in reason


@in_every_loop
async def test_requests_before_garbage_in_one_packet_do_not_harm_the_budget() -> None:
    async with running() as node:
        client, bystander = await node.connect(), await node.connect()
        _, chunks = ClientSession().send(ApiVersionsRequest(), 0)
        whole = b"".join(chunks)
        unknown = frame(struct.pack(">hhih", 12, 0, 1, -1) + bytes(50))
        client.send_bytes(whole + unknown + whole + unknown + whole)
        await client.closed()
        await bystander.ask(ApiVersionsRequest(), 0)
        assert node.broker.listener.budget.used_bytes == 0


# Backpressure


@in_every_loop
async def test_a_connection_with_many_unanswered_requests_is_not_read_until_they_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "MAX_UNANSWERED", 3)
    files = GatedFiles()
    async with running(files=files) as node:
        client, other = await node.connect(), await node.connect()
        await other.create_topic("orders")
        other.close()
        await until(lambda: len(node.broker.listener.connections) == 1)
        connection = only_connection(node)
        files.gate.clear()
        for number in range(3):
            client.send(produce_request("orders", batch(b"%d" % number)), 12)
            await until(lambda expected=number + 1: connection.unanswered == expected)  # type: ignore[misc]
        client.send(produce_request("orders", batch(b"3")), 12)
        await client.drain()
        await turns(50)
        assert connection.unanswered == 3
        files.gate.set()
        offsets = [produced(await client.reply()).base_offset for _ in range(4)]
        assert offsets == [0, 1, 2, 3]


@in_every_loop
async def test_while_the_budget_is_used_up_nobody_is_read_who_adds_to_it() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client, other = await node.connect(), await node.connect()
        await client.create_topic("orders")
        node.broker.listener.budget.limit_bytes = 10_000
        files.gate.clear()
        client.send(produce_request("orders", batch(bytes(20_000))), 12)
        await until(lambda: node.broker.listener.budget.used_bytes > 10_000)
        other.send(ApiVersionsRequest(), 0)
        await other.drain()
        await turns(50)
        assert all(not connection._is_reading for connection in node.broker.listener.connections)
        files.gate.set()
        assert produced(await client.reply()).error_code == ErrorCode.NONE
        assert isinstance(await other.reply(), ApiVersionsResponse)
        assert node.broker.listener.budget.used_bytes == 0


@in_every_loop
async def test_a_client_that_does_not_read_is_not_read_from_and_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "MAX_QUEUED_BYTES", 200_000)
    async with running() as node:
        slow = await node.connect(receive_buffer=32_768)
        other = await node.connect()
        await other.create_topic("orders")
        await other.produce("orders", batch(bytes(50_000)))
        slow.pause_reading()
        connection = next(iter(node.broker.listener.connections))
        asked = 0
        while connection._is_reading and asked < 2000:
            slow.send(fetch_request("orders"), 12)
            await slow.drain()
            await turns(2)
            asked += 1
        assert not connection._is_reading, "the broker never stopped reading"
        # The limit, and what was asked for in one go.
        assert connection._sender.queued_bytes < 200_000 + 32 * 51_000
        assert connection._transport.get_write_buffer_size() < 700_000
        assert await other.values("orders") == [bytes(50_000)]
        slow.resume_reading()
        for _ in range(asked):
            assert (await slow.reply()).error_code == ErrorCode.NONE
        assert connection._is_reading


@in_loop
async def test_a_connection_goes_on_after_many_large_replies_that_were_asked_for_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_QUEUED_BYTES", 1_000_000)
    async with running(folder=str(tmp_path)) as node:
        client = await node.connect(receive_buffer=8192)
        await client.create_topic("orders")
        value = os.urandom(500_000)
        await client.produce("orders", batch(value))
        for _ in range(3):
            client.send_together(*[(fetch_request("orders"), 12)] * 10)
            for _ in range(10):
                assert values_of(records_of(fetched(await client.reply()))) == [value]
        assert isinstance(await client.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
        await until(lambda: node.pinned() == 0)


@in_every_loop
async def test_a_request_waits_for_the_one_before_it_on_which_it_may_build() -> None:
    async with running({"auto.create.topics.enable": "false"}) as node:
        client = await node.connect()
        client.send_together(
            (create_topics("orders"), 7),
            (produce_request("orders", batch(b"a")), 12),
            (create_topics("payments"), 7),
            (MetadataRequest(topics=None), 12),
        )
        assert (await client.reply()).topics[0].error_code == ErrorCode.NONE
        assert produced(await client.reply()).error_code == ErrorCode.NONE
        assert (await client.reply()).topics[0].error_code == ErrorCode.NONE
        assert {topic.name for topic in (await client.reply()).topics} == {"orders", "payments"}


@in_every_loop
async def test_a_client_has_one_costly_request_under_way_and_the_others_are_served_in_between() -> None:
    async with running() as node:
        under_way: list[Call] = []
        most, gate = 0, asyncio.Event()

        async def costly(broker: object, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
            nonlocal most
            under_way.append(call)
            most = max(most, len(under_way))
            await gate.wait()
            under_way.remove(call)
            return HeartbeatResponse()

        router = Router()
        router.handles(HeartbeatRequest, versions=(0, 4))(costly)
        node.broker.services.routes[12] = router.routes[0]
        greedy, other = await node.connect(), await node.connect()
        greedy.send_together(*[(HeartbeatRequest(), 4)] * 200)
        await until(lambda: under_way)
        assert isinstance(await other.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
        gate.set()
        for _ in range(200):
            assert isinstance(await greedy.reply(), HeartbeatResponse)
        assert most == 1
        assert node.broker.listener.budget.used_bytes == 0


@in_every_loop
async def test_thousands_of_requests_that_have_to_wait_stay_the_bytes_that_they_came_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        connection = only_connection(node)
        files.gate.clear()
        monkeypatch.setattr(connection_module, "MAX_UNANSWERED", 1)
        client.send_together((produce_request("orders", batch(b"0")), 12), *[(ApiVersionsRequest(), 0)] * 3000)
        await until(lambda: connection._session.frames.waiting_bytes > 10_000)
        assert connection.unanswered <= connection_module._REQUESTS_AT_ONCE
        assert not connection._is_reading
        # They are whole, and it is the broker that does not read on: nobody may be blamed for an unfinished request.
        assert connection.unfinished_for(node.broker.services.loop.time() + 1000) == 0
        files.gate.set()
        assert produced(await client.reply()).error_code == ErrorCode.NONE
        for _ in range(3000):
            assert isinstance(await client.reply(), ApiVersionsResponse)
        assert node.broker.listener.budget.used_bytes == 0


@in_every_loop
async def test_replies_that_wait_for_an_earlier_one_count_as_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MAX_QUEUED_BYTES", 10_000)
    files = GatedFiles()
    async with running(files=files) as node:
        client = await node.connect()
        await client.create_topic("orders")
        connection = only_connection(node)
        files.gate.clear()
        client.send_together((produce_request("orders", batch(b"0")), 12), *[(ApiVersionsRequest(), 0)] * 1000)
        await until(lambda: not connection._is_reading)
        await turns()
        assert 10_000 <= connection._reply_bytes < 20_000
        files.gate.set()
        assert produced(await client.reply()).error_code == ErrorCode.NONE
        for _ in range(1000):
            assert isinstance(await client.reply(), ApiVersionsResponse)
        assert connection._reply_bytes == 0
        await until(lambda: connection._is_reading)


@in_every_loop
async def test_much_is_read_at_a_time_from_a_connection_whose_requests_are_large() -> None:
    async with running() as node:
        large, small = await node.connect(), await node.connect()
        await large.create_topic("orders", configs={"max.message.bytes": "10000000"})
        assert {len(connection.get_buffer(-1)) for connection in node.broker.listener.connections} == {64 * 1024}
        assert (await large.produce("orders", batch(bytes(3_000_000)))).error_code == ErrorCode.NONE
        small.send_together(*[(ApiVersionsRequest(), 0)] * 20_000)
        for _ in range(20_000):
            await small.reply()
        by_use = [len(connection.get_buffer(-1)) for connection in node.broker.listener.connections]
        assert by_use == [connection_module.RECEIVE_BYTES, 64 * 1024]
        # A thousand of them, each with the beginning of a large request, may not fill the memory in one turn.
        budget = node.broker.listener.budget
        budget.add(budget.limit_bytes // 2)
        assert {len(connection.get_buffer(-1)) for connection in node.broker.listener.connections} == {64 * 1024}
        budget.remove(budget.limit_bytes // 2)


@in_every_loop
async def test_requests_that_had_to_wait_go_with_their_connection() -> None:
    async with running() as node:
        gate, calls = asyncio.Event(), 0

        async def slow(broker: object, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
            nonlocal calls
            calls += 1
            await gate.wait()
            return HeartbeatResponse()

        router = Router()
        router.handles(HeartbeatRequest, versions=(0, 4))(slow)
        node.broker.services.routes[12] = router.routes[0]
        client = await node.connect()
        client.send_together(*[(HeartbeatRequest(), 4)] * 500)
        await until(lambda: calls)
        [connection] = node.broker.listener.connections
        connection.abort("for a test")
        await until(lambda: not node.broker.listener.connections)
        gate.set()
        await turns()
        assert calls == 1
        assert node.broker.listener.budget.used_bytes == 0


# The end of a connection


@in_every_loop
async def test_a_connection_that_goes_leaves_nothing_behind() -> None:
    files = GatedFiles()
    async with running(files=files) as node:
        client, other = await node.connect(), await node.connect()
        await other.create_topic("orders")
        await other.produce("orders", batch(b"0"))
        files.gate.clear()
        client.send_together(
            (produce_request("orders", batch(b"1")), 12),
            (fetch_request("orders"), 12),
            (fetch_request("orders", 1, max_wait_ms=600_000), 12),
        )
        await until(lambda: node.partition("orders").log.end_offset == 2)
        await until(lambda: node.pinned() == 1)
        client.abort()
        await until(lambda: len(node.broker.listener.connections) == 1)
        assert node.pinned() == 0
        assert node.broker.listener.budget.used_bytes == 0
        files.gate.set()
        # What it produced is kept all the same, and its fetch wakes up to nobody.
        await until(lambda: node.partition("orders").high_watermark == 2)
        await turns()
        assert not node.partition("orders").fetch_waiters
        assert node.pinned() == 0


@in_every_loop
async def test_a_client_that_says_goodbye_is_let_go() -> None:
    async with running() as node:
        client = await node.connect()
        await client.ask(ApiVersionsRequest(), 0)
        client.close()
        await until(lambda: not node.broker.listener.connections)
        assert not node.broker.listener.aborted


@in_every_loop
async def test_an_error_of_ours_closes_its_connection_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as node:
        bad, good = await node.connect(), await node.connect()
        await good.create_topic("orders")

        def fail(call: Call) -> None:
            raise RuntimeError("a bug")

        listener = node.broker.listener
        dispatch, listener.dispatch = listener.dispatch, fail
        bad.send(ApiVersionsRequest(), 0)
        assert await bad.closed() == b""
        listener.dispatch = dispatch
        assert "a connection broke" in caplog.text
        data = await good.fetch("orders", max_wait_ms=10)
        assert data.error_code == ErrorCode.NONE
