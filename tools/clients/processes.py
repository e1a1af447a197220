"""Runs other programs: to their end within a bounded time, for as long as a block lasts, or in a dialogue."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

STOP_SECONDS = 20
TOLD_LINES = 20
MAX_LINE_BYTES = 64 * 1024 * 1024


class OutsideError(Exception):
    """Something outside failed: a program, a download, a client or a broker."""


async def run(
    command: Sequence[str],
    *,
    seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    heard: Callable[[str], Awaitable[None]] | None = None,
) -> bytes:
    """What a program prints. If it fails or takes too long, the error holds the end of what it complained about.
    `heard` gets every line of its complaints when it comes."""
    process = await _start(
        command, folder, environment, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            reading = group.create_task(process.stdout.read())
            complaints = await _listen(process.stderr, heard)
            output = await reading
            await process.wait()
    except TimeoutError:
        raise OutsideError(f"{_told(command)} was not done after {seconds:.0f} s") from None
    finally:
        await _stop(process, grace_seconds=0)
    if process.returncode:
        raise OutsideError(f"{_told(command)} failed:\n{last_lines(complaints or output)}")
    return output


@asynccontextmanager
async def running(command: Sequence[str], *, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that runs until the block ends; then it is asked to stop, and made to if it does not."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        await _stop(process, grace_seconds=STOP_SECONDS)


class Conversation:
    """A program that takes a JSON object in a line and answers with one or more; the first line that it prints says
    what it is."""

    def __init__(self, command: Sequence[str], process: asyncio.subprocess.Process, complaints: IO[bytes]) -> None:
        self.greeting: dict[str, Any] = {}
        self._command = command
        self._process = process
        self._complaints = complaints

    @classmethod
    @asynccontextmanager
    async def open(
        cls, command: Sequence[str], *, seconds: float, folder: Path, environment: Mapping[str, str]
    ) -> AsyncIterator["Conversation"]:
        with tempfile.TemporaryFile() as complaints:
            process = await _start(
                command, folder, environment, stdin=asyncio.subprocess.PIPE, stderr=complaints.fileno()
            )
            conversation = cls(command, process, complaints)
            try:
                async with asyncio.timeout(seconds):
                    conversation.greeting = await conversation.hear()
                yield conversation
            finally:
                assert process.stdin is not None
                process.stdin.close()
                await _stop(process, grace_seconds=STOP_SECONDS)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def kill(self) -> None:
        """At once; what it has said until then can still be heard."""
        await _stop(self._process, grace_seconds=0)

    async def say(self, words: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError:
            raise self._failure("no longer listens") from None

    async def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except asyncio.CancelledError:
            # What comes late would be taken for the answer to the next question.
            self._process.kill()
            raise
        try:
            heard = json.loads(line)
        except ValueError:
            raise self._failure(f"said {line[:200]!r}, which is no JSON object") from None
        assert isinstance(heard, dict)
        return heard

    def _failure(self, what: str) -> OutsideError:
        self._complaints.seek(0)
        return OutsideError(f"{_told(self._command)} {what}:\n{last_lines(self._complaints.read())}")


def last_lines(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").splitlines()[-TOLD_LINES:])


async def _start(
    command: Sequence[str],
    folder: Path | None,
    environment: Mapping[str, str] | None,
    *,
    stdin: int,
    stderr: int,
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise OutsideError(f"{command[0]} is not installed: `tools/setup_debian.sh {command[0]}` does it") from None


async def _listen(stream: asyncio.StreamReader, heard: Callable[[str], Awaitable[None]] | None) -> bytes:
    lines = []
    async for line in stream:
        lines.append(line)
        if heard is not None:
            await heard(line.decode(errors="replace"))
    return b"".join(lines)


def _told(command: Sequence[str]) -> str:
    return " ".join(command) if len(command) <= 4 else f"{' '.join(command[:4])} …"


async def _stop(process: asyncio.subprocess.Process, *, grace_seconds: float) -> None:
    """End a process that may have children; it leads a process group of its own, so that no other process is hit."""
    if process.returncode is None and grace_seconds:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), grace_seconds)
        except TimeoutError:
            pass
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await process.wait()
