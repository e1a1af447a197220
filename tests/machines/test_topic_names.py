"""Names of topics: Kafka's rules."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.machines.topic_names import collision_key, problem


@pytest.mark.parametrize("name", ["a", "orders", "Orders-2", "eu.orders_v1", "...", "__consumer_offsets", "x" * 249])
def test_a_name_of_letters_digits_dots_underscores_and_dashes_is_fine(name: str) -> None:
    assert problem(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "folder"),
        ("..", "folder"),
        ("x" * 250, "250 characters; 249 is the most"),
        ("two words", "contains ' '"),
        ("a/b", "contains '/'"),
        ("naïve", "contains 'ï'"),
        ("٣", "contains '٣'"),
        ("line\n", re.escape(r"contains '\n'")),
        ("nul\0", re.escape(r"contains '\x00'")),
    ],
)
def test_a_bad_name_is_told_what_is_wrong_with_it(name: str, reason: str) -> None:
    assert re.search(reason, problem(name) or "nothing")


@given(st.text(max_size=5))
def test_every_legal_name_is_a_safe_name_of_a_file(name: str) -> None:
    if problem(name) is None:
        assert name.isascii()
        assert name not in ("", ".", "..")
        assert not set("/\\\0: ") & set(name)


def test_dots_and_underscores_are_the_same_to_metrics() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") == collision_key("a_b_c")
    assert collision_key("a-b") != collision_key("a_b")
