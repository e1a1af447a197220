"""The code of the guide to the sink runs, on a Spark session that is there."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing import Broker
from tests.cli.pipelines import spark
from tests.docs.running import blocks, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "spark-sink.md"


def test_the_code_of_the_guide_runs(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # The JVM knows nothing of Python's working folder.
    checkpoint = f'"{tmp_path / "checkpoint"}"'
    pieces = [
        (each.code.replace('"checkpoint"', checkpoint), str(GUIDE), each.line)
        for each in blocks(GUIDE)
        if each.flags == "skip spark"
    ]
    assert len(pieces) == 2
    with Broker() as broker:
        run(pieces, broker.bootstrap)
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
        for topic in ("squares", "copies"):
            rows = (
                reader.option("subscribe", topic).load().selectExpr("cast(cast(value as string) as bigint)").collect()
            )
            assert sorted(row[0] for row in rows) == [number * number for number in range(1_000)]
