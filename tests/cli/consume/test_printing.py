"""What is printed of what was read."""

import io

import pytest

from penstock.cli.consume import printing
from penstock.cli.consume.printing import Printer
from penstock.cli.formatting import compile_format
from penstock.protocol.records import Record


def records(*keys: bytes | None) -> list[Record]:
    return [Record(offset, 0, key, b"v%d" % offset) for offset, key in enumerate(keys)]


def printer(sink: io.BytesIO, *, key: bytes | None = None, count: int | None = None) -> Printer:
    return Printer({name: compile_format(f"{name}%o ", name) for name in "ab"}, key=key, count=count, sink=sink)


def test_each_topic_has_its_format() -> None:
    sink = io.BytesIO()
    shown = printer(sink)
    assert shown.topics == ["a", "b"]
    assert shown.show("a", 0, records(None, None)) == 2
    assert shown.show("b", 0, records(None)) == 1
    assert sink.getvalue() == b"", "it is written in large pieces"
    shown.flush()
    assert sink.getvalue() == b"a0 a1 b0 "


def test_other_keys_are_passed_over_and_do_not_count() -> None:
    sink = io.BytesIO()
    shown = printer(sink, key=b"k", count=2)
    assert shown.show("a", 0, records(b"k", b"x", None, b"k", b"k")) == 4
    assert shown.is_full
    assert shown.passed == 4
    shown.flush()
    assert sink.getvalue() == b"a0 a3 "


def test_an_empty_key_is_a_key() -> None:
    sink = io.BytesIO()
    shown = printer(sink, key=b"")
    shown.show("a", 0, records(b"", None))
    shown.flush()
    assert sink.getvalue() == b"a0 "


def test_records_from_the_end_on_are_left_out() -> None:
    shown = printer(io.BytesIO())
    assert shown.show("a", 0, records(None, None, None), 2) == 2
    assert shown.show("a", 0, records(None), 0) is None
    assert shown.passed == 2


def test_much_is_written_before_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "WRITE_BYTES", 5)
    sink = io.BytesIO()
    printer(sink).show("a", 0, records(None, None, None))
    assert sink.getvalue() == b"a0 a1 "
