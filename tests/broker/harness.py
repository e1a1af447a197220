"""A real broker in this process, and raw clients that talk to it over real sockets.

A client sends any version of any API, several at once, or bytes that are no request at all.
"""

import asyncio
import errno
import random
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.clock import Clock
from penstock.broker.config.typed import BrokerConfig
from penstock.broker.metrics.catalogue import Sources
from penstock.broker.network import sender as sending
from penstock.broker.partitions.partition import Partition
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.protocol.apis import api
from penstock.protocol.batch import split
from penstock.protocol.compression import Codec
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, Record, build, iterate
from penstock.protocol.schema import ZERO_UUID, Message
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.session import ClientSession, Reply
from penstock.storage.files import Files, RealFiles
from penstock.storage.files.memory import Damage, MemoryFiles
from tests.waiting import in_every_loop as in_every_loop  # noqa: PLC0414 - for all who use the harness
from tests.waiting import in_loop as in_loop  # noqa: PLC0414 - for all who use the harness
from tests.waiting import turns as turns  # noqa: PLC0414 - for all who use the harness
from tests.waiting import until as until  # noqa: PLC0414 - for all who use the harness

NOW_MS = 1_700_000_000_000
"""The time of a fake clock that nobody has moved yet."""

FOLDER = "/data"
PRODUCE_VERSION = 12
FETCH_VERSION = 12
"""The last versions in which topics go by name."""


class FakeClock:
    """Stands still until it is moved."""

    def __init__(self, wall_ms: int = NOW_MS) -> None:
        self.wall_ms = wall_ms
        self.passed_ms = 0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.passed_ms

    def advance(self, milliseconds: int) -> None:
        self.wall_ms += milliseconds
        self.passed_ms += milliseconds


class GatedFiles(MemoryFiles):
    """A disk on which syncs of segments wait while the gate is closed, and fail while there is an error to fail with,
    losing the bytes that they should have made durable.

    `waiting` tells how many wait. Checkpoints and names are synced as ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        self.failing: OSError | None = None
        self.segments: set[int] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        fd = super().open(path, write=write, create=create)
        if path.endswith(".log"):
            self.segments.add(fd)
        return fd

    def sync(self, fd: int) -> None:
        if fd in self.segments:
            self.waiting += 1
            self.gate.wait()
            self.waiting -= 1
            if self.failing is not None:
                self.fail("sync", 1, self.failing)
        super().sync(fd)


class BrokenFiles(MemoryFiles):
    """A disk on which files whose paths end like this can neither be opened nor get their name."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = ""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self._check(path)
        return super().open(path, write=write, create=create)

    def rename(self, old: str, new: str) -> None:
        self._check(new)
        super().rename(old, new)

    def _check(self, path: str) -> None:
        if self.broken and path.endswith(self.broken):
            raise OSError(errno.EIO, "input/output error", path)


