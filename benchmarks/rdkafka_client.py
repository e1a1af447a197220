"""Runs librdkafka in a process of its own, for `rdkafka`: it sends or reads messages and says how long it took."""

import json
import sys
import time
from collections.abc import Sequence
from random import Random

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

_PATIENCE_S = 60.0


def main(arguments: Sequence[str]) -> None:
    mode, bootstrap, topic, messages, message_bytes, batch_bytes = arguments
    if mode == "produce":
        seconds = _produce(
            bootstrap, topic, int(messages), message_bytes=int(message_bytes), batch_bytes=int(batch_bytes)
        )
    else:
        seconds = _consume(bootstrap, topic, int(messages))
    print(json.dumps({"seconds": seconds}))


def _produce(bootstrap: str, topic: str, messages: int, *, message_bytes: int, batch_bytes: int) -> float:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 5,
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": messages + 1,
            "queue.buffering.max.kbytes": 2 * messages * message_bytes // 1024 + 1024,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    # Connected before the clock starts.
    producer.list_topics(topic, timeout=_PATIENCE_S)
    value = Random(5).randbytes(message_bytes)
    produce = producer.produce
    began = time.perf_counter()
    for _ in range(messages):
        produce(topic, value, partition=0)
    left = producer.flush(_PATIENCE_S)
    seconds = time.perf_counter() - began
    if left or failed:
        raise SystemExit(f"{left} messages were not sent, {len(failed)} failed: {failed[:1]}")
    return seconds


def _consume(bootstrap: str, topic: str, messages: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 256 * 1024,
        }
    )
    # With an assignment of its own it needs no group.
    consumer.assign([TopicPartition(topic, 0, 0)])
    # Connected, and the first of them here, before the clock starts.
    count = len(consumer.consume(1, timeout=_PATIENCE_S))
    began = time.perf_counter()
    deadline = time.monotonic() + _PATIENCE_S
    while count < messages:
        # It waits for as many as it is asked for.
        some = consumer.consume(min(10_000, messages - count), timeout=1.0)
        for message in some:
            if message.error() is not None:
                raise SystemExit(f"reading failed: {message.error()}")
        count += len(some)
        if time.monotonic() > deadline:
            raise SystemExit(f"only {count} of {messages} messages came")
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


if __name__ == "__main__":
    main(sys.argv[1:])
