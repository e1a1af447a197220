"""One broker of a cluster in a test, by itself."""

import socket
import time

import pytest

from penstock.client.sync import Producer
from penstock.testing import Cluster


def test_a_node_is_stopped_and_started_by_itself_and_keeps_its_address() -> None:
    with Cluster(brokers=2, storage="memory") as cluster:
        node = cluster.brokers[1]
        before = node.bootstrap
        for end in (node.stop, node.kill):
            end()
            assert not node.is_running
            assert node.bootstrap == before
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(node.address)
            with pytest.raises(RuntimeError, match="start it again"):
                _ = node.failure
            node.start()
            assert node.is_running
        node.restart()
        socket.create_connection(node.address).close()


def test_a_fault_strikes_one_node_alone() -> None:
    with Cluster(brokers=2, storage="memory") as cluster, Producer(cluster.bootstrap) as producer:
        cluster.create_topic("orders", partitions=2)
        with cluster.brokers[1].faults.delay_replies(0, "Produce") as fault:
            for partition in range(2):
                producer.send("orders", b"a", partition=partition).result()
                assert fault.struck == (cluster.leader_of("orders", partition) == 1)


def test_a_node_says_that_its_disk_has_failed_and_serves_after_a_restart() -> None:
    with Cluster(brokers=2, storage="memory") as cluster, Producer(cluster.bootstrap) as producer:
        cluster.create_topic("orders", partitions=2)
        node = cluster.brokers[1]
        assert node.failure is None
        [led] = [partition for partition in range(2) if cluster.leader_of("orders", partition) == 1]
        producer.send("orders", b"a", partition=led).result()
        with node.faults.fail_disk():
            sending = producer.send("orders", b"b", partition=led)
            while node.failure is None:
                time.sleep(0.001)
        assert "has failed" in node.failure
        assert cluster.brokers[0].failure is None
        node.restart()
        assert node.failure is None
        assert sending.result().offset == 1
