"""Listening: limits on connections, and what happens to those that stall."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.broker import broker as broker_module
from penstock.broker.network import listener as listener_module
from penstock.broker.network.connection import Connection
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.harness import Client, Node, batch, fetch_request, in_loop, running, turns, until


async def is_served(client: Client) -> bool:
    return isinstance(await client.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)


@pytest.fixture
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The listener looks for stalled connections all the time."""
    monkeypatch.setattr(listener_module, "SWEEP_SECONDS", 0.005)
    return monkeypatch


# Limits


@in_loop
async def test_connections_over_the_limit_are_closed_until_there_is_room_again() -> None:
    async with running({"max.connections": "2"}) as node:
        first, second = await node.connect(), await node.connect()
        assert await is_served(first)
        assert await is_served(second)
        third = await node.connect()
        assert await third.closed() == b""
        assert node.broker.listener.aborted["too many connections (max.connections)"] == 1
        assert await is_served(first)
        first.close()
        await until(lambda: len(node.broker.listener.connections) == 1)
        assert await is_served(await node.connect())


FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.serving import run

run(BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]}),
    started=lambda broker: print(broker.address[1], flush=True), insecure=False)
"""


def test_without_descriptors_accepting_pauses_and_goes_on_when_there_are_some(tmp_path: Path) -> None:
    with (
        (tmp_path / "errors").open("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))

        @in_loop
        async def run() -> None:
            first = await Client.open(address)
            await first.create_topic("orders")
            assert (await first.produce("orders", batch(b"a"))).error_code == ErrorCode.NONE
            assert await first.values("orders") == [b"a"]
            crowd = [await Client.open(address) for _ in range(100)]
            while "no connections are accepted" not in (tmp_path / "errors").read_text():
                await asyncio.sleep(0.01)
            # Who is in is served, and what they send becomes durable.
            assert (await first.produce("orders", batch(b"b"))).error_code == ErrorCode.NONE
            assert await first.values("orders") == [b"a", b"b"]
            late = await Client.open(address)
            for client in crowd:
                client.close()
            assert await is_served(late)
            late.close()
            first.close()

        try:
            run()
        finally:
            process.terminate()
        assert process.wait() == 0
        # Told at most once for each pause of a second, and never as often as connections wait.
        assert errors.seek(0) == 0
        assert errors.read().count("no connections are accepted") < 30


@in_loop
async def test_one_address_may_not_take_more_than_its_share() -> None:
    async with running({"max.connections.per.ip": "2"}) as node:
        clients = [await node.connect() for _ in range(2)]
        extra = await node.connect()
        assert await extra.closed() == b""
        [reason] = node.broker.listener.aborted
        assert reason.startswith("too many connections from this address")
        for client in clients:
            assert await is_served(client)


@in_loop
async def test_addresses_are_counted_apart_and_forgotten_when_the_last_connection_goes() -> None:
    async with running({"max.connections.per.ip": "1"}) as node:
        listener = node.broker.listener
        aborted: list[str] = []

        class FromElsewhere(Connection):
            def abort(self, reason: str, kind: str = "error") -> None:
                aborted.append(self.peer)

        connections = [FromElsewhere(listener, "PLAINTEXT") for _ in range(3)]
        for connection, peer in zip(connections, ["10.0.0.1:1000", "10.0.0.2:1000", "10.0.0.1:1001"], strict=True):
            connection.peer = peer
            listener.connected(connection)
        assert aborted == ["10.0.0.1:1001"]
        for connection in connections:
            listener.disconnected(connection)
        assert not listener._per_address
        assert not listener.connections


# Stalled connections


@in_loop
async def test_a_frame_that_does_not_come_to_its_end_closes_the_connection(quick_sweeps: pytest.MonkeyPatch) -> None:
    quick_sweeps.setattr(listener_module, "FRAME_SECONDS", 0.03)
    async with running() as node:
        slow, idle = await node.connect(), await node.connect()
        slow.send_bytes(b"\0\0\0")
        assert await slow.closed() == b""
        assert node.broker.listener.aborted["a request did not come to its end in time"] == 1
        assert await is_served(idle)


@in_loop
async def test_whole_frames_begin_the_time_of_the_next_one_anew(quick_sweeps: pytest.MonkeyPatch) -> None:
    async with running() as node:
        client = await node.connect()
        await is_served(client)
        [connection] = node.broker.listener.connections
        now = asyncio.get_running_loop().time()
        assert connection.unfinished_for(now + 100) == 0
        client.send_bytes(b"\0\0")
        await until(lambda: connection.unfinished_for(now + 100) > 0)
        client.send_bytes(b"\0\x0a" + b"\0\x12\0\0\0\0\0\0\xff\xff")
        await until(lambda: connection.unfinished_for(now + 100) == 0)


@in_loop
async def test_a_client_that_never_reads_is_closed_in_the_end(quick_sweeps: pytest.MonkeyPatch) -> None:
    quick_sweeps.setattr(listener_module, "STALLED_SECONDS", 0.05)
    async with running() as node:
        slow, other = await node.connect(receive_buffer=4096), await node.connect()
        await other.create_topic("orders")
        await other.produce("orders", batch(bytes(50_000)))
        slow.pause_reading()
        slow.send_together(*[(fetch_request("orders"), 12)] * 300)
        await until(lambda: node.broker.listener.aborted["the client does not read its replies"])
        await until(lambda: len(node.broker.listener.connections) == 1)
        assert node.pinned() == 0
        assert await other.values("orders") == [bytes(50_000)]


@in_loop
async def test_an_idle_connection_is_closed(quick_sweeps: pytest.MonkeyPatch) -> None:
    async with running({"connections.max.idle.ms": "30"}) as node:
        client = await node.connect()
        assert await client.closed() == b""
        assert node.broker.listener.aborted["idle for too long (connections.max.idle.ms)"] == 1


@in_loop
async def test_who_waits_for_a_reply_is_not_idle(quick_sweeps: pytest.MonkeyPatch) -> None:
    async with running({"connections.max.idle.ms": "200"}) as node:
        client = await node.connect()
        await client.create_topic("orders")
        data = await client.fetch("orders", max_wait_ms=500)
        assert data.error_code == ErrorCode.NONE


# Addresses


@in_loop
async def test_every_listener_tells_its_clients_its_own_address() -> None:
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://broker.example:19092,INTERNAL://127.0.0.1:0",
    }
    async with running(configs) as node:
        ports = node.broker._ports
        assert ports["PLAINTEXT"] != ports["INTERNAL"]
        addresses = {"PLAINTEXT": ("broker.example", 19092), "INTERNAL": ("127.0.0.1", ports["INTERNAL"])}
        for name, expected in addresses.items():
            client = await Client.open(("127.0.0.1", ports[name]))
            [told] = (await client.ask(MetadataRequest(topics=[]), 12)).brokers
            assert (told.host, told.port) == expected
            client.close()


@in_loop
async def test_a_port_that_is_taken_is_an_error_that_leaves_nothing_open() -> None:
    async with running() as node:
        host, port = node.broker.address
        other = Node({"listeners": f"PLAINTEXT://{host}:{port}"})
        with pytest.raises(OSError, match=str(port)):
            await other.start()
        assert other.memory.open_descriptors == 0
        assert await is_served(await node.connect())


# The end


@in_loop
async def test_after_a_stop_the_port_is_free_and_every_connection_closed() -> None:
    async with running() as node:
        clients = [await node.connect() for _ in range(3)]
        for client in clients:
            await is_served(client)
        address = node.broker.address
        await node.broker.stop()
        for client in clients:
            assert await client.closed() == b""
        with socket.socket() as sock, pytest.raises(ConnectionRefusedError):
            sock.connect(address)


@in_loop
async def test_who_listens_no_more_keeps_its_connections_and_can_listen_again_at_the_same_port() -> None:
    async with running() as node:
        client = await node.connect()
        assert await is_served(client)
        address = node.broker.address
        await node.broker.listener.stop_listening()
        with socket.socket() as sock, pytest.raises(ConnectionRefusedError):
            sock.connect(address)
        assert await is_served(client)
        await node.broker.listen()
        assert node.broker.address == address
        assert await is_served(await node.connect())


@in_loop
async def test_what_is_accepted_while_the_broker_stops_is_closed() -> None:
    async with running() as node:
        with socket.create_connection(node.broker.address) as accepted_last:
            await node.broker.stop()
            accepted_last.settimeout(10)
            try:
                assert accepted_last.recv(1) == b""
            except ConnectionResetError:
                pass
        assert not node.broker.listener.connections


@in_loop
async def test_a_stop_answers_long_polls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "GRACE_SECONDS", 10_000.0)
    async with running() as node:
        client = await node.connect()
        await client.create_topic("orders")
        client.send(fetch_request("orders", max_wait_ms=600_000), 12)
        await until(lambda: node.partition("orders").fetch_waiters)
        await node.broker.stop()
        assert (await client.reply()).error_code == ErrorCode.NONE


@in_loop
async def test_a_client_that_does_not_read_does_not_hold_up_the_stop_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "GRACE_SECONDS", 0.05)
    async with running() as node:
        slow, other = await node.connect(receive_buffer=4096), await node.connect()
        await other.create_topic("orders")
        await other.produce("orders", batch(bytes(50_000)))
        slow.pause_reading()
        slow.send_together(*[(fetch_request("orders"), 12)] * 300)
        await turns(100)
        broker = node.broker
        await broker.stop()
        assert not broker.listener.connections
        assert node.memory.open_descriptors == 0


def test_reasons_for_closing_are_counted_without_what_differs_and_never_too_many() -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            listener = node.broker.listener
            for number in range(5):
                listener.count_abort(f"damaged: byte {number}", "error")
            assert listener.aborted["damaged"] == 5
            for number in range(2000):
                listener.count_abort(f"reason {number}", "error")
            assert len(listener.aborted) <= 1000

    run()
