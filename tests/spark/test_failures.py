"""What a user can do something about."""

from penstock.spark.failures import FAILURES
from penstock.spark.lake.archiving import LostRecordsError
from penstock.spark.lake.lake import OverlapError


def test_failures_are_those_of_pipelines_and_no_bugs() -> None:
    assert issubclass(LostRecordsError, FAILURES)
    assert issubclass(OverlapError, FAILURES)
    assert not issubclass(AssertionError, FAILURES)
    assert not issubclass(KeyError, FAILURES)
