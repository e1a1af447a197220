"""A child is one process of a broker, from its start to its end."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Self

from penstock.supervisor.left_processes import LeftProcess, birth_of
from penstock.supervisor.readiness import Readiness, read_readiness

PROGRAM = (sys.executable, "-P", "-m", "penstock")


class Child:
    """It begins to serve after `begin`. Its log goes where this process's goes, so that it outlives this process."""

    def __init__(self, node_id: int, process: Process) -> None:
        self.node_id = node_id
        self._process = process
        birth = birth_of(process.pid)
        # None if it has ended already.
        self.identity = None if birth is None else LeftProcess(node_id, process.pid, birth)
        self._readiness: asyncio.Future[Readiness | None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def spawn(cls, node_id: int, command: Sequence[str]) -> Self:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            # Ctrl-C reaches this process alone, which then stops its children in order.
            start_new_session=True,
        )
        return cls(node_id, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self) -> None:
        """Let the broker begin: this process has written down that it is there."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"begin\n")
        self._process.stdin.close()

    async def readiness(self) -> Readiness | None:
        """Returns what the broker reports once clients can connect; None if it has ended before."""
        return await asyncio.shield(self._readiness)

    async def wait(self) -> int:
        """Returns the exit code when the process has ended; a signal that ended it is negative."""
        code = await self._process.wait()
        await self._reading
        return code

    def stop(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                pass

    async def _read(self) -> None:
        """Find the report, and pass everything else on: a pipe that is not read would stop the broker."""
        output = self._process.stdout
        assert output is not None
        while line := await _next_line(output):
            told = None if self._readiness.done() else read_readiness(line)
            if told is None:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            else:
                self._readiness.set_result(told)
        if not self._readiness.done():
            self._readiness.set_result(None)


async def _next_line(output: asyncio.StreamReader) -> bytes:
    try:
        return await output.readline()
    except ValueError:
        # Longer than any report, and dropped by the reader.
        return b"\n"
