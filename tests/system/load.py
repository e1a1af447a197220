"""Many cheap connections: some that send and read as they should, and some that only send."""

import asyncio
import socket
from collections.abc import Iterable

from penstock.protocol.schema import Message
from penstock.protocol.session import ClientSession

_AT_ONCE = 200


def request_bytes(message: Message, version: int) -> bytes:
    _, chunks = ClientSession("load").send(message, version)
    return b"".join(map(bytes, chunks))


class Worker(asyncio.Protocol):
    """A connection with one request in flight. `ask` sends the same few requests in turn, and reads every reply."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._rest: list[bytes] = []
        self._done: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, address: tuple[str, int]) -> "Worker":
        _, worker = await asyncio.get_running_loop().create_connection(cls, *address)
        return worker

    async def ask(self, requests: Iterable[bytes]) -> None:
        self._rest = list(requests)[::-1]
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(self._rest.pop())
        await self._done

    def close(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        self._received.clear()
        if self._rest:
            self._transport.write(self._rest.pop())
        elif self._done is not None:
            self._done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionResetError("the broker has closed the connection"))


class Mute:
    """A connection that sends a request over and over and never reads."""

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.sent_bytes = 0
        self._address = address
        self._blob = request * _AT_ONCE
        self._socket = socket.socket()
        # What the kernel keeps for us is none of the broker's business, and filling it takes long. Segments as on an
        # Ethernet keep its buffers as small as they are there.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
        self._socket.setblocking(False)

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        with self._socket:
            await loop.sock_connect(self._socket, self._address)
            while True:
                await loop.sock_sendall(self._socket, self._blob)
                self.sent_bytes += len(self._blob)
