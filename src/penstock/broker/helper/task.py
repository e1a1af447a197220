"""A helper carries out named tasks: each takes a job and yields results."""

from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from penstock.storage.files import Files

J = TypeVar("J")
R = TypeVar("R")


class Run(Protocol):
    """Carries out a job, one result at a time. It asks `should_stop` now and then, and ends early if so."""

    def __call__(self, files: Files, job: Any, *, should_stop: Callable[[], bool]) -> Iterator[Any]: ...


@dataclass(slots=True, frozen=True)
class Task(Generic[J, R]):
    """Jobs and results are dataclasses of plain values, since they travel to another process."""

    name: str
    job: type[J]
    results: tuple[type[R], ...]
    run: Run


class Helper(Protocol):
    """Runs one job at a time for the broker; the others wait, up to a bound."""

    sleeps_alone: bool
    """Whether a job that takes its time, for the sake of the disk, holds no other job up."""

    restarts: int
    """How often it had to be started anew because it had died."""

    def run(self, task: Task[J, R], job: J) -> AsyncGenerator[R, None]:
        """The results of a job as they come. A caller that stops listening closes the generator (`aclosing`); when that
        has returned, the helper is no longer at work on the job."""

    async def close(self) -> None: ...


class HelperError(Exception):
    """A job came to no end; the message says why."""


class HelperDiedError(HelperError):
    """The process went away with the job. It is started again for the next one, after a while."""


class JobFailedError(HelperError):
    """The job itself raised an error, of the class that `kind` names."""

    def __init__(self, task: str, kind: str, message: str) -> None:
        super().__init__(f"{task}: {kind}: {message}" if message else f"{task}: {kind}")
        self.kind = kind
