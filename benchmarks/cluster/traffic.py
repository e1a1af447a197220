"""Counts what brokers ask of ZooKeeper, by standing between them."""

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

_LENGTH: Final = struct.Struct(">i")


@dataclass(slots=True)
class Traffic:
    """What has passed, pings included. `largest` is that since it was last set to 0."""

    requests: int = 0
    request_bytes: int = 0
    largest_request: int = 0
    largest: int = 0

    def count(self, size: int) -> None:
        self.requests += 1
        self.request_bytes += size
        self.largest_request = max(self.largest_request, size)
        self.largest = max(self.largest, size)


@contextmanager
def counted(addresses: Sequence[str]) -> Iterator[tuple[str, Traffic]]:
    """Addresses that lead to these, and what passes; in a thread of its own."""
    traffic = Traffic()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="traffic", daemon=True)
    thread.start()
    try:
        opened = [asyncio.run_coroutine_threadsafe(_open(address, traffic), loop).result() for address in addresses]
        yield ",".join(opened), traffic
    finally:
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(address: str, traffic: Traffic) -> str:
    host, _, port = address.rpartition(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        away: asyncio.StreamWriter | None = None
        try:
            there, away = await asyncio.open_connection(host, int(port))
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, away, traffic.count))
                group.create_task(_pass_on(there, writer, lambda size: None))
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError, ExceptionGroup):
            # One end has gone: the other hears of it.
            pass
        finally:
            writer.transport.abort()
            if away is not None:
                away.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, count: Callable[[int], None]) -> None:
    while True:
        length = await source.readexactly(_LENGTH.size)
        (size,) = _LENGTH.unpack(length)
        count(size)
        sink.write(length + await source.readexactly(size))
        await sink.drain()


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
