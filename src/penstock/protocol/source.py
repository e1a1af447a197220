"""Collects the source text of a generated function: lines, indentation, fresh names, and the constants it refers to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any


class Source:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: Any) -> str:
        """A name by which the function knows `value`; the same value keeps its name."""
        for known, other in self.constants.items():
            if other is value:
                return known
        name = self.name(prefix)
        self.constants[name] = value
        return name

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        text = "\n".join(self.lines)
        exec(compile(text, f"<{title}>", "exec"), self.constants)
        made: Callable[..., Any] = self.constants[function]
        return made


# The primitives of fixed width, by their letter in `struct`.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
WIDTH = {name: Struct(">" + letter).size for name, letter in FIXED.items()}
