"""Tasks that count, fail, hang and die, for the tests of helpers."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.broker.helper.task import Task
from penstock.storage.files import Files


@dataclass(slots=True, frozen=True)
class Count:
    """Counts up to a number; with -1 for ever, telling the first number only."""

    up_to: int = 0
    dies_at: int = -1
    fails_at: int = -1
    ignores_stop: bool = False
    padding: int = 0
    says: str = ""


@dataclass(slots=True, frozen=True)
class Number:
    value: int
    pid: int
    niceness: int
    padding: bytes = b""


@dataclass(slots=True, frozen=True)
class Total:
    value: int
    was_stopped: bool


def count(files: Files, job: Count, *, should_stop: Callable[[], bool]) -> Iterator[Number | Total]:
    assert files is not None
    if job.says:
        sys.stdout.write(job.says + "\n")
        sys.stdout.flush()
    number = 0
    while number != job.up_to:
        if should_stop() and not job.ignores_stop:
            yield Total(number, True)
            return
        if number == job.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == job.fails_at:
            raise ValueError(f"{number} is too much")
        if job.up_to < 0 and number > 0:
            # Whoever waits for this one to end takes a while to say so.
            time.sleep(0.001)
        else:
            yield Number(number, os.getpid(), os.nice(0), bytes(job.padding))
        number += 1
    yield Total(number, False)


COUNT: Final[Task[Count, Number | Total]] = Task("count", Count, (Number, Total), count)
TASKS: Final = {COUNT.name: COUNT}
