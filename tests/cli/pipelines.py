"""Pipelines as commands: in this process, or in one of their own with a Spark of its own."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from click.testing import CliRunner

from penstock.cli import pipeline
from penstock.cli.main import penstock
from penstock.client.cluster.cluster import Cluster
from penstock.protocol.records import NewRecord
from penstock.spark.sessions import session
from penstock.testing import Broker
from tests.cli.conftest import PROGRAM
from tests.client.one_batch import produce
from tests.spark.conftest import CONF, MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_SECONDS = 200
LOCAL = [
    "--master",
    "local[1]",
    "--conf",
    "spark.driver.bindAddress=127.0.0.1",
    "--conf",
    "spark.driver.host=127.0.0.1",
]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The commands use the session that is there."""
    folder = tmp_path_factory.mktemp("spark")
    made = session(MASTER, **CONF, **{"spark.local.dir": str(folder)})
    yield made
    made.stop()


def call(broker: Broker, *args: str, exit_code: int = 0) -> tuple[str, str]:
    """What it prints on standard output and on standard error."""
    result = CliRunner(env={"PENSTOCK_BOOTSTRAP": broker.bootstrap}).invoke(penstock, args)
    assert result.exit_code == exit_code, (result.stdout, result.stderr, result.exception)
    return result.stdout, result.stderr


def start(broker: Broker, *args: str, program: Sequence[str] = PROGRAM) -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP": broker.bootstrap,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
    }
    pipe = subprocess.PIPE
    return subprocess.Popen([*program, *args], stdout=pipe, stderr=pipe, text=True, env=environment)


def submit() -> list[str]:
    """`spark-submit` with our pipelines."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [str(program), *LOCAL, str(pipeline.__file__)]


def fill(broker: Broker, topic: str, count: int, partition: int = 0) -> None:
    async def send() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await produce(cluster, topic, partition, [NewRecord(b"%d" % number) for number in range(count)])

    asyncio.run(send())
