"""The code of the guide to archives runs, on a Spark session that is there."""

from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.cli.pipelines import spark
from tests.docs.running import blocks, run

__all__ = ["spark"]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "archive.md"


@pytest.mark.usefixtures("spark")
def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pieces = [(each.code, str(GUIDE), each.line) for each in blocks(GUIDE) if each.flags == "skip spark"]
    assert len(pieces) == 2
    with Broker() as broker:
        run(pieces, broker.bootstrap)