class CountingFiles(RealFiles):
    """The files of the operating system, and how often and how much was written and read."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.reads: list[int] = []

    def pwritev(self, fd: int, buffers: Sequence[Any], position: int) -> int:
        self.writes.append(sum(map(len, buffers)))
        return super().pwritev(fd, buffers, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.reads.append(size)
        return super().pread(fd, size, position)


class Node:
    """A broker that can stop, die, and start again on the same disk.

    Without a folder everything is in memory, and then no range of a file is large enough for sendfile.
    """

    def __init__(
        self,
        configs: dict[str, str] | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        folder: str | None = None,
        shared: SharedMetadata | None = None,
        session_seconds: float = 6.0,
    ) -> None:
        self.files: Files = files or (RealFiles() if folder else MemoryFiles())
        self.clock = clock
        self.configs = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": folder or FOLDER,
            **(configs or {}),
        }
        self.shared = shared or SharedMetadata()
        self._session_seconds = session_seconds
        self.store = MemoryStore(self.shared, session_seconds)
        self.clients: list[Client] = []
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "the broker is not running"
        return self._broker

    @property
    def sources(self) -> Sources:
        """What the broker's metrics are read from."""
        return Sources(self.broker.services, self.broker.listener, self.broker.upkeep)

    @property
    def memory(self) -> MemoryFiles:
        assert isinstance(self.files, MemoryFiles)
        return self.files

    async def start(self) -> None:
        is_real = isinstance(self.files, RealFiles)
        self.store = MemoryStore(self.shared, self._session_seconds)
        broker = Broker(
            BrokerConfig.parse(self.configs),
            clock=self.clock,
            files=self.files,
            store=None if is_real else self.store,
        )
        await broker.start()
        self._broker = broker

    async def stop(self) -> None:
        """In order, with the clean marker."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        if self._broker is not None:
            broker, self._broker = self._broker, None
            await broker.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def kill(self) -> None:
        """As if the process had died. What it had at the store is left there until its session has passed."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        broker, self._broker = self.broker, None
        await broker.kill()

    async def crash(self, damage: Damage | None = None) -> None:
        """Die and start again: the process alone, or the machine with some damage."""
        files = self.memory
        left = files.copy() if damage is None else files.after_crash(damage, random.Random(1))
        await self.stop()
        self.files = left
        await self.start()

    async def connect(self, **options: Any) -> "Client":
        client = await Client.open(self.broker.address, **options)
        self.clients.append(client)
        return client

    def partition(self, topic: str, index: int = 0) -> Partition:
        found = self.broker.services.partitions.get(topic, index)
        assert isinstance(found, Partition), f"{topic}-{index}: {found!r}"
        return found

    def pinned(self) -> int:
        """How many uses of descriptors for reading are under way."""
        descriptors = self.broker.directory._descriptors
        return sum(file.readers for file in descriptors.open_files)

    async def close_files(self) -> None:
        """Close the files of all logs once they are synced, so that the next use has to open them."""
        descriptors = self.broker.directory._descriptors
        await until(lambda: not any(file.readers or file.writers for file in descriptors.open_files))
        for file in descriptors.open_files:
            descriptors.close(file)


_SENDFILE_FROM_BYTES = sending.SENDFILE_FROM_BYTES
_in_memory: list[None] = []


@contextmanager
def without_sendfile() -> Iterator[None]:
    """The operating system cannot send from files that it does not know. Blocks may begin and end in any order: a
    generator that a test left open ends when it is collected, in the middle of another test."""
    _in_memory.append(None)
    sending.SENDFILE_FROM_BYTES = 1 << 62
    try:
        yield
    finally:
        _in_memory.pop()
        if not _in_memory:
            sending.SENDFILE_FROM_BYTES = _SENDFILE_FROM_BYTES


@asynccontextmanager
async def running(
    configs: dict[str, str] | None = None,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    folder: str | None = None,
) -> AsyncIterator[Node]:
    """A broker from here to the end of the block, stopped in order."""
    node = Node(configs, files=files, clock=clock, folder=folder)
    with without_sendfile() if isinstance(node.files, MemoryFiles) else nullcontext():
        try:
            await node.start()
            yield node
        finally:
            if isinstance(node.files, GatedFiles):
                node.files.gate.set()
            await node.stop()


@asynccontextmanager
async def running_cluster(
    count: int = 3, configs: dict[str, str] | None = None, *, session_seconds: float = 6.0
) -> AsyncIterator[list[Node]]:
    """Brokers with the numbers from 0 on, in memory, which know each other. The first is the controller."""
    shared = SharedMetadata()
    nodes = [
        Node({"node.id": str(number), **(configs or {})}, shared=shared, session_seconds=session_seconds)
        for number in range(count)
    ]
    with without_sendfile():
        try:
            for node in nodes:
                await node.start()
            await until(lambda: all(len(node.broker.services.image.live_brokers()) == count for node in nodes))
            yield nodes
        finally:
            for node in nodes:
                await node.stop()


