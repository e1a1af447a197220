"""The tasks that a broker gives to its helper."""

from typing import Any, Final

from penstock.broker.helper.task import Task
from penstock.storage.cleaning import CleanedSegment, CleaningDone, CleaningJob, clean

CLEAN: Final[Task[CleaningJob, CleanedSegment | CleaningDone]] = Task(
    "clean", CleaningJob, (CleanedSegment, CleaningDone), clean
)

TASKS: Final[dict[str, Task[Any, Any]]] = {CLEAN.name: CLEAN}
