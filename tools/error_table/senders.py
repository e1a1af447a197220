"""Clients of Python send one record to each of some partitions, once, and say what became of it in Kafka's words."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from typing import Any

from penstock.protocol.error_codes import ErrorCode
from tools.error_table.cells import SENT, Target

Sender = Callable[[str, str, Sequence[Target]], Awaitable[list[str]]]
"""Takes the address, the mode and the partitions, and returns what became of each."""

VALUE = b"value"
# Longer than any answer takes: only clients that cannot be told to send once come to its end.
SECONDS = 10
# An idempotent producer has to be allowed one retry, and makes it where an error may pass.
RETRIES = 1
# aiokafka sends again for as long as this.
AIOKAFKA_MS = 2000


def versions() -> dict[str, str]:
    return {name: version(name) for name in ("confluent-kafka", "kafka-python", "aiokafka")}


async def send_with_confluent_kafka(bootstrap: str, mode: str, targets: Sequence[Target]) -> list[str]:
    return await asyncio.to_thread(_send_with_confluent_kafka, bootstrap, mode, targets)


def _send_with_confluent_kafka(bootstrap: str, mode: str, targets: Sequence[Target]) -> list[str]:
    import confluent_kafka

    acks, idempotent = read_mode(mode)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "enable.idempotence": idempotent,
            "retries": RETRIES if idempotent else 0,
            "message.timeout.ms": SECONDS * 1000,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    outcomes: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        outcomes.append(acknowledged(acks, message.offset()) if error is None else error.name())

    for topic, partition in targets:
        producer.produce(topic, VALUE, partition=partition, on_delivery=delivered)
        producer.flush(SECONDS * 2)
    return outcomes


async def send_with_kafka_python(bootstrap: str, mode: str, targets: Sequence[Target]) -> list[str]:
    return await asyncio.to_thread(_send_with_kafka_python, bootstrap, mode, targets)


def _send_with_kafka_python(bootstrap: str, mode: str, targets: Sequence[Target]) -> list[str]:
    import kafka
    from kafka.errors import KafkaError

    acks, idempotent = read_mode(mode)
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        retries=RETRIES if idempotent else 0,
        request_timeout_ms=SECONDS * 1000,
    )
    outcomes = []
    try:
        for topic, partition in targets:
            try:
                told = producer.send(topic, VALUE, partition=partition).get(SECONDS * 2)
                outcomes.append(acknowledged(acks, told.offset))
            except KafkaError as error:
                outcomes.append(_named(error))
    finally:
        producer.close(SECONDS)
    return outcomes


async def send_with_aiokafka(bootstrap: str, mode: str, targets: Sequence[Target]) -> list[str]:
    import aiokafka
    from aiokafka.errors import KafkaError

    acks, idempotent = read_mode(mode)
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        request_timeout_ms=AIOKAFKA_MS,
    )

    async def outcome(to: Target) -> str:
        try:
            told = await producer.send_and_wait(to.topic, VALUE, partition=to.partition)
        except KafkaError as error:
            return _named(error)
        return acknowledged(acks, None if told is None else told.offset)

    async with producer:
        # Together, for each that fails takes as long as it may.
        return list(await asyncio.gather(*map(outcome, targets)))


def read_mode(mode: str) -> tuple[str, bool]:
    """The acks, and whether the producer is idempotent."""
    acks, _, idempotent = mode.partition(", ")
    return acks, bool(idempotent)


def acknowledged(acks: str, offset: int | None) -> str:
    """With acks=0 no client knows the offset, though some say one."""
    return SENT if acks == "0" else f"offset {offset}"


def _named(error: Any) -> str:
    """A client's error by the name of its code. One that the client has made itself has none."""
    number = getattr(error, "errno", None)
    return ErrorCode(number).name if isinstance(number, int) else type(error).__name__
