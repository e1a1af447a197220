"""The map in docs/architecture.md, and every link in the docs: what is there is named, and what is named is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MAP = ROOT / "docs" / "architecture.md"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def named_paths() -> set[str]:
    """The paths in the first column of each table, below the folder that the heading above it names."""
    paths, folder = set(), None
    for line in MAP.read_text().splitlines():
        if line.startswith("#"):
            heading = re.match(r"### `([^`]+/)`", line)
            folder = heading[1] if heading else None
        elif folder is not None and (row := re.match(r"\| `([^`]+)` \|", line)):
            paths.add(folder + row[1])
    return paths


@pytest.mark.parametrize("folder", ["src/penstock", "tools", "benchmarks"])
def test_every_module_is_on_the_map(folder: str) -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py")}
    assert modules, f"{folder} has modules"
    named = named_paths()
    # A package is named by its folder, or by the modules in it.
    covered = {path for path in modules if any(path.startswith(name) for name in named if name.endswith("/"))}
    inits = {path for path in modules if path.endswith("/__init__.py")}
    missing = sorted(modules - covered - inits - named)
    assert not missing, f"docs/architecture.md needs a line for each of {missing}"


def test_every_path_on_the_map_exists() -> None:
    named = named_paths()
    assert len(named) > 40
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_path_in_the_text_exists() -> None:
    mentioned = set(re.findall(r"`((?:src|tests|tools|benchmarks|docs)/[\w./-]*)`", MAP.read_text()))
    assert {path for path in mentioned if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = {link.partition("#")[0] for link in links if not link.startswith(("http://", "https://", "#"))}
    assert {link for link in local if not (page.parent / link).exists()} == set()
