"""Lines of input and what is read in them."""

import random

import pytest

from penstock.cli.formatting import json_lines
from penstock.cli.produce.lines import JsonFormat, LineFormat, LineSplitter
from penstock.protocol.records import NewRecord, Record


def split(*chunks: bytes) -> list[bytes]:
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\nb"], [b"a", b"b"]),
        ([b"a", b"b", b"c\n", b"d"], [b"abc", b"d"]),
        ([b"\n\na\n"], [b"", b"", b"a"]),
        ([b"a\r\n"], [b"a\r"]),
        ([b"a", b"\n", b"\n"], [b"a", b""]),
        ([], []),
        ([b"\x00\xff\n"], [b"\x00\xff"]),
    ],
)
def test_lines_end_with_a_newline_or_with_the_input(chunks: list[bytes], lines: list[bytes]) -> None:
    assert split(*chunks) == lines


@pytest.mark.parametrize("seed", range(20))
def test_where_the_input_is_cut_makes_no_difference(seed: int) -> None:
    chance = random.Random(seed)
    data = bytes(chance.choice(b"ab\n") for _ in range(200))
    cuts = sorted(chance.sample(range(200), 15))
    chunks = [data[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert split(*chunks) == expected, f"seed {seed}"


def test_an_end_of_input_leaves_nothing_behind() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a") == []
    assert splitter.finish() == [b"a"]
    assert splitter.feed(b"b\n") == [b"b"]
    assert splitter.finish() == []


def read(form: LineFormat, *lines: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in (form.record(line, 5) for line in lines)]


def test_without_a_separator_a_line_is_a_value() -> None:
    form = LineFormat(headers=(("via", b"web"),))
    assert [form.record(line, 5) for line in (b"a:b", b"")] == [
        NewRecord(b"a:b", None, (("via", b"web"),), 5),
        NewRecord(b"", None, (("via", b"web"),), 5),
    ]


def test_the_first_separator_divides_key_and_value() -> None:
    form = LineFormat(key_separator=b"::")
    assert read(form, b"k::v::w", b"::v", b"k::", b"v") == [
        (b"k", b"v::w"),
        (b"", b"v"),
        (b"k", b""),
        (None, b"v"),
    ]


def test_a_certain_text_is_null() -> None:
    form = LineFormat(key_separator=b":", null=b"NULL")
    assert read(form, b"k:NULL", b"NULL:v", b"NULL", b"k:NULLS") == [
        (b"k", None),
        (None, b"v"),
        (None, None),
        (b"k", b"NULLS"),
    ]
    assert read(LineFormat(null=b""), b"") == [(None, None)]


def test_a_key_is_that_of_lines_that_have_none() -> None:
    form = LineFormat(key=b"all", key_separator=b":")
    assert read(form, b"own:v", b"v") == [(b"own", b"v"), (b"all", b"v")]


@pytest.mark.parametrize("key", [None, b"", b"k", b"\xff\x00"])
@pytest.mark.parametrize("value", [None, b"", "naïve\n\u2028\x1b".encode(), bytes(range(256))])
def test_what_was_written_as_json_is_read_as_it_was(key: bytes | None, value: bytes | None) -> None:
    headers = (("a", b"1"), ("a", None), ("", b"\xfe"))
    line = json_lines("orders")(3, Record(17, 1_700_000_000_000, key, value, headers))
    assert line.endswith(b"\n")
    assert JsonFormat().record(line[:-1], 5) == NewRecord(value, key, headers, 1_700_000_000_000)


def test_what_json_leaves_out_is_null_or_now() -> None:
    assert JsonFormat(headers=(("via", b"web"),)).record(b'{"value":"v"}', 5) == NewRecord(
        b"v", None, (("via", b"web"),), 5
    )
    assert JsonFormat().record(b'{"value":null,"timestamp":null,"headers":[]}', 5) == NewRecord(None, None, (), 5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ("[]", "a message is an object of JSON"),
        ('{"vlaue":"x"}', "a message has no field 'vlaue'; there are headers, key,"),
        ('{"key":"x"}', "it has neither value nor value_base64"),
        ('{"value":{"a":1}}', "its value is neither a text nor null"),
        ('{"value":"x","value_base64":"eA=="}', "it has both value and value_base64"),
        ('{"value":"x","key":null,"key_base64":"eA=="}', "it has both key and key_base64"),
        ('{"value_base64":"?"}', "its value_base64 is not base64"),
        ('{"value_base64":1}', "its value_base64 is not base64"),
        ('{"value":"x","timestamp":"now"}', "its timestamp is no number of milliseconds"),
        ('{"value":"x","timestamp":-1}', "its timestamp is no number of milliseconds"),
        ('{"value":"x","headers":{"a":"1"}}', "its headers are no list"),
        ('{"value":"x","headers":[{"value":"1"}]}', "a header has no name"),
        ('{"value":"x","headers":[{"nam":"1"}]}', "a header has no field 'nam'"),
    ],
)
def test_json_that_is_no_message_is_refused_with_the_reason(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JsonFormat().record(line.encode(), 5)
