"""Runs a Spark session that does one piece of work for each line of its input, and says what it took. It runs on either
Spark, so it imports nothing of the benchmarks."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.java import ensure_java
from penstock.spark.sessions import SETTINGS

Told = dict[str, Any]

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


def start(jars: str, *, is_tuned: bool) -> SparkSession:
    """With the settings that we ship, or as Spark is by itself."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in (_CONF | (SETTINGS if is_tuned else {})).items():
        builder = builder.config(name, value)
    return (builder.config("spark.jars", jars) if jars else builder).getOrCreate()


def read(spark: SparkSession, told: Told) -> Told:
    """Every row with all its columns, which go nowhere."""
    _frame(spark, told).write.format("noop").mode("overwrite").save()
    return {}


def total(spark: SparkSession, told: Told) -> Told:
    """To know that all of them read the same."""
    row = _frame(spark, told).selectExpr("count(*)", "sum(length(value))", "sum(offset)", "count(key)").collect()[0]
    return {"total": list(row)}


def write(spark: SparkSession, told: Told) -> Told:
    """Spark's own Parquet."""
    writer = _frame(spark, told).write.option("compression", told["codec"])
    writer.option("parquet.compression.codec.zstd.level", "1").parquet(told["folder"])
    return {}


def archive(spark: SparkSession, told: Told) -> Told:
    """A whole run of ours."""
    from penstock.spark import archive

    result = archive(
        spark, told["topic"], told["folder"], bootstrap=told["bootstrap"], compression=cast(Any, told["codec"])
    )
    return {"rows": result.rows}


def stream(spark: SparkSession, told: Told) -> Told:
    """Batches of a few rows, one as soon as the last one is done. How long each took, by Spark's own clock, without the
    first ones."""
    reader = spark.readStream.format(told["format"]).options(**told["options"])
    query = reader.load().writeStream.format("noop").option("checkpointLocation", told["folder"]).start()
    took: dict[int, float] = {}
    while len(took) < told["warming"] + told["batches"]:
        if (failed := query.exception()) is not None:
            raise failed
        took |= {
            each["batchId"]: each["durationMs"]["triggerExecution"]
            for each in query.recentProgress
            if each["numInputRows"]
        }
        time.sleep(0.2)
    query.stop()
    measured = [took[number] for number in sorted(took)[told["warming"] :]]
    return {"batch_ms": median(measured), "batches": len(measured)}


def _frame(spark: SparkSession, told: Told) -> DataFrame:
    reader = spark.read.format(told["format"]).options(**told.get("options", {}))
    return reader.load(told["path"]) if "path" in told else reader.load()


_WORK: Final[dict[str, Callable[[SparkSession, Told], Told]]] = {
    "read": read,
    "total": total,
    "write": write,
    "archive": archive,
    "stream": stream,
}


def main(jars: str, settings: str) -> None:
    # Whatever else prints, the answers go where they belong.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    spark = start(jars, is_tuned=settings == "tuned")
    print(json.dumps({"version": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        # Removing what the last one wrote does not count as work.
        if "folder" in told:
            shutil.rmtree(told["folder"], ignore_errors=True)
        began, used = time.monotonic(), _cpu_seconds(os.getpid())
        found = _WORK[told["work"]](spark, told)
        seconds, cpu_seconds = time.monotonic() - began, _cpu_seconds(os.getpid()) - used
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, **found}), file=answers, flush=True)
    spark.stop()


def _cpu_seconds(pid: int) -> float:
    """Of a process and all below it: the JVM, the workers."""
    used = 0.0
    # A process that ends meanwhile counts as nothing.
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            used += int((task / "schedstat").read_text().split()[0]) / 1e9
            used += sum(_cpu_seconds(int(child)) for child in (task / "children").read_text().split())
    return used


if __name__ == "__main__":
    main(*sys.argv[1:])
