"""Runs the examples of docstrings: with `await` at the top level, against a broker of their own."""

import ast
import asyncio
import inspect
from collections.abc import Iterable
from textwrap import dedent
from types import CodeType
from typing import Any

from tools.guides import ADDRESS


def example(documented: object) -> str | None:
    """The code below `Example:` in a docstring."""
    text = inspect.getdoc(documented) or ""
    _, found, rest = text.partition("Example:\n")
    if not found:
        return None
    lines = []
    for line in rest.splitlines():
        if line.strip() and not line.startswith(" "):
            break
        lines.append(line)
    return dedent("\n".join(lines)).strip()


def run(pieces: Iterable[tuple[str, str, int]], bootstrap: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run pieces of code, each with its file and line, one after the other in one namespace, which is returned."""
    namespace: dict[str, Any] = {"__name__": "__docs__"} if names is None else names
    compiled = [_compile(code.replace(ADDRESS, bootstrap), file, line) for code, file, line in pieces]

    async def run_all() -> None:
        async with asyncio.timeout(60):
            for code in compiled:
                waited = eval(code, namespace)
                if inspect.isawaitable(waited):
                    await waited
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"the example left tasks behind: {left}"

    asyncio.run(run_all())
    return namespace


def _compile(code: str, file: str, line: int) -> CodeType:
    source = "\n" * (line - 1) + code
    compiled = compile(source, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    assert isinstance(compiled, CodeType)
    return compiled
