"""Stopping a broker under load, in order and by force: what was acknowledged is there, once and in order."""

import random
import signal
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.system.clients import create_topic
from tests.system.processes import PATIENCE_SECONDS, BrokerProcess

PARTITIONS = 2


class Load:
    """A producer in a thread that sends numbers to each partition, and notes which were acknowledged."""

    def __init__(self, address: tuple[str, int]) -> None:
        settings = {
            "bootstrap.servers": "{}:{}".format(*address),
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 5000,
        }
        self._producer = Producer(settings)
        self._enough = threading.Event()
        self._stop = threading.Event()
        self._wanted = 0
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        self._wanted = count
        assert self._enough.wait(PATIENCE_SECONDS), "the broker acknowledges nothing"

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(PARTITIONS):
                try:
                    self._producer.produce("t", b"%d" % number, partition=partition, on_delivery=self._delivered)
                except BufferError:
                    self._producer.poll(0.1)
            number += 1
            self._producer.poll(0)
        self._producer.purge()
        self._producer.flush(PATIENCE_SECONDS)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.partition()].append(int(message.value()))  # type: ignore[attr-defined]
            if 0 < self._wanted <= sum(map(len, self.acknowledged)):
                self._enough.set()


def stored(address: tuple[str, int]) -> list[list[int]]:
    """The numbers in each partition."""
    consumer = Consumer(
        {"bootstrap.servers": "{}:{}".format(*address), "group.id": "unused", "enable.auto.commit": False}
    )
    found: list[list[int]] = []
    try:
        for number in range(PARTITIONS):
            partition = TopicPartition("t", number, 0)
            end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_SECONDS)[1]
            consumer.assign([partition])
            values: list[int] = []
            while len(values) < end:
                messages = consumer.consume(min(10_000, end - len(values)), PATIENCE_SECONDS)
                assert messages, f"{len(values)} of {end} messages came"
                values += [int(message.value() or b"") for message in messages]
            found.append(values)
    finally:
        consumer.close()
    return found


def check_nothing_is_lost(acknowledged: list[list[int]], found: list[list[int]]) -> None:
    for told, there in zip(acknowledged, found, strict=True):
        assert told == sorted(told)
        assert there == sorted(set(there)), "a message is there twice, or out of order"
        assert set(told) <= set(there), "an acknowledged message is gone"


def test_sigterm_under_load_loses_nothing_acknowledged_and_needs_no_recovery_scan(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker.address, "t", PARTITIONS)
        load = Load(broker.address)
        load.wait_for(20_000)
        assert broker.stop() == 0
        load.stop()
    with BrokerProcess(tmp_path / "data") as broker:
        assert (broker.started["scanned_bytes"], broker.started["was_clean"]) == (0, True)
        check_nothing_is_lost(load.acknowledged, stored(broker.address))
        assert broker.stop() == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_killed_under_load_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker.address, "t", PARTITIONS)
        load = Load(broker.address)
        load.wait_for(rng.randint(1_000, 10_000))
        broker.kill()
        load.stop()
    with BrokerProcess(tmp_path / "data") as broker:
        assert not broker.started["was_clean"]
        check_nothing_is_lost(load.acknowledged, stored(broker.address))
        assert broker.stop() == 0


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create_topic(broker.address, "t", PARTITIONS)
        broker.send_signal(signal.SIGINT)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait() in (0, 128 + signal.SIGTERM, 128 + signal.SIGINT)
