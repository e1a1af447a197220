"""Runs Python code as it stands in the docs: with `await` at the top level, against a broker of its own."""

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent
from types import CodeType
from typing import Any, NamedTuple

ADDRESS = "localhost:9092"
"""What the docs call the broker; it is put in place of this."""

_BLOCK = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    flags: str
    code: str
    line: int


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a Markdown file. Behind the language may stand what a reader does not see: `skip`."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(found[2], found[3].strip(), dedent(found[4]), text.count("\n", 0, found.start()) + 2)
        for found in _BLOCK.finditer(text)
    ]


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


def run_apart(pieces: Iterable[tuple[str, str, int]], bootstrap: str) -> None:
    """The same in a process of its own, for what leaves something behind in its process, such as a JVM."""
    program = f"from tests.docs.running import run; run({list(pieces)!r}, {bootstrap!r})"
    # The working folder may be another one by now.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _compile(code: str, file: str, line: int) -> CodeType:
    source = "\n" * (line - 1) + code
    compiled = compile(source, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    assert isinstance(compiled, CodeType)
    return compiled
