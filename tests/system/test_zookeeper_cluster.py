"""A cluster of three brokers over ZooKeeper while messages keep coming: brokers and controller are killed and paused,
and ZooKeeper goes away. What was acknowledged is there, once, at the offset that was told."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from operator import gt

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.client.sync import Admin
from tests.clients.steady_load import SteadyLoad
from tests.system.zookeeper_cluster import BROKERS, ZookeeperCluster, wait_until
from tools.clients.members import Place
from tools.zookeeper.ensemble import Ensemble, install

PARTITIONS = 6


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Ensemble]:
    install()
    with Ensemble(nodes=1) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(zookeeper: Ensemble, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperCluster]:
    with ZookeeperCluster(tmp_path_factory.mktemp("cluster"), f"{zookeeper.connect}/queue") as started:
        yield started
        assert [broker.stop() for broker in started.brokers.values()] == [0] * BROKERS


@contextmanager
def messages(cluster: ZookeeperCluster, topic: str) -> Iterator[SteadyLoad]:
    """Keep sending to a topic that lies on all brokers; in the end nothing that was acknowledged may be missing."""
    create(cluster, topic, PARTITIONS)
    load = SteadyLoad(cluster.bootstrap, topic, PARTITIONS)
    try:
        progress(load)
        yield load
        progress(load)
        load.drain()
    except BaseException:
        load.give_up()
        raise
    assert read(cluster.address(2), topic, len(load.acknowledged)) == sorted(load.acknowledged)


def create(cluster: ZookeeperCluster, topic: str, partitions: int = 1, *, by: int = 0) -> None:
    with Admin(cluster.address(by)) as admin:
        admin.create_topic(topic, partitions)


def progress(load: SteadyLoad) -> None:
    """Wait until every partition has taken some more."""
    before = len(load.acknowledged)
    wait_until(
        lambda: {place.partition for place in load.acknowledged[before:]} == set(range(PARTITIONS)),
        "every partition to take messages",
    )


def read(bootstrap: str, topic: str, count: int) -> list[Place]:
    """All that is in a topic, and that is this many messages."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    keys = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
    ends = [(consumer.get_watermark_offsets(key, 30) or (0, 0))[1] for key in keys]
    assert sum(ends) == count
    consumer.assign(keys)
    found: list[Place] = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), 30):
            assert message.error() is None, message.error()
            found.append(Place(message.partition() or 0, message.offset() or 0, (message.value() or b"").decode()))
    consumer.close()
    return sorted(found)


def test_a_topic_lies_on_all_brokers_and_any_of_them_leads_clients_to_it(cluster: ZookeeperCluster) -> None:
    with messages(cluster, "spread") as load:
        for number in range(BROKERS):
            create(cluster, f"by-{number}", by=number)
            with Admin(cluster.address(number)) as admin:
                assert {each.leader for each in admin.topic("spread").partitions} == {0, 1, 2}
        progress(load)


def test_partitions_of_a_killed_broker_go_on_when_it_is_back(cluster: ZookeeperCluster) -> None:
    victim = next(number for number in range(BROKERS) if number != cluster.controller())
    with messages(cluster, "killed"):
        cluster.brokers[victim].kill()
        cluster.start(victim)


def test_another_broker_becomes_controller_when_that_is_killed(cluster: ZookeeperCluster) -> None:
    before = cluster.controller()
    with messages(cluster, "controller-killed"):
        cluster.brokers[before].kill()
        after = cluster.wait_for_other_controller(before)
        create(cluster, "without-the-controller", by=next(iter({0, 1, 2} - {before, after})))
        cluster.start(before)
        cluster.wait_until_alive()
        assert cluster.controller(says=before) == after


def test_brokers_serve_what_they_lead_while_zookeeper_is_away(cluster: ZookeeperCluster, zookeeper: Ensemble) -> None:
    [node] = zookeeper.nodes
    doubt = "out of contact with the metadata store: this broker serves what it leads, and takes on nothing new"
    with messages(cluster, "without-zookeeper") as load:
        before = cluster.logged(doubt)
        node.kill()
        wait_until(lambda: all(map(gt, cluster.logged(doubt), before)), "all brokers to notice")
        progress(load)
        node.start()
        wait_until(lambda: node.mode() is not None, "ZooKeeper to serve again")
        cluster.wait_until_alive()
        create(cluster, "zookeeper-is-back", by=1)


def test_a_controller_that_was_paused_for_longer_than_its_session_resigns(cluster: ZookeeperCluster) -> None:
    cluster.wait_until_alive()
    before = cluster.controller()
    with messages(cluster, "controller-paused"):
        resigned = cluster.logged("resigned as controller")[before]
        cluster.brokers[before].send_signal(signal.SIGSTOP)
        after = cluster.wait_for_other_controller(before)
        create(cluster, "while-it-sleeps", by=after)
        cluster.brokers[before].send_signal(signal.SIGCONT)
        wait_until(lambda: cluster.logged("resigned as controller")[before] > resigned, "it to resign")
        cluster.wait_until_alive()
        assert cluster.controller(says=before) == after
        create(cluster, "afterwards", by=before)
