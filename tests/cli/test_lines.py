"""Lines of input and what is read in them."""

import random

import pytest

from penstock.cli.lines import LineFormat, LineSplitter
from penstock.protocol.records import NewRecord


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
    return [(record.key, record.value) for record in form.records(lines, 5)]


def test_without_a_separator_a_line_is_a_value() -> None:
    form = LineFormat(headers=(("via", b"web"),))
    assert list(form.records([b"a:b", b""], 5)) == [
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
