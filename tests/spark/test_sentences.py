"""How Spark reports an error of ours: as a worker of PySpark writes it to the JVM."""

import io
import os

import pytest
from pyspark.util import handle_worker_exception

from penstock.spark.options import OptionsError, read_options
from penstock.spark.sentences import HIDES_TRACEBACK, is_ours, sentence_first
from penstock.spark.tasks import sentence_of


@sentence_first()
def refuse() -> None:
    read_options({"kafka.bootstrap.servers": "a:1", "subscripe": "orders"})


@sentence_first()
def fail() -> None:
    raise KeyError("a bug")


def reported(call: object) -> str:
    """What a worker in which the call fails tells the JVM."""
    written = io.BytesIO()
    try:
        call()  # type: ignore[operator]
    except Exception as error:
        handle_worker_exception(error, written)
    return written.getvalue()[8:].decode()


@pytest.fixture
def _worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    monkeypatch.setenv(HIDES_TRACEBACK, "")


@pytest.mark.usefixtures("_worker")
def test_an_error_of_the_source_is_a_sentence_first_and_the_details_come_after_it() -> None:
    first, *details = reported(refuse).splitlines()
    assert first.startswith("penstock.spark.options.OptionsError: subscripe is no option of the source: did you mean")
    assert details[0] == "Traceback (most recent call last):"
    assert any("in _refuse_unknown" in line for line in details)
    assert sentence_of(reported(refuse)).startswith("subscripe is no option")


@pytest.mark.usefixtures("_worker")
def test_an_error_that_is_not_ours_is_reported_as_spark_does_it() -> None:
    assert reported(fail).startswith("Traceback (most recent call last):")
    assert not os.environ[HIDES_TRACEBACK]
    assert not is_ours(ValueError())


def test_outside_of_a_worker_an_error_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PYTHON_WORKER_FACTORY_")]:
        monkeypatch.delenv(name)
    with pytest.raises(OptionsError) as raised:
        refuse()
    assert not hasattr(raised.value, "__notes__")
    assert HIDES_TRACEBACK not in os.environ
