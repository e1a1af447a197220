"""Starts NATS JetStream, with a stream for each topic, in files."""

import json
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.foreign import Foreign, first_line, path_of, talk
from benchmarks.processes import Server, accepts, free_port

_INBOX: Final = "_INBOX.bench"
_CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"lang":"python","version":"1"}\r\n'


class Nats(Foreign):
    name = "NATS JetStream"
    protocol = "nats"
    command = "nats-server"

    def __init__(self, *, flush: bool) -> None:
        self._flush = flush

    def can_flush(self) -> bool:
        """Before each acknowledgement; a setting since 2.10."""
        major, minor, *_ = self.version().split(".")
        return (int(major), int(minor)) >= (2, 10)

    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        port = free_port()
        config = folder / "nats.conf"
        sync = ", sync_interval: always" if self._flush else ""
        config.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}", max_file: 100GB{sync} }}\n')
        command = [path_of(self.command), "-c", str(config)]
        return Server(command, port=port, folder=folder, cores=cores, is_ready=accepts)

    def make_topic(self, server: Server, name: str, partitions: int = 1) -> None:
        config = {"name": name, "subjects": [name], "storage": "file", "retention": "limits", "num_replicas": 1}
        _ask(server.port, f"$JS.API.STREAM.CREATE.{name}", config)

    def drop_topic(self, server: Server, name: str) -> None:
        _ask(server.port, f"$JS.API.STREAM.DELETE.{name}", {})

    def version(self) -> str:
        return first_line(path_of(self.command), "--version").rpartition("v")[2]

    def settings(self) -> str:
        if self._flush:
            return "file storage, one replica, sync_interval always"
        return "file storage, one replica; acknowledges what it has written and flushes it every two minutes"


def _ask(port: int, subject: str, body: dict[str, Any]) -> None:
    """A request to JetStream's API."""
    data = json.dumps(body).encode()
    with talk(port) as nats:
        nats.say(_CONNECT + f"SUB {_INBOX} 1\r\nPUB {subject} {_INBOX} {len(data)}\r\n".encode() + data + b"\r\n")
        line = nats.hear_line()
        while not line.startswith(b"MSG "):
            if line.startswith(b"-ERR") or not line:
                raise OSError(f"NATS says: {line.decode()}")
            line = nats.hear_line()
        answer = json.loads(nats.hear(int(line.split()[-1])))
    if error := answer.get("error"):
        raise OSError(f"NATS says: {error}")
