"""Starts Redis Streams, with a stream for each topic, an entry for each message, and an append-only file."""

import time
from pathlib import Path
from typing import Final

from benchmarks.peers.foreign import Foreign, Talk, first_line, path_of, talk
from benchmarks.processes import Server, free_port

_CRLF: Final = b"\r\n"


class Redis(Foreign):
    name = "Redis Streams"
    protocol = "redis"
    command = "redis-server"

    def __init__(self, *, flush: bool) -> None:
        self._policy = "always" if flush else "everysec"

    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        port = free_port()
        # Nothing is done besides: no snapshots, and the file is rewritten between measurements, when a topic goes.
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._policy,
            "auto-aof-rewrite-percentage": "0",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        return Server([path_of(self.command), *arguments], port=port, folder=folder, cores=cores, is_ready=_answers)

    def make_topic(self, server: Server, name: str, partitions: int = 1) -> None:
        """The first entry makes the stream."""

    def drop_topic(self, server: Server, name: str) -> None:
        with talk(server.port) as redis:
            _ask(redis, "DEL", name)
            _ask(redis, "BGREWRITEAOF")
            while any(
                f"{what}:1".encode() in _ask(redis, "INFO", "persistence")
                for what in ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
            ):
                time.sleep(0.01)

    def version(self) -> str:
        return first_line(path_of(self.command), "--version").partition("v=")[2].partition(" ")[0]

    def settings(self) -> str:
        return f"appendonly, appendfsync {self._policy}, no snapshots, no rewriting while it is measured"


def _answers(port: int) -> bool:
    try:
        with talk(port) as redis:
            return _ask(redis, "PING") == b"PONG"
    except OSError:
        return False


def _ask(redis: Talk, *words: str) -> bytes:
    """A command with a simple reply."""
    redis.say(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words))
    line = redis.hear_line()
    if line.startswith(b"-"):
        raise OSError(f"Redis says: {line.decode()}")
    return redis.hear(int(line[1:]) + len(_CRLF)) if line.startswith(b"$") else line[1:]
