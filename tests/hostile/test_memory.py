"""Clients that try to fill the broker's memory: with requests that never end, replies that they never take, waits that
they leave, and partitions that do not exist."""

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.network import connection as connection_module
from penstock.broker.network import listener as listener_module
from penstock.broker.network.call import Call
from penstock.broker.network.connection import Connection
from penstock.broker.network.listener import FRAME_SECONDS
from penstock.broker.router import Router
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.schemas.groups import HeartbeatRequest
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from penstock.protocol.schemas.versions import ApiVersionsRequest
from tests.broker.harness import (
    batch,
    fetch_request,
    in_loop,
    produce_request,
    produced,
    turns,
    until,
)
from tests.hostile.stage import Stage, beside_an_honest_client, scale

MIB = 1 << 20
FOR_DAYS_MS = 0x7FFF_FFFF


@asynccontextmanager
async def flood(stage: Stage, data: bytes, connections: int) -> AsyncIterator[list[Connection]]:
    """Send these bytes by many connections, without copies on this side, as far as the broker takes them."""
    loop = asyncio.get_running_loop()
    known = set(stage.node.broker.listener.connections)
    sockets: list[socket.socket] = []
    for _ in range(connections):
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, stage.node.broker.address)
        sockets.append(sock)

    async def send(sock: socket.socket) -> None:
        try:
            await loop.sock_sendall(sock, data)
        except (ConnectionError, OSError):
            pass

    await until(lambda: len(stage.node.broker.listener.connections) == len(known) + connections)
    tasks = [asyncio.create_task(send(sock)) for sock in sockets]
    try:
        yield [connection for connection in stage.node.broker.listener.connections if connection not in known]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in sockets:
            sock.close()


def large_frame(size: int, missing: int) -> bytes:
    """A request but for its end."""
    header = struct.pack(">hhih", 3, 12, 1, -1)
    return struct.pack(">i", size) + header + bytes(size - len(header) - missing)


async def settled(stage: Stage) -> None:
    """Until the broker reads no more of those who send."""
    budget, before = stage.node.broker.listener.budget, -1
    while budget.unfinished_bytes != before:
        before = budget.unfinished_bytes
        await stage.honest.answers_more(3)


