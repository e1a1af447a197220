"""The systems under test: how each is started, and how topics are made and removed on it."""

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
from penstock.client import admin
from penstock.client.cluster import Cluster
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
            topic = admin.NewTopic(name=name, partitions=partitions, replication_factor=1)
            unwrap(await admin.create_topics(cluster, [topic]))
            # A broker may tell of a partition before it leads it.
            ends = {TopicPartition(name, index): admin.LATEST for index in range(partitions)}
            unwrap(await admin.list_offsets(cluster, ends))

        _administer(server, make)

    def drop_topic(self, server: Server, name: str) -> None:
        """Its disk space is free soon after."""

        async def drop(cluster: Cluster) -> None:
            unwrap(await admin.delete_topics(cluster, [name]))

        _administer(server, drop)


class Penstock(System):
    name = "Penstock"

    def __init__(self, *options: str) -> None:
        """Options of `penstock serve`."""
        self._options = options

    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        port = free_port()
        program = (sys.executable, "-c", "from penstock.cli.main import main; main()", "serve")
        address = ("--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{port}")
        return Server(
            [*program, *address, "--log-level", "warning", *self._options],
            port=port,
            folder=folder,
            cores=cores,
            is_ready=speaks_kafka,
            environment={name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
        )


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
        """It never looks at the files of a topic again that nobody asks for."""
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
