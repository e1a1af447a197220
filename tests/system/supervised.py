"""Several brokers under one supervisor, as an operator runs them."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

from penstock.supervisor.left_processes import read_left
from tests.system.processes import PATIENCE_SECONDS, Patience, spare_port

_READY: Final = re.compile(r"Connect any Kafka client to (\S+); data")


class SupervisorProcess:
    """`penstock serve --processes`, in a process group of its own. The log of all brokers is in a file, one JSON object
    a line."""

    def __init__(self, data: Path, ports: list[int], *options: str) -> None:
        self.data = data
        self.log_path = data.with_name(f"{data.name}-{time.monotonic_ns()}.log")
        self._log = self.log_path.open("wb")
        self.process = subprocess.Popen(
            [*command(data, ports), *options], stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
        )
        self.bootstrap = self._wait_until_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End everything that was started, whatever the test has found."""
        self.kill()
        for pid in self.pids().values():
            os.kill(pid, signal.SIGKILL)

    def pids(self) -> dict[int, int]:
        """The brokers that are alive, by their numbers."""
        return {each.node_id: each.pid for each in read_left(str(self.data))}

    def wait_for_another(self, node_id: int, pid: int) -> None:
        patience = Patience()
        while self.pids().get(node_id, pid) == pid and patience.lasts(f"broker {node_id} to be started again"):
            time.sleep(0.01)

    def press_ctrl_c(self) -> int:
        """As a terminal does: all processes of the group get the signal. Returns the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_SECONDS)
        self._close()
        return code

    def kill(self) -> None:
        """The supervisor alone, as a power switch would."""
        self.process.kill()
        self.wait()

    def lines(self, message: str) -> list[dict[str, Any]]:
        """What brokers and supervisor have logged with this message."""
        return [line for line in self._lines() if line["message"] == message]

    def errors(self) -> list[dict[str, Any]]:
        return [line for line in self._lines() if line["level"] in {"error", "critical"}]

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    def _wait_until_ready(self) -> str:
        output, shown = self.process.stdout, b""
        assert output is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (ready := _READY.search(shown.decode())) is None:
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(output.fileno(), 4096) if readable else b""
            if not more:
                self.__exit__()
                raise AssertionError(f"the brokers did not start: {shown.decode()}{self.log_path.read_text()}")
            shown += more
        return ready[1]

    def _close(self) -> None:
        self._log.close()
        if self.process.stdout is not None:
            self.process.stdout.close()


def command(data: Path, ports: list[int]) -> list[str]:
    options = ["--data-dir", str(data), "--listen", f"127.0.0.1:{','.join(map(str, ports))}", "--log-format", "json"]
    return [sys.executable, "-P", "-m", "penstock", "serve", "--processes", str(len(ports)), *options]


def spare_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(spare_port())
    return list(ports)
