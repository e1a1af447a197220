"""These tasks are what a broker gives to its helper."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.helper.task import Task
from penstock.protocol.batch import read_header
from penstock.protocol.errors import DecodeError
from penstock.protocol.record_checks import Findings, check_records, payload
from penstock.storage.compaction.clean import CleanedSegment, CleaningDone, CleaningJob, clean
from penstock.storage.files import Files

CLEAN: Final[Task[CleaningJob, CleanedSegment | CleaningDone]] = Task(
    "clean", CleaningJob, (CleanedSegment, CleaningDone), clean
)


@dataclass(slots=True)
class CheckingJob:
    """A batch whose records are to be looked at."""

    batch: bytes


def check(files: Files, job: CheckingJob, *, should_stop: Callable[[], bool]) -> Iterator[Findings]:
    header = read_header(job.batch)
    try:
        yield check_records(header, payload(header, job.batch))
    except DecodeError as error:
        yield Findings(str(error))


CHECK: Final[Task[CheckingJob, Findings]] = Task("check", CheckingJob, (Findings,), check)

TASKS: Final[dict[str, Task[Any, Any]]] = {task.name: task for task in (CLEAN, CHECK)}
