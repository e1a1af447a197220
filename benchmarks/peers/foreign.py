"""Drives a system that is no Kafka: the protocol that the load generator speaks with it, and how its topics are
made."""

import shutil
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.systems import System

_PATIENCE_SECONDS: Final = 30.0


class Foreign(System, ABC):
    """Topics have one partition. A message is acknowledged as the system does it when it is asked to flush, or not."""

    protocol: str
    command: str
    # Whether a reader chooses how much it gets at a time.
    has_fetch_sizes: bool = True

    @abstractmethod
    def version(self) -> str:
        """As it calls itself."""

    @abstractmethod
    def settings(self) -> str:
        """What differs from its defaults, and what its acknowledgement means."""


class Talk:
    """A connection that is spoken to in turns."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = sock.makefile("rb")

    def say(self, data: bytes) -> None:
        self._sock.sendall(data)

    def hear_line(self) -> bytes:
        return self._reader.readline().rstrip(b"\r\n")

    def hear(self, size: int) -> bytes:
        return self._reader.read(size)

    def close(self) -> None:
        self._reader.close()


@contextmanager
def talk(port: int) -> Iterator[Talk]:
    with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS) as sock:
        talking = Talk(sock)
        try:
            yield talking
        finally:
            talking.close()


def first_line(*command: str) -> str:
    """What a program prints about itself."""
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    return (told.stdout or told.stderr).strip().splitlines()[0]


def path_of(command: str) -> str:
    """Where a command is that was installed."""
    return shutil.which(command) or str(Path("/usr/sbin") / command)
