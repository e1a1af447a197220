"""The listener accepts connections within limits, and closes those that stall."""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from functools import cached_property, partial
from typing import Final, TypeAlias

from penstock.broker.engine import engine_of
from penstock.broker.engine.turn import Turn
from penstock.broker.metrics.requests import RequestMeter
from penstock.broker.network.acceptor import BACKLOG, Acceptor
from penstock.broker.network.call import Call
from penstock.broker.network.connection import RECEIVE_BYTES, Connection
from penstock.broker.network.flow_control import Budget

log = logging.getLogger(__name__)

Dispatch: TypeAlias = Callable[[Call], None]

SWEEP_SECONDS: Final = 1.0
# The loop makes a connection of what it has accepted in one of its next turns.
ACCEPTING_TURNS: Final = 3
FRAME_SECONDS: Final = 30.0
# What a connection above the limits has to prove that it is another broker's.
TRIAL_SECONDS: Final = 2.0
STALLED_SECONDS: Final = 60.0
# Memory that the replies of all connections may take; above it those that keep most for longer than this are closed.
MAX_REPLY_BYTES: Final = 128 * 1024 * 1024
KEEPING_SECONDS: Final = 2.0
CLOSE_KINDS: Final = ("client", "error", "idle", "limit", "stalled", "stop")


