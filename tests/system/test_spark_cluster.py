"""The pipeline on a real Spark cluster, of which executors are killed. It takes half a dozen JVMs, and a process of
Python can have one Spark session only: `make test-spark-cluster` runs all of it, `make test` one in another process."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import col, udf

from penstock.spark import archive, read, session
from penstock.spark.lake import archiving
from penstock.spark.lake.archiving import ArchiveProgress
from penstock.testing import Broker
from tests.spark.cluster import TestCluster
from tests.spark.waiting import PADDING, wait_for_messages
from tests.system.spark_cluster import JAVA_OPTIONS, SparkCluster, kill_own_executor

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ALONE = "PENSTOCK_TEST_SPARK_CLUSTER"
"""Set in a process that has no other session."""
ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.timeout(600)
alone = pytest.mark.skipif(ALONE not in os.environ, reason="make test-spark-cluster runs it")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with Broker() as broker:
        yield TestCluster(broker)


@pytest.fixture(scope="module")
def spark(standalone: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    conf = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.memory": "512m",
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
        # Executors run in folders of their own, and have to find the functions of the tests.
        "spark.executorEnv.PYTHONPATH": os.getcwd(),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
        "spark.sql.execution.python.udf.maxRecordsPerBatch": "10",
    }
    made = session(standalone.master, **conf)
    yield made
    made.stop()


def killing(marker: Path, bootstrap: str, target: str, *, at: int) -> "Callable[[Column], Column]":
    """A function for a column, which once, in the middle of a task, ends the executor that it runs on."""

    def kill_once(value: str) -> str:
        if int(value) == at and not marker.exists():
            wait_for_messages(bootstrap, target)
            marker.touch()
            kill_own_executor()
        return value + PADDING

    return udf(kill_once, useArrow=False)


def counts(spark: "SparkSession", cluster: TestCluster, topic: str) -> Counter[int]:
    rows = spark.read.format("penstock").options(**servers(cluster)).option("subscribe", topic).load()
    return Counter(int(row[0]) for row in rows.select(col("value").cast("string")).collect())


def servers(cluster: TestCluster) -> dict[str, Any]:
    return {"kafka.bootstrap.servers": cluster.bootstrap}


def fill(cluster: TestCluster, name: str, partitions: int, count: int) -> str:
    """Numbers from 0 on, each once."""
    topic = cluster.create(name, partitions)
    for partition in range(partitions):
        cluster.send(topic, [str(number) for number in range(partition, count, partitions)], partition)
    return topic


@alone
def test_source_and_sink_survive_the_death_of_an_executor(
    spark: "SparkSession", standalone: SparkCluster, cluster: TestCluster, tmp_path: Path
) -> None:
    topic, target, marker = fill(cluster, "from", 4, 800), cluster.create("to"), tmp_path / "killed"
    kill = killing(marker, cluster.bootstrap, target, at=400)
    assert spark.sparkContext.master == standalone.master, "there was another session: run this alone"

    rows = spark.read.format("penstock").options(**servers(cluster)).option("subscribe", topic).load()
    sent = rows.select(kill(col("value").cast("string")).alias("value"))
    sent.write.format("penstock").options(**servers(cluster)).option("topic", target).mode("append").save()

    assert marker.exists()
    found = counts(spark, cluster, target)
    assert sorted(found) == list(range(800))
    assert max(found.values()) > 1, "what was sent before comes again"


@alone
def test_a_stream_survives_the_death_of_an_executor(
    spark: "SparkSession", cluster: TestCluster, tmp_path: Path
) -> None:
    topic, target, marker = fill(cluster, "from", 2, 300), cluster.create("to"), tmp_path / "killed"
    kill = killing(marker, cluster.bootstrap, target, at=200)
    reader = spark.readStream.format("penstock").options(**servers(cluster)).option("startingOffsets", "earliest")

    rows = reader.option("subscribe", topic).option("maxOffsetsPerTrigger", "100").load()
    sent = rows.select(kill(col("value").cast("string")).alias("value"))
    writer = sent.writeStream.format("penstock").options(**servers(cluster)).option("topic", target)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()

    assert marker.exists()
    assert sorted(counts(spark, cluster, target)) == list(range(300))


@alone
def test_an_archive_is_exact_though_an_executor_dies(
    spark: "SparkSession",
    standalone: SparkCluster,
    cluster: TestCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, lake = fill(cluster, "archived", 4, 8000), str(tmp_path / "lake")
    # Many small tasks, so that there are some left when the first are done.
    monkeypatch.setattr(archiving, "FILE_BYTES", 2000)
    killed: list[int] = []

    def watch(progress: ArchiveProgress) -> None:
        if progress.done and not killed:
            killed.append(standalone.executors()[0])
            os.kill(killed[0], signal.SIGKILL)

    result = archive(spark, topic, lake, bootstrap=cluster.bootstrap, watch=watch)

    assert killed
    assert result.rows == 8000
    found: DataFrame = read(spark, topic, bootstrap=cluster.bootstrap, lake=lake)
    places = Counter((row.partition, row.offset) for row in found.select("partition", "offset").collect())
    assert places == Counter({(partition, offset): 1 for partition in range(4) for offset in range(2000)})


@pytest.mark.skipif(ALONE in os.environ, reason="this is the other process")
def test_one_of_them_passes_in_a_process_of_its_own() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    name = f"{Path(__file__).relative_to(ROOT)}::{test_an_archive_is_exact_though_an_executor_dies.__name__}"
    command = [sys.executable, "-m", "pytest", "--quiet", name]
    done = subprocess.run(
        command, cwd=ROOT, env={**environment, ALONE: "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
