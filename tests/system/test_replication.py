"""Three broker processes with three replicas of everything: leaders are killed while messages are acknowledged."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.client import sync
from penstock.protocol.batch import split
from tests.system.processes import Patience
from tests.system.supervised import SupervisorProcess, spare_ports

TOPIC = "orders"
PARTITIONS = 3
KILLS = int(os.environ.get("SOAK_KILLS", "3"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
QUIET = {"log_level": 0}
MOST_UNDER_WAY = 1000


class ConfluentLoad(threading.Thread):
    """Sends numbers with librdkafka, idempotently, and notes those that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1, **QUIET}
        )
        self.acknowledged: list[bytes] = []
        self.failures: list[object] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            value = b"confluent-%d" % number
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0.001)
            while len(self._producer) > MOST_UNDER_WAY:
                self._producer.poll(0.01)
            number += 1
        assert self._producer.flush(60) == 0

    def _delivered(self, error: object, message: object) -> None:
        if error:
            self.failures.append(error)
        else:
            self.acknowledged.append(message.value())  # type: ignore[attr-defined]


class OwnLoad(threading.Thread):
    """The same with our SDK, one message after the other."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._address = bootstrap
        self.acknowledged: list[bytes] = []
        self.failures: list[object] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        with sync.Producer(self._address, acks="all") as producer:
            while not self.stopping.is_set():
                value = b"own-%d" % number
                try:
                    producer.send(TOPIC, value, partition=number % PARTITIONS).result()
                    self.acknowledged.append(value)
                except Exception as error:
                    self.failures.append(error)
                number += 1


def read_all(bootstrap: str, acknowledged: set[bytes]) -> list[list[bytes]]:
    """The values of each partition, in order, once all that were acknowledged have been seen."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **QUIET})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    missing = set(acknowledged)
    while missing:
        messages = consumer.consume(1000, 20)
        assert messages, f"{len(missing)} acknowledged messages are missing, such as {sorted(missing)[:5]}"
        for message in messages:
            if message.error() is None:
                value = message.value() or b""
                found[message.partition() or 0].append(value)
                missing.discard(value)
    consumer.close()
    return found


def batches(data: Path, broker: int, partition: int) -> list[bytes]:
    """What a replica has on its disk."""
    folder = (data if broker == 0 else data / str(broker)) / "logs" / f"{TOPIC}-{partition}"
    found = []
    for segment in sorted(folder.glob("*.log")):
        found += [bytes(view) for _, view in split(memoryview(segment.read_bytes()))]
    return found


def test_leaders_are_killed_and_nothing_acknowledged_is_lost_doubled_or_moved(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    data, ports = tmp_path / "data", spare_ports(3)
    with SupervisorProcess(data, ports, "-X", "default.replication.factor=3") as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, **QUIET})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
            made.result(30)
        loads: list[ConfluentLoad | OwnLoad] = [ConfluentLoad(brokers.bootstrap), OwnLoad(brokers.bootstrap)]
        for load in loads:
            load.start()
        for _ in range(KILLS):
            # Every kill meets messages under way, and the next one waits until this is overcome.
            for load in loads:
                wait_for(partial(has_more, load, len(load.acknowledged) + 50))
            victim = chance.randrange(3)
            pid = brokers.pids()[victim]
            os.kill(pid, signal.SIGKILL)
            brokers.wait_for_another(victim, pid)
            wait_for(partial(is_in_sync, admin))
        for load in loads:
            load.stopping.set()
            load.join()
        assert [load.failures for load in loads] == [[], []]
        found = read_all(brokers.bootstrap, {value for load in loads for value in load.acknowledged})
        for values in found:
            assert [value for value, times in Counter(values).items() if times > 1] == []
            for kind in (b"confluent-", b"own-"):
                numbers = [int(value.removeprefix(kind)) for value in values if value.startswith(kind)]
                assert numbers == sorted(numbers)
        assert brokers.stop() == 0
    for partition in range(PARTITIONS):
        first, *others = (batches(data, broker, partition) for broker in range(3))
        assert first
        assert all(other == first for other in others)


def has_more(load: ConfluentLoad | OwnLoad, than: int) -> bool:
    return len(load.acknowledged) > than


def is_in_sync(admin: AdminClient) -> bool:
    topic = admin.list_topics(TOPIC, timeout=30).topics[TOPIC]
    return all(len(partition.isrs) == 3 for partition in topic.partitions.values())


def wait_for(condition: Callable[[], bool]) -> None:
    patience = Patience()
    while not condition() and patience.lasts("the cluster"):
        time.sleep(0.02)
