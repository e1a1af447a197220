"""The driver of a streaming query, killed at each step and started again from its checkpoint. `make test-spark` runs
this: every start is one of a JVM."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.metadata import TopicPartition
from penstock.testing import Broker
from tests.spark.cluster import TestCluster

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with Broker() as broker:
        yield TestCluster(broker)


class Query:
    """Programs one after the other, with the same table and the same checkpoint."""

    def __init__(self, cluster: TestCluster, topic: str, folder: Path) -> None:
        self._arguments = [cluster.bootstrap, topic, str(folder / "table"), str(folder / "checkpoint")]
        self._folder = folder

    def start(self, step: str, batch: int = -1) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.system.spark_query", *self._arguments, step, str(batch)]
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def run(self, step: str, batch: int = -1) -> int:
        return self.start(step, batch).wait(120)

    def kill_when(self, is_time: Callable[[], bool]) -> None:
        """Let it run until something is the case."""
        process = self.start("never")
        while not is_time():
            try:
                process.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(f"it ended by itself: {self.log}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def has(self, kind: str, batch: int) -> bool:
        """Whether the checkpoint says so."""
        return (self._folder / "checkpoint" / kind / str(batch)).exists()

    def rows(self) -> list[tuple[int, int]]:
        from deltalake import DeltaTable

        path = str(self._folder / "table")
        if not DeltaTable.is_deltatable(path):
            return []
        read = DeltaTable(path).to_pyarrow_table().to_pydict()
        return sorted(zip(read["partition"], read["offset"], strict=True))


def test_a_driver_killed_at_each_step_goes_on_without_a_row_lost_or_doubled(
    cluster: TestCluster, tmp_path: Path
) -> None:
    topic = cluster.create("killed", 2)
    group, keys = f"{topic}-query", [TopicPartition(topic, number) for number in (0, 1)]
    for partition in (0, 1):
        cluster.send_count(topic, 10, partition)
    query = Query(cluster, topic, tmp_path)

    # While it waits for its first rows. Those that come while it is dead are behind `latest`, and must not be lost.
    query.kill_when(lambda: cluster.committed(group) == dict.fromkeys(keys, 10))
    for partition in (0, 1):
        cluster.send_count(topic, 30, partition)

    assert query.run("before", 0) == -signal.SIGKILL, query.log
    assert query.has("offsets", 0)
    assert not query.has("commits", 0)
    assert query.rows() == []

    assert query.run("task", 0) == -signal.SIGKILL, query.log
    assert query.rows() == []

    assert query.run("after", 0) == -signal.SIGKILL, query.log
    assert not query.has("commits", 0)
    assert len(query.rows()) == 20

    assert query.run("before", 1) == -signal.SIGKILL, query.log
    assert query.has("commits", 0)
    assert query.run("after", 2) == -signal.SIGKILL, query.log
    assert len(query.rows()) == 60

    # Behind the last batch that there was, while it waits for more.
    query.kill_when(lambda: query.has("commits", 2) and cluster.committed(group) == dict.fromkeys(keys, 40))
    cluster.send_count(topic, 15, 1)
    assert query.run("task", 3) == -signal.SIGKILL, query.log
    assert query.run("end") == 0, query.log

    assert query.rows() == [(0, offset) for offset in range(10, 40)] + [(1, offset) for offset in range(10, 55)]
    assert cluster.committed(group) == {keys[0]: 40, keys[1]: 55}
