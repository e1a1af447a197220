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
    loggers = [logging.getLogger(name) for name in ("penstock", "asyncio")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


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
    assert re.search(r"a read failed\n    Traceback .*\n    ValueError: impossible", text, re.DOTALL)


FORGED = "\n2026-01-01T00:00:00.000Z info    started node_id=0"


@pytest.mark.parametrize("sly", [FORGED, "\x1b[2J", "\x9b2J", "\u2028", "\x85", "\r", "\u202e", "\ud800"])
@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_nothing_in_a_field_or_a_message_makes_a_line_or_is_obeyed_by_a_terminal(
    formatter: logging.Formatter, sly: str
) -> None:
    assert formatter.format(record("by %s", sly, client_id=f"x{sly}", path=Sly(sly))).isprintable()


class Sly:
    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def test_a_value_cannot_pass_for_another_field() -> None:
    line = TextFormatter().format(record(client_id='x peer=10.0.0.9:1 "', peer="10.0.0.1:5", empty=""))
    assert line.endswith(r'client_id="x peer=10.0.0.9:1 \"" peer=10.0.0.1:5 empty=""')


def test_the_text_of_an_error_makes_no_line_of_the_log() -> None:
    try:
        raise ValueError(f"no such group: {FORGED}\x1b[2J")
    except ValueError:
        made = record()
        made.exc_info = sys.exc_info()
    first, *others = TextFormatter().format(made).split("\n")
    assert first.endswith("warning a read failed")
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert JsonFormatter().format(made).isprintable()


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_what_is_long_is_cut(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("v" * 1_000_000)
    except ValueError:
        made = record("m" * 1_000_000 + "%s", "x", client_id="c" * 1_000_000, path=Sly("p" * 1_000_000))
        made.exc_info = sys.exc_info()
    assert len(formatter.format(made)) < 28_000


@pytest.mark.parametrize("as_json", [True, False])
def test_all_of_penstocks_lines_go_to_the_stream_from_the_level_on(as_json: bool) -> None:
    stream = io.StringIO()
    set_up_logs(stream, as_json=as_json, level="warning")
    logging.getLogger("penstock.broker.network.connection").warning("closed", extra={"peer": "10.0.0.1:5"})
    logging.getLogger("penstock.broker.network.connection").info("not told")
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


def test_what_asyncio_complains_about_is_a_line_like_the_others() -> None:
    stream = io.StringIO()
    set_up_logs(stream, as_json=True, level="debug")
    logging.getLogger("asyncio").debug("not told")
    logging.getLogger("asyncio").error("a callback failed")
    assert json.loads(stream.getvalue())["message"] == "a callback failed"


def test_lines_of_brokers_that_share_a_log_have_the_number_of_the_broker() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        made = record("%s", "failed")
        made.exc_info = sys.exc_info()
    assert all(line.startswith("broker 2 | ") for line in TextFormatter(2).format(made).split("\n"))
    assert json.loads(JsonFormatter(2).format(made))["broker"] == 2
    assert "broker" not in json.loads(JsonFormatter().format(made))
