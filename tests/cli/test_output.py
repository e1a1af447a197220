"""Tables, JSON, and what cells look like."""

import json
import math
import re
import sys
from collections.abc import Callable

import pytest

from penstock.cli import output
from penstock.cli.output import (
    Duration,
    Rate,
    Size,
    Timestamp,
    bytes_field,
    bytes_text,
    cell_text,
    counted,
    id_text,
)
from penstock.protocol.printable import printable


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (2**63, "8192.0 PiB"),
    ],
)
def test_sizes_are_rounded_for_people(size: int, text: str) -> None:
    assert str(Size(size)) == text


def test_sizes_and_timestamps_are_numbers_for_programs() -> None:
    assert json.dumps({"size": Size(1536), "at": Timestamp(1000)}) == '{"size": 1536, "at": 1000}'


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (1_767_225_600_050, "2026-01-01T00:00:00.050Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "-"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_timestamps_are_dates_in_utc(timestamp: int, text: str) -> None:
    assert str(Timestamp(timestamp)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (59.4, "59 s"),
        (59.6, "1m"),
        (125, "2m 5s"),
        (3600, "1h"),
        (7_500, "2h 5m"),
        (86_400 + 5, "1d"),
        (10 * 86_400 + 7_200, "10d 2h"),
        (math.inf, "never"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert str(Duration(seconds)) == text


def test_durations_and_rates_are_numbers_for_programs() -> None:
    assert json.dumps([Duration(1.5), Rate(2000.25)]) == "[1.5, 2000.25]"
    assert str(Rate(2000.25)) == "2,000.2/s"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (Size(10), "10 B"),
        (Duration(90), "1m 30s"),
        (Rate(3), "3.0/s"),
        ([0, 1], "0,1"),
        ((), "-"),
        (b"abc", "abc"),
        (b"\xff\x00", "0xff00"),
        ("naïve", "naïve"),
    ],
)
def test_cells_are_shown_by_what_they_are(cell: object, text: str) -> None:
    assert cell_text(cell) == text


def test_nothing_that_a_terminal_obeys_is_printed() -> None:
    assert printable("red \x1b[31m\r\nend") == r"red \x1b[31m\r\nend"
    assert bytes_text(b"\x1b]0;title\x07") == r"\x1b]0;title\x07"


def test_lists_and_names_of_fields_are_not_obeyed_either(capsys: pytest.CaptureFixture[str]) -> None:
    assert cell_text(["a\x1b", "b"]) == r"a\x1b,b"
    output.show_fields({"header \x9bx": "y", "a": 1})
    output.warn("no\x1b[2J")
    output.show_json({"name": "\x9b2J\u2028\x7f"})
    shown = capsys.readouterr()
    assert shown.out.split("\n")[:2] == [r"header \x9bx  y", "a             1"]
    assert shown.err == "Warning: no\\x1b[2J\n"
    assert all(line.isprintable() for line in shown.out.split("\n"))


def test_a_table_in_a_pipe_has_a_line_for_each_row_and_numbers_on_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows: list[output.Row] = [{"a_name": "x" * 200, "n": 5}, {"a_name": "y", "n": None}, {"a_name": "z", "n": 1000}]
    output.show_table(["a_name", "n"], rows)
    assert capsys.readouterr().out.splitlines() == [
        f"{'A NAME':200}      N",
        f"{'x' * 200}      5",
        f"{'y':200}      -",
        f"{'z':200}  1,000",
    ]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes a terminal of a width of what standard output and standard error are."""

    def make(width: int) -> None:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    return make


def test_a_table_on_a_terminal_is_fitted_and_takes_names_as_they_are(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(40)
    output.show_table(["name", "n"], [{"name": "[bold]" + "x" * 60, "n": 5}])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "[bold]" in shown
    assert all(len(line) <= 40 for line in shown.splitlines())
    assert shown.count("x") == 60


def test_what_a_narrow_terminal_leaves_out_is_named(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(12)
    output.show_table(["name", "an_id", "n"], [{"name": "orders", "an_id": "1234", "n": 5}], spare=["an_id"])
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1] == "orders  5"
    assert " ".join(shown.err.split()) == "not shown: an id (--output json has all)"


def test_where_no_columns_fit_each_row_has_its_cells_below_each_other(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    terminal(20)
    rows: list[output.Row] = [{"topic": "a" * 18, "partitions": 3, "size": Size(2048)}] * 2
    output.show_table(["topic", "partitions", "size"], rows, spare=["size"])
    row = f"topic       {'a' * 18}\npartitions  3\nsize        2.0 KiB\n"
    assert capsys.readouterr().out == f"{row}\n{row}"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_escapes_are_sent_where_they_are_not_wanted(
    capsys: pytest.CaptureFixture[str],
    terminal: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    terminal(80)
    assert output.obeys_escapes(sys.stdout)
    output.show_table(["a"], [{"a": 1}])
    assert "\x1b[1m" in capsys.readouterr().out
    monkeypatch.setenv(name, value)
    assert not output.obeys_escapes(sys.stdout)
    output.show_table(["a"], [{"a": 1}])
    assert capsys.readouterr().out == "A\n1\n"


def test_sentences_are_broken_between_words_on_a_terminal(
    capsys: pytest.CaptureFixture[str], terminal: Callable[[int], None]
) -> None:
    assert output.wrapped("one two three") == "one two three"
    terminal(10)
    output.warn("one-two three")
    assert capsys.readouterr().err == "Warning:\none-two\nthree\n"


def test_fields_are_shown_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_fields({"topic": "orders", "topic_id": None})
    assert capsys.readouterr().out == "topic     orders\ntopic id  -\n"


def test_json_keeps_letters_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_json({"name": "naïve"})
    assert capsys.readouterr().out == '{\n  "name": "naïve"\n}\n'
    output.show_json({"name": "naïve"}, indent=None)
    assert capsys.readouterr().out == '{"name": "naïve"}\n'


def test_bytes_that_are_no_text_have_a_field_of_another_name() -> None:
    assert bytes_field("key", b"a\xc3\xa9") == {"key": "aé"}
    assert bytes_field("key", b"\xff\x00") == {"key_base64": "/wA="}
    assert bytes_field("key", b"") == {"key": ""}
    assert bytes_field("key", None) == {"key": None}


def test_a_topic_id_is_written_as_others_write_it() -> None:
    assert id_text(bytes.fromhex("72e1b86002f84b8b96d4cd937519f4c6")) == "cuG4YAL4S4uW1M2TdRn0xg"
    assert id_text(bytes(16)) is None


def test_one_is_not_many() -> None:
    assert [counted(count, "topic") for count in (0, 1, 1000)] == ["0 topics", "1 topic", "1,000 topics"]
