"""Checks that the tests mirror the source: src/penstock/a/b.py has tests/a/test_b.py, and the other way round."""

import sys
from pathlib import Path

GENERATED = "protocol/schemas/"
"""Written by a generator and tested as a whole, through the codec."""

FORMER_ADDRESSES = {"client/batch_results.py", "spark/stats_files.py", "spark/stats_plots.py", "spark/stats_topic.py"}
"""Modules that moved and that users may import where they were; tests/tools/test_public_names.py imports all of
them."""

CROSS_CUTTING = ("clients/", "docs/", "formats/", "hostile/", "kafka/", "system/", "tools/")
"""Folders of tests whose subject is no single module: other people's clients and broker, hostile clients, what the
docs show, files on disk, our own tools."""


def main() -> int:
    """Print what has no counterpart; return the exit status."""
    problems = differences(Path("src/penstock"), Path("tests"))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def differences(source: Path, tests: Path) -> list[str]:
    """Say, one line each, which module has no test and which test has no module."""
    modules = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if path.name != "__init__.py" and not path.relative_to(source).as_posix().startswith(GENERATED)
    }
    # A test of a package as a whole mirrors its folder: tests/a/test_b.py stands for a/b/__init__.py too.
    packages = {f"{path.parent.relative_to(source).as_posix()}.py" for path in source.rglob("__init__.py")}
    tested = {
        path.with_name(path.name.removeprefix("test_")).relative_to(tests).as_posix()
        for path in tests.rglob("test_*.py")
        if not path.relative_to(tests).as_posix().startswith(CROSS_CUTTING)
    }
    untested = [
        f"{source / name} has no test: write {tests / test_of(name)}"
        for name in sorted(modules - tested - FORMER_ADDRESSES)
    ]
    orphans = [
        f"{tests / test_of(name)} has no module {source / name}: rename it, or move it to a cross-cutting folder "
        f"({', '.join(f'{tests.name}/{folder}' for folder in CROSS_CUTTING)})"
        for name in sorted(tested - modules - packages)
    ]
    return untested + orphans


def test_of(module: str) -> Path:
    """Return where the test of a module belongs, relative to the tests."""
    path = Path(module)
    return path.with_name(f"test_{path.name}")


if __name__ == "__main__":
    sys.exit(main())