@in_loop
async def test_unfinished_requests_of_many_connections_stay_within_the_budget() -> None:
    size = scale(24 * MIB, soak=95 * MIB)
    async with beside_an_honest_client() as stage:
        budget = stage.node.broker.listener.budget
        budget.limit_bytes = limit = scale(64 * MIB, soak=256 * MIB)
        data = large_frame(size, 1)
        async with stage.measured(calls=False, memory=True) as cost:
            async with flood(stage, data, 12):
                await settled(stage)
                assert budget.unfinished_bytes > limit // 4
                assert budget.used_bytes < limit
                large = await stage.attacker()
                await large.create_topic("large")
                # More than a small request, and yet it comes to its end.
                assert (await large.produce("large", batch(bytes(500_000)))).error_code == ErrorCode.NONE
            await until(lambda: budget.used_bytes < MIB)
        # The first in line, the part for the others, and up to a MiB of each; a buffer that grows has room to spare.
        assert cost.peak_bytes < (size + limit // 4 + 12 * MIB) * 9 // 8 < 12 * size
        assert budget.unfinished_bytes == 0


@in_loop
async def test_large_requests_of_many_connections_all_come_to_their_end() -> None:
    async with beside_an_honest_client() as stage:
        budget = stage.node.broker.listener.budget
        budget.limit_bytes = 8 * MIB
        writer = await stage.attacker()
        await writer.create_topic("large", configs={"max.message.bytes": "10000000"})
        clients = [await stage.attacker() for _ in range(12)]
        request = produce_request("large", batch(bytes(3_000_000)))
        for client in clients:
            client.send(request, 12)
        offsets = {produced(await client.reply()).base_offset for client in clients}
        assert offsets == set(range(12))
        assert budget.used_bytes < 1000


@in_loop
async def test_only_the_first_in_line_is_blamed_for_a_request_that_does_not_come_to_its_end() -> None:
    async with beside_an_honest_client() as stage:
        stage.node.broker.listener.budget.limit_bytes = 10 * MIB
        async with flood(stage, large_frame(4 * MIB, 1), 5) as connections:
            await settled(stage)
            late = stage.node.broker.services.loop.time() + FRAME_SECONDS + 1
            while connections:
                blamed = [connection for connection in connections if connection.unfinished_for(late) > FRAME_SECONDS]
                assert len(blamed) == 1
                [first] = blamed
                connections.remove(first)
                first.abort("for a test")
                await settled(stage)


@in_loop
async def test_a_large_request_that_had_to_stand_in_line_has_its_full_time_afterwards() -> None:
    async with beside_an_honest_client() as stage:
        stage.node.broker.listener.budget.limit_bytes = 8 * MIB
        async with flood(stage, large_frame(3 * MIB, 1), 2) as connections:
            await settled(stage)
            first, second = sorted(connections, key=lambda it: it._in_line_since is not None)
            now = stage.node.broker.services.loop.time()
            # As if both had come long ago.
            for connection in connections:
                assert connection._frame_began is not None
                connection._frame_began -= FRAME_SECONDS
            assert second._in_line_since is not None
            second._in_line_since -= FRAME_SECONDS
            assert first.unfinished_for(now + 1) > FRAME_SECONDS
            assert second.unfinished_for(now + 1) == second.idle_for(now + 10_000) == 0
            first.abort("for a test")
            await until(lambda: second._in_line_since is None)
            assert 0 < second.unfinished_for(stage.node.broker.services.loop.time() + 1) < FRAME_SECONDS


@in_loop
async def test_thousands_of_small_requests_in_pieces_do_not_stand_in_line() -> None:
    async with beside_an_honest_client() as stage:
        budget = stage.node.broker.listener.budget
        budget.limit_bytes = 8 * MIB
        async with flood(stage, large_frame(60_000, 1), scale(50, soak=100)):
            await until(lambda: budget.used_bytes >= scale(50, soak=100) * 59_000)
            assert budget.unfinished_bytes == 0
            await stage.honest.answers_more(5)
        await until(lambda: budget.used_bytes < 1000)


@in_loop
async def test_all_connections_stop_at_once_when_the_budget_is_used_up() -> None:
    async with beside_an_honest_client() as stage:
        budget, listener = stage.node.broker.listener.budget, stage.node.broker.listener
        for _ in range(10):
            await stage.attacker()
        budget.limit_bytes = 1
        try:
            await until(lambda: not any(connection._is_reading for connection in listener.connections))
        finally:
            budget.limit_bytes = 256 * MIB
            budget.remove(0)
        await until(lambda: all(connection._is_reading for connection in listener.connections))


@in_loop
async def test_requests_behind_a_long_poll_of_the_same_client_cannot_use_up_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "MAX_UNANSWERED", 10)
    async with beside_an_honest_client() as stage:
        attackers = [await stage.attacker() for _ in range(4)]
        await attackers[0].create_topic("orders")
        for attacker in attackers:
            attacker.send(fetch_request("orders", max_wait_ms=FOR_DAYS_MS), 12)
        await until(lambda: len(stage.node.partition("orders").fetch_waiters) == 4)
        budget = stage.node.broker.listener.budget
        budget.limit_bytes = 150_000
        for attacker in attackers:
            attacker.send_together(
                *[(MetadataRequest(topics=[]), 12)] * 50, (produce_request("orders", bytes(300_000)), 12)
            )
        for attacker in attackers[:2]:
            await attacker.closed()
        assert stage.node.broker.listener.closed["stalled"] >= 2
        await stage.honest.answers_more(5)


@in_loop
async def test_a_long_poll_holds_nothing_of_the_budget() -> None:
    async with beside_an_honest_client() as stage:
        attackers = [await stage.attacker() for _ in range(3)]
        await attackers[0].create_topic("orders")
        partition = stage.node.partition("orders")
        for attacker in attackers:
            attacker.send_together(*[(fetch_request("orders", max_wait_ms=FOR_DAYS_MS), 12)] * 50)
        await until(lambda: len(partition.fetch_waiters) == 150)
        await until(lambda: stage.node.broker.listener.budget.used_bytes < 1000)
        meter = stage.node.broker.services.meters.requests._by_key[1]
        assert meter.bytes_in > 150 * 50
        await stage.honest.answers_more(5)


