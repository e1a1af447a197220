"""Source text that is put together and compiled."""

import pytest

from penstock.protocol.source import FIXED, WIDTH, Source


def test_blocks_indent_what_is_written_in_them() -> None:
    source = Source()
    with source.block("def double_odd(n):"):
        with source.block("if n % 2:"):
            source.line("return 2 * n")
        source.line("return n")
    assert source.lines == ["def double_odd(n):", "    if n % 2:", "        return 2 * n", "    return n"]
    double_odd = source.compile("double_odd", "double_odd")
    assert [double_odd(n) for n in (1, 2, 3)] == [2, 2, 6]


def test_names_are_fresh() -> None:
    source = Source()
    names = [source.name("n"), source.name("n"), source.name("m")]
    assert names == ["n1", "n2", "m3"]


def test_a_constant_keeps_its_name_and_equal_ones_are_kept_apart() -> None:
    source = Source()
    first, second = [1], [1]
    assert source.constant("list", first) == source.constant("list", first)
    assert source.constant("list", first) != source.constant("list", second)


def test_a_compiled_function_knows_its_constants() -> None:
    source = Source()
    greeting = source.constant("greeting", "hello")
    with source.block("def greet():"):
        source.line(f"return {greeting}")
    assert source.compile("greet", "greet")() == "hello"


def test_a_traceback_names_the_function_that_was_generated() -> None:
    source = Source()
    with source.block("def fail():"):
        source.line("raise ValueError")
    with pytest.raises(ValueError) as failed:  # noqa: PT011 - it has no message
        source.compile("fail", "decode HeartbeatRequest v4")()
    assert str(failed.traceback[-1].path) == "<decode HeartbeatRequest v4>"


def test_widths_are_those_of_the_wire() -> None:
    assert WIDTH == {
        "bool": 1,
        "int8": 1,
        "int16": 2,
        "uint16": 2,
        "int32": 4,
        "uint32": 4,
        "int64": 8,
        "float64": 8,
        "uuid": 16,
    }
    assert FIXED.keys() == WIDTH.keys()
