"""The page of ideas and paths names modules that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

NOT_MODULES = {"send", "gateway", "queued.max.bytes", "pyspark_penstock", "__consumer_offsets"}


def test_every_module_that_a_path_names_is_there() -> None:
    paths = PAGE.partition("\n## Six paths\n")[2]
    named = set(re.findall(r"`([a-z_./]+)`", paths)) - NOT_MODULES
    there = {f"/{path.relative_to(SOURCE).with_suffix('').as_posix()}" for path in SOURCE.rglob("*.py")}
    there |= {f"/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*") if path.is_dir()}
    assert len(named) > 40
    assert {name for name in named if not any(each.endswith(f"/{name.rstrip('/')}") for each in there)} == set()


def test_every_package_is_in_the_table() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == packages


def test_the_six_paths_are_described() -> None:
    described = re.findall(r"^\*\*A (\w+)", PAGE.partition("\n## Six paths\n")[2], re.MULTILINE)
    assert described[:6] == ["produce", "fetch", "join", "send", "poll", "read"]
