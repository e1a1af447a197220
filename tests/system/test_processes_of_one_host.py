"""Several brokers on one host by `penstock serve --processes`: killed, left alone, and stopped."""

import os
import signal
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.supervisor.left_processes import read_left
from tests.system.processes import BrokerProcess, run_to_its_end
from tests.system.supervised import SupervisorProcess, spare_ports

TOPIC = "orders"
PARTITIONS = 6
# A broker that is away is no news here.
QUIET = {"log_level": 0}


def create(bootstrap: str, topic: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        made.result(30)


def send(bootstrap: str, value: bytes) -> None:
    """A message to every partition, acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **QUIET})
    failures: list[object] = []
    for partition in range(PARTITIONS):
        producer.produce(
            TOPIC, value, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(30) == 0
    assert failures == []


def read(bootstrap: str, count: int) -> list[bytes]:
    """The values of all partitions, sorted."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, **QUIET})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 30)
        assert messages, f"{len(found)} of {count} messages"
        found += [message.value() or b"" for message in messages if message.error() is None]
    consumer.close()
    return sorted(found)


def test_brokers_come_back_go_on_without_their_supervisor_and_stop_with_it(tmp_path: Path) -> None:
    data, ports = tmp_path / "data", spare_ports(3)
    with SupervisorProcess(data, ports) as first:
        assert first.bootstrap == ",".join(f"127.0.0.1:{port}" for port in ports)
        create(f"127.0.0.1:{ports[2]}")
        send(first.bootstrap, b"before")
        pids = first.pids()
        assert sorted(pids) == [0, 1, 2]

        os.kill(pids[1], signal.SIGKILL)
        first.wait_for_another(1, pids[1])
        send(first.bootstrap, b"one was killed")
        assert len(read(first.bootstrap, 2 * PARTITIONS)) == 2 * PARTITIONS

        first.kill()
        left = read_left(str(data))
        assert len(left) == 3
        send(first.bootstrap, b"without supervisor")

        with SupervisorProcess(data, ports) as second:
            assert not any(each.is_alive for each in left)
            assert read(second.bootstrap, 3 * PARTITIONS).count(b"without supervisor") == PARTITIONS
            assert second.press_ctrl_c() == 0
            assert second.pids() == {}
            assert sorted(line["broker"] for line in second.lines("stopped")) == [0, 1, 2]
            assert [line["was_clean"] for line in second.lines("started")] == [True] * 3


def test_a_broker_alone_becomes_broker_0_and_is_alone_again_when_the_others_hold_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as alone:
        address = "{}:{}".format(*alone.address)
        create(address)
        send(address, b"kept")
        # It asks for the coordinator of its group, whose topic is then on this broker.
        read(address, PARTITIONS)
        assert alone.stop() == 0
    with SupervisorProcess(data, spare_ports(2)) as several:
        assert read(several.bootstrap, PARTITIONS) == [b"kept"] * PARTITIONS
        assert several.press_ctrl_c() == 0
    with BrokerProcess(data) as alone:
        assert alone.stop() == 0
    with SupervisorProcess(data, spare_ports(2)) as several:
        create(several.bootstrap, "spread")
        assert several.press_ctrl_c() == 0
    refused = run_to_its_end(data)
    assert refused.returncode == 1
    assert "broker 1 holds 3 partitions (spread)" in refused.stderr
