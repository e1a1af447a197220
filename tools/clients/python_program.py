"""Hosts the Python clients: `python -m tools.clients.python_program CLIENT` (its protocol: programs.py)."""

import asyncio
import gzip
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from penstock.protocol.records import NewRecord, Record
from tools.clients.client import MAX_REQUEST_BYTES, PARTITION, SECONDS, At, RefusedError
from tools.clients.records import from_json, to_json

# Long enough for all records to be there before the first is sent: then they make one batch.
LINGER_MS = 30_000
# aiokafka waits for it even if it is asked to flush.
AIOKAFKA_LINGER_MS = 50
POLL_MS = 1000


@dataclass(slots=True, frozen=True)
class Produce:
    bootstrap: str
    topic: str
    codec: str
    acks: str | None
    records: Sequence[NewRecord]

    @property
    def acks_number(self) -> int | str:
        return "all" if self.acks == "all" else int(self.acks or 1)


@dataclass(slots=True, frozen=True)
class Fetch:
    bootstrap: str
    topic: str
    at: At
    value: int
    count: int


def produce_with_confluent_kafka(asked: Produce) -> None:
    import confluent_kafka

    settings: dict[str, Any] = {
        "bootstrap.servers": asked.bootstrap,
        "client.id": "confluent-kafka",
        "compression.type": asked.codec,
        "linger.ms": LINGER_MS,
        "message.max.bytes": MAX_REQUEST_BYTES,
    }
    if asked.acks is not None:
        settings["acks"] = asked.acks
    errors: list[Any] = []
    producer = confluent_kafka.Producer(settings)
    # Where it knows the partitions beforehand, all records go into one batch.
    producer.list_topics(asked.topic, timeout=SECONDS)
    for record in asked.records:
        producer.produce(
            asked.topic,
            value=record.value,
            key=record.key,
            partition=PARTITION,
            timestamp=record.timestamp,
            headers=list(record.headers),
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    if left := producer.flush(SECONDS):
        raise TimeoutError(f"{left} records were not acknowledged")
    if errors:
        raise RefusedError(str(errors[0]))


def fetch_with_confluent_kafka(asked: Fetch, ready: Callable[[int], None]) -> list[Record]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": asked.bootstrap,
            "group.id": "confluent-kafka",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": asked.at is At.END,
        }
    )
    named = {At.BEGINNING: confluent_kafka.OFFSET_BEGINNING, At.END: confluent_kafka.OFFSET_END}
    start = confluent_kafka.TopicPartition(asked.topic, PARTITION, named.get(asked.at, asked.value))
    records: list[Record] = []
    try:
        if asked.at is At.TIMESTAMP:
            [start] = consumer.offsets_for_times([start], SECONDS)
        consumer.assign([start])
        while len(records) < asked.count:
            message = consumer.poll(SECONDS)
            if message is None:
                raise TimeoutError(f"no record came in {SECONDS} s")
            error = message.error()
            if error is None:
                headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                offset, timestamp = cast("int", message.offset()), message.timestamp()[1]
                records.append(Record(offset, timestamp, message.key(), message.value(), tuple(headers)))
            elif error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                raise confluent_kafka.KafkaException(error)
            elif not records:
                ready(cast("int", message.offset()))
    finally:
        consumer.close()
    return records


def produce_with_kafka_python(asked: Produce) -> None:
    import kafka
    from kafka.errors import KafkaError

    settings: dict[str, Any] = {} if asked.acks is None else {"acks": asked.acks_number}
    producer = kafka.KafkaProducer(
        bootstrap_servers=asked.bootstrap,
        client_id="kafka-python",
        compression_type=None if asked.codec == "none" else asked.codec,
        linger_ms=LINGER_MS,
        max_request_size=MAX_REQUEST_BYTES,
        # What acks=all alone can keep.
        enable_idempotence=asked.acks in ("all", None),
        **settings,
    )
    try:
        futures = [
            producer.send(
                asked.topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=PARTITION,
                timestamp_ms=record.timestamp,
            )
            for record in asked.records
        ]
        producer.flush(SECONDS)
        for future in futures:
            future.get(SECONDS)
    except KafkaError as error:
        raise RefusedError(repr(error)) from error
    finally:
        producer.close(SECONDS)


