"""Every trap that the decision about the pipeline names has a test, and it is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "decisions" / "0014-the-pipeline.md"


def test_every_trap_of_spark_has_a_test_with_its_name() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")][2:]
    known = {
        name
        for path in (ROOT / "tests" / "spark").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(rows) == 20
    for trap, tests in rows:
        named = set(re.findall(r"`(test_\w+)`", tests))
        assert named, trap
        assert named <= known, trap