@in_loop
async def test_long_polls_of_clients_that_left_end_at_once() -> None:
    async with beside_an_honest_client() as stage:
        attackers = [await stage.attacker() for _ in range(3)]
        await attackers[0].create_topic("orders", 3)
        broker = stage.node.broker
        partitions = [stage.node.partition("orders", index) for index in range(3)]
        for attacker in attackers:
            attacker.send_together(*[(three_partitions(), 12)] * 50)
        await until(lambda: all(len(partition.fetch_waiters) == 150 for partition in partitions))
        assert broker.services.fetch_room.waiting > 150 * 3
        for attacker in attackers:
            attacker.abort()
        await until(lambda: len(broker.listener.connections) == 1)
        assert not any(partition.fetch_waiters for partition in partitions)
        assert broker.services.fetch_room.waiting == 0
        assert sum(map(len, broker.services.fetch_room.deadlines._buckets.values())) == 0


def three_partitions() -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(3)]
    return FetchRequest(
        max_wait_ms=FOR_DAYS_MS, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic="orders", partitions=partitions)]
    )


@in_loop
async def test_the_memory_of_a_closed_connection_is_free_without_the_garbage_collector() -> None:
    async with beside_an_honest_client() as stage:
        client = await stage.attacker()
        await client.create_topic("orders")
        await client.produce("orders", batch(b"a"))
        listener = stage.node.broker.listener
        gc.collect()
        gc.disable()
        try:
            for way in range(4):
                await leave_without_a_trace(stage, way)
        finally:
            gc.enable()
        assert len(listener.connections) == 2


async def leave_without_a_trace(stage: Stage, way: int) -> None:
    connections = stage.node.broker.listener.connections
    known = set(connections)
    client = await stage.attacker()
    await until(lambda: len(connections) > len(known))
    [connection] = set(connections) - known
    left = weakref.WeakSet([connection, connection._session, connection._sender])
    match way:
        case 0:
            await client.ask(ApiVersionsRequest(), 0)
        case 1:
            client.send_bytes(large_frame(300_000, 1))
            await until(lambda: stage.node.broker.listener.budget.unfinished_bytes > 290_000)
        case 2:
            client.send(fetch_request("orders", 1, max_wait_ms=FOR_DAYS_MS), 12)
            await until(lambda: stage.node.partition("orders").fetch_waiters)
        case _:
            await client.ask(fetch_request("orders", 1, max_wait_ms=1), 12)
    del connection
    client.abort()
    await until(lambda: len(connections) == len(known))
    await turns(3)
    assert not list(left)


# Replies


@in_loop
async def test_replies_that_clients_never_take_are_bounded_for_each_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async with beside_an_honest_client() as stage:
        listener = stage.node.broker.listener
        admin = await stage.attacker()
        await admin.create_topic("orders", 300)
        attackers = [await stage.attacker(receive_buffer=4096) for _ in range(8)]
        await until(lambda: len(listener.connections) == 10)
        for connection in list(listener.connections)[2:]:
            sock = connection._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for attacker in attackers:
            attacker.pause_reading()
            attacker.send_together(*[(MetadataRequest(topics=None), 12)] * 90)
        limit = connection_module.MAX_QUEUED_BYTES
        await until(lambda: sum(connection.reply_bytes for connection in listener.connections) > 8 * limit)
        await stage.honest.answers_more(5)
        # The limit, what was asked for at once, and what the transport has.
        assert max(connection.reply_bytes for connection in listener.connections) < 4 * limit
        monkeypatch.setattr(listener_module, "MAX_REPLY_BYTES", MIB)
        monkeypatch.setattr(listener_module, "KEEPING_SECONDS", -1.0)
        listener._close_who_keeps_replies(listener.loop.time())
        # At once: in the next turn those that stay may be given another reply, which the next look would count.
        kept = [connection.reply_bytes for connection in listener.connections if connection.is_open]
        assert 0 < sum(kept) <= MIB
        await until(lambda: len(listener.connections) == len(kept) < 10)
        await stage.honest.answers_more(5)


