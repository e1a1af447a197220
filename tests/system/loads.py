"""Clients that send as fast as they can, whatever happens to their broker, and remember what it acknowledged.

To each partition of its topic a load sends `0`, `1`, `2` and so on, so that a value is to be found at that very offset.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.system.processes import PATIENCE_SECONDS, Patience
from tests.system.producing import IdempotentProducer, read_all

PARTITIONS: Final = 2
FROM_THE_BEGINNING: Final = (0,) * PARTITIONS
# Partition, offset and value of a message.
Place = tuple[int, int, bytes]


class Load(Protocol):
    """It sends from the beginning on. Either it is drained, while there is a broker, or given up when there is none."""

    topic: str

    @property
    def count(self) -> int:
        """Of messages that were acknowledged."""

    def acknowledged(self) -> list[Place]: ...

    def drain(self) -> None:
        """Send no more, and wait until everything is acknowledged."""

    def give_up(self) -> None:
        """Send no more, and forget what is not acknowledged."""


class RawLoad:
    """Our own, which needs little time for a message."""

    def __init__(self, address: tuple[str, int], topic: str, *, acks: int = -1) -> None:
        self.topic = topic
        self._producer = IdempotentProducer(address, topic, acks=acks)
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return 3 * len(self._producer.acknowledged)

    def acknowledged(self) -> list[Place]:
        return [
            (sent.partition, sent.base_offset + i, value)
            for sent in self._producer.acknowledged[:]
            for i, value in enumerate(sent.values)
        ]

    def drain(self) -> None:
        self._is_over.set()
        self._join()

    def give_up(self) -> None:
        self._is_over.set()
        self._producer.stops_when_refused = True
        self._join()

    def _join(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._producer.send(self._batches()))
        except BaseException as failure:
            self._failure = failure

    def _batches(self) -> Iterator[tuple[int, tuple[bytes, ...]]]:
        for first in itertools.count(0, 3):
            for partition in range(PARTITIONS):
                if self._is_over.is_set():
                    return
                yield partition, tuple(b"%d" % (first + i) for i in range(3))


class LibrdkafkaLoad:
    """What users have."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        self.topic = topic
        self._acknowledged: list[Place] = []
        self._refused: list[KafkaError] = []
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": "{}:{}".format(*address),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 20,
                "queue.buffering.max.messages": 5000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                # That its broker goes away is what this is about.
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"load of {topic}", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return len(self._acknowledged)

    def acknowledged(self) -> list[Place]:
        return self._acknowledged[:]

    def drain(self) -> None:
        self._stop()
        patience = Patience()
        while self._producer.flush(1) and patience.lasts("librdkafka to deliver"):
            pass
        assert not self._refused, self._refused[:3]

    def give_up(self) -> None:
        self._stop()
        self._producer.purge()
        self._producer.flush(10)

    def _stop(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        for number in itertools.count():
            for partition in range(PARTITIONS):
                while not self._is_over.is_set():
                    try:
                        self._producer.produce(
                            self.topic, b"%d" % number, partition=partition, on_delivery=self._delivered
                        )
                        break
                    except (BufferError, KafkaException):
                        self._producer.poll(0.01)
            self._producer.poll(0)
            if self._is_over.is_set():
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged.append((message.partition() or 0, message.offset() or 0, message.value() or b""))
        else:
            self._refused.append(error)


def wait_for_acknowledgements(loads: Sequence[Load], more: int) -> None:
    """Until each has so many more than now."""
    goals = [(load, load.count + more) for load in loads]
    patience = Patience()
    while any(load.count < goal for load, goal in goals) and patience.lasts("acknowledgements"):
        time.sleep(0.001)


def check_nothing_is_lost(
    address: tuple[str, int], load: Load, hint: str = "", *, starts: Sequence[int] = FROM_THE_BEGINNING
) -> None:
    """All that is there is there once and in order, and everything acknowledged is there."""
    ends = read_in_order(address, load.topic, hint, starts=starts)
    acknowledged = load.acknowledged()
    assert acknowledged
    for partition, offset, value in acknowledged:
        assert value == b"%d" % offset, f"{load.topic}-{partition} {hint}: {value!r} was acknowledged at {offset}"
        assert offset < ends[partition], f"{load.topic}-{partition}@{offset} {hint} is lost"


def read_in_order(
    address: tuple[str, int], topic: str, hint: str = "", *, starts: Sequence[int] = FROM_THE_BEGINNING
) -> list[int]:
    """Where the partitions end, after a check that from their starts to there nothing is missing, doubled or moved."""
    found = asyncio.run(read_all(address, topic, PARTITIONS, starts=starts))
    ends = [start + len(values) for start, values in zip(starts, found, strict=True)]
    for partition, values in enumerate(found):
        in_order = [b"%d" % number for number in range(starts[partition], ends[partition])]
        assert values == in_order, f"{topic}-{partition} {hint}: duplicates, gaps, or out of order"
    return ends
