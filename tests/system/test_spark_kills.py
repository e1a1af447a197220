"""The driver of a streaming query, killed at each step and started again from its checkpoint. `make test-spark` runs
this: every start is one of a JVM."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.metadata import TopicPartition
from penstock.testing import Broker
from tests.spark.cluster import TestCluster
from tests.system.query_process import QueryProcess

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with Broker() as broker:
        yield TestCluster(broker)


def places(query: QueryProcess) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, offset, _ in query.rows()]


def test_a_driver_killed_at_each_step_goes_on_without_a_row_lost_or_doubled(
    cluster: TestCluster, tmp_path: Path
) -> None:
    topic = cluster.create("killed", 2)
    group, keys = f"{topic}-query", [TopicPartition(topic, number) for number in (0, 1)]
    for partition in (0, 1):
        cluster.send_count(topic, 10, partition)
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "kafka.group.id": group}
    query = QueryProcess(tmp_path, startingOffsets="latest", maxOffsetsPerTrigger="20", **options)

    # While it waits for its first rows. Those that come while it is dead are behind `latest`, and must not be lost.
    query.run_until(lambda: cluster.committed(group) == dict.fromkeys(keys, 10), "it to begin")
    for partition in (0, 1):
        cluster.send_count(topic, 30, partition)

    assert query.run("before", 0) == -signal.SIGKILL, query.log
    assert query.has("offsets", 0)
    assert not query.has("commits", 0)
    assert places(query) == []

    assert query.run("task", 0) == -signal.SIGKILL, query.log
    assert places(query) == []

    assert query.run("after", 0) == -signal.SIGKILL, query.log
    assert not query.has("commits", 0)
    assert len(places(query)) == 20

    assert query.run("before", 1) == -signal.SIGKILL, query.log
    assert query.has("commits", 0)
    assert query.run("after", 2) == -signal.SIGKILL, query.log
    assert len(places(query)) == 60

    # Behind the last batch that there was, while it waits for more.
    is_through = dict.fromkeys(keys, 40)
    query.run_until(lambda: query.has("commits", 2) and cluster.committed(group) == is_through, "it to be through")
    cluster.send_count(topic, 15, 1)
    assert query.run("task", 3) == -signal.SIGKILL, query.log
    assert query.run("end") == 0, query.log

    assert places(query) == [(0, offset) for offset in range(10, 40)] + [(1, offset) for offset in range(10, 55)]
    assert cluster.committed(group) == {keys[0]: 40, keys[1]: 55}
