"""Java's properties."""

import pytest

from penstock.broker.config.properties import PropertiesError, Property, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1", 1)]),
        ("a = 1 ", [("a", "1 ", 1)]),
        ("a: 1", [("a", "1", 1)]),
        ("a 1", [("a", "1", 1)]),
        ("a", [("a", "", 1)]),
        ("a=", [("a", "", 1)]),
        ("a = b = c", [("a", "b = c", 1)]),
        ("  \ta=1", [("a", "1", 1)]),
        ("# no\n! no\n\n   # no\na=1 # yes", [("a", "1 # yes", 5)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("a=1,\\\n   2,\\\n   3\nb=4", [("a", "1,2,3", 1), ("b", "4", 4)]),
        ("a=1\\\\\nb=2", [("a", "1\\", 1), ("b", "2", 2)]),
        ("a=1\\", [("a", "1", 1)]),
        ("a=1\\\n# still a value", [("a", "1# still a value", 1)]),
        ("\\\na=1", [("a", "1", 2)]),
        ("\\\n# no\na=1", [("a", "1", 3)]),
        ("a\\=b\\:c\\ d=1", [("a=b:c d", "1", 1)]),
        ("a=\\t\\n\\r\\f\\x\\\\", [("a", "\t\n\r\fx\\", 1)]),
        ("a=\\u00e4\\u20AC", [("a", "ä€", 1)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("=1", [("", "1", 1)]),
        ("", []),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: list[tuple[str, str, int]]) -> None:
    assert parse_properties(text) == [Property(*item) for item in expected]


def test_a_broken_escape_is_refused_with_its_line() -> None:
    with pytest.raises(PropertiesError) as caught:
        parse_properties("a=1\nb=C:\\users")
    assert caught.value.line == 2
    assert "four hexadecimal digits" in str(caught.value)
