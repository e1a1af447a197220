"""A network between a client and a broker that fails at one chosen step: every request and its reply is a step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto

from penstock.protocol.apis import api
from tests.broker.harness import Client, Node, running, turns
from tests.system.proxy import read_frame


class Cut(Enum):
    LOST_REQUEST = auto()
    """The connection ends before the broker has got the request."""
    TORN_REQUEST = auto()
    """The broker gets half of it."""
    LOST_REPLY = auto()
    """It has carried the request out, but the client does not hear of it."""


class Cutter:
    """Leads to `upstream`. At the request with number `step`, counted from 0 over all connections, comes the `cut`; if
    it is `for_good`, nothing goes through any more, as if the client's machine had been switched off."""

    def __init__(self) -> None:
        self.step = -1
        self.cut = Cut.LOST_REQUEST
        self.for_good = False
        self.requests: list[str] = []
        self.upstream: tuple[str, int] = ("127.0.0.1", 0)
        self.port = 0
        self._is_off = False
        self._clients: list[Client] = []
        self._links: set[asyncio.Task[None]] = set()

    def switch_on(self) -> None:
        """Nothing is in the way any more."""
        self._is_off, self.step = False, -1

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self) -> Client:
        """A connection that does not lead through it."""
        client = await Client.open(self.upstream)
        self._clients.append(client)
        return client

    @property
    def has_cut(self) -> bool:
        return 0 <= self.step < len(self.requests)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        # Those that were just let in are hung up on, too.
        await turns(3)
        await self.hang_up()
        await self._server.wait_closed()

    async def hang_up(self) -> None:
        for client in self._clients:
            client.close()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            if not self._is_off:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await self._serve(reader, writer)
        except asyncio.CancelledError:
            # The server's own task ends quietly.
            pass
        finally:
            writer.transport.abort()
            self._links.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        replies, broker = await asyncio.open_connection(*self.upstream)
        link = _Link()
        passing = asyncio.ensure_future(link.pass_replies(replies, writer))
        try:
            while True:
                frame = await read_frame(reader)
                number = len(self.requests)
                self.requests.append(api(int.from_bytes(frame[4:6], "big")).name)
                if number != self.step:
                    broker.write(frame)
                    await broker.drain()
                    link.requests += 1
                    continue
                self._is_off = self.for_good
                link.last = link.requests
                if self.cut is Cut.LOST_REQUEST:
                    return
                broker.write(frame if self.cut is Cut.LOST_REPLY else frame[: len(frame) // 2])
                # Once it has carried out what it has got, it hangs up.
                broker.write_eof()
                await asyncio.wait([passing])
                return
        finally:
            broker.transport.abort()
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)


class _Link:
    """One connection through the network."""

    def __init__(self) -> None:
        self.requests = 0
        self.last: int | None = None
        """The first reply that does not come through."""

    async def pass_replies(self, replies: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = 0
        while True:
            frame = await read_frame(replies)
            if self.last is None or number < self.last:
                writer.write(frame)
                await writer.drain()
            number += 1


@asynccontextmanager
async def cut_off(configs: dict[str, str] | None = None) -> AsyncIterator[tuple[Node, Cutter]]:
    """A broker that sends all its clients through such a network."""
    cutter = Cutter()
    await cutter.start()
    try:
        advertised = f"PLAINTEXT://{cutter.address}"
        async with running({"advertised.listeners": advertised, **(configs or {})}) as node:
            cutter.upstream = "127.0.0.1", node.broker._ports["PLAINTEXT"]
            yield node, cutter
    finally:
        await cutter.stop()
