"""A proxy between clients and a broker, in a thread of its own, that counts requests and does what networks do."""

import asyncio
import random
import threading
from collections import Counter, deque
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from penstock.protocol.apis import api


@dataclass(slots=True, frozen=True)
class Faults:
    """How often and how badly. A cut may lose a request, tear it, lose its reply, or bring it late: long after the
    client, which sees the connection end at once, has sent it again on another."""

    cut: float = 0.0
    """Of a hundred requests or replies, as a part of one."""
    delay_ms: float = 0.0
    """A reply takes up to this much longer."""
    late_ms: float = 0.0
    """So much later come requests that a client takes for lost."""


class Proxy:
    """From `with Proxy()` on it listens on `port`; `connect_to` says where it leads. What is sent before waits. Nothing
    goes wrong until there are `faults`."""

    def __init__(self, *, seed: int = 0) -> None:
        self.faults = Faults()
        self.requests: Counter[str] = Counter()
        self.cuts: Counter[str] = Counter()
        self.most_in_flight = 0
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: set[_Link] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._open()).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def connect_to(self, port: int) -> None:
        self._loop.call_soon_threadsafe(self._upstream.set_result, port)

    def _call(self, work: Coroutine[Any, Any, None]) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self) -> None:
        self._upstream: asyncio.Future[int] = self._loop.create_future()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", await self._upstream)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), upstream)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def draw_cut(self, kinds: tuple[str, ...]) -> str | None:
        if self._random.random() >= self.faults.cut:
            return None
        kind = self._random.choice(kinds)
        self.cuts[kind] += 1
        return kind

    def draw_delay(self) -> float:
        return self._random.random() * self.faults.delay_ms / 1000


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """A client's connection and the one to the broker that goes with it."""

    def __init__(self, proxy: Proxy, client: Stream, broker: Stream) -> None:
        self._proxy = proxy
        self._client, self._broker = client, broker
        self._in_flight = 0

    async def run(self) -> None:
        pumps = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._replies())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.abort()

    def abort(self) -> None:
        for _, writer in (self._client, self._broker):
            writer.transport.abort()

    async def _requests(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await read_frame(self._client[0])
                self._proxy.requests[api(int.from_bytes(frame[4:6], "big")).name] += 1
                cut = self._proxy.draw_cut(("lost request", "torn request", "late request"))
                if cut == "lost request":
                    return
                if cut == "late request":
                    await self._deliver_late(frame)
                    return
                self._in_flight += 1
                self._proxy.most_in_flight = max(self._proxy.most_in_flight, self._in_flight)
                self._broker[1].write(frame[: len(frame) // 2] if cut else frame)
                await self._broker[1].drain()
                if cut:
                    return

    async def _deliver_late(self, frame: bytes) -> None:
        """The client is told that the connection is gone, and what it had sent arrives nevertheless."""
        frames = deque([frame])
        with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(0.002):
                while True:
                    frames.append(await read_frame(self._client[0]))
        self._client[1].transport.abort()
        await asyncio.sleep(self._proxy.faults.late_ms / 1000)
        while frames:
            self._broker[1].write(frames.popleft())
        await self._broker[1].drain()
        # The broker has read it all once it has hung up in turn, or has answered everything.
        self._broker[1].write_eof()
        while await self._broker[0].read(65536):
            pass

    async def _replies(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await read_frame(self._broker[0])
                self._in_flight -= 1
                if self._proxy.draw_cut(("lost reply",)):
                    return
                if delay := self._proxy.draw_delay():
                    await asyncio.sleep(delay)
                self._client[1].write(frame)
                await self._client[1].drain()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """With its length."""
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length, "big"))
