"""What tests of the broker object do with other people's clients."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PATIENCE_SECONDS = 30.0


def producer(bootstrap: str, **configs: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "log_level": 2, **_dotted(configs)})


def produce(bootstrap: str, topic: str, *values: bytes, timestamp_ms: int = 0, **configs: Any) -> list[int]:
    """Send records and wait until they are acknowledged; returns their offsets."""
    errors: list[KafkaError] = []
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)

    sender = producer(bootstrap, **configs)
    for value in values:
        sender.produce(topic, value, timestamp=timestamp_ms, on_delivery=delivered)
    assert sender.flush(PATIENCE_SECONDS) == 0
    assert not errors, errors
    return offsets


def consumer(bootstrap: str, group: str, **configs: Any) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "log_level": 2,
        **_dotted(configs),
    }
    return Consumer(settings)


def consume(bootstrap: str, topic: str, count: int, group: str = "readers") -> list[bytes]:
    """The first values of a topic, read by a new member of a group."""
    reader = consumer(bootstrap, group)
    reader.subscribe([topic])
    found: list[bytes] = []
    try:
        while len(found) < count:
            message = reader.poll(PATIENCE_SECONDS)
            assert message is not None, f"only {len(found)} of {count} records came"
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(value)
    finally:
        reader.close()
    return found


def watermarks(bootstrap: str, topic: str) -> tuple[int, int]:
    """The first offset of a partition, and the one after its last."""
    reader = consumer(bootstrap, "watermarks")
    try:
        found = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SECONDS)
        assert found is not None
        low, high = found
        return low, high
    finally:
        reader.close()


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)


def others() -> list[threading.Thread]:
    """Threads besides the one that asks."""
    return [thread for thread in threading.enumerate() if thread is not threading.current_thread()]


def _dotted(configs: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in configs.items()}
