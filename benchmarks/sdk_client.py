"""Runs one client in a process of its own, for `sdk`: it sends or reads messages and says what that took."""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 120
BATCH_BYTES = 128 * 1024
LINGER_MS = 5
# Rows of a table that is sent at once.
TABLE_ROWS = 20_000


@dataclass(slots=True)
class Spent:
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        """From when the client is connected to when the last message is acknowledged, or read."""
        before, began = _cpu(), time.perf_counter()
        yield
        self.seconds, self.cpu_seconds = time.perf_counter() - began, _cpu() - before


@dataclass(slots=True, frozen=True)
class Task:
    bootstrap: str
    topic: str
    messages: int
    value: bytes


def main(arguments: Sequence[str]) -> None:
    client, bootstrap, topic, messages, message_bytes = arguments
    spent = Spent()
    waited = CLIENTS[client](Task(bootstrap, topic, int(messages), bytes(range(256)) * 4), spent, int(message_bytes))
    if waited is not None:
        asyncio.run(_finish(waited))
    print(json.dumps({"seconds": spent.seconds, "cpu_seconds": spent.cpu_seconds}))


async def _finish(waited: Awaitable[None]) -> None:
    await waited


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# Sending: acknowledged by all replicas, idempotent, the same batches and linger


async def penstock_send(task: Task, spent: Spent, size: int) -> None:
    from penstock.client import Producer

    value = task.value[:size]
    async with Producer(task.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
        last = producer.send(task.topic, value)
        await last
        with spent.measure():
            for _ in range(task.messages):
                await producer.ready()
                last = producer.send(task.topic, value)
            await producer.flush()
            last.result()


def penstock_sync_send(task: Task, spent: Spent, size: int) -> None:
    from penstock.client.sync import Producer

    value = task.value[:size]
    with Producer(task.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
        last = producer.send(task.topic, value)
        last.result()
        with spent.measure():
            for _ in range(task.messages):
                last = producer.send(task.topic, value)
            producer.flush()
            last.result()


async def penstock_arrow_send(task: Task, spent: Spent, size: int) -> None:
    import pyarrow

    from penstock.client import Producer

    value = task.value[:size]
    table = pyarrow.table({"value": pyarrow.array([value] * TABLE_ROWS, pyarrow.binary())})
    async with Producer(task.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
        # Once before the clock starts: code is compiled at its first use.
        (await producer.send_batch(task.topic, table)).raise_for_errors()
        with spent.measure():
            for begin in range(0, task.messages, TABLE_ROWS):
                rows = table.slice(0, min(TABLE_ROWS, task.messages - begin))
                (await producer.send_batch(task.topic, rows)).raise_for_errors()


def confluent_send(task: Task, spent: Spent, size: int) -> None:
    from confluent_kafka import Producer

    value = task.value[:size]
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": task.bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
        }
    )
    producer.produce(task.topic, value)
    producer.flush(PATIENCE_S)
    with spent.measure():
        for number in range(task.messages):
            while True:
                try:
                    producer.produce(task.topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 100 == 0:
                producer.poll(0)
        left = producer.flush(PATIENCE_S)
    if left or failed:
        raise SystemExit(f"{left} messages were not sent, {len(failed)} failed: {failed[:1]}")


async def aiokafka_send(task: Task, spent: Spent, size: int) -> None:
    from aiokafka import AIOKafkaProducer

    value = task.value[:size]
    producer = AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
    )
    await producer.start()
    last = await producer.send(task.topic, value)
    await last
    with spent.measure():
        for _ in range(task.messages):
            last = await producer.send(task.topic, value)
        await producer.flush()
        last.result()
    await producer.stop()


def kafka_python_send(task: Task, spent: Spent, size: int) -> None:
    from kafka import KafkaProducer

    value = task.value[:size]
    producer = KafkaProducer(
        bootstrap_servers=task.bootstrap, enable_idempotence=True, linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    )
    last = producer.send(task.topic, value)
    last.get(PATIENCE_S)
    with spent.measure():
        for _ in range(task.messages):
            last = producer.send(task.topic, value)
        producer.flush(PATIENCE_S)
        last.get(PATIENCE_S)
    producer.close()


# Reading: one partition from its beginning, no group


async def _penstock_consumer(task: Task) -> Any:
    from penstock.client import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=task.bootstrap, auto_offset_reset="earliest")
    await consumer.assign([TopicPartition(task.topic, 0)])
    return consumer


