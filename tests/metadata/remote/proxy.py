"""A proxy between a remote store and its server: it passes bytes on, holds them back, or loses an append at a point."""

import asyncio
import contextlib
from collections.abc import Sequence


class Proxy:
    def __init__(self, path: str, target: str) -> None:
        self.path = path
        self._target = target
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self._points: list[str] = []
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, self.path)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def stall(self) -> None:
        self._may_pass.clear()

    def go_on(self) -> None:
        self._may_pass.set()

    def lose_appends(self, points: Sequence[str]) -> None:
        """Cut the connection at the next append, before it is passed on or when its answer comes, and so on."""
        self._points = list(points)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._may_pass.wait()
            far_reader, far_writer = await asyncio.open_unix_connection(self._target)
            lose = asyncio.Event()
            pumps = [
                asyncio.create_task(self._pump(reader, far_writer, lose, is_request=True)),
                asyncio.create_task(self._pump(far_reader, writer, lose, is_request=False)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                writer.transport.abort()
                far_writer.transport.abort()
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                await closed(far_writer)
        except (asyncio.CancelledError, OSError):
            pass
        finally:
            writer.transport.abort()
            await closed(writer)
            self._connections.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lose: asyncio.Event, *, is_request: bool
    ) -> None:
        while chunk := await reader.read(1 << 16):
            await self._may_pass.wait()
            if is_request and b"append" in chunk and self._points:
                if self._points.pop(0) == "request":
                    return
                lose.set()
            elif not is_request and lose.is_set():
                return
            writer.write(chunk)
            await writer.drain()
        await self._may_pass.wait()


async def closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()