class Listener:
    def __init__(
        self,
        dispatch: Dispatch,
        *,
        turn: Turn,
        budget: Budget,
        meter: RequestMeter,
        max_request_bytes: int,
        max_connections: int,
        max_connections_per_address: int,
        max_idle_seconds: float,
        broker_places: Callable[[str], int] = lambda name: 0,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatch = dispatch
        self.turn = turn
        self.budget = budget
        self.meter = meter
        self.max_request_bytes = max_request_bytes
        self.max_connections = max_connections
        self._max_per_address = max_connections_per_address
        self._max_idle_seconds = max_idle_seconds
        self._broker_places = broker_places
        # Connections above the limits, which have to prove soon that they are other brokers'; and when they came.
        self._on_trial: dict[Connection, float] = {}
        self.connections: dict[Connection, str] = {}
        self._of_brokers: set[Connection] = set()
        self._per_address: Counter[str] = Counter()
        self.aborted: Counter[str] = Counter()
        self.accepted = 0
        self.closed: Counter[str] = Counter(dict.fromkeys(CLOSE_KINDS, 0))
        self._engine = engine_of(self.loop)
        # Addresses that are bound and not listened at: with asyncio's transports a server, with the engine its sockets.
        self._bound: list[tuple[str, asyncio.Server, list[socket.socket]]] = []
        self._acceptors: list[Acceptor] = []
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self.is_closing = False
        budget.used_up = self._stop_reading

    @cached_property
    def receive_view(self) -> memoryview:
        """The memory that asyncio's transports receive into, one after the other; an engine has an arena of its own."""
        return memoryview(bytearray(RECEIVE_BYTES))

    async def open(self, name: str, host: str, port: int) -> int:
        """Listen at an address; returns the port, which matters if 0 asked for any."""
        bound = await self.bind(name, host, port)
        await self.accept()
        return bound

    async def bind(self, name: str, host: str, port: int) -> int:
        """Take an address, where clients cannot connect until `accept`; returns the port."""
        # To asyncio, the backlog is also how often it calls accept in one turn, and goes on calling it when there are
        # no descriptors left: with 1 it then pauses, and logs that once.
        server = await self.loop.create_server(
            lambda: Connection(self, name), host or None, port, backlog=1, start_serving=False
        )
        bound: int = server.sockets[0].getsockname()[1]
        if self._engine is None:
            self._bound.append((name, server, []))
        else:
            # It has looked up and bound the addresses, which is all that it is needed for.
            own = [socket.socket(fileno=os.dup(listening.fileno())) for listening in server.sockets]
            self._bound.append((name, server, own))
            server.close()
        return bound

    async def accept(self) -> None:
        """Let clients connect at the addresses that are bound."""
        while self._bound:
            name, server, sockets = self._bound.pop()
            if self._engine is None:
                self._servers.append(server)
                await server.start_serving()
                widen_backlog(server)
            while sockets:
                with_name = partial(self._accepted, name)
                try:
                    self._acceptors.append(Acceptor(self.loop, sockets[0], with_name))
                except OSError:
                    # Another process bound the address as well, and was the first to listen.
                    self._bound.append((name, server, sockets))
                    raise
                sockets.pop(0)
        if self._sweep is None:
            self._sweep = self.loop.call_later(SWEEP_SECONDS, self._close_the_stalled)

    def _accepted(self, name: str, sock: socket.socket) -> None:
        assert self._engine is not None
        self._engine.connect(self.loop, sock, Connection(self, name))

    async def stop_listening(self) -> None:
        """Take no more connections, and let go of the addresses; open connections stay."""
        bound, self._bound = self._bound, []
        for _, server, sockets in bound:
            server.close()
            for sock in sockets:
                sock.close()
        acceptors, self._acceptors = self._acceptors, []
        for acceptor in acceptors:
            acceptor.close()
        servers, self._servers = self._servers, []
        for server in servers:
            for listening in server.sockets:
                self.loop.remove_reader(listening.fileno())
        # asyncio would lose what it has accepted and not made a connection of yet when a server is closed.
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        for server in servers:
            server.close()

    def abort_all(self, reason: str) -> None:
        """Close all connections at once, whatever they wait for."""
        for connection in list(self.connections):
            connection.abort(reason, "stop")

    async def close(self, grace_seconds: float, end_waits: Callable[[], None]) -> None:
        """Take no more connections and requests, let what is under way be answered, then close all."""
        self.is_closing = True
        await self.stop_listening()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in self.connections:
            connection.stop_reading()
        end_waits()
        deadline = self.loop.time() + grace_seconds
        while self.loop.time() < deadline and not all(connection.is_drained for connection in self.connections):
            await asyncio.sleep(0.005)
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort("the broker stops", "stop")
        while self.connections:
            await asyncio.sleep(0)

    # Connections call these

    def connected(self, connection: Connection) -> None:
        address = connection.peer.rpartition(":")[0]
        self.connections[connection] = address
        self.accepted += 1
        self._per_address[address] += 1
        if self.is_closing:
            connection.abort("the broker stops", "stop")
        elif reason := self._over_limit(address):
            if len(self._on_trial) < self._broker_places(connection.listener_name):
                self._on_trial[connection] = self.loop.time()
            else:
                connection.abort(reason, "limit")

    def _over_limit(self, address: str) -> str | None:
        # Connections of brokers do not count: without them the cluster stands still.
        if len(self.connections) - len(self._of_brokers) > self.max_connections:
            return "too many connections (max.connections)"
        if self._per_address[address] > self._max_per_address:
            return "too many connections from this address (max.connections.per.ip)"
        return None

    def proved(self, connection: Connection) -> None:
        """The other end is a broker of this cluster: the limits are not for it."""
        self._on_trial.pop(connection, None)
        self._of_brokers.add(connection)
        self._leave_address(self.connections[connection])

    def _leave_address(self, address: str) -> None:
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]

    def disconnected(self, connection: Connection) -> None:
        address = self.connections.pop(connection)
        self._on_trial.pop(connection, None)
        if connection in self._of_brokers:
            self._of_brokers.remove(connection)
        else:
            self._leave_address(address)

    def count_abort(self, reason: str, kind: str) -> None:
        self.closed[kind] += 1
        self.aborted[reason.partition(":")[0][:60]] += 1
        if len(self.aborted) > 1000:
            self.aborted.clear()

    def _stop_reading(self) -> None:
        """The budget is used up. A client that piles up requests after one that may wait for days is closed, as nothing
        else would make room."""
        for connection in list(self.connections):
            if connection.is_open and connection.blocks_itself:
                connection.abort("requests wait for an earlier one of the client's own, and memory is short", "stalled")
            connection.stop_reading()

    def _close_the_stalled(self) -> None:
        now = self.loop.time()
        for connection, since in list(self._on_trial.items()):
            if now - since > TRIAL_SECONDS:
                connection.abort(self._over_limit(self.connections[connection]) or "no broker after all", "limit")
        for connection in list(self.connections):
            if connection.unfinished_for(now) > FRAME_SECONDS:
                connection.abort("a request did not come to its end in time", "stalled")
            elif connection.stalled_for(now) > STALLED_SECONDS:
                connection.abort("the client does not read its replies", "stalled")
            elif connection.idle_for(now) > self._max_idle_seconds:
                connection.abort("idle for too long (connections.max.idle.ms)", "idle")
        self._close_who_keeps_replies(now)
        self._sweep = self.loop.call_later(SWEEP_SECONDS, self._close_the_stalled)

    def _close_who_keeps_replies(self, now: float) -> None:
        """Close connections that keep most replies: each may keep some, but all together may not fill the memory."""
        keeping = {connection: connection.reply_bytes for connection in self.connections if connection.has_replies}
        total = sum(keeping.values())
        for connection in sorted(keeping, key=lambda it: keeping[it], reverse=True):
            if total <= MAX_REPLY_BYTES:
                break
            if connection.is_open and connection.keeps_replies_for(now) > KEEPING_SECONDS:
                connection.abort("the client does not take its replies, and memory is short", "stalled")
                total -= keeping[connection]


def widen_backlog(server: asyncio.Server) -> None:
    """Let many connections wait to be accepted by a server that accepts one in a turn."""
    for listening in server.sockets:
        with socket.socket(fileno=os.dup(listening.fileno())) as same:
            same.listen(BACKLOG)
