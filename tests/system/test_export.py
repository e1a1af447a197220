"""A cluster of three brokers whose ZooKeeper loses everything, and which comes back with an export."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.cli.main import penstock
from penstock.client.metadata import Partition
from penstock.client.sync import Admin
from penstock.machines.elections import LEADER_EPOCH_STEP
from tests.system.processes import run_to_its_end
from tests.system.zookeeper_cluster import BROKERS, ZookeeperCluster, wait_until
from tools.zookeeper.ensemble import Ensemble, install

TOPIC, GROUP = "orders", "readers"
CONFIGS = {"retention.ms": "-1", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Ensemble]:
    install()
    with Ensemble(nodes=1) as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(zookeeper: Ensemble, folder: Path) -> Iterator[ZookeeperCluster]:
    with ZookeeperCluster(folder, f"{zookeeper.connect}/queue") as started:
        with Admin(started.bootstrap) as admin:
            admin.create_topic(TOPIC, 3, replication_factor=3, configs=CONFIGS)
        yield started


def call(command: str, zookeeper: Ensemble, *arguments: str) -> Result:
    return CliRunner().invoke(penstock, ["cluster", command, "--zookeeper", f"{zookeeper.connect}/queue", *arguments])


def lose_everything(zookeeper: Ensemble) -> None:
    [node] = zookeeper.nodes
    node.kill()
    node.wipe()
    node.start()
    zookeeper.wait_until_it_serves()


def start(cluster: ZookeeperCluster, *numbers: int) -> None:
    with ThreadPoolExecutor(BROKERS) as threads:
        list(threads.map(cluster.start, numbers))


def send(cluster: ZookeeperCluster, first: int, count: int, *, topic: str = TOPIC) -> None:
    """Messages to all partitions, of which every one is acknowledged by all in-sync replicas."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % 3,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failed == []


def read(cluster: ZookeeperCluster) -> dict[int, list[int]]:
    """What each partition has, in its order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    keys = [TopicPartition(TOPIC, partition, 0) for partition in range(3)]
    count = sum(end(consumer, key) for key in keys)
    consumer.assign(keys)
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    while sum(map(len, found.values())) < count:
        for message in consumer.consume(count, 30):
            assert message.error() is None, message.error()
            assert message.offset() == len(found[message.partition() or 0])
            found[message.partition() or 0].append(int(message.value() or b""))
    consumer.close()
    return found


def end(consumer: Consumer, key: TopicPartition) -> int:
    """The end of a partition, once its new leader knows what is committed."""
    found: list[int] = []

    def is_told() -> bool:
        try:
            found.append((consumer.get_watermark_offsets(key, 30) or (0, 0))[1])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE:
                raise
        return bool(found)

    wait_until(is_told, f"the end of {key}")
    return found[0]


def sent(count: int) -> dict[int, list[int]]:
    return {partition: list(range(partition, count, 3)) for partition in range(3)}


def partitions(cluster: ZookeeperCluster, *, by: int = 0) -> tuple[Partition, ...]:
    with Admin(cluster.address(by)) as admin:
        return admin.topic(TOPIC).partitions


def wait_until_led(cluster: ZookeeperCluster) -> None:
    wait_until(
        lambda: all(each.leader >= 0 for number in range(BROKERS) for each in partitions(cluster, by=number)), "leaders"
    )


def wait_until_in_sync(cluster: ZookeeperCluster) -> None:
    wait_until(lambda: all(len(each.isr) == BROKERS for each in partitions(cluster)), "all replicas to be in sync")


def test_a_cluster_comes_back_with_its_messages_offsets_topic_ids_and_configs(
    cluster: ZookeeperCluster, zookeeper: Ensemble, folder: Path
) -> None:
    with Admin(cluster.bootstrap) as admin:
        send(cluster, 0, 300)
        admin.commit(GROUP, dict.fromkeys(admin.end_offsets(TOPIC), 40))
        wait_until_in_sync(cluster)
        topic_id, committed, described = admin.topic(TOPIC).topic_id, admin.committed(GROUP), admin.configs(TOPIC)
    exported = call("export", zookeeper, str(folder / "metadata.export"))
    assert exported.exit_code == 0, exported.stderr
    with ThreadPoolExecutor(BROKERS) as threads:
        assert list(threads.map(lambda each: each.stop(), cluster.brokers.values())) == [0] * BROKERS
    lose_everything(zookeeper)
    early = run_to_its_end(folder / "0", "--zookeeper", f"{zookeeper.connect}/queue", "--node-id", "0")
    assert early.returncode == 1
    assert "penstock cluster import" in early.stderr

    imported = call("import", zookeeper, str(folder / "metadata.export"))

    assert imported.exit_code == 0, imported.stderr
    assert "2 topics" in imported.stdout
    again = call("import", zookeeper, str(folder / "metadata.export"))
    assert again.exit_code == 1
    assert "already" in again.stderr
    start(cluster, *range(BROKERS))
    wait_until_led(cluster)
    assert read(cluster) == sent(300)
    with Admin(cluster.bootstrap) as admin:
        assert admin.topic(TOPIC).topic_id == topic_id
        assert admin.committed(GROUP) == committed
        assert admin.configs(TOPIC) == described
    send(cluster, 300, 300)
    assert read(cluster) == sent(600)


def test_what_was_acknowledged_after_the_export_is_led_by_those_that_have_it(
    cluster: ZookeeperCluster, zookeeper: Ensemble, folder: Path
) -> None:
    wait_until_in_sync(cluster)
    exported = call("export", zookeeper, str(folder / "older.export"))
    assert exported.exit_code == 0, exported.stderr
    before = partitions(cluster)
    stale = before[0].replicas[0]
    others = [number for number in range(BROKERS) if number != stale]
    # By the export this broker is in sync everywhere. It is not, when messages are acknowledged by the two others.
    cluster.brokers[stale].kill()
    wait_until(
        lambda: all(
            each.leader not in (-1, stale) and stale not in each.isr for each in partitions(cluster, by=others[0])
        ),
        "other leaders",
    )
    send(cluster, 600, 300)
    with Admin(cluster.address(others[0])) as admin:
        admin.create_topic("later", 1, replication_factor=2)
    send(cluster, 0, 1, topic="later")
    for number in others:
        cluster.brokers[number].kill()
    lose_everything(zookeeper)
    imported = call("import", zookeeper, str(folder / "older.export"))
    assert imported.exit_code == 0, imported.stderr

    start(cluster, stale, others[0])
    assert {each.leader for each in partitions(cluster, by=stale)} == {-1}
    health = CliRunner().invoke(penstock, ["-b", cluster.address(stale), "cluster", "health", "-O", "json"])
    [found] = [each for each in json.loads(health.stdout)["findings"] if each["kind"] == "imported"]
    assert found["brokers"] == [others[1]]
    start(cluster, others[1])
    wait_until_led(cluster)

    assert read(cluster) == sent(900)
    led = partitions(cluster)
    assert all(each.leader in others for each in led)
    assert all(each.leader_epoch >= LEADER_EPOCH_STEP + old.leader_epoch for each, old in zip(led, before, strict=True))
    wait_until_in_sync(cluster)
    send(cluster, 900, 300)
    assert read(cluster) == sent(1200)
    # A topic that the export does not know is gone, and its logs stay where they are.
    with Admin(cluster.bootstrap) as admin:
        assert "later" not in [each.name for each in admin.topics()]
    assert len(list(folder.glob("*/logs/later-0"))) == 2
