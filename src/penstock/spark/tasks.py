"""Work on Spark: a list of things to do, each in a task of its own, watched while it runs and cancelled when the user
has enough."""

import re
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.spark.workers import pass_over_imports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

LOOK_SECONDS: Final = 0.2
"""How often whoever watches is told."""


class TaskFailedError(Exception):
    """A task failed, as often as Spark has tried it; the message is that of its last error."""


def run_tasks(
    spark: "SparkSession",
    name: str,
    items: Sequence[T],
    work: Callable[[T], R],
    *,
    counted: Callable[[R], int] = lambda _: 1,
    watch: Callable[[int], None] = lambda _: None,
) -> list[R]:
    """What `work` makes of each item, in their order. `watch` is told now and then what `counted` gives for the tasks
    that are done, in sum. The first error that Spark's retries do not help is raised; an interrupt cancels the rest."""
    if not items:
        return []
    context = spark.sparkContext
    group = f"penstock-{uuid.uuid4()}"
    total = context.accumulator(0)
    results: list[R] = []
    errors: list[BaseException] = []

    def task(item: T) -> R:
        result = work(item)
        total.add(counted(result))
        pass_over_imports()
        return result

    def run() -> None:
        try:
            context.setJobGroup(group, name, interruptOnCancel=True)
            results.extend(context.parallelize(items, len(items)).map(task).collect())
        except BaseException as error:
            errors.append(error)

    # Spark's calls block, and an interrupt would wait for them.
    thread = _inheriting(run)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            watch(total.value)
    except BaseException:
        context.cancelJobGroup(group)
        thread.join()
        raise
    if errors:
        raise _failure(errors[0])
    return results


def _failure(error: BaseException) -> BaseException:
    """What went wrong in the task, without the way it has taken through the JVM."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JJavaError | PySparkException):
        return error
    text = str(error)
    failed = TaskFailedError(message_of(text) or text.splitlines()[0])
    failed.__cause__ = error
    return failed


def message_of(text: str) -> str | None:
    """The message of the last Python error in what Spark tells about a failed job; None if there is none."""
    _, found, trace = text.rpartition("Traceback (most recent call last):")
    if not found:
        return None
    lines = re.split(r"\n SQLSTATE|\n\tat ", trace)[0].splitlines()[1:]
    # Frames are indented, the error is not, and its message may have further lines.
    end = next((number for number, line in enumerate(lines) if line[:1].strip()), None)
    if end is None:
        return None
    name, _, message = "\n".join(lines[end:]).strip().partition(": ")
    return message or name


def _inheriting(run: Callable[[], None]) -> threading.Thread:
    from pyspark import InheritableThread

    thread: Any = InheritableThread(target=run, daemon=True)
    return thread  # type: ignore[no-any-return]


def attempt_number() -> int:
    """A number that no other attempt at any task of the session has; 0 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())
