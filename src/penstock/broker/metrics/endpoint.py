"""The page for Prometheus over HTTP: GET /metrics, and GET /healthz for whoever only asks whether anybody is there.

No more of HTTP/1.1 than that needs: a request has no body, and every reply ends its connection.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from penstock.broker.metrics.exposition import CONTENT_TYPE
from penstock.broker.metrics.rendering import render

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 16
MAX_HEAD_BYTES: Final = 8192
# From the connection to the end of the reply: a scrape that takes longer has been given up by the other side.
TIMEOUT_SECONDS: Final = 10.0
# What a client may send after our reply, and how long we read it: closing on unread bytes would cut the reply off.
_LINGER_BYTES: Final = 64 * 1024
_LINGER_SECONDS: Final = 1.0


class MetricsEndpoint:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Returns the port, which matters where 0 asked for any."""
        self._server = await asyncio.start_server(self._accept, host or None, port, limit=MAX_HEAD_BYTES)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # So that `drain` waits until all is sent.
            writer.transport.set_write_buffer_limits(high=0)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status, method, body = await self._answer(reader)
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
        except Exception:
            log.exception("a scrape failed")
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[HTTPStatus, str, list[bytes]]:
        try:
            line = await reader.readuntil(b"\n")
            method, target, version = line.decode("ascii").split()
            if not version.startswith("HTTP/1.") or not target.startswith("/"):
                return _plain(HTTPStatus.BAD_REQUEST)
            size = len(line)
            while line.strip():
                line = await reader.readuntil(b"\n")
                size += len(line)
                if size > MAX_HEAD_BYTES:
                    return _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except (ValueError, asyncio.IncompleteReadError):
            return _plain(HTTPStatus.BAD_REQUEST)
        except asyncio.LimitOverrunError:
            return _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        path = target.partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            return _plain(HTTPStatus.NOT_FOUND, method)
        if method not in ("GET", "HEAD"):
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, method)
        if path == "/healthz":
            return _plain(HTTPStatus.OK, method)
        return HTTPStatus.OK, method, await render(self._broker)


def _plain(status: HTTPStatus, method: str = "") -> tuple[HTTPStatus, str, list[bytes]]:
    return status, method, [f"{status.phrase}\n".encode()]


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
