"""Log lines as text and as JSON."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from penstock.broker.logs import JsonFormatter, TextFormatter, set_up_logs


def record(message: str = "a %s failed", *args: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("penstock.broker.x", logging.WARNING, "x.py", 1, message, args or ("read",), None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    made.__dict__.update(fields)
    return made


def failing_record() -> logging.LogRecord:
    try:
        raise ValueError("impossible")
    except ValueError:
        made = record()
        made.exc_info = sys.exc_info()
        return made


@pytest.fixture(autouse=True)
def _leave_the_logger_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("penstock")
    before = logger.handlers, logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = before[0], before[1]
    logger.setLevel(before[2])


def test_a_line_for_people_ends_with_the_fields() -> None:
    line = TextFormatter().format(record(partition="orders-0", error="gone"))
    assert line == "2023-11-14T22:13:20.250Z warning a read failed partition=orders-0 error=gone"


def test_a_line_for_machines_is_one_json_object() -> None:
    line = JsonFormatter().format(record(partition="orders-0", bytes=5, path=io))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "penstock.broker.x",
        "message": "a read failed",
        "partition": "orders-0",
        "bytes": 5,
        "path": str(io),
    }


def test_a_line_for_machines_stays_one_line_whatever_a_field_holds() -> None:
    line = JsonFormatter().format(record(reason='two\nlines and a "quote" – über'))
    assert "\n" not in line
    assert json.loads(line)["reason"] == 'two\nlines and a "quote" – über'


def test_both_tell_the_traceback() -> None:
    assert "ValueError: impossible" in json.loads(JsonFormatter().format(failing_record()))["traceback"]
    text = TextFormatter().format(failing_record())
    assert re.search(r"a read failed\nTraceback .*ValueError: impossible", text, re.DOTALL)


@pytest.mark.parametrize("as_json", [True, False])
def test_all_of_penstocks_lines_go_to_the_stream_from_the_level_on(as_json: bool) -> None:
    stream = io.StringIO()
    set_up_logs(stream, as_json=as_json, level="warning")
    logging.getLogger("penstock.broker.connection").warning("closed", extra={"peer": "10.0.0.1:5"})
    logging.getLogger("penstock.broker.connection").info("not told")
    logging.getLogger("somebody.else").warning("not ours")
    [line] = stream.getvalue().splitlines()
    if as_json:
        assert json.loads(line)["peer"] == "10.0.0.1:5"
    else:
        assert line.endswith("closed peer=10.0.0.1:5")


def test_setting_up_twice_does_not_write_lines_twice() -> None:
    first, second = io.StringIO(), io.StringIO()
    set_up_logs(first, as_json=False, level="info")
    set_up_logs(second, as_json=False, level="info")
    logging.getLogger("penstock").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
