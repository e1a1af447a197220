"""The loop's side of the helper process starts it for the first job, and starts it again when it has died."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from itertools import count
from typing import Final

import msgspec

from penstock.broker.helper import frames
from penstock.broker.helper.frames import Cancel, Done, Failed, FrameError, Order, Result
from penstock.broker.helper.task import HelperDiedError, HelperError, J, JobFailedError, R, Task

log = logging.getLogger(__name__)

TASKS_MODULE: Final = "penstock.broker.helper.tasks"
# Jobs that may wait for the one that is under way.
MAX_WAITING: Final = 16
# A job looks often whether it has to stop; a helper that takes longer than this is killed.
STOP_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 2.0
# By default the helper takes the processor time that nothing else wants.
NICENESS: Final = 10
# After a death the next start waits, each time twice as long, until a job has come to its end.
FIRST_REST_SECONDS: Final = 1.0
LONGEST_REST_SECONDS: Final = 60.0
# Bytes of the helper's standard error that go to the log.
MAX_LOG_LINES: Final = 200
_PIPE_BYTES: Final = 64 * 1024


class HelperProcess:
    """`run` jobs, then `close`. It never keeps the loop waiting: all that is awaited is the pipes."""

    def __init__(self, tasks_module: str = TASKS_MODULE, *, niceness: int = NICENESS) -> None:
        self._tasks_module = tasks_module
        self._niceness = niceness
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._numbers = count(1)
        self._process: Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._rest_seconds = 0.0
        self._is_closed = False
        self.sleeps_alone = True
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The id of the process, while there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, task: Task[J, R], job: J) -> AsyncGenerator[R, None]:
        await self._take_turn()
        try:
            number = next(self._numbers)
            # A job that cannot be sent was never under way.
            order = _frame(Order(number, task.name, msgspec.Raw(msgspec.msgpack.encode(job))))
            process = await self._running()
            is_under_way = True
            try:
                await self._send(process, order)
                while True:
                    answer = await self._receive(process)
                    match answer:
                        case Result():
                            yield msgspec.msgpack.decode(answer.body, type=task.results[answer.kind])
                        case Done():
                            is_under_way = False
                            self._rest_seconds = 0.0
                            return
                        case Failed():
                            is_under_way = False
                            self._rest_seconds = 0.0
                            log.debug("a job failed", extra={"task": task.name, "traceback": answer.traceback})
                            raise JobFailedError(task.name, answer.kind, answer.error)
            finally:
                # The caller has stopped listening, or the helper has died: then there is nothing to cancel.
                if is_under_way and self._process is process:
                    await self._cancel(process, number)
        finally:
            self._turn.release()

    async def close(self) -> None:
        """End the process, whatever it is doing."""
        self._is_closed = True
        await self._end()

    # One after the other

    async def _take_turn(self) -> None:
        if self._is_closed:
            raise HelperError("the broker is stopping")
        if self._waiting >= MAX_WAITING:
            raise HelperError(f"{self._waiting} jobs wait already: try again later")
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1

    # The process

    async def _running(self) -> Process:
        if self._process is not None and self._process.returncode is not None:
            # It died while it had nothing to do.
            await self._died()
        if self._process is not None:
            return self._process
        if self._rest_seconds:
            await asyncio.sleep(self._rest_seconds)
        if self._is_closed:
            raise HelperError("the broker is stopping")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command(self._tasks_module, self._niceness),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                limit=_PIPE_BYTES,
                env=environment(),
                # A session of its own: Ctrl-C on the terminal is for the broker alone.
                start_new_session=True,
            )
        except OSError as error:
            self._rest_longer()
            raise HelperError(f"the helper process cannot be started: {error}") from error
        self._listening = asyncio.create_task(_log_errors(self._process), name="penstock-helper-log")
        log.debug("helper started", extra={"pid": self._process.pid})
        return self._process

    async def _send(self, process: Process, frame: bytes) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(frame)
            await process.stdin.drain()
        except OSError:
            raise HelperDiedError(await self._died()) from None

    async def _receive(self, process: Process) -> Result | Done | Failed:
        assert process.stdout is not None
        try:
            size = frames.length(await process.stdout.readexactly(frames.LENGTH.size), frames.MAX_ANSWER_BYTES)
            return frames.read_answer(await process.stdout.readexactly(size))
        except (EOFError, OSError):
            raise HelperDiedError(await self._died()) from None
        except FrameError as error:
            raise HelperDiedError(f"{await self._died()}: {error}") from None

    async def _cancel(self, process: Process, number: int) -> None:
        """Wait until the helper has stopped the job; one that does not listen is killed."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._send(process, _frame(Cancel(number)))
                while isinstance(await self._receive(process), Result):
                    pass
        except HelperError:
            pass
        except BaseException as error:
            await self._end()
            if not isinstance(error, TimeoutError):
                raise

    async def _died(self) -> str:
        """Take note of the helper's death; returns what is known of it."""
        process = self._process
        if process is None or self._is_closed:
            return "the helper process was stopped"
        await self._end()
        self.restarts += 1
        self._rest_longer()
        code = process.returncode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        log.warning("the helper died", extra={"pid": process.pid, "code": code, "rest_seconds": self._rest_seconds})
        return f"the helper process ended {how}; it is started again for the next job"

    def _rest_longer(self) -> None:
        self._rest_seconds = min(max(FIRST_REST_SECONDS, self._rest_seconds * 2), LONGEST_REST_SECONDS)

    async def _end(self) -> None:
        """Close the helper's input, which ends it in the midst of a job; kill it if that takes too long. Its pipes are
        read to their ends, or they would stay open."""
        process, self._process = self._process, None
        listening, self._listening = self._listening, None
        if process is None or process.stdin is None or process.stdout is None:
            return
        process.stdin.close()
        killing = asyncio.get_running_loop().call_later(CLOSE_SECONDS, _kill, process)
        try:
            while await process.stdout.read(_PIPE_BYTES):
                pass
            await process.wait()
            if listening is not None:
                await listening
        except BaseException:
            _kill(process)
            raise
        finally:
            killing.cancel()


def command(tasks_module: str, niceness: int = NICENESS) -> list[str]:
    return [sys.executable, "-P", "-m", "penstock.broker.helper.program", tasks_module, str(niceness)]


def environment() -> dict[str, str]:
    """The helper finds the modules that this process does, wherever that has them from."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def _frame(message: msgspec.Struct) -> bytes:
    try:
        return frames.write(message)
    except FrameError as error:
        raise HelperError(str(error)) from None


def _kill(process: Process) -> None:
    # `process.kill` would first look whether the process has ended, and take that news from asyncio, which needs it.
    if process.returncode is None:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


async def _log_errors(process: Process) -> None:
    assert process.stderr is not None
    lines, rest = 0, b""
    while chunk := await process.stderr.read(_PIPE_BYTES):
        *complete, rest = (rest + chunk).split(b"\n")
        for line in [*complete, rest] if len(rest) >= _PIPE_BYTES else complete:
            lines += 1
            if lines <= MAX_LOG_LINES:
                text = line.decode(errors="replace")[:1000]
                log.warning("the helper says", extra={"pid": process.pid, "line": text})
        rest = b"" if len(rest) >= _PIPE_BYTES else rest
