"""Warms brokers that compile their code while they run: with many small requests of a producer and a group."""

import time
from typing import Final

from confluent_kafka import Consumer, Producer

MESSAGES: Final = 20_000
"""Each in a request of its own: Java has compiled for good what was called some ten thousand times."""
AT_MOST_SECONDS: Final = 40.0
"""A machine that is busy with other things does not come to so many."""
AT_ONCE: Final = 500
COMMIT_SECONDS: Final = 0.1
_QUIET: Final = {"log_level": 0}


def load(bootstrap: str, topic: str, partitions: int) -> None:
    """Returns when all are written, with acks=all, and read by a member of a group that commits often."""
    shared = {"bootstrap.servers": bootstrap, **_QUIET}
    producer = Producer({**shared, "batch.num.messages": 1, "enable.idempotence": True})
    reading = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**shared, **reading, "fetch.wait.max.ms": 10})
    deadline = time.monotonic() + AT_MOST_SECONDS
    sent = read = 0
    commit_at = 0.0
    try:
        consumer.subscribe([topic])
        while read < MESSAGES and (now := time.monotonic()) < deadline:
            while sent < MESSAGES and len(producer) < AT_ONCE:
                producer.produce(topic, b"warm" * 10, partition=sent % partitions)
                sent += 1
            producer.poll(0)
            read += sum(message.error() is None for message in consumer.consume(AT_ONCE, 0.01))
            if read and now > commit_at:
                consumer.commit(asynchronous=True)
                commit_at = now + COMMIT_SECONDS
    finally:
        consumer.close()
        producer.flush(AT_MOST_SECONDS)
