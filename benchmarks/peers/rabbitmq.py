"""Starts RabbitMQ streams, by RabbitMQ's stream protocol; it needs Erlang's port mapper, of which it gets one of its
own."""

import os
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.foreign import Foreign, Talk, path_of, talk
from benchmarks.processes import Server, accepts, free_port

# Debian's command of that name changes to another user.
_PROGRAM: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_VERSIONS: Final = Path("/usr/lib/rabbitmq/lib")
_CREATE, _DELETE, _PROPERTIES, _HANDSHAKE, _AUTHENTICATE, _TUNE, _OPEN = 0x0D, 0x0E, 0x11, 0x12, 0x13, 0x14, 0x15
_OK: Final = 1


class RabbitMQ(Foreign):
    name = "RabbitMQ streams"
    protocol = "rabbitmq"
    command = "rabbitmq-server"
    has_fetch_sizes = False

    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        port, mapper = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp = none\nstream.listeners.tcp.1 = 127.0.0.1:{port}\n")
        (folder / "plugins").write_text("[rabbitmq_stream].\n")
        environment = {
            **os.environ,
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_LOGS": "-",
        }
        return _ErlangServer(
            [_PROGRAM], port=port, folder=folder, cores=cores, is_ready=accepts, environment=environment, mapper=mapper
        )

    def make_topic(self, server: Server, name: str, partitions: int = 1) -> None:
        with _session(server.port) as session:
            _request(session, _CREATE, _text(name) + struct.pack(">i", 0))

    def drop_topic(self, server: Server, name: str) -> None:
        with _session(server.port) as session:
            _request(session, _DELETE, _text(name))

    def version(self) -> str:
        return max(path.name.partition("-")[2] for path in _VERSIONS.glob("rabbitmq_server-*"))

    def settings(self) -> str:
        return "confirms what it has written, and leaves flushing to the system; chunks are as it wrote them"


class _ErlangServer(Server):
    """The port mapper is a process that leaves its parent, and has to be ended separately."""

    def __init__(
        self,
        command: list[str],
        *,
        port: int,
        folder: Path,
        cores: tuple[int, ...],
        is_ready: Callable[[int], bool],
        environment: Mapping[str, str],
        mapper: int,
    ) -> None:
        self._mapper = mapper
        super().__init__(command, port=port, folder=folder, cores=cores, is_ready=is_ready, environment=environment)

    def close(self) -> None:
        super().close()
        command = [path_of("epmd"), "-port", str(self._mapper), "-kill"]
        subprocess.run(command, capture_output=True, check=False)


@contextmanager
def _session(port: int) -> Iterator[Talk]:
    with talk(port) as session:
        _request(session, _PROPERTIES, struct.pack(">i", 0))
        _request(session, _HANDSHAKE, b"")
        _request(session, _AUTHENTICATE, _text("PLAIN") + struct.pack(">i", 12) + b"\0guest\0guest")
        tune = _hear(session)
        session.say(struct.pack(">I", len(tune)) + tune)
        _request(session, _OPEN, _text("/"))
        yield session


def _request(session: Talk, key: int, body: bytes) -> None:
    frame = struct.pack(">HHI", key, 1, 1) + body
    session.say(struct.pack(">I", len(frame)) + frame)
    answer = _hear(session)
    code: int = struct.unpack_from(">H", answer, 8)[0]
    if code != _OK:
        raise OSError(f"RabbitMQ refuses request {key:#x} with code {code}")


def _hear(session: Talk) -> bytes:
    return session.hear(struct.unpack(">I", session.hear(4))[0])


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
