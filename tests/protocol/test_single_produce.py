"""What the quick way reads and writes is what the tables read and write, and everything else it leaves to them."""

import random

import pytest

from penstock.protocol.apis import api
from penstock.protocol.batch import HEADER
from penstock.protocol.codec import encode
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.protocol.session import Request, write_response
from penstock.protocol.single_produce import FIRST_VERSION, read_single

LAST_VERSION = ProduceRequest.schema.versions.last
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
TOPIC_ID = bytes(range(1, 17))


def produce(
    *,
    topics: int = 1,
    partitions: int = 1,
    name: str = "orders",
    index: int = 7,
    records: bytes | None = bytes(100),
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = [PartitionProduceData(index=index + number, records=records) for number in range(partitions)]
    topic = TopicProduceData(name=name, topic_id=TOPIC_ID, partition_data=data)
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1500, topic_data=[topic] * topics)


def read(request: ProduceRequest, version: int) -> object:
    return read_single(memoryview(encode(without_the_other_name(request, version), version)), version)


def without_the_other_name(request: ProduceRequest, version: int) -> ProduceRequest:
    for topic in request.topic_data:
        if version >= 13:
            topic.name = ""
        else:
            topic.topic_id = bytes(16)
    return request


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(20))
def test_a_request_for_one_partition_is_read_as_the_tables_would(version: int, seed: int) -> None:
    chance = random.Random(seed)
    name = "t" * chance.choice((1, 6, 120))
    records = chance.randbytes(chance.choice((1, 61, 126, 127, 128, 1100, 16_383, 16_384, 70_000)))
    index, acks = chance.choice((0, 1, 4000, 0x7FFF_FFFF)), chance.choice((-1, 0, 1))
    request = produce(name=name, index=index, records=records, acks=acks)
    body = memoryview(encode(without_the_other_name(request, version), version))
    found = read_single(body, version)
    assert found is not None, seed
    target, view = found
    assert target[:3] == (acks, TOPIC_ID if version >= 13 else name, index), seed
    assert view == records, seed
    assert view.obj is body.obj, "the records are a view, not a copy"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_is_byte_for_byte_that_of_the_tables(version: int) -> None:
    found = read_single(memoryview(encode(without_the_other_name(produce(), version), version)), version)
    assert found is not None
    target, _ = found
    partition = PartitionProduceResponse(index=7, base_offset=5_000_000_000, log_append_time_ms=-1, log_start_offset=3)
    names = {"topic_id": TOPIC_ID} if version >= 13 else {"name": "orders"}
    response = ProduceResponse(responses=[TopicProduceResponse(**names, partition_responses=[partition])])
    key = ProduceRequest.schema.key
    assert key is not None
    by_tables = write_response(Request(api(key), version, 99, None, memoryview(b"")), response, version)
    assert target.reply.write(99, 5_000_000_000, -1, 3) == b"".join(by_tables)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "request_",
    [
        produce(topics=2),
        produce(topics=0),
        produce(partitions=2),
        produce(partitions=0),
        produce(records=None),
        produce(records=b""),
        produce(transactional_id="t1"),
        produce(transactional_id=""),
    ],
    ids=["two topics", "no topic", "two partitions", "no partition", "null", "empty", "transaction", "empty id"],
)
def test_other_shapes_are_left_to_the_tables(version: int, request_: ProduceRequest) -> None:
    assert read(request_, version) is None


@pytest.mark.parametrize("name", ["", "n" * 127, "n" * 249])
def test_names_whose_length_is_unusual_are_left_to_the_tables(name: str) -> None:
    assert read(produce(name=name), FIRST_VERSION) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_anywhere_is_left_to_the_tables(version: int) -> None:
    body = encode(without_the_other_name(produce(records=bytes(300)), version), version)
    for end in range(len(body)):
        assert read_single(memoryview(body[:end]), version) is None, end


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_behind_the_request_and_tagged_fields_are_left_to_the_tables(version: int) -> None:
    body = encode(without_the_other_name(produce(), version), version)
    assert read_single(memoryview(body + b"\0"), version) is None
    assert read_single(memoryview(body[:-1] + b"\1\0\0"), version) is None


def test_a_length_that_goes_on_and_on_is_not_followed() -> None:
    body = encode(without_the_other_name(produce(), 9), 9)
    start = body.index(bytes(60)) - 1
    assert read_single(memoryview(body[:start] + b"\x80" * 100_000), 9) is None


def test_a_topic_whose_name_is_no_text_is_left_to_the_tables() -> None:
    body = bytearray(encode(without_the_other_name(produce(), 9), 9))
    body[9] = 0xFF
    assert read_single(memoryview(body), 9) is None


@pytest.mark.parametrize("seed", range(200))
def test_damaged_requests_never_break_it(seed: int) -> None:
    chance = random.Random(seed)
    version = chance.choice(VERSIONS)
    body = bytearray(encode(without_the_other_name(produce(records=bytes(HEADER.size)), version), version))
    for _ in range(chance.randint(1, 4)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    found = read_single(memoryview(body), version)
    assert found is None or len(found[1]) <= len(body), seed


def test_what_is_remembered_of_requests_is_bounded() -> None:
    from penstock.protocol import single_produce

    for index in range(single_produce._REMEMBERED + 10):
        assert read(produce(index=index), 9) is not None
    assert len(single_produce._targets) <= single_produce._REMEMBERED
