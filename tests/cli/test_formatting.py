"""Format strings and JSON lines."""

import json

import pytest

from penstock.cli.formatting import DEFAULT_FORMAT, compile_format, json_lines, unescape
from penstock.protocol.records import Record

FULL = Record(42, 1_700_000_000_000, b"key", b"value", (("a", b"1"), ("b", None), ("a", b"2")))
EMPTY = Record(7, -1, b"", b"")
NULL = Record(8, 5, None, None)
BINARY = Record(9, 5, b"\xff", b"\x00\n\xfe", (("bin", b"\xff"),))


@pytest.mark.parametrize(
    ("form", "record", "expected"),
    [
        (DEFAULT_FORMAT, FULL, b"value\n"),
        (DEFAULT_FORMAT, NULL, b"\n"),
        (DEFAULT_FORMAT, BINARY, b"\x00\n\xfe\n"),
        ("%k:%s", FULL, b"key:value"),
        ("%K %S|", FULL, b"3 5|"),
        ("%K %S|", EMPTY, b"0 0|"),
        ("%K %S|", NULL, b"-1 -1|"),
        ("%R%s", FULL, b"\x00\x00\x00\x05value"),
        ("%R%s", NULL, b"\xff\xff\xff\xff"),
        ("%t/%p@%o", FULL, b"orders/3@42"),
        ("%T", FULL, b"1700000000000"),
        ("%T", EMPTY, b"-1"),
        ("%h", FULL, b"a=1,b=,a=2"),
        ("%h", NULL, b""),
        (r"\t%%\r\n\\n\x41\x7a", FULL, b"\t%\r\n\\nAz"),
        (r"\q%s", FULL, b"\\qvalue"),
        ("ä%k", FULL, "ä".encode() + b"key"),
        ("plain", FULL, b"plain"),
        ("", FULL, b""),
    ],
)
def test_tokens_and_escapes(form: str, record: Record, expected: bytes) -> None:
    assert compile_format(form, "orders")(3, record) == expected


@pytest.mark.parametrize("form", ["%x", "%", "%s %", "% s"])
def test_a_token_that_does_not_exist_is_refused_with_those_that_do(form: str) -> None:
    with pytest.raises(ValueError, match="is no token of a format; there are %s"):
        compile_format(form, "orders")


def test_a_message_is_a_line_of_json() -> None:
    line = json_lines("orders")(3, FULL)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "key": "key",
        "value": "value",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}, {"name": "a", "value": "2"}],
    }


def test_in_json_what_is_no_text_is_base64_and_what_is_missing_is_null() -> None:
    binary = json.loads(json_lines("orders")(0, BINARY))
    assert binary["key_base64"] == "/w=="
    assert binary["value_base64"] == "AAr+"
    assert binary["headers"] == [{"name": "bin", "value_base64": "/w=="}]
    assert not {"key", "value"} & set(binary)
    null = json.loads(json_lines("orders")(0, Record(0, -1, None, None)))
    assert (null["key"], null["value"], null["timestamp"]) == (None, None, None)


def test_escapes_of_the_command_line_are_resolved() -> None:
    assert unescape(r"\t") == b"\t"
    assert unescape(r"a\x00b\\t") == b"a\x00b\\t"
    assert unescape(":") == b":"
    assert unescape("\\") == b"\\"