def fetch_with_kafka_python(asked: Fetch, ready: Callable[[int], None]) -> list[Record]:
    import kafka

    partition = kafka.TopicPartition(asked.topic, PARTITION)
    consumer = kafka.KafkaConsumer(bootstrap_servers=asked.bootstrap, client_id="kafka-python", group_id=None)
    records: list[Record] = []
    try:
        consumer.assign([partition])
        match asked.at:
            case At.BEGINNING:
                consumer.seek_to_beginning(partition)
            case At.END:
                consumer.seek_to_end(partition)
                ready(consumer.position(partition))
            case At.OFFSET:
                consumer.seek(partition, asked.value)
            case At.TIMESTAMP:
                consumer.seek(partition, consumer.offsets_for_times({partition: asked.value})[partition].offset)
        # The parent process ends this program if the records never come.
        while len(records) < asked.count:
            for polled in consumer.poll(timeout_ms=POLL_MS).values():
                records += [
                    Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers)) for each in polled
                ]
    finally:
        consumer.close()
    return records


def produce_with_aiokafka(asked: Produce) -> None:
    import aiokafka
    from aiokafka.errors import KafkaError

    async def produce() -> None:
        settings: dict[str, Any] = {} if asked.acks is None else {"acks": asked.acks_number}
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=asked.bootstrap,
            client_id="aiokafka",
            compression_type=None if asked.codec == "none" else asked.codec,
            linger_ms=AIOKAFKA_LINGER_MS,
            max_request_size=MAX_REQUEST_BYTES,
            **settings,
        )
        async with asyncio.timeout(SECONDS), producer:
            sent = [
                await producer.send(
                    asked.topic,
                    value=record.value,
                    key=record.key,
                    partition=PARTITION,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in asked.records
            ]
            try:
                await asyncio.gather(*sent)
            except KafkaError as error:
                raise RefusedError(repr(error)) from error

    asyncio.run(produce())


def fetch_with_aiokafka(asked: Fetch, ready: Callable[[int], None]) -> list[Record]:
    import aiokafka

    async def fetch() -> list[Record]:
        partition = aiokafka.TopicPartition(asked.topic, PARTITION)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=asked.bootstrap, client_id="aiokafka", group_id=None)
        records: list[Record] = []
        async with asyncio.timeout(SECONDS), consumer:
            consumer.assign([partition])
            match asked.at:
                case At.BEGINNING:
                    await consumer.seek_to_beginning(partition)
                case At.END:
                    await consumer.seek_to_end(partition)
                    ready(await consumer.position(partition))
                case At.OFFSET:
                    consumer.seek(partition, asked.value)
                case At.TIMESTAMP:
                    found = await consumer.offsets_for_times({partition: asked.value})
                    consumer.seek(partition, found[partition].offset)
            while len(records) < asked.count:
                for polled in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    records += [
                        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
                        for each in polled
                    ]
        return records

    return asyncio.run(fetch())


def version_of(client: str) -> str:
    match client:
        case "confluent-kafka":
            import confluent_kafka

            return f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"
        case "kafka-python":
            import kafka

            return str(kafka.__version__)
        case _:
            import aiokafka

            return str(aiokafka.__version__)


PRODUCE = {
    "confluent-kafka": produce_with_confluent_kafka,
    "kafka-python": produce_with_kafka_python,
    "aiokafka": produce_with_aiokafka,
}
FETCH = {
    "confluent-kafka": fetch_with_confluent_kafka,
    "kafka-python": fetch_with_kafka_python,
    "aiokafka": fetch_with_aiokafka,
}


def main(client: str) -> None:
    # Python's gzip writes down the time of day; a fixture shall change only when its client does.
    gzip.time = SimpleNamespace(time=lambda: 0)  # type: ignore[attr-defined]
    _say({"version": version_of(client)})
    for line in sys.stdin:
        asked = json.loads(line)
        verb = asked.pop("verb")
        try:
            if verb == "produce":
                records = [from_json(record) for record in asked.pop("records")]
                PRODUCE[client](Produce(records=records, **asked))
                _say({"sent": len(records)})
            else:
                at = At(asked.pop("at"))
                read = FETCH[client](Fetch(at=at, **asked), lambda offset: _say({"ready": offset}))
                _say({"records": [to_json(record) for record in read]})
        except RefusedError as error:
            _say({"refused": str(error)})
        except Exception:
            _say({"failed": traceback.format_exc()})


def _say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
