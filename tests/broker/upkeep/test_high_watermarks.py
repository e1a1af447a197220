"""High watermarks of partitions with several replicas are remembered across a restart."""

from pathlib import Path

import pytest

from penstock.broker.upkeep import high_watermarks
from penstock.client.sync import Producer
from penstock.storage.files import RealFiles
from penstock.storage.high_watermarks import HighWatermarks
from penstock.testing import Cluster


def logs_of(cluster: Cluster, broker: int) -> str:
    return str(Path(cluster.brokers[broker]._production().data_path) / "logs")


def send(cluster: Cluster, topic: str, replicas: int, count: int) -> None:
    with Producer(cluster.bootstrap, acks="all") as producer:
        producer.create_topic(topic, 1, replication_factor=replicas)
        for delivery in [producer.send(topic, b"a") for _ in range(count)]:
            delivery.result()


def test_a_stop_saves_them_and_the_only_replica_of_a_partition_needs_none() -> None:
    with Cluster(brokers=2) as cluster:
        send(cluster, "copied", 2, 3)
        send(cluster, "alone", 1, 3)
        leader = cluster.leader_of("copied", 0)
        assert leader is not None
        folder = logs_of(cluster, leader)
        cluster.stop(leader)
        saved = HighWatermarks(RealFiles(), folder)
        assert saved.get("copied", 0) == 3
        assert saved.get("alone", 0) is None


def test_a_broker_that_was_killed_has_those_of_the_last_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(high_watermarks, "SAVE_SECONDS", 3600.0)
    with Cluster(brokers=2) as cluster:
        send(cluster, "copied", 2, 3)
        folder = logs_of(cluster, 0)
        cluster.kill(0)
        assert HighWatermarks(RealFiles(), folder).get("copied", 0) is None
