"""The listening addresses: accept connections within limits, and close the ones that stall."""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.broker.call import Call
from penstock.broker.connection import Connection
from penstock.broker.flow_control import Budget, Cork
from penstock.broker.metrics.requests import RequestMeter

log = logging.getLogger(__name__)

Dispatch: TypeAlias = Callable[[Call], None]

SWEEP_SECONDS: Final = 1.0
# Connections that may wait to be accepted.
BACKLOG: Final = 1024
# The loop makes a connection of what it has accepted in one of its next turns.
ACCEPTING_TURNS: Final = 3
FRAME_SECONDS: Final = 30.0
STALLED_SECONDS: Final = 60.0
CLOSE_KINDS: Final = ("client", "error", "idle", "limit", "stalled", "stop")


class Listener:
    def __init__(
        self,
        dispatch: Dispatch,
        *,
        cork: Cork,
        budget: Budget,
        meter: RequestMeter,
        max_request_bytes: int,
        max_connections: int,
        max_connections_per_address: int,
        max_idle_seconds: float,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.dispatch = dispatch
        self.cork = cork
        self.budget = budget
        self.meter = meter
        self.max_request_bytes = max_request_bytes
        self._max_connections = max_connections
        self._max_per_address = max_connections_per_address
        self._max_idle_seconds = max_idle_seconds
        self.connections: dict[Connection, str] = {}
        self._per_address: Counter[str] = Counter()
        self.aborted: Counter[str] = Counter()
        self.accepted = 0
        self.closed: Counter[str] = Counter(dict.fromkeys(CLOSE_KINDS, 0))
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self.is_closing = False

    async def open(self, name: str, host: str, port: int) -> int:
        """Returns the port, which matters where 0 asked for any."""
        # To asyncio, the backlog is also how often it calls accept in one turn, and goes on calling it when there are
        # no descriptors left: with 1 it then pauses, and tells so once.
        server = await self.loop.create_server(lambda: Connection(self, name), host or None, port, backlog=1)
        for listening in server.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as same:
                same.listen(BACKLOG)
        self._servers.append(server)
        if self._sweep is None:
            self._sweep = self.loop.call_later(SWEEP_SECONDS, self._close_the_stalled)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def stop_listening(self) -> None:
        """Take no more connections; those that there are stay."""
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
        elif len(self.connections) > self._max_connections:
            connection.abort("too many connections (max.connections)", "limit")
        elif self._per_address[address] > self._max_per_address:
            connection.abort("too many connections from this address (max.connections.per.ip)", "limit")

    def disconnected(self, connection: Connection) -> None:
        address = self.connections.pop(connection)
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]

    def count_abort(self, reason: str, kind: str) -> None:
        self.closed[kind] += 1
        self.aborted[reason.partition(":")[0][:60]] += 1
        if len(self.aborted) > 1000:
            self.aborted.clear()

    def _close_the_stalled(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            if connection.unfinished_for(now) > FRAME_SECONDS:
                connection.abort("a request did not come to its end in time", "stalled")
            elif connection.stalled_for(now) > STALLED_SECONDS:
                connection.abort("the client does not read its replies", "stalled")
            elif connection.idle_for(now) > self._max_idle_seconds:
                connection.abort("idle for too long (connections.max.idle.ms)", "idle")
        self._sweep = self.loop.call_later(SWEEP_SECONDS, self._close_the_stalled)
