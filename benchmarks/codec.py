"""Measures µs of CPU to decode a Produce request of 64 KB and to encode its response, beside kio and kafka-python."""

import io
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from benchmarks.batches import KB, make_batch
from benchmarks.measure import Case, Step, repeat, take_turns
from benchmarks.report import Row, Table, Target
from penstock.protocol.codec import decode, encode
from penstock.protocol.framing import LENGTH
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.protocol.session import ClientSession, Request, read_request, write_response

CALLS = 2000
ROUNDS = 15
VERSIONS = (9, 13)
_TOPIC = "orders"
_TOPIC_ID = bytes(range(16))
_PARTITION = 3
_OFFSET = 123_456_789


def run(step: Step) -> list[Table]:
    return [_messages(step), _frames(step)]


def _messages(step: Step) -> Table:
    calls = {
        (f"{what} v{version}", who): call
        for version in VERSIONS
        for who, peer in (("Penstock", _penstock), ("kio", _kio), ("kafka-python", _kafka_python))
        for what, call in zip(("decode ProduceRequest", "encode ProduceResponse"), peer(version), strict=True)
    }
    cases = {f"{what} by {who}": repeat(call, CALLS) for (what, who), call in calls.items()}
    timings = take_turns(cases, rounds=ROUNDS, step=step)
    rows = []
    for what in sorted({what for what, _ in calls}):
        times = {f"{who} µs": _micros(timings[f"{what} by {who}"].cpu_s) for of, who in calls if of == what}
        rows.append(Row({"message": what, **times}, (Target("Penstock µs", 4, at_most=True),)))
    how = (
        "CPU time of a call, bytes to message and message to bytes, without request header and length. "
        "kio decodes in compiled code; it and kafka-python copy the records, Penstock gives a view of them."
    )
    return Table("Produce messages", how, rows)


def _frames(step: Step) -> Table:
    version = VERSIONS[-1]
    _, chunks = ClientSession("benchmark").send(_request(version), version)
    frame = memoryview(b"".join(chunks))[LENGTH.size :]
    request = read_request(frame, Request)
    cases: dict[str, Case] = {
        "frame to decoded request": repeat(lambda: read_request(frame, Request).decode(), CALLS),
        "offset to frame of response": repeat(lambda: write_response(request, _response(version), version), CALLS),
    }
    timings = take_turns(cases, rounds=ROUNDS, step=step)
    rows: list[Row] = [Row({f"Produce v{version}": name, "µs": _micros(timings[name].cpu_s)}) for name in cases]
    return Table("Produce as a connection sees it", "CPU time, with header and length, and making the response.", rows)


def _micros(seconds: float) -> float:
    return seconds / CALLS * 1e6


Calls = tuple[Callable[[], object], Callable[[], object]]
"""Decode the request, encode the response."""


def _penstock(version: int) -> Calls:
    received = memoryview(encode(_request(version), version))
    return partial(decode, ProduceRequest, version, received), partial(encode, _response(version), version)


def _kio(version: int) -> Calls:
    from kio.index import load_entity_schema
    from kio.serial import entity_reader, entity_writer
    from kio.static.constants import EntityType

    received = encode(_request(version), version)
    read: Callable[..., Any] = entity_reader(load_entity_schema("produce", version, EntityType.request))
    response_type = load_entity_schema("produce", version, EntityType.response)
    response, _ = entity_reader(response_type)(_encoded_response(version), 0)
    write = entity_writer(response_type)

    def encode_response() -> bytes:
        buffer = io.BytesIO()
        write(buffer, response)
        return buffer.getvalue()

    assert encode_response() == _encoded_response(version), "kio writes the same response"
    return partial(read, received, 0), encode_response


def _kafka_python(version: int) -> Calls:
    from kafka.protocol import producer

    received = memoryview(encode(_request(version), version))
    topic_type = producer.ProduceResponse.TopicProduceResponse
    partition = topic_type.PartitionProduceResponse(
        version=version, index=_PARTITION, base_offset=_OFFSET, log_start_offset=0
    )
    named = {"topic_id": UUID(bytes=_TOPIC_ID)} if version >= 13 else {"name": _TOPIC}
    topic = topic_type(version=version, partition_responses=[partition], **named)
    response = producer.ProduceResponse(version=version, responses=[topic])
    assert response.encode() == _encoded_response(version), "kafka-python writes the same response"
    return partial(producer.ProduceRequest.decode, received, version=version), response.encode


def _request(version: int) -> ProduceRequest:
    partition = PartitionProduceData(index=_PARTITION, records=make_batch(64 * KB))
    topic = TopicProduceData(partition_data=[partition])
    _name(topic, version)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _response(version: int) -> ProduceResponse:
    partition = PartitionProduceResponse(index=_PARTITION, base_offset=_OFFSET, log_start_offset=0)
    topic = TopicProduceResponse(partition_responses=[partition])
    _name(topic, version)
    return ProduceResponse(responses=[topic])


def _encoded_response(version: int) -> bytes:
    return encode(_response(version), version)


def _name(topic: TopicProduceData | TopicProduceResponse, version: int) -> None:
    if version >= 13:
        topic.topic_id = _TOPIC_ID
    else:
        topic.name = _TOPIC
