"""Stands between a store and a node of ZooKeeper: counts requests, cuts connections at any of them, falls silent."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final, Literal

Side = Literal["request", "reply"]

PING: Final = -2


class Proxy:
    """Frames pass one by one. `cut_when` is asked about each request and each reply to one, numbered from 0 since
    `count` was last called: if it says yes, the frame does not pass, and all connections are cut."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._flow = asyncio.Event()
        self._flow.set()
        self._requests = 0
        self._replies = 0
        self.address = ""
        self.largest = 0
        self.cuts = 0
        self.cut_when: Callable[[Side, int], bool] = lambda side, number: False

    @classmethod
    @asynccontextmanager
    async def open(cls, target: str) -> AsyncIterator["Proxy"]:
        host, port = target.split(":")
        proxy = cls((host, int(port)))
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield proxy
        finally:
            server.close()
            for task in proxy._tasks:
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    def count(self) -> None:
        self._requests = self._replies = 0

    def cut_at(self, cuts: Collection[tuple[Side, int]]) -> None:
        """Cut at these requests and replies, numbered from now on."""
        self.count()
        self.cut_when = lambda side, number: (side, number) in cuts

    def fall_silent(self) -> None:
        """Nothing passes, and connections stay open."""
        self._flow.clear()

    def speak(self) -> None:
        self._flow.set()

    def cut(self) -> None:
        self.cuts += 1
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass_on(reader, writer)
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError, ExceptionGroup):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flow.wait()
        there, away = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, away, "request"))
                group.create_task(self._copy(there, writer, "reply"))
        finally:
            away.transport.abort()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, side: Side) -> None:
        is_first = True
        while True:
            length = await source.readexactly(4)
            frame = await source.readexactly(struct.unpack(">i", length)[0])
            await self._flow.wait()
            self.largest = max(self.largest, len(frame))
            # The first frame of a connection begins the session, and those with negative numbers are pings and events.
            if not is_first and struct.unpack_from(">i", frame)[0] > 0 and self._is_cut_at(side):
                self.cut()
                await asyncio.sleep(0)
                return
            is_first = False
            # What was asked about the frame may have silenced the proxy: then the frame waits.
            await self._flow.wait()
            sink.write(length + frame)
            await sink.drain()

    def _is_cut_at(self, side: Side) -> bool:
        if side == "request":
            number, self._requests = self._requests, self._requests + 1
        else:
            number, self._replies = self._replies, self._replies + 1
        return self.cut_when(side, number)
