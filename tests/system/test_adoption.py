"""The folder of a broker that was alone, in a cluster with ZooKeeper."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from penstock.cli.main import penstock
from tests.system.clients import create_topic
from tests.system.processes import BrokerProcess, run_to_its_end
from tests.system.test_processes_of_one_host import PARTITIONS, TOPIC, create, read, send
from tools.zookeeper.ensemble import Ensemble, install


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[str]:
    install()
    with Ensemble(nodes=1) as started:
        yield f"{started.connect}/queue"


def commit(bootstrap: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], 30)
    consumer.close()
    return found.offset


def test_topics_messages_and_groups_of_a_broker_alone_are_those_of_the_cluster(tmp_path: Path, zookeeper: str) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as alone:
        address = "{}:{}".format(*alone.address)
        create(address)
        send(address, b"before")
        commit(address, 1)
        in_use = CliRunner().invoke(penstock, ["cluster", "adopt", "--zookeeper", zookeeper, "--data-dir", str(data)])
        assert "is in use" in in_use.stderr
        assert alone.stop() == 0
    result = CliRunner().invoke(penstock, ["cluster", "adopt", "--zookeeper", zookeeper, "--data-dir", str(data)])
    assert result.exit_code == 0, result.stderr
    assert f"--node-id 0 --data-dir {data}" in result.stdout
    refused = run_to_its_end(data)
    assert refused.returncode == 1
    assert "zookeeper.connect" in refused.stderr
    with BrokerProcess(data, "--zookeeper", zookeeper) as first:
        with BrokerProcess(tmp_path / "second", "--zookeeper", zookeeper, "--node-id", "1") as second:
            address = "{}:{}".format(*second.address)
            assert read(address, PARTITIONS) == [b"before"] * PARTITIONS
            assert committed(address) == 1
            send(address, b"after")
            create_topic(second.address, "spread", 2)
            assert second.stop() == 0
        assert first.stop() == 0
        assert first.problems() == []