class Client:
    """One connection. `ask` waits for the reply; `send` and `reply` are the two halves of it, for pipelining."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: ClientSession) -> None:
        self._reader = reader
        self._writer = writer
        self._session = session
        self._replies: list[Reply] = []

    @classmethod
    async def open(
        cls, address: tuple[str, int], *, client_id: str | None = "test", receive_buffer: int | None = None
    ) -> "Client":
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
        except OSError:
            sock.close()
            raise
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, ClientSession(client_id))

    def send(self, message: Message, version: int) -> None:
        _, chunks = self._session.send(message, version)
        self._writer.write(b"".join(bytes(chunk) for chunk in chunks))

    def send_together(self, *requests: tuple[Message, int]) -> None:
        """Several requests with one write, so that the broker reads them in one turn."""
        self._writer.write(
            b"".join(bytes(chunk) for message, version in requests for chunk in self._session.send(message, version)[1])
        )

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def reply(self) -> Any:
        """The next response, in the order of the requests; ConnectionError if the broker hung up."""
        while not self._replies:
            data = await self._reader.read(1 << 20)
            if not data:
                raise ConnectionResetError("the broker has closed the connection")
            self._replies += self._session.receive(data)
        return self._replies.pop(0).response

    async def ask(self, message: Message, version: int | None = None) -> Any:
        """The response, in the highest version of the tables unless told."""
        key = type(message).schema.key
        assert key is not None
        self.send(message, api(key).request.schema.versions.last if version is None else version)
        return await self.reply()

    async def closed(self) -> bytes:
        """Wait until the broker hangs up; returns what came before that."""
        received = b""
        try:
            while data := await self._reader.read(1 << 20):
                received += data
        except ConnectionError:
            pass
        return received

    def pause_reading(self) -> None:
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def resume_reading(self) -> None:
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Vanish without a goodbye."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    # What tests do all the time

    async def create_topic(
        self, name: str, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> CreatableTopicResult:
        response = await self.ask(create_topics(name, partitions, configs), 7)
        assert isinstance(response, CreateTopicsResponse)
        [result] = response.topics
        assert result.error_code == ErrorCode.NONE, result
        return result

    async def topic_id(self, name: str) -> bytes:
        response = await self.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False), 13
        )
        assert isinstance(response, MetadataResponse)
        return response.topics[0].topic_id

    async def produce(
        self,
        topic: str,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = PRODUCE_VERSION,
    ) -> PartitionProduceResponse:
        response = await self.ask(produce_request(topic, records, partition=partition, acks=acks), version)
        return produced(response)

    async def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, version: int = FETCH_VERSION, **options: Any
    ) -> PartitionData:
        response = await self.ask(fetch_request(topic, offset, partition=partition, **options), version)
        return fetched(response)

    async def values(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[bytes | None]:
        """The values of all committed records from an offset on, however many fetches that takes."""
        found: list[bytes | None] = []
        while True:
            data = await self.fetch(topic, offset, partition=partition)
            assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
            records = records_of(data)
            if not records:
                return found
            found += [record.value for record in records if record.offset >= offset]
            offset = records[-1].offset + 1


# Messages


def batch(
    *values: bytes | None,
    timestamp: int = NOW_MS,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    timestamps: Sequence[int] | None = None,
) -> bytearray:
    """A record batch; `producer` is its id, its epoch, and the sequence of the first record."""
    times = timestamps or [timestamp] * len(values)
    return build(
        [NewRecord(value, timestamp=time) for value, time in zip(values, times, strict=True)],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )


def produce_request(
    topic: str,
    records: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = -1,
    topic_id: bytes = ZERO_UUID,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        transactional_id=transactional_id,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def produced(response: ProduceResponse) -> PartitionProduceResponse:
    """The answer for the only partition of a request."""
    [topic] = response.responses
    [partition] = topic.partition_responses
    return partition


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    topic_id: bytes = ZERO_UUID,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 30,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )


def fetched(response: FetchResponse) -> PartitionData:
    """The answer for the only partition of a request."""
    assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
    [topic] = response.responses
    [partition] = topic.partitions
    return partition


def records_of(data: PartitionData) -> list[Record]:
    assert isinstance(data.records, memoryview | bytes)
    return [record for _, view in split(data.records) for record in iterate(view)]


def create_topics(
    name: str,
    partitions: int = 1,
    configs: dict[str, str] | None = None,
    *,
    replication_factor: int = 1,
    validate_only: bool = False,
) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    return CreateTopicsRequest(topics=[topic], validate_only=validate_only)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def values_of(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]
