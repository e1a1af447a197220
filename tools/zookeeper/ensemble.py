"""Starts one or three nodes of ZooKeeper, on loopback or each on a host of its own, kills and pauses single ones, and
leaves nothing."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tools.clients.packages import class_path, install_commands, install_jars
from tools.clients.processes import OutsideError, last_lines
from tools.fixtures.kafka import free_ports

START_SECONDS: Final = 60
STOP_SECONDS: Final = 10
POLL_SECONDS: Final = 0.02
ASK_SECONDS: Final = 2

# Sessions last 1 to 60 s. Limits of sizes are ZooKeeper's own: clusters have to do with them.
CONFIG: Final = """\
tickTime=500
initLimit=20
syncLimit=4
maxSessionTimeout=60000
dataDir={folder}
clientPort={port}
clientPortAddress={address}
admin.enableServer=false
4lw.commands.whitelist=srvr
standaloneEnabled={alone}
"""

# The first three end what hangs when hosts are cut off, so that writes are back after 8 s instead of 14 to 34.
JAVA: Final = (
    "-Dzookeeper.cnxTimeout=500",
    "-Dzookeeper.leader.closeSocketAsync=true",
    "-Dzookeeper.learner.closeSocketAsync=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)


def install() -> None:
    """Fetch Java, Maven and the jars, as far as they are not there."""

    async def fetch() -> None:
        await install_commands("java", "mvn")
        await install_jars(Path(__file__).parent)

    asyncio.run(fetch())


@dataclass(slots=True, frozen=True)
class Host:
    """Where a node runs: `command` stands before its own, and this process reaches it at `address`."""

    address: str = "127.0.0.1"
    command: tuple[str, ...] = ()


@dataclass(slots=True)
class Node:
    """One server. Its number, from 1, is its id in the ensemble."""

    number: int
    host: Host
    port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host.address}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert not self.is_running, f"node {self.number} runs already"
        command = ["java", *JAVA, "-cp", class_path("zookeeper"), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.host.command, *command, str(self.folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """At once, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """Let it hang: its connections stay open, and it says nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if not self.is_running or self.process is None:
            return
        self._signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def wipe(self) -> None:
        """Lose all that it kept, as with its disk."""
        assert not self.is_running, f"node {self.number} runs"
        shutil.rmtree(self.folder / "version-2", ignore_errors=True)

    def mode(self) -> str | None:
        """`leader`, `follower` or `standalone` once it serves, None before."""
        try:
            with socket.create_connection((self.host.address, self.port), ASK_SECONDS) as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read().decode(errors="replace")
        except OSError:
            return None
        return next((line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")), None)

    def _signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


class Ensemble:
    """`with Ensemble(nodes=3) as ensemble:` serves at `ensemble.connect`; `install` comes first.

    The ports of clients are `port`, `port + 1` and so on, or any that are free. Data lies in a folder of its own, which
    is made within another one, or where temporary folders are, and deleted in the end. `hosts` has one for each node;
    without it all run here.
    """

    def __init__(
        self, *, nodes: int = 3, port: int | None = None, hosts: Sequence[Host] = (), within: Path | None = None
    ) -> None:
        assert nodes % 2, "an even number of nodes bears no more losses than one less"
        places = hosts or [Host()] * nodes
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-zookeeper-", dir=within))
        free = free_ports(3 * nodes)
        ports = free[:nodes] if port is None else [port + place for place in range(nodes)]
        self.nodes = [
            Node(number, host, own, self._folder / str(number))
            for number, host, own in zip(range(1, nodes + 1), places, ports, strict=True)
        ]
        quorum, election = free[nodes : 2 * nodes], free[2 * nodes :]
        peers = "".join(
            f"server.{node.number}={node.host.address}:{quorum[place]}:{election[place]}\n"
            for place, node in enumerate(self.nodes)
            if nodes > 1
        )
        for node in self.nodes:
            node.folder.mkdir()
            alone = str(nodes == 1).lower()
            told = CONFIG.format(folder=node.folder, address=node.host.address, port=node.port, alone=alone)
            (node.folder / "zoo.cfg").write_text(told + peers)
            (node.folder / "myid").write_text(f"{node.number}\n")

    @property
    def connect(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
            self.wait_until_it_serves()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for node in self.nodes:
            # Nothing of it is used again.
            node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def leader(self) -> Node:
        """The node that decides; there is one once the ensemble serves."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for node in self.nodes:
                if node.is_running and node.mode() in ("leader", "standalone"):
                    return node
            time.sleep(POLL_SECONDS)
        raise OutsideError(f"ZooKeeper has had no leader for {START_SECONDS} s")

    def wait_until_it_serves(self) -> None:
        """Return when every node that runs has its place in the ensemble."""
        deadline = time.monotonic() + START_SECONDS
        for node in self.nodes:
            while node.mode() is None:
                if node.process is None or not node.is_running or time.monotonic() > deadline:
                    complaints = last_lines((node.folder / "log").read_bytes())
                    raise OutsideError(f"node {node.number} of ZooKeeper does not serve:\n{complaints}")
                time.sleep(POLL_SECONDS)
