"""Clients are told what Apache Kafka tells them, in every state of a cluster of three: with any acks, any number of
replicas that have to be in sync, and three, two and one brokers up. SOAK_GROUPS=1 has brokers die, too."""

import asyncio

import pytest

from penstock.testing import Cluster
from tests.clients.matrix import ALL
from tools.error_table.cells import BROKERS, Table
from tools.error_table.differences import with_differences
from tools.error_table.page import GUIDE, KAFKA, with_tables
from tools.error_table.walk import walk

SETTINGS = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": BROKERS}


class ByStopping:
    """A control of the brokers of a cluster, as the walk wants it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def stop(self, node: int) -> None:
        await asyncio.to_thread(self.cluster.stop, node)

    async def silence(self, node: int) -> None:
        for other in {*range(BROKERS)} - {node}:
            self.cluster.cut(node, other)

    async def wake(self, node: int) -> None:
        self.cluster.mend()


class ByKilling(ByStopping):
    async def stop(self, node: int) -> None:
        await asyncio.to_thread(self.cluster.kill, node)
        await asyncio.to_thread(self.cluster.clock.advance, "1 s")


@pytest.mark.parametrize(
    "control",
    [
        ByStopping,
        pytest.param(ByKilling, marks=pytest.mark.skipif(not ALL, reason="make soak runs it")),
    ],
)
def test_producers_and_others_are_told_what_apache_kafka_tells_them(control: type[ByStopping]) -> None:
    with Cluster(BROKERS, SETTINGS, storage="memory") as cluster:
        ours = asyncio.run(walk(cluster.brokers[0].bootstrap, control(cluster), "Penstock"))
    expected = with_differences(Table.read(KAFKA))
    assert [
        f"{row}: {column} is to be told {wanted}, not {told}"
        for row, column, wanted, told in expected.differences(ours)
    ] == []


def test_the_guide_shows_the_table() -> None:
    guide = GUIDE.read_text()
    assert guide == with_tables(guide, Table.read(KAFKA)), "run: python -m tools.error_table.page"
