"""Brokers as processes of their own, as an operator runs them, and what the operating system says about them."""

import json
import os
import random
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

PATIENCE_SECONDS: Final = 60.0
"""A machine that is busy with other things may be slow; only a broker that hangs reaches this."""

_SERVE = (sys.executable, "-c", "from penstock.cli.main import main; main()", "serve")
_READY = re.compile(r"Connect any Kafka client to (\S+):(\d+);")


class BrokerProcess:
    """`penstock serve` on a port of its own choice. Its log lines are in a file, one JSON object each."""

    def __init__(self, data_dir: Path, *options: str, open_files: int | None = None) -> None:
        """`open_files` is how many descriptors it may have unless it asks for more."""
        self.log_path = data_dir.with_name(f"{data_dir.name}-{time.monotonic_ns()}.log")
        self._log = self.log_path.open("wb")
        began = time.monotonic()
        self.process = subprocess.Popen(
            [*_command(data_dir, *options), "--log-format", "json"],
            stdout=subprocess.PIPE,
            stderr=self._log,
            # The child only lowers a limit of its own before it becomes the broker.
            preexec_fn=None if open_files is None else lambda: _limit_open_files(open_files),  # noqa: PLW1509
        )
        self.address = self._wait_until_ready()
        self.seconds_to_start = time.monotonic() - began
        self.started = self.lines("started")[-1]
        self.port = int(self.started["ports"]["PLAINTEXT"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def own_address(self) -> tuple[str, int]:
        """Where it listens, whatever it tells clients to connect to."""
        return "127.0.0.1", self.port

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code, once the process has ended."""
        code = self.process.wait(PATIENCE_SECONDS)
        self._close()
        return code

    def stop(self) -> int:
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """At once, as a power switch would; nothing happens if it has ended already."""
        self.process.kill()
        self.wait()

    def lines(self, message: str | None = None) -> list[dict[str, Any]]:
        """What it has logged, or only the lines with this message."""
        found = []
        for line in self.log_path.read_text().splitlines():
            assert line.startswith("{"), f"no structured log line: {self.log_path.read_text()[:4000]}"
            found.append(json.loads(line))
        return [line for line in found if message in (None, line["message"])]

    def problems(self) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["level"] not in ("debug", "info")]

    # What the operating system knows

    def memory_bytes(self, what: str = "VmRSS") -> int:
        """VmRSS is what it uses now, VmHWM the most that it ever used."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"there is no {what}")

    def cpu_seconds(self) -> float:
        """Of all its threads, in all."""
        return sum(
            int((task / "schedstat").read_text().split()[0]) / 1e9 for task in Path(f"/proc/{self.pid}/task").iterdir()
        )

    def _wait_until_ready(self) -> tuple[str, int]:
        output, shown = self.process.stdout, b""
        assert output is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (ready := _READY.search(shown.decode())) is None:
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(output.fileno(), 4096) if readable else b""
            if not more:
                self.kill()
                raise AssertionError(f"the broker did not start: {shown.decode()}{self.log_path.read_text()}")
            shown += more
        return ready[1], int(ready[2])

    def _close(self) -> None:
        self._log.close()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _limit_open_files(soft: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def run_to_its_end(data_dir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A broker that is expected to refuse to start."""
    return subprocess.run(
        _command(data_dir, *options),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def kill_while_it_starts(data_dir: Path, *options: str, after_seconds: float) -> None:
    """A broker that is not given the time to come up, or hardly."""
    process = subprocess.Popen(_command(data_dir, *options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        code = process.wait(after_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE_SECONDS)
    else:
        raise AssertionError(f"the broker ended by itself, with code {code}")


def _command(data_dir: Path, *options: str) -> list[str]:
    return [*_SERVE, "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", *options]


def spare_port() -> int:
    """One for a broker that comes and goes: the operating system gives it to nobody else meanwhile. From its own choice
    a client that connects in vain may even get that port itself, and be connected to itself."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(max(1024, first - 10_000), first)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Patience:
    """Ends a loop that waits for something in vain."""

    def __init__(self, seconds: float = PATIENCE_SECONDS) -> None:
        self._deadline = time.monotonic() + seconds

    def lasts(self, what: str) -> bool:
        assert time.monotonic() < self._deadline, f"waited in vain for {what}"
        return True
