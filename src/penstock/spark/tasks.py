"""`run_tasks` runs a list of work items on Spark, each in a task of its own, reports progress and cancels the tasks
when the user interrupts it."""

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
"""How often progress is reported."""


class TaskFailedError(Exception):
    """A task failed in every attempt of Spark; the message is that of its last error."""


def run_tasks(
    spark: "SparkSession",
    name: str,
    items: Sequence[T],
    work: Callable[[T], R],
    *,
    counted: Callable[[R], int] = lambda _: 1,
    watch: Callable[[int], None] = lambda _: None,
) -> list[R]:
    """Return the result of `work` for each item, in their order. `watch` is called now and then with the sum of
    `counted` over the tasks that are done. The first error that outlasts Spark's retries is raised; an interrupt
    cancels the rest."""
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

    # Spark's calls block, and an interrupt would have to wait for them.
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
    """The error of the task itself, without the JVM's wrapping."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JJavaError | PySparkException):
        return error
    failed = TaskFailedError(sentence_of(str(error)))
    failed.__cause__ = error
    return failed


def sentence_of(text: str) -> str:
    """What was wrong, out of all that Spark reports about it: the message of the last Python error, else of the first
    Java exception, else the first line."""
    if (message := message_of(text)) is not None:
        return message
    # Py4J says first which of its objects was called, and names the exception after a colon.
    _, found, java = text.partition("\n: ")
    line = (java if found else text).strip().partition("\n")[0]
    return _JAVA_CLASS.sub("", line)


def message_of(text: str) -> str | None:
    """The message of the last Python error in what Spark reports about a failed job; None if there is none."""
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


_JAVA_CLASS: Final = re.compile(r"^(?:[a-z_]\w*\.)+[A-Z][\w$]*: ")


def _inheriting(run: Callable[[], None]) -> threading.Thread:
    from pyspark import InheritableThread

    thread: Any = InheritableThread(target=run, daemon=True)
    return thread  # type: ignore[no-any-return]


def attempt_number() -> int:
    """A number that is unique among all attempts at tasks of the session; 0 outside of tasks."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())
