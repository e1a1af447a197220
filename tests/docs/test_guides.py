"""Every Python block of the guides runs, in order, as a reader would run it; but for those marked `skip`: programs that
end only when they are stopped, or that have a test of their own."""

from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.docs.running import blocks, run, run_apart

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
    pieces = python_blocks(path)
    # Spark stops in the end, and its folders lie where it was started: other tests have a session of their own.
    runs_spark = any("penstock.spark" in code for code, _, _ in pieces)
    with Broker() as broker:
        (run_apart if runs_spark else run)(pieces, broker.bootstrap)
