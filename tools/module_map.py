"""Writes docs/modules.md: every module, with the first sentence of its docstring.

python -m tools.module_map          writes it
python -m tools.module_map --check  says whether it is up to date
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "modules.md"
FOLDERS = ("src/penstock", "src/pyspark_penstock", "tools", "benchmarks")
GENERATED = "src/penstock/protocol/schemas/"
"""A module for each family of APIs, written by tools/generate_schemas.py: one line stands for all of them."""

INTRODUCTION = """\
# Modules

<!-- Written by `python -m tools.module_map` from the first sentence of each module's docstring. Change those. -->

Where to look. What belongs together and why is in [architecture](architecture.md).
"""


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with what would be written; return the exit status."""
    page = render()
    if "--check" in arguments:
        if PAGE.read_text() == page:
            return 0
        print("docs/modules.md is not up to date: run python -m tools.module_map")
        return 1
    PAGE.write_text(page)
    return 0


def render() -> str:
    """The page as the modules' docstrings have it."""
    return INTRODUCTION + "".join(_section(folder) for top in FOLDERS for folder in _packages(ROOT / top))


def first_sentence(path: Path) -> str:
    """What a module says of itself; of a docstring of several sentences the first."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", paragraph, maxsplit=1)[0].removesuffix(".")


def _packages(top: Path) -> Iterator[Path]:
    """A folder and those below it that have modules, each before what is in it."""
    yield top
    for folder in sorted(path for path in top.iterdir() if path.is_dir()):
        if any(folder.glob("*.py")) and f"{folder.relative_to(ROOT).as_posix()}/" != GENERATED:
            yield from _packages(folder)


def _section(folder: Path) -> str:
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    init = folder / "__init__.py"
    name = folder.relative_to(ROOT).as_posix()
    lines = [f"\n## `{name}/`\n"]
    if init.exists() and (about := first_sentence(init)):
        lines.append(f"\n{about}.\n")
    rows = [(path.name, first_sentence(path)) for path in modules]
    if f"{name}/schemas/" == GENERATED:
        rows.append(
            ("schemas/", "The tables of every API, a module for each family; written by tools/generate_schemas.py")
        )
    if rows:
        lines.append("\n| module | |\n| --- | --- |\n")
        lines += [f"| `{module}` | {about.replace('|', chr(92) + '|')} |\n" for module, about in sorted(rows)]
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
