"""The members of a group, half of them librdkafka's and half our own, which read and commit while coordinators come and
go, and what is noted of them: who has which partition, and what they were promised."""

import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer

from penstock.client import sync
from penstock.client.errors import CommitFailedError
from penstock.client.metadata import TopicPartition

TOPIC, GROUP = "orders", "billing"
PARTITIONS: Final = 12
QUIET = {"log_level": 0}
MEMBERSHIP = {"heartbeat.interval.ms": 300, "auto.offset.reset": "earliest", "enable.auto.commit": False}
UNCERTAIN = {"_TIMED_OUT", "_WAIT_COORD", "REQUEST_TIMED_OUT", "_NO_OFFSET", "_TRANSPORT"}
"""Names of errors after which a commit may or may not have been made."""
REFUSED = {
    # The coordinator is about to be replaced, or waits for replicas: librdkafka does not try again for ever.
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    # The group is about to share partitions out anew, or has done so.
    "REBALANCE_IN_PROGRESS",
    "ILLEGAL_GENERATION",
}
"""Those after which it was not made. A member that was expelled has another, which is a failure."""


class Ownership:
    """Notes what members are told of their partitions, as it happens: a partition has one owner at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: dict[int, str] = {}
        self.events = 0
        self.faults: list[str] = []

    def gained(self, member: str, partitions: Iterable[int]) -> None:
        with self._lock:
            self.events += 1
            for index in partitions:
                if (owner := self.owners.get(index)) is not None:
                    self.faults.append(f"{member} was given partition {index}, which {owner} has")
                self.owners[index] = member

    def gave_up(self, member: str, partitions: Iterable[int]) -> None:
        with self._lock:
            self.events += 1
            for index in partitions:
                if self.owners.pop(index, None) != member:
                    self.faults.append(f"{member} gave up partition {index}, which it did not have")

    def lost(self, member: str, partitions: Iterable[int]) -> None:
        self.faults.append(f"{member} was expelled and lost {sorted(partitions)}")
        self.gave_up(member, partitions)

    def is_shared_by(self, members: set[str]) -> bool:
        """Whether these members, and no other, have all partitions."""
        with self._lock:
            return len(self.owners) == PARTITIONS and set(self.owners.values()) == members


class Load(threading.Thread):
    """Sends to all partitions, so that there is always something to read."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUIET})
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(0.005):
            if len(self._producer) < 1000:
                self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                number += 1
            self._producer.poll(0)
        assert self._producer.flush(60) == 0


class Member(threading.Thread):
    """Reads, and commits what it has read. `acknowledged` has the highest offset of each partition that it may rely
    on."""

    def __init__(self, bootstrap: str, ownership: Ownership, name: str, session_ms: int) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap = bootstrap
        self.settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "client.id": name,
            "session.timeout.ms": session_ms,
            **MEMBERSHIP,
        }
        self.ownership = ownership
        self.acknowledged: dict[int, int] = {}
        self.commits = 0
        self.longest_stop_seconds = 0.0
        """Between two commits, or before the first."""
        self._last_commit = time.monotonic()
        self.assignments = 0
        self.stopping = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def noted(self, offsets: dict[int, int]) -> None:
        self.acknowledged |= offsets
        now = time.monotonic()
        self.longest_stop_seconds = max(self.longest_stop_seconds, now - self._last_commit)
        self._last_commit = now
        self.commits += 1

    def gained(self, partitions: Iterable[Any]) -> None:
        self.assignments += 1
        self.ownership.gained(self.name, [each.partition for each in partitions])

    def gave_up(self, partitions: Iterable[Any]) -> None:
        self.ownership.gave_up(self.name, [each.partition for each in partitions])

    def lost(self, partitions: Iterable[Any]) -> None:
        self.ownership.lost(self.name, [each.partition for each in partitions])


class ConfluentMember(Member):
    def work(self) -> None:
        consumer = Consumer({**self.settings, "partition.assignment.strategy": "range", **QUIET})
        consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, partitions: self.gained(partitions),
            on_revoke=lambda _, partitions: self.gave_up(partitions),
            on_lost=lambda _, partitions: self.lost(partitions),
        )
        while not self.stopping.is_set():
            if [each for each in consumer.consume(100, 0.2) if each.error() is None]:
                try:
                    committed: Any = consumer.commit(asynchronous=False)
                except KafkaException as error:
                    if not (error.args[0].retriable() or error.args[0].name() in UNCERTAIN | REFUSED):
                        raise
                    # Nothing is promised then, and the next commit covers it.
                    continue
                self.noted({each.partition: each.offset for each in committed if each.error is None})
        consumer.close()


class OwnMember(Member):
    def work(self) -> None:
        with sync.Consumer(self.settings) as consumer:
            consumer.subscribe(TOPIC, on_assigned=self.gained, on_revoked=self.gave_up, on_lost=self.lost)
            while not self.stopping.is_set():
                read = {message.partition: message.offset + 1 for message in consumer.poll(200)}
                if read:
                    try:
                        consumer.commit({TopicPartition(TOPIC, index): offset for index, offset in read.items()})
                    except CommitFailedError:
                        # They are another member's now, and that one reads the messages again.
                        continue
                    self.noted(read)


class LoneCommitter(Member):
    """Is in no group, and commits one number after the other, having read the one before: none may be missing."""

    def work(self) -> None:
        partition, last = TopicPartition(TOPIC, 0), 0
        with sync.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "lone"}) as consumer:
            consumer.assign([partition])
            while not self.stopping.is_set():
                found = consumer.committed(partition)[partition] or 0
                assert found >= last, f"{last} was acknowledged, and {found} is committed"
                last = found + 1
                consumer.commit({partition: last})
                self.noted({})
