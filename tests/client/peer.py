"""A broker that does what a test tells it: the protocol's own session behind a real socket, and a table of answers."""

import asyncio
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, NamedTuple, TypeVar

from penstock.protocol.apis import all_apis
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message, Versions
from penstock.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.protocol.schemas.versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.session import Request, ServerSession

M = TypeVar("M", bound=Message)

# What an answer may be besides a response: None is no reply to one that wants none.
SILENCE = object()
HANG_UP = object()


class Raw(NamedTuple):
    """Bytes in place of a reply."""

    data: bytes


def topic_id(name: str) -> bytes:
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()


@dataclass
class Layout:
    """What the peers of a cluster say about it: the leader of each partition of each topic."""

    leaders: dict[str, list[int]] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    controller: int = 0
    epoch: int = 0

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        wanted = [topic.name or "" for topic in request.topics] if request.topics is not None else list(self.leaders)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host=host, port=port)
                for number, (host, port) in self.addresses.items()
            ],
            cluster_id="scripted",
            controller_id=self.controller,
            topics=[self.topic(name) for name in wanted],
        )

    def topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.leaders:
            return MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=self.epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
                error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            )
            for index, leader in enumerate(self.leaders[name])
        ]
        return MetadataResponseTopic(name=name, topic_id=self.ids.get(name, topic_id(name)), partitions=partitions)


class Peer:
    """One broker. `answers` maps the class of a request to a function of it; `received` is all that has come."""

    def __init__(self, node_id: int = 0, layout: Layout | None = None) -> None:
        self.node_id = node_id
        self.layout = layout or Layout()
        self.versions = {api.key: api.request.schema.versions for api in all_apis()}
        self.greeting_versions = Versions(0, 4)
        self.answers: dict[type[Message], Callable[[Any], Any]] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self.layout.metadata,
        }
        self.received: list[tuple[int, Message]] = []
        self.connections: list[PeerConnection] = []
        self.opened = 0
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: PeerConnection(self), "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.layout.addresses.setdefault(self.node_id, ("127.0.0.1", self.port))

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self.connections):
            connection.hang_up()
        await self.until(lambda: not self.connections)
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def offer(self, kind: type[Message], first: int, last: int) -> None:
        assert kind.schema.key is not None
        self.versions[kind.schema.key] = Versions(first, last)

    def requests(self, kind: type[M]) -> list[M]:
        return [message for _, message in self.received if isinstance(message, kind)]

    def versions_of(self, kind: type[Message]) -> list[int]:
        return [version for version, message in self.received if isinstance(message, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that has come, or gone, makes it true."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _api_versions(self, _: ApiVersionsRequest) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
                for key, versions in self.versions.items()
            ]
        )


class PeerConnection(asyncio.Protocol):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.session = ServerSession(Request)
        self.transport: asyncio.Transport
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer.connections.append(self)
        self.peer.opened += 1
        self.start(self.peer.notify())

    def data_received(self, data: bytes) -> None:
        try:
            requests = self.session.receive(data)
        except DecodeError:
            # As a broker does: the client speaks TLS, or no Kafka.
            self.hang_up()
            return
        for request in requests:
            self.start(self.answer(request))

    def connection_lost(self, error: Exception | None) -> None:
        self.peer.connections.remove(self)
        for task in self.tasks:
            task.cancel()
        self.start(self.peer.notify())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def hang_up(self) -> None:
        self.transport.abort()

    async def answer(self, request: Request) -> None:
        greeting = request.api.request is ApiVersionsRequest
        if greeting and request.version not in self.peer.greeting_versions:
            await self.refuse_greeting(request)
            return
        message = request.decode()
        self.peer.received.append((request.version, message))
        await self.peer.notify()
        answer = self.peer.answers[type(message)](message)
        if isawaitable(answer):
            answer = await answer
        if answer is HANG_UP:
            self.hang_up()
        elif isinstance(answer, Raw):
            self.transport.write(answer.data)
        elif answer is not SILENCE:
            self.transport.write(b"".join(self.session.answer(request, answer)))

    async def refuse_greeting(self, request: Request) -> None:
        offered = self.peer.greeting_versions
        # A broker so old that it only knows version 0 does not say so.
        keys = [ApiVersion(api_key=18, min_version=offered.first, max_version=offered.last)] if offered.last else []
        refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
        self.transport.write(b"".join(self.session.answer(request, refusal, version=0)))


@asynccontextmanager
async def peers(count: int = 1, **leaders: list[int]) -> AsyncIterator[list[Peer]]:
    """So many brokers of one cluster, with these topics."""
    layout = Layout(leaders=dict(leaders))
    started = [Peer(number, layout) for number in range(count)]
    for each in started:
        await each.start()
    try:
        yield started
    finally:
        for each in started:
            await each.stop()


@asynccontextmanager
async def peer(**leaders: list[int]) -> AsyncIterator[Peer]:
    async with peers(1, **leaders) as started:
        yield started[0]


def closed_port() -> int:
    """A port of the loopback on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
