"""The words that tables are written in."""

import pytest

from penstock.broker.config.rows import INT, NOT_EMPTY, READ_ONLY, any_of, at_least, between, one_of, row, works_for


@pytest.mark.parametrize(
    ("allowed", "good", "bad"),
    [
        (at_least(1), 1, 0),
        (between(1, 9), 9, 10),
        (one_of("ack", "os"), "os", "never"),
        (any_of("compact", "delete"), ("delete",), ("remove",)),
        (any_of("classic", may_be_empty=False), ("classic",), ()),
        (NOT_EMPTY, "x", ""),
    ],
)
def test_a_word_allows_what_it_says(allowed, good, bad) -> None:  # type: ignore[no-untyped-def]
    assert allowed.problem(good) is None
    assert allowed.problem(bad) is not None


def test_a_row_reads_from_left_to_right() -> None:
    key = row("a.count", INT, 3, at_least(1), READ_ONLY, works_for("3"), "How many.")
    assert (key.name, key.default, key.documentation) == ("a.count", 3, "How many.")
    assert key.takes_effect(3)
    assert not key.takes_effect(4)
