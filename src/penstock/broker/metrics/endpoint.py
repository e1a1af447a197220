"""The endpoint serves Prometheus over HTTP: GET /metrics has the page, and GET /healthz says that the broker answers.

It speaks no more of HTTP/1.1 than that needs: a request has no body, and every reply ends its connection.
"""

import asyncio
import logging
from functools import partial
from http import HTTPStatus
from typing import Final

from penstock.broker.log_rates import RatedLog
from penstock.broker.metrics.catalogue import Sources
from penstock.broker.metrics.exposition import CONTENT_TYPE
from penstock.broker.metrics.rendering import render
from penstock.broker.network.listener import widen_backlog

log = RatedLog(logging.getLogger(__name__))

# Connections that have not asked yet, or have had a short answer. One more pushes the oldest out: it has had its time,
# since a client that wants to know something asks at once.
MAX_WAITING: Final = 64
# Connections that get the page, each of which may hold another one. One more pushes the oldest out, likewise.
MAX_SCRAPES: Final = 8
MAX_HEAD_BYTES: Final = 8192
REQUEST_SECONDS: Final = 5.0
# From the request to the end of the reply: a scrape that takes longer has been given up by the other side.
REPLY_SECONDS: Final = 10.0
# What a client may send after our reply, and how long we read it: closing on unread bytes would cut the reply off.
_LINGER_BYTES: Final = 64 * 1024
_LINGER_SECONDS: Final = 1.0


class MetricsEndpoint:
    """Answers /healthz a few turns after its request, however many clients ask for /metrics or keep silent."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # Oldest first.
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._scrapes: dict[asyncio.Task[None], None] = {}
        self._rendering: asyncio.Task[list[bytes]] | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen at an address; returns the port, which matters if 0 asked for any."""
        # One connection is accepted in a turn of the loop: among many that come together none is pushed out before
        # its request was looked at.
        self._server = await asyncio.start_server(self._accept, host or None, port, limit=MAX_HEAD_BYTES, backlog=1)
        widen_backlog(self._server)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks: list[asyncio.Task[None] | asyncio.Task[list[bytes]]] = [*self._tasks]
        if self._rendering is not None:
            tasks.append(self._rendering)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        _add(self._waiting, task, MAX_WAITING)
        task.add_done_callback(partial(self._ended, writer))

    def _ended(self, writer: asyncio.StreamWriter, task: "asyncio.Task[None]") -> None:
        # The task itself cannot do this: one that is cancelled before its first turn never runs.
        writer.transport.abort()
        self._tasks.discard(task)
        self._waiting.pop(task, None)
        self._scrapes.pop(task, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # With this limit `drain` waits until all is sent.
            writer.transport.set_write_buffer_limits(high=0)
            async with asyncio.timeout(REQUEST_SECONDS):
                status, method, is_scrape = await _read_request(reader)
            async with asyncio.timeout(REPLY_SECONDS):
                body = await self._scrape() if is_scrape else [f"{status.phrase}\n".encode()]
                writer.write(_head(status, sum(map(len, body))))
                for piece in body if method != "HEAD" else ():
                    await writer.drain()
                    writer.write(piece)
                writer.write_eof()
                await writer.drain()
                await _linger(reader)
        except (OSError, TimeoutError):
            # The other side is gone, or too slow to be waited for.
            pass
        except Exception as error:
            log.error("a scrape failed", owner=self, extra={}, exc_info=error)

    async def _scrape(self) -> list[bytes]:
        """The page. One is made at a time, and all clients that ask meanwhile get it."""
        task = asyncio.current_task()
        assert task is not None
        del self._waiting[task]
        _add(self._scrapes, task, MAX_SCRAPES)
        if self._rendering is None or self._rendering.done():
            self._rendering = asyncio.ensure_future(render(self._sources))
        rendering = self._rendering
        # To wait in this way leaves it alone when this connection ends.
        await asyncio.wait([rendering])
        return rendering.result()


def _add(connections: dict["asyncio.Task[None]", None], task: "asyncio.Task[None]", limit: int) -> None:
    if len(connections) >= limit:
        oldest = next(iter(connections))
        del connections[oldest]
        oldest.cancel()
    connections[task] = None


async def _read_request(reader: asyncio.StreamReader) -> tuple[HTTPStatus, str, bool]:
    """The status to answer with, the method, and whether the page is wanted."""
    try:
        line = await reader.readuntil(b"\n")
        method, target, version = line.decode("ascii").split()
        if not version.startswith("HTTP/1.") or not target.startswith("/"):
            return HTTPStatus.BAD_REQUEST, "", False
        size = len(line)
        while line.strip():
            line = await reader.readuntil(b"\n")
            size += len(line)
            if size > MAX_HEAD_BYTES:
                return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "", False
    except (ValueError, asyncio.IncompleteReadError):
        return HTTPStatus.BAD_REQUEST, "", False
    except asyncio.LimitOverrunError:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "", False
    path = target.partition("?")[0]
    if path not in ("/metrics", "/healthz"):
        return HTTPStatus.NOT_FOUND, method, False
    if method not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED, method, False
    return HTTPStatus.OK, method, path == "/metrics"


def _head(status: HTTPStatus, length: int) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {length}\r\n"
        f"{allow}Connection: close\r\n\r\n"
    ).encode()


async def _linger(reader: asyncio.StreamReader) -> None:
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            left = _LINGER_BYTES
            while left > 0 and (data := await reader.read(left)):
                left -= len(data)
    except TimeoutError:
        pass