async def penstock_poll(task: Task, spent: Spent, size: int) -> None:
    async with await _penstock_consumer(task) as consumer:
        count = read = len(await consumer.poll(1, timeout_ms=None))
        with spent.measure():
            while count < task.messages:
                messages = await consumer.poll(timeout_ms=None)
                count += len(messages)
                read += sum(len(message.value) == size for message in messages)
    _expect(read, count)


async def penstock_iterate(task: Task, spent: Spent, size: int) -> None:
    async with await _penstock_consumer(task) as consumer:
        count = read = len(await consumer.poll(1, timeout_ms=None))
        with spent.measure():
            async for message in consumer:
                count += 1
                read += len(message.value) == size
                if count == task.messages:
                    break
    _expect(read, count)


async def penstock_arrow_poll(task: Task, spent: Spent, size: int) -> None:
    import pyarrow.compute as pc

    async with await _penstock_consumer(task) as consumer:
        count = read = (await consumer.poll_arrow(1, timeout_ms=None)).num_rows
        with spent.measure():
            while count < task.messages:
                rows = await consumer.poll_arrow(TABLE_ROWS, timeout_ms=None)
                count += rows.num_rows
                read += pc.sum(pc.equal(pc.binary_length(rows["value"]), size)).as_py()
    _expect(read, count)


def confluent_poll(task: Task, spent: Spent, size: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": task.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(task.topic, 0, 0)])
    count = read = len(consumer.consume(1, timeout=PATIENCE_S))
    with spent.measure():
        while count < task.messages:
            messages = consumer.consume(min(500, task.messages - count), timeout=1.0)
            count += len(messages)
            read += sum(len(message.value() or b"") == size for message in messages)
    consumer.close()
    _expect(read, count)


async def aiokafka_poll(task: Task, spent: Spent, size: int) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(task.topic, 0)])
    await consumer.start()
    first = await consumer.getone()
    count = read = int(first is not None)
    with spent.measure():
        while count < task.messages:
            for messages in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
                count += len(messages)
                read += sum(len(message.value) == size for message in messages)
    await consumer.stop()
    _expect(read, count)


def kafka_python_poll(task: Task, spent: Spent, size: int) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=task.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(task.topic, 0)])
    count = read = 0
    while not count:
        count = read = sum(map(len, consumer.poll(timeout_ms=1000, max_records=1).values()))
    with spent.measure():
        while count < task.messages:
            for messages in consumer.poll(timeout_ms=1000, max_records=500).values():
                count += len(messages)
                read += sum(len(message.value) == size for message in messages)
    consumer.close()
    _expect(read, count)


def _expect(read: int, count: int) -> None:
    if read != count:
        raise SystemExit(f"only {read} of {count} messages have the size that was sent")


CLIENTS: dict[str, Callable[[Task, Spent, int], Awaitable[None] | None]] = {
    "penstock-send": penstock_send,
    "penstock-sync-send": penstock_sync_send,
    "penstock-arrow-send": penstock_arrow_send,
    "confluent-send": confluent_send,
    "aiokafka-send": aiokafka_send,
    "kafka-python-send": kafka_python_send,
    "penstock-poll": penstock_poll,
    "penstock-iterate": penstock_iterate,
    "penstock-arrow-poll": penstock_arrow_poll,
    "confluent-poll": confluent_poll,
    "aiokafka-poll": aiokafka_poll,
    "kafka-python-poll": kafka_python_poll,
}


if __name__ == "__main__":
    main(sys.argv[1:])