@in_loop
async def test_large_replies_that_were_asked_for_together_are_not_all_made_at_once() -> None:
    async with beside_an_honest_client() as stage:
        made = 0
        large = MetadataResponse(topics=[MetadataResponseTopic(name="x" * 30_000)] * 10)

        def answer(broker: object, call: Call, request: Message) -> Message:
            nonlocal made
            made += 1
            return large

        router = Router()
        router.handles(HeartbeatRequest, versions=(0, 4))(answer)
        stage.node.broker.services.routes[12] = router.routes[0]
        attacker = await stage.attacker(receive_buffer=4096)
        listener = stage.node.broker.listener
        await until(lambda: len(listener.connections) == 2)
        connection = list(listener.connections)[1]
        sock = connection._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        attacker.pause_reading()
        attacker.send_together(*[(HeartbeatRequest(), 4)] * 30)
        await until(lambda: made)
        await stage.honest.answers_more(5)
        assert made < 5
        assert connection.reply_bytes < 5 * 300_000


@in_loop
async def test_replies_behind_a_long_poll_count_among_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "MAX_REPLY_BYTES", 10_000)
    monkeypatch.setattr(listener_module, "KEEPING_SECONDS", -1.0)
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        await attacker.create_topic("orders", 500)
        attacker.send(fetch_request("orders", max_wait_ms=FOR_DAYS_MS), 12)
        attacker.send(MetadataRequest(topics=None), 12)
        listener = stage.node.broker.listener
        await until(lambda: any(connection.reply_bytes > 10_000 for connection in listener.connections))
        listener._close_who_keeps_replies(listener.loop.time())
        await attacker.closed()
        await stage.honest.answers_more(5)


# Fetch sessions


def of_topics(names: list[str], *, session: tuple[int, int] = (0, 0), ids: bool = False) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=name,
            topic_id=name.encode().ljust(16)[:16] if ids else bytes(16),
            partitions=[FetchPartition(partition=0, partition_max_bytes=1000)],
        )
        for name in names
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1000, session_id=session[0], session_epoch=session[1], topics=topics
    )


@pytest.mark.parametrize("version", [12, 13])
def test_a_session_of_partitions_that_do_not_exist_is_not_kept(version: int) -> None:
    @in_loop
    async def run() -> None:
        async with beside_an_honest_client() as stage:
            attacker, sessions = await stage.attacker(), stage.node.broker.services.fetch_sessions
            names = [f"nothing-{number}" for number in range(100)]
            response = await attacker.ask(of_topics(names, ids=version > 12), version)
            assert response.session_id == 0
            assert [topic.partitions[0].error_code for topic in response.responses] == [
                ErrorCode.UNKNOWN_TOPIC_ID if version > 12 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ] * 100
            assert (len(sessions), sessions.partitions) == (0, 0)
            # An honest client whose few topics are not there yet is told so each time, in a session.
            few = await attacker.ask(of_topics(names[:3], ids=version > 12), version)
            again = await attacker.ask(of_topics([], session=(few.session_id, 1), ids=version > 12), version)
            assert len(few.responses) == len(again.responses) == 3
            # What is then added to it ends it.
            more = await attacker.ask(of_topics(names[3:], session=(few.session_id, 2), ids=version > 12), version)
            assert (more.session_id, len(more.responses)) == (0, 100)
            assert (len(sessions), sessions.partitions) == (0, 0)

    run()


@in_loop
async def test_a_topic_name_that_no_topic_can_have_is_not_kept_in_a_session() -> None:
    async with beside_an_honest_client() as stage:
        attacker = await stage.attacker()
        response = await attacker.ask(of_topics(["x" * 30_000]), 12)
        assert response.session_id == 0
        assert len(stage.node.broker.services.fetch_sessions) == 0


@in_loop
async def test_partitions_of_all_sessions_together_are_bounded() -> None:
    async with beside_an_honest_client() as stage:
        attacker, sessions = await stage.attacker(), stage.node.broker.services.fetch_sessions
        sessions._max_partitions = 100
        created = await attacker.create_topic("orders", 60)
        assert created.num_partitions == 60
        ids = []
        for _ in range(3):
            partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in range(60)]
            request = FetchRequest(
                max_bytes=1000, session_epoch=0, topics=[FetchTopic(topic="orders", partitions=partitions)]
            )
            response = await attacker.ask(request, 12)
            assert sum(len(topic.partitions) for topic in response.responses) == 60
            ids.append(response.session_id)
        assert ids[0] != 0
        assert ids[1:] == [0, 0]
        assert sessions.partitions == 60
