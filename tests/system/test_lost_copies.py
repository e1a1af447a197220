"""Copies that were lost or damaged are made again from those of others."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from penstock.client.sync import Consumer, Producer
from penstock.testing import Cluster

MESSAGES = [b"%d" % number * 50 for number in range(100)]


def send(cluster: Cluster, values: list[bytes]) -> None:
    with Producer(cluster.bootstrap, acks="all") as producer:
        for delivery in [producer.send("orders", value) for value in values]:
            delivery.result()


def read(cluster: Cluster, count: int) -> list[bytes | None]:
    with Consumer("orders", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        return [next(consumer).value for _ in range(count)]


def folder(cluster: Cluster, broker: int) -> Path:
    """The folder of the logs of a broker that is running."""
    return Path(cluster.brokers[broker]._production().data_path) / "logs"


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_copy_that_is_damaged_or_lost_is_made_again_and_can_lead(how: str) -> None:
    with Cluster(default_replication_factor=3) as cluster:
        cluster.create_topic("orders")
        send(cluster, MESSAGES)
        leader = cluster.leader_of("orders", 0)
        assert leader is not None
        victim, other = (leader + 1) % 3, (leader + 2) % 3
        logs = folder(cluster, victim)
        cluster.stop(victim)
        if how == "damaged":
            segment = next((logs / "orders-0").glob("*.log"))
            segment.write_bytes(segment.read_bytes()[:500])
        else:
            shutil.rmtree(logs)
        cluster.start(victim)
        cluster.until_in_sync()
        if how == "damaged":
            # For the operator to look at.
            assert [path.name for path in logs.glob("orders-0*stray")]
        # Only the copy that was made again is left.
        others = {number: folder(cluster, number) for number in (leader, other)}
        for number in others:
            cluster.kill(number)
        cluster.clock.advance("1 s")
        for number, lost in others.items():
            shutil.rmtree(lost)
            cluster.start(number)
        cluster.until_in_sync()
        assert read(cluster, len(MESSAGES)) == MESSAGES


def test_a_broker_whose_folder_is_lost_waits_for_it_while_it_alone_has_something() -> None:
    with Cluster(default_replication_factor=1) as cluster:
        cluster.create_topic("orders")
        send(cluster, MESSAGES)
        leader = cluster.leader_of("orders", 0)
        assert leader is not None
        logs = folder(cluster, leader)
        kept = logs.with_name("kept")
        cluster.stop(leader)
        logs.rename(kept)
        cluster.start(leader)
        cluster.until_controller()
        assert cluster.leader_of("orders", 0) is None
        cluster.stop(leader)
        shutil.rmtree(logs)
        kept.rename(logs)
        cluster.start(leader)
        cluster.until_leaders()
        assert read(cluster, len(MESSAGES)) == MESSAGES


def test_brokers_that_have_all_lost_their_sessions_and_registered_again_are_in_sync_again() -> None:
    with Cluster(default_replication_factor=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        send(cluster, MESSAGES)
        for number in range(3):
            cluster.cut_from_metadata(number)
        cluster.clock.advance("2 s")
        cluster.mend()
        cluster.until_in_sync()
        send(cluster, MESSAGES)
        assert Counter(read(cluster, 2 * len(MESSAGES))) == Counter(2 * MESSAGES)
