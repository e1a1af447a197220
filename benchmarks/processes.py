"""Runs a server under test as a process: starts it on its core, checks that its port is its own, reads its CPU and
memory."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from benchmarks.cores import on_cores

START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_TCP_LISTEN: Final = "0A"


class ServerError(Exception):
    """A server did not start, or another process has its port."""


class Server:
    """Running from the moment it is made. `is_ready` is asked until it says yes; what the server prints goes to the
    file `log` in its folder."""

    def __init__(
        self,
        command: list[str],
        *,
        port: int,
        folder: Path,
        cores: tuple[int, ...],
        is_ready: Callable[[int], bool],
        environment: Mapping[str, str] | None = None,
        has_own_session: bool = False,
    ) -> None:
        self.port = port
        self.folder = folder
        self.log_path = folder / "log"
        began = time.monotonic()
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                on_cores(command, cores),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=has_own_session,
            )
        try:
            self._wait_until(is_ready, began)
            self.start_seconds = time.monotonic() - began
            self._check_port()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop it in order, or else by force."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cpu_seconds(self) -> float:
        """Of all threads that it has, and those of its children."""
        return sum(map(_cpu_seconds, self._processes()))

    def memory_bytes(self) -> int:
        """Resident, its children's included."""
        return sum(map(_memory_bytes, self._processes()))

    def _processes(self) -> Iterator[int]:
        waiting = [self.process.pid]
        while waiting:
            pid = waiting.pop()
            yield pid
            for children in _read_all(Path(f"/proc/{pid}/task").glob("*/children")):
                waiting += map(int, children.split())

    def _wait_until(self, is_ready: Callable[[int], bool], began: float) -> None:
        while not is_ready(self.port):
            if self.process.poll() is not None:
                raise ServerError(f"the server ended with {self.process.returncode}: {self._last_words()}")
            if time.monotonic() - began > START_SECONDS:
                raise ServerError(f"the server is not ready after {START_SECONDS:.0f} s: {self._last_words()}")
            time.sleep(0.002)

    def _check_port(self) -> None:
        """A foreign server on this port would be measured in its place."""
        listening = {
            fields[9]
            for table in _read_all(map(Path, ("/proc/net/tcp", "/proc/net/tcp6")))
            for fields in map(str.split, table.splitlines()[1:])
            if fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == self.port
        }
        owned = {
            os.readlink(path).removeprefix("socket:[").removesuffix("]")
            for pid in self._processes()
            for path in Path(f"/proc/{pid}/fd").iterdir()
            if path.is_socket()
        }
        if not listening or not listening <= owned:
            raise ServerError(f"port {self.port} belongs to another process")

    def _last_words(self) -> str:
        return self.log_path.read_text(errors="replace")[-2000:].strip() or "it said nothing"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether a process accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _cpu_seconds(pid: int) -> float:
    return sum(int(told.split()[0]) for told in _read_all(Path(f"/proc/{pid}/task").glob("*/schedstat"))) / 1e9


def _memory_bytes(pid: int) -> int:
    for status in _read_all([Path(f"/proc/{pid}/status")]):
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def _read_all(paths: Iterable[Path]) -> Iterator[str]:
    """A process that ends meanwhile counts as nothing."""
    for path in paths:
        try:
            yield path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            pass
