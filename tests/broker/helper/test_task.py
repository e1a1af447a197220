"""A task, by which both sides know what a job and its results are."""

from penstock.broker.helper.task import HelperDiedError, HelperError, JobFailedError
from tests.broker.helper.sample_tasks import COUNT, Count, Number, Total


def test_a_task_knows_its_job_and_the_types_of_its_results() -> None:
    assert (COUNT.name, COUNT.job, COUNT.results) == ("count", Count, (Number, Total))


def test_whoever_does_not_care_why_a_job_failed_catches_one_error() -> None:
    assert issubclass(HelperDiedError, HelperError)
    assert issubclass(JobFailedError, HelperError)


def test_a_job_that_failed_says_what_and_with_which_error() -> None:
    error = JobFailedError("clean", "OSError", "no such file")
    assert (str(error), error.kind) == ("clean: OSError: no such file", "OSError")
    assert str(JobFailedError("clean", "MemoryError", "")) == "clean: MemoryError"
