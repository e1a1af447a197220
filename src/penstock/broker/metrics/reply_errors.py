"""A counter of error codes in replies is compiled from the schema, for every place where it has a code."""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from penstock.protocol.schema import Message
from penstock.protocol.source import Source

CountErrors: TypeAlias = Callable[[Message, dict[int, int]], None]
"""Adds what it finds in a message to the numbers of the codes."""


@cache
def error_counter(kind: type[Message]) -> CountErrors:
    """The counter for messages of one class."""
    source = Source()
    with source.block("def count(message, errors):"):
        source.line("pass")
        _write(source, "message", kind)
    return source.compile("count", f"errors of {kind.__name__}")


def _write(source: Source, message: str, kind: type[Message]) -> None:
    if "error_code" in kind.schema.rows:
        with source.block(f"if {message}.error_code:"):
            code = source.name("code")
            source.line(f"{code} = int({message}.error_code)")
            source.line(f"errors[{code}] = errors.get({code}, 0) + 1")
    for name, row in kind.schema.rows.items():
        element = row.element
        if isinstance(element, type) and _has_place(element):
            assert row.is_array, f"{kind.__name__}.{name} is a single message with errors in it, of a kind not seen yet"
            item = source.name("item")
            with source.block(f"for {item} in {message}.{name} or ():"):
                _write(source, item, element)


def _has_place(kind: type[Message]) -> bool:
    inside = (row.element for row in kind.schema.rows.values())
    return "error_code" in kind.schema.rows or any(isinstance(it, type) and _has_place(it) for it in inside)
