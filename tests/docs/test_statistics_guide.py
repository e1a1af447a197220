"""The guide on statistics: its programs run, on a Spark that starts fast."""

from pathlib import Path

import pytest

from penstock.spark.sessions import session
from penstock.testing import Broker
from tests.docs.running import blocks, run
from tests.spark.conftest import CONF, MASTER

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "statistics.md"


def test_the_programs_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The guide's own call then gets this one.
    spark = session(MASTER, **CONF, **{"spark.local.dir": str(tmp_path / "spark")})
    try:
        with Broker() as broker:
            programs = [each for each in blocks(GUIDE) if each.language == "python"]
            run([(each.code, str(GUIDE), each.line) for each in programs], broker.bootstrap)
    finally:
        spark.stop()
    assert len(list((tmp_path / "counts").glob("*.parquet"))) == 6
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 4
