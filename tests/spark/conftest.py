"""One broker and one Spark session for all tests of the source."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client.cluster import retries as retrying
from penstock.testing import Broker
from tests.spark.cluster import TestCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The second number has tasks tried again; the first compiler alone has a short test done before the second one pays.
MASTER = "local[2,3]"
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture
def cluster(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> TestCluster:
    monkeypatch.setattr(retrying, "BACKOFF_MS", 1)
    return TestCluster(broker)


@pytest.fixture(scope="session")
def spark_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where Spark may write, until the last test has been."""
    folder = tmp_path_factory.mktemp("spark")
    yield {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    from pyspark.sql import SparkSession

    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()


@pytest.fixture
def spark(spark_folders: dict[str, str]) -> "SparkSession":
    """The session of the process; started again if somebody, like the code of a guide, has stopped it."""
    from penstock.spark import session

    return session(MASTER, **CONF, **spark_folders)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return os.fspath(tmp_path / "checkpoint")
