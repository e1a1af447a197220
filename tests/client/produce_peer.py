"""What tests of producers share: a broker that answers as told, and what it was sent."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.client.producer.producer import Producer
from penstock.protocol.batch import read_header
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import iterate
from penstock.protocol.schemas.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.protocol.schemas.transactions import InitProducerIdRequest, InitProducerIdResponse
from tests.client.peer import Peer, peers, topic_id

PRODUCER_ID = 7


@dataclass(slots=True, frozen=True)
class Got:
    """A batch as a broker has got it."""

    topic: str
    partition: int
    values: tuple[bytes | None, ...]
    epoch: int
    sequence: int


@dataclass(slots=True)
class Answer:
    """To one batch: an error, or its offset."""

    code: int = 0
    offset: int = 0
    record_errors: dict[int, str] = field(default_factory=dict)
    message: str | None = None


def got(request: ProduceRequest, names: dict[bytes, str] | None = None) -> Iterator[Got]:
    for topic in request.topic_data:
        for data in topic.partition_data:
            assert isinstance(data.records, memoryview)
            records = bytes(data.records)
            header = read_header(records)
            values = tuple(record.value for record in iterate(records))
            name = topic.name or (names or {})[topic.topic_id]
            yield Got(name, data.index, values, header.producer_epoch, header.base_sequence)


class Log:
    """A broker's side: `plan` answers the first batches, whatever they are, and all others are appended in order."""

    def __init__(self, *plan: Answer | Callable[[Got], Any]) -> None:
        self.plan = list(plan)
        self.batches: list[Got] = []
        self.records: dict[tuple[str, int], list[bytes | None]] = {}
        self.identities = 0

    def begin(self, _: InitProducerIdRequest) -> InitProducerIdResponse:
        self.identities += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID + self.identities - 1, producer_epoch=0)

    def produce(self, request: ProduceRequest) -> Any:
        responses = []
        for topic in request.topic_data:
            name = topic.name or NAMES[topic.topic_id]
            parts = [self._answer(each) for each in got(request, NAMES) if each.topic == name]
            responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
        return ProduceResponse(responses=responses) if request.acks else None

    def _answer(self, batch: Got) -> PartitionProduceResponse:
        self.batches.append(batch)
        answer = self.plan.pop(0) if self.plan else Answer()
        if not isinstance(answer, Answer):
            answer = answer(batch)
            assert isinstance(answer, Answer)
        if answer.code == 0:
            log = self.records.setdefault((batch.topic, batch.partition), [])
            answer.offset = len(log)
            log += batch.values
        return PartitionProduceResponse(
            index=batch.partition,
            error_code=answer.code,
            base_offset=answer.offset if answer.code == 0 else -1,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in answer.record_errors.items()
            ],
            error_message=answer.message,
        )


NAMES = {topic_id(name): name for name in ("orders", "payments")}


@asynccontextmanager
async def producing_to(
    *plan: Answer | Callable[[Got], Any], brokers: int = 1, leaders: list[int] | None = None, **settings: Any
) -> "AsyncIterator[tuple[Producer[bytes, bytes], Log, list[Peer]]]":
    """A producer for the topic "orders", with one partition unless told, and the broker's log."""
    async with peers(brokers, orders=leaders or [0]) as started:
        log = Log(*plan)
        for each in started:
            each.answers[InitProducerIdRequest] = log.begin
            each.answers[ProduceRequest] = log.produce
        settings = {"linger_ms": 0, "request_timeout_ms": 5_000, **settings}
        async with Producer(started[0].address, **settings) as producer:
            await producer.partitions_for("orders")
            yield producer, log, started


def refused(code: ErrorCode, **more: Any) -> Answer:
    return Answer(code, **more)
