"""The page over HTTP, by a real client and by bytes that are no HTTP."""

import asyncio
import http.client
import socket

import pytest

from penstock.broker.metrics import endpoint as endpoint_module
from penstock.broker.metrics import rendering
from penstock.broker.metrics.endpoint import MAX_HEAD_BYTES, MAX_SCRAPES, MAX_WAITING, MetricsEndpoint
from tests.broker.harness import Node, in_loop, running, until
from tests.broker.metrics.scraping import ON, ask, page, series


async def request(node: Node, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    def talk(connection: http.client.HTTPConnection) -> tuple[int, dict[str, str], bytes]:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    return await ask(node, talk)


async def raw(node: Node, data: bytes, *, half_close: bool = False) -> bytes:
    """What comes back for some bytes, until the broker closes."""
    reader, writer = await connect(node)
    writer.write(data)
    if half_close:
        writer.write_eof()
    received = await reader.read()
    writer.close()
    return received


async def connect(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert node.broker.metrics_address is not None
    return await asyncio.open_connection(*node.broker.metrics_address)


@in_loop
async def test_a_scrape_gets_the_page() -> None:
    async with running(ON) as node:
        status, headers, body = await request(node, "GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert headers["Connection"] == "close"
        assert int(headers["Content-Length"]) == len(body)
        assert series(body.decode())["penstock_partitions", ()] == 0


@in_loop
async def test_what_comes_after_a_question_mark_does_not_matter() -> None:
    async with running(ON) as node:
        assert (await request(node, "GET", "/metrics?name%5B%5D=x"))[0] == 200


@in_loop
async def test_head_gets_the_head_alone() -> None:
    async with running(ON) as node:
        status, headers, body = await request(node, "HEAD", "/metrics")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 1000


@in_loop
async def test_health_is_told() -> None:
    async with running(ON) as node:
        assert (await request(node, "GET", "/healthz"))[::2] == (200, b"OK\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/../metrics"])
def test_other_pages_are_not_found(path: str) -> None:
    @in_loop
    async def test() -> None:
        async with running(ON) as node:
            assert (await request(node, "GET", path))[::2] == (404, b"Not Found\n")

    test()


@in_loop
async def test_other_methods_are_not_allowed_even_with_a_body() -> None:
    async with running(ON) as node:
        for method, body in (("POST", bytes(20_000)), ("DELETE", None), ("PUT", b"x")):
            status, headers, text = await request(node, method, "/metrics", body)
            assert (status, headers["Allow"], text) == (405, "GET, HEAD", b"Method Not Allowed\n")


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/2.0\r\n\r\n",
        b"GET metrics HTTP/1.1\r\n\r\n",
        b"GET /a b HTTP/1.1\r\n\r\n",
        "GET /grün HTTP/1.1\r\n\r\n".encode(),
        bytes(range(128, 256)) + b"\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
    ],
)
def test_what_is_no_http_is_refused_and_closed(data: bytes) -> None:
    @in_loop
    async def test() -> None:
        async with running(ON) as node:
            answer = await raw(node, data)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert answer.endswith(b"\r\n\r\nBad Request\n")

    test()


@in_loop
async def test_a_request_that_breaks_off_is_refused() -> None:
    async with running(ON) as node:
        assert (await raw(node, b"GET /met", half_close=True)).startswith(b"HTTP/1.1 400 ")
        assert (await raw(node, b"GET /metrics HTTP/1.1\r\nHost: x", half_close=True)).startswith(b"HTTP/1.1 400 ")


@in_loop
async def test_a_head_without_end_is_refused() -> None:
    async with running(ON) as node:
        one_line = b"GET /" + b"x" * (2 * MAX_HEAD_BYTES)
        assert (await raw(node, one_line)).startswith(b"HTTP/1.1 431 ")
        many_lines = b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * MAX_HEAD_BYTES
        assert (await raw(node, many_lines)).startswith(b"HTTP/1.1 431 ")


@in_loop
async def test_lines_may_end_as_they_do_by_hand() -> None:
    async with running(ON) as node:
        assert (await raw(node, b"GET /healthz HTTP/1.0\n\n")).endswith(b"\r\n\r\nOK\n")


@in_loop
async def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "REQUEST_SECONDS", 0.02)
    async with running(ON) as node:
        assert await raw(node, b"") == b""


@in_loop
async def test_a_client_that_never_closes_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_LINGER_SECONDS", 0.01)
    async with running() as node:
        endpoint = MetricsEndpoint(node.sources)
        reader, writer = await asyncio.open_connection("127.0.0.1", await endpoint.open("127.0.0.1", 0))
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"OK\n")
        await until(lambda: not endpoint._tasks)
        writer.close()
        await endpoint.close()


