"""Every Python block of the guides runs, in order, as a reader would run it; but for those marked `skip`: programs that
end only when they are stopped, or that have a test of their own."""

from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.docs.running import blocks, run

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = [DOCS.parent / "README.md", *sorted((DOCS / "guides").glob("*.md"))]


def python_blocks(path: Path) -> list[tuple[str, str, int]]:
    return [
        (each.code, str(path), each.line)
        for each in blocks(path)
        if each.language == "python" and "skip" not in each.flags
    ]


@pytest.mark.parametrize("path", [path for path in GUIDES if python_blocks(path)], ids=lambda path: path.stem)
def test_the_code_of_a_guide_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A JVM that another test has started has its own idea of where it is.
    checkpoint = f'"{tmp_path}/checkpoint"'
    pieces = [(code.replace('"checkpoint"', checkpoint), file, line) for code, file, line in python_blocks(path)]
    with Broker() as broker:
        run(pieces, broker.bootstrap)
