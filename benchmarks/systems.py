"""Starts each system under test, and makes and removes topics on it."""

import asyncio
import os
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from benchmarks.processes import Server, accepts, free_port
from benchmarks.programs import program
from penstock.client.admin.offsets import LATEST, list_offsets
from penstock.client.admin.topics import NewTopic, create_topics, delete_topics
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition

# ApiVersions 0 with correlation id 7, which every broker answers.
ASK_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 7, -1)


class System(ABC):
    """Speaks Kafka's protocol, as far as the load generator needs it."""

    name: str

    @abstractmethod
    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        """A server with nothing in it, on a port of its own, that keeps its data below the folder."""

    def make_topic(self, server: Server, name: str, partitions: int = 1) -> None:
        """The topic is there and can be written to when this returns."""

        async def make(cluster: Cluster) -> None:
            topic = NewTopic(name=name, partitions=partitions, replication_factor=1)
            unwrap(await create_topics(cluster, [topic]))
            # A broker may name a partition before it leads it.
            ends = {TopicPartition(name, index): LATEST for index in range(partitions)}
            unwrap(await list_offsets(cluster, ends))

        _administer(server, make)

    def drop_topic(self, server: Server, name: str) -> None:
        """Its disk space is free soon after."""

        async def drop(cluster: Cluster) -> None:
            unwrap(await delete_topics(cluster, [name]))

        _administer(server, drop)


class Penstock(System):
    name = "Penstock"

    def __init__(
        self,
        *options: str,
        name: str = "Penstock",
        source: Path | None = None,
        brokers: int | None = None,
        has_own_session: bool = False,
    ) -> None:
        """Options of `penstock serve`; the source is another version's folder `src`. Several brokers are processes of
        their own; the port of the first is the server's."""
        self.name = name
        self._options = options if brokers is None else ("--processes", str(brokers), *options)
        self._source = source
        self._brokers = brokers or 1
        self._has_own_session = has_own_session

    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        ports = [free_port() for _ in range(self._brokers)]
        program = (sys.executable, "-c", "from penstock.cli.main import main; main()", "serve")
        address = ("--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{','.join(map(str, ports))}")
        return Server(
            [*program, *address, "--log-level", "warning", *self._options],
            port=ports[0],
            folder=folder,
            cores=cores,
            is_ready=speaks_kafka,
            environment=self._environment(),
            has_own_session=self._has_own_session,
        )

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        return own if self._source is None else {**own, "PYTHONPATH": str(self._source)}


FLUSHED_BY_OS: Final = "Penstock, flush=os"


def flushed_by_os() -> Penstock:
    """Promises what Apache Kafka does by default: what was acknowledged and read may not be on the disk yet."""
    return Penstock("-X", "penstock.flush=os", name=FLUSHED_BY_OS)


class Floor(System):
    """A C program that does for a request what Penstock does, and nothing else."""

    name = "floor (C)"

    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        port = free_port()
        command = [str(program("floor")), "--folder", str(folder), "--port", str(port)]
        return Server(command, port=port, folder=folder, cores=cores, is_ready=accepts)

    def make_topic(self, server: Server, name: str, partitions: int = 1) -> None:
        """It makes each partition when it is first named."""

    def drop_topic(self, server: Server, name: str) -> None:
        """It never looks again at the files of a topic that no client asks for."""
        for path in server.folder.glob(f"{name}-*.log"):
            os.truncate(path, 0)


def speaks_kafka(port: int) -> bool:
    """Whether a broker answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            sock.sendall(ASK_VERSIONS)
            return len(sock.recv(8, socket.MSG_WAITALL)) == 8
    except OSError:
        return False


def _administer(server: Server, work: Callable[[Cluster], Awaitable[None]]) -> None:
    async def use_cluster() -> None:
        async with Cluster(f"127.0.0.1:{server.port}", client_id="penstock-bench") as cluster:
            await work(cluster)

    asyncio.run(use_cluster())
