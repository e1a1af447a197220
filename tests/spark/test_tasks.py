"""Work on Spark: results in order, what is told meanwhile, and how it ends."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.tasks import TaskFailedError, attempt_number, message_of, run_tasks, sentence_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_results_come_in_the_order_of_the_items(spark: "SparkSession") -> None:
    assert run_tasks(spark, "square", list(range(7)), lambda number: number * number) == [0, 1, 4, 9, 16, 25, 36]
    assert run_tasks(spark, "nothing", [], lambda number: number) == []


def test_whoever_watches_is_told_what_is_done(spark: "SparkSession") -> None:
    told: list[int] = []
    run_tasks(spark, "count", [1, 2, 3], lambda number: number, counted=lambda number: number * 10, watch=told.append)
    assert told[-1] == 60
    assert told == sorted(told)


def test_an_error_of_a_task_is_told_without_the_jvms_part(spark: "SparkSession") -> None:
    def fail(number: int) -> int:
        if number == 1:
            raise ValueError("offsets 5 to 7 are gone: go on without them")
        return number

    with pytest.raises(TaskFailedError) as caught:
        run_tasks(spark, "fail", [0, 1], fail)
    assert str(caught.value) == "offsets 5 to 7 are gone: go on without them"


def test_a_task_that_fails_once_is_tried_again(spark: "SparkSession", tmp_path: Path) -> None:
    marker = tmp_path / "tried"

    def fail_once(number: int) -> tuple[int, int]:
        if not marker.exists():
            marker.touch()
            raise OSError("not this time")
        return number, attempt_number()

    assert [number for number, _ in run_tasks(spark, "fail once", [5], fail_once)] == [5]


def test_two_attempts_never_have_the_same_number(spark: "SparkSession") -> None:
    assert attempt_number() == 0
    numbers = [*run_tasks(spark, "a", [0] * 4, lambda _: attempt_number())]
    numbers += run_tasks(spark, "b", [0] * 4, lambda _: attempt_number())
    assert len(set(numbers)) == 8


def test_an_interrupt_cancels_what_runs(spark: "SparkSession", tmp_path: Path) -> None:
    def wait(_: int) -> None:
        (tmp_path / "begun").touch()
        time.sleep(3600)

    def interrupt(_: int) -> None:
        if (tmp_path / "begun").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks(spark, "wait", [0], wait, watch=interrupt)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_what_is_no_error_of_python_has_no_message_of_one() -> None:
    assert message_of("Job aborted: the executor was lost\n\tat org.apache.spark") is None
    assert message_of("Traceback (most recent call last):\n  File x\n\tat org.apache") is None
    chained = "Traceback (most recent call last):\n  File x\nKeyError: 1\n\nand so\n\n"
    assert (
        message_of(f"{chained}Traceback (most recent call last):\n  File y\na.B: one\ntwo\n SQLSTATE: 1") == "one\ntwo"
    )
    assert message_of("Traceback (most recent call last):\n  File y\nStopIteration\n\tat org") == "StopIteration"


def test_an_error_of_java_is_told_without_what_py4j_and_java_say_around_it() -> None:
    text = "An error occurred while calling o67.collect.\n: org.apache.spark.SparkException: Job aborted: lost\n\tat a"
    assert sentence_of(text) == "Job aborted: lost"
    assert sentence_of("[X] It is: so\nmore") == "[X] It is: so"
    assert sentence_of(f"{text}\nTraceback (most recent call last):\n  File y\na.B: one") == "one"
