"""Text that came from outside, made safe to show."""

import json

import pytest

from penstock.protocol.printable import printable, printable_json, shortened

# A terminal's escape, its one-character form, an end of a line in Unicode, a mark that turns the writing, one beyond
# U+FFFF, and half of a pair.
SLY = ["\x1b[2J", "\x9b2J", "a\nb", "a\r", "\u2028", "\u202egpj.exe", "\U000e0041", "\ud800", "\x7f"]


@pytest.mark.parametrize("text", SLY)
def test_nothing_is_left_that_a_terminal_would_obey(text: str) -> None:
    assert printable(f"x {text} y").isprintable()
    assert printable_json(json.dumps({"a": text}, ensure_ascii=False)).isprintable()


@pytest.mark.parametrize("text", SLY)
def test_json_has_the_same_value_as_before(text: str) -> None:
    assert json.loads(printable_json(json.dumps([text, {text: 1}], ensure_ascii=False))) == [text, {text: 1}]


def test_what_is_printable_stays_as_it_is() -> None:
    text = "Grüße, 世界 – “quoted” \\n"
    assert printable(text) == text
    assert printable_json(text) == text
    assert printable("a\nb\x1b[31m") == r"a\nb\x1b[31m"


def test_long_text_is_cut_and_says_so() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdef", 3) == "abc… (3 more characters)"
