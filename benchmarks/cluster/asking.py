"""Asks a broker over a plain socket: what it says of the cluster, and how long it lets a client wait."""

import select
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Self

from benchmarks.systems import ASK_VERSIONS
from penstock.protocol.schema import Message
from penstock.protocol.schemas.metadata import MetadataRequest
from penstock.protocol.session import ClientSession

METADATA_VERSION: Final = 12
_READ_BYTES: Final = 1024 * 1024
_PROBE_SECONDS: Final = 0.005
_PATIENCE_SECONDS: Final = 60.0


class Connection:
    """One request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        self._session = ClientSession("penstock-bench")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, message: Message, version: int) -> Any:
        _, chunks = self._session.send(message, version)
        self._socket.sendall(b"".join(chunks))
        while True:
            received = self._socket.recv(_READ_BYTES)
            if not received:
                raise ConnectionError("the broker closed the connection")
            for reply in self._session.receive(received):
                return reply.response


@dataclass(slots=True, frozen=True)
class Told:
    """What a broker says of the cluster: how many partitions each broker leads, and -1 for those without a leader."""

    controller_id: int
    leaders: Counter[int]
    brokers: frozenset[int]

    @property
    def partitions(self) -> int:
        return self.leaders.total()


def ask_metadata(port: int) -> Told:
    with Connection(port) as connection:
        response = connection.ask(MetadataRequest(topics=None), METADATA_VERSION)
    leaders = Counter(partition.leader_id for topic in response.topics for partition in topic.partitions)
    return Told(response.controller_id, leaders, frozenset(broker.node_id for broker in response.brokers))


@dataclass(slots=True, frozen=True)
class Copies:
    """What a broker says of all partitions, without those that are the brokers' own: how many have a leader that is
    alive, and how many have all replicas in sync."""

    led: int
    whole: int
    leaders: Counter[int]


class Watcher:
    """Asks a broker for the state of all partitions, again and again. An answer that is the last one again, byte for
    byte, is not decoded, which would take much longer than the answer itself."""

    def __init__(self, port: int) -> None:
        _, chunks = ClientSession("penstock-bench").send(MetadataRequest(topics=None), METADATA_VERSION)
        self._question = b"".join(chunks)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        self._received = self._socket.makefile("rb")
        self._last = b""
        self._copies = Copies(0, 0, Counter())

    def close(self) -> None:
        self._received.close()
        self._socket.close()

    def ask(self) -> Copies:
        self._socket.sendall(self._question)
        head = self._receive(4)
        frame = head + self._receive(int.from_bytes(head, "big"))
        if frame != self._last:
            self._last, self._copies = frame, _read_copies(frame)
        return self._copies

    def _receive(self, size: int) -> bytes:
        received = self._received.read(size)
        if len(received) < size:
            raise ConnectionError("the broker closed the connection")
        return received


def _read_copies(frame: bytes) -> Copies:
    session = ClientSession("penstock-bench")
    session.send(MetadataRequest(topics=None), METADATA_VERSION)
    (reply,) = session.receive(frame)
    response: Any = reply.response
    alive = {broker.node_id for broker in response.brokers}
    led, whole, leaders = 0, 0, Counter[int]()
    for topic in response.topics:
        for partition in () if topic.is_internal else topic.partitions:
            led += partition.leader_id in alive
            whole += len(partition.isr_nodes) == len(partition.replica_nodes)
            leaders[partition.leader_id] += 1
    return Copies(led, whole, leaders)


class Probe:
    """Asks a broker a small question all the time, in a process of its own; it ends with its block."""

    def __init__(self, port: int) -> None:
        self.longest_seconds = 0.0
        command = [sys.executable, "-m", "benchmarks.cluster.asking", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        # The first answer: from now on the broker is asked.
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        """`longest_seconds` is how long the broker once did not answer, busy with other things, as the machine was."""
        self.longest_seconds = float(self._process.communicate()[0] or 0)


def probe(port: int) -> float:
    """Ask until the input ends; the longest wait in seconds."""
    longest = 0.0
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS) as sock:
        print("asking", flush=True)
        while not select.select([sys.stdin], [], [], _PROBE_SECONDS)[0]:
            began = time.monotonic()
            sock.sendall(ASK_VERSIONS)
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            sock.recv(size, socket.MSG_WAITALL)
            longest = max(longest, time.monotonic() - began)
    return longest


if __name__ == "__main__":
    print(probe(int(sys.argv[1])))
