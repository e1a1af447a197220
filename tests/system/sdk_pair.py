"""A producer and the members of a group, all of our SDK, which go on whatever happens to brokers, and note what they
were promised."""

import itertools
import threading
import time
from collections import deque
from typing import Final, NamedTuple

from penstock.client.errors import CommitFailedError
from penstock.client.metadata import TopicPartition
from penstock.client.sync import Consumer, Producer, Sending

PACE_SECONDS: Final = 0.05
AT_ONCE: Final = 5
"""Messages that each partition gets in a turn."""
MOST_UNDER_WAY: Final = 400


class Place(NamedTuple):
    """A message, and where it lies."""

    partition: int
    offset: int
    value: bytes


class Worker(threading.Thread):
    """Works until it is stopped. What it fails with is told by `check` and `stop`."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.is_over = threading.Event()
        self.longest_stop_seconds = 0.0
        """Between two signs of life."""
        self._failure: Exception | None = None
        self._last_seen: float | None = None

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self._failure = error

    def work(self) -> None:
        raise NotImplementedError

    def seen(self) -> None:
        now = time.monotonic()
        self.longest_stop_seconds = max(self.longest_stop_seconds, now - (self._last_seen or now))
        self._last_seen = now

    def check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"{self.name} has failed") from self._failure

    def stop(self, patience_seconds: float) -> None:
        self.is_over.set()
        self.join(patience_seconds)
        assert not self.is_alive(), f"{self.name} does not end"
        self.check()


class Sender(Worker):
    """Sends numbers to all partitions in turn. `acknowledged` grows in the order in which they were sent, and has all
    of them when it has stopped."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        super().__init__("sender")
        self.acknowledged: list[Place] = []
        self._address = address
        self._topic = topic
        self._partitions = partitions

    def work(self) -> None:
        numbers = itertools.count()
        under_way: deque[tuple[Sending, bytes]] = deque()
        with Producer(self._address, acks="all", enable_idempotence=True) as producer:
            while not self.is_over.wait(PACE_SECONDS):
                for partition in AT_ONCE * tuple(range(self._partitions)):
                    value = b"%d" % next(numbers)
                    under_way.append((producer.send(self._topic, value, partition=partition), value))
                while under_way and (under_way[0][0].done() or len(under_way) > MOST_UNDER_WAY):
                    self._acknowledge(*under_way.popleft())
            while under_way:
                self._acknowledge(*under_way.popleft())

    def _acknowledge(self, sending: Sending, value: bytes) -> None:
        where = sending.result()
        self.acknowledged.append(Place(where.partition, where.offset, value))
        self.seen()


class Reader(Worker):
    """A member, which reads, and commits what it has read. `committed` has what it was told of its commits."""

    def __init__(self, address: str, topic: str, group: str, name: str) -> None:
        super().__init__(name)
        self.read: list[Place] = []
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.lost: list[TopicPartition] = []
        """Taken from it, since the group took it for dead."""
        self._address = address
        self._topic = topic
        self._group = group

    def work(self) -> None:
        with Consumer(
            bootstrap_servers=self._address,
            group_id=self._group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe(self._topic, on_lost=self.lost.extend)
            while not self.is_over.is_set():
                messages = consumer.poll(500, timeout_ms=200)
                self.read += [Place(each.partition, each.offset, each.value or b"") for each in messages]
                done = {each.partition: each.offset + 1 for each in messages}
                if done:
                    try:
                        consumer.commit({TopicPartition(self._topic, index): offset for index, offset in done.items()})
                    except CommitFailedError:
                        # They are another member's now, and that one reads the messages again.
                        continue
                    self.committed |= done
                    self.commits += 1
                    self.seen()