HEALTH = b"GET /healthz HTTP/1.1\r\n\r\n"
SCRAPE = b"GET /metrics HTTP/1.1\r\n\r\n"


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came before the broker closed the connection."""
    received = b""
    try:
        while data := await reader.read(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return received


@in_loop
async def test_connections_that_ask_nothing_are_few_and_make_room_for_those_that_do() -> None:
    async with running() as node:
        endpoint = MetricsEndpoint(node.sources)
        address = "127.0.0.1", await endpoint.open("127.0.0.1", 0)
        idle = [await asyncio.open_connection(*address) for _ in range(3 * MAX_WAITING)]
        for number, (_, writer) in enumerate(idle):
            writer.write(b"GET /healthz HTT" if number % 2 else b"")
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(HEALTH)
            assert (await reader.read()).endswith(b"\r\n\r\nOK\n")
            writer.close()
            assert len(endpoint._tasks) <= MAX_WAITING + 3
        # The oldest had to go.
        assert await ended(idle[0][0]) == b""
        for _, writer in idle:
            writer.close()
        await endpoint.close()


@in_loop
async def test_a_health_check_among_many_connections_at_once_is_answered() -> None:
    async with running(ON) as node:
        assert node.broker.metrics_address is not None
        loop = asyncio.get_running_loop()
        socks = [socket.socket() for _ in range(200)]
        for sock in socks:
            # The kernel takes them all, before the broker's loop has a turn.
            sock.connect(node.broker.metrics_address)
            sock.setblocking(False)
        socks[50].send(HEALTH)
        answer = b""
        while data := await loop.sock_recv(socks[50], 1000):
            answer += data
        assert answer.endswith(b"\r\n\r\nOK\n")
        for sock in socks:
            sock.close()


@in_loop
async def test_scrapes_that_nobody_reads_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def large_page(_: object) -> list[bytes]:
        return [bytes(100_000)] * 100

    monkeypatch.setattr(endpoint_module, "render", large_page)
    async with running() as node:
        endpoint = MetricsEndpoint(node.sources)
        address = "127.0.0.1", await endpoint.open("127.0.0.1", 0)
        greedy = [await asyncio.open_connection(*address, limit=1024) for _ in range(3 * MAX_SCRAPES)]
        for _, writer in greedy:
            writer.write(SCRAPE)
        await until(lambda: len(endpoint._scrapes) == len(endpoint._tasks) == MAX_SCRAPES)
        reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
        writer.write(SCRAPE)
        assert (await reader.read()).endswith(bytes(10_000_000))
        assert len(endpoint._tasks) <= MAX_SCRAPES
        for _, each in [*greedy, (reader, writer)]:
            each.close()
        await endpoint.close()


@in_loop
async def test_a_scrape_that_is_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def large_page(_: object) -> list[bytes]:
        return [bytes(100_000)] * 100

    monkeypatch.setattr(endpoint_module, "render", large_page)
    monkeypatch.setattr(endpoint_module, "REPLY_SECONDS", 0.02)
    async with running() as node:
        endpoint = MetricsEndpoint(node.sources)
        _, writer = await asyncio.open_connection("127.0.0.1", await endpoint.open("127.0.0.1", 0), limit=1024)
        writer.write(SCRAPE)
        await until(lambda: endpoint._scrapes)
        await until(lambda: not endpoint._tasks)
        writer.close()
        await endpoint.close()


@in_loop
async def test_those_who_ask_meanwhile_share_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, made = asyncio.Event(), 0

    async def slow_page(_: object) -> list[bytes]:
        nonlocal made
        made += 1
        await gate.wait()
        return [b"page %d" % made]

    monkeypatch.setattr(endpoint_module, "render", slow_page)
    async with running() as node:
        endpoint = MetricsEndpoint(node.sources)
        address = "127.0.0.1", await endpoint.open("127.0.0.1", 0)
        waiting = [await asyncio.open_connection(*address) for _ in range(MAX_SCRAPES)]
        for _, writer in waiting:
            writer.write(SCRAPE)
        await until(lambda: len(endpoint._scrapes) == MAX_SCRAPES)
        # One that leaves takes the page from none of the others, and /healthz waits for none of them.
        waiting[0][1].transport.abort()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(HEALTH)
        assert (await reader.read()).endswith(b"OK\n")
        writer.close()
        gate.set()
        for reader, writer in waiting[1:]:
            assert (await reader.read()).endswith(b"page 1")
            writer.close()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(SCRAPE)
        assert (await reader.read()).endswith(b"page 2")
        writer.close()
        await endpoint.close()


@in_loop
async def test_a_stop_in_the_middle_of_a_page_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(_: object) -> list[bytes]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(endpoint_module, "render", endless)
    async with running() as node:
        endpoint = MetricsEndpoint(node.sources)
        reader, writer = await asyncio.open_connection("127.0.0.1", await endpoint.open("127.0.0.1", 0))
        writer.write(SCRAPE)
        await until(lambda: endpoint._scrapes)
        await endpoint.close()
        assert await ended(reader) == b""
        assert endpoint._rendering is not None
        assert endpoint._rendering.cancelled()
        writer.close()


@in_loop
async def test_a_client_that_goes_away_in_the_middle_does_no_harm() -> None:
    async with running(ON) as node:
        _, writer = await connect(node)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await writer.drain()
        writer.transport.abort()
        assert (await page(node)).startswith("# HELP ")


@in_loop
async def test_a_bug_in_a_metric_costs_the_scrape_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    async with running(ON) as node:
        with monkeypatch.context() as patched:
            patched.setattr(rendering, "slices", broken)
            assert await raw(node, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        assert "a scrape failed" in caplog.text
        assert (await page(node)).startswith("# HELP ")


@in_loop
async def test_scrapes_at_the_same_time_get_whole_pages() -> None:
    async with running(ON) as node:
        client = await node.connect()
        await client.create_topic("orders", 300)
        pages = await asyncio.gather(*(page(node) for _ in range(5)))
        for text in pages:
            assert series(text)["penstock_partitions", ()] == 300


@in_loop
async def test_nothing_listens_unless_it_is_asked_for() -> None:
    async with running() as node:
        assert node.broker.metrics_address is None


@in_loop
async def test_a_stop_closes_connections_that_are_open() -> None:
    async with running(ON) as node:
        reader, writer = await connect(node)
        endpoint = node.broker.metrics_address
        await asyncio.sleep(0)
        await node.stop()
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()
        assert endpoint is not None
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*endpoint)


@in_loop
async def test_an_endpoint_that_was_never_opened_can_be_closed() -> None:
    async with running() as node:
        endpoint = MetricsEndpoint(node.sources)
        await endpoint.close()
        assert not endpoint._tasks
        assert endpoint._rendering is None
