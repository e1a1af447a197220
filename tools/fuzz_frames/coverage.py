"""Notes which lines of the handlers are reached."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from penstock.broker import handlers

FOLDER: Final = str(Path(handlers.__file__).parent)


class Lines:
    """`with lines.watched():` notes the lines that run; what is measured meanwhile is slower."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._ran if frame.f_code.co_filename.startswith(FOLDER) else None

    def _ran(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.seen.add((frame.f_code.co_filename[len(FOLDER) + 1 : -3], frame.f_lineno))
        return self._ran


def all_lines() -> dict[str, set[int]]:
    """The lines of each module that are in a function: those at its top run when it is imported."""
    found = {}
    for path in sorted(Path(FOLDER).glob("*.py")):
        module = compile(path.read_bytes(), str(path), "exec")
        lines = {line for inner in _codes_in(module) for line in _lines(inner)}
        if lines:
            found[path.stem] = lines
    return found


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & _IS_FUNCTION:
                yield constant
            yield from _codes_in(constant)


def _lines(code: CodeType) -> set[int]:
    return {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}


# CO_OPTIMIZED: set for functions, and not for the bodies of modules and classes.
_IS_FUNCTION: Final = 0x1
