"""What the quick way reads and writes is what the tables read and write, and everything else it leaves to them."""

import random
from typing import Any

import pytest

from penstock.protocol import quick_produce
from penstock.protocol.apis import api
from penstock.protocol.codec import decode, encode
from penstock.protocol.errors import DecodeError
from penstock.protocol.quick_produce import MAX_PARTITIONS, Asked, read_request, read_single, write_reply
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.protocol.session import Request, write_response

VERSIONS = range(3, ProduceRequest.schema.versions.last + 1)
TOPIC_ID = bytes(range(1, 17))
# Topics with their partitions, as requests name them.
SHAPES = {
    "one": {"orders": [7]},
    "several": {"orders": [7, 0, 0x7FFF_FFFF]},
    "topics": {"orders": [7, 8], "p": [0], "n" * 249: [3, 1, 2]},
    "long name": {"n" * 249: [1]},
    "name of 127": {"n" * 127: [1]},
    "many": {"orders": list(range(200))},
}


def produce(
    version: int,
    shape: dict[str, list[int]],
    *,
    records: bytes | None = bytes(100),
    acks: int = -1,
    transactional_id: str | None = None,
) -> bytes:
    topics = [
        TopicProduceData(
            **named(version, topic),
            partition_data=[PartitionProduceData(index=index, records=records) for index in indexes],
        )
        for topic, indexes in shape.items()
    ]
    return encode(
        ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1500, topic_data=topics), version
    )


def named(version: int, topic: str) -> dict[str, Any]:
    """A topic's name, or an id that is made of it."""
    return {"topic_id": TOPIC_ID[:-1] + topic[:1].encode()} if version >= 13 else {"name": topic}


def by_tables(body: bytes, version: int) -> list[tuple[str | bytes, int, bytes]]:
    """What the tables read: a topic, a partition and its records."""
    request = decode(ProduceRequest, version, body)
    return [
        (topic.topic_id if version >= 13 else topic.name, data.index, as_bytes(data.records))
        for topic in request.topic_data
        for data in topic.partition_data
    ]


def as_bytes(records: object) -> bytes:
    assert records is None or isinstance(records, memoryview)
    return bytes(records or b"")


def flat(asked: Asked, records: list[memoryview]) -> list[tuple[str | bytes, int, bytes]]:
    places = [(topic.name, index) for topic in asked.topics for index in topic.indexes]
    return [(*place, bytes(view)) for place, view in zip(places, records, strict=True)]


def reply_by_tables(version: int, asked: Asked, numbers: list[tuple[int, int]]) -> bytes:
    number = iter(numbers)
    topics = []
    for topic in asked.topics:
        partitions = []
        for index in topic.indexes:
            base_offset, log_start = next(number)
            partitions.append(
                PartitionProduceResponse(index=index, base_offset=base_offset, log_start_offset=log_start)
            )
        names: dict[str, Any] = {"topic_id" if version >= 13 else "name": topic.name}
        topics.append(TopicProduceResponse(**names, partition_responses=partitions))
    request = Request(api(0), version, 99, None, memoryview(b""))
    return b"".join(write_response(request, ProduceResponse(responses=topics), version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(20))
def test_a_request_for_one_partition_is_read_as_the_tables_would(version: int, seed: int) -> None:
    chance = random.Random(seed)
    name = "t" * chance.choice((1, 6, 120))
    records = chance.randbytes(chance.choice((1, 61, 126, 127, 128, 1100, 16_383, 16_384, 70_000)))
    index, acks = chance.choice((0, 1, 4000, 0x7FFF_FFFF)), chance.choice((-1, 0, 1))
    body = memoryview(produce(version, {name: [index]}, records=records, acks=acks))
    # The second time it is remembered.
    for _ in range(2):
        found = read_single(body, version)
        assert found is not None, seed
        target, view = found
        assert target[:3] == (acks, by_tables(bytes(body), version)[0][0], index), seed
        assert view == records, seed
        assert view.obj is body.obj, "the records are a view, not a copy"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_request_of_any_shape_is_read_as_the_tables_would(version: int, shape: str) -> None:
    for acks in (-1, 0, 1):
        body = produce(version, SHAPES[shape], acks=acks)
        found = read_request(memoryview(body), version)
        assert found is not None
        asked, records = found
        assert asked.acks == acks
        assert flat(asked, records) == by_tables(body, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_reply_is_byte_for_byte_that_of_the_tables(version: int, shape: str) -> None:
    body = memoryview(produce(version, SHAPES[shape]))
    found = read_request(body, version)
    assert found is not None
    asked, records = found
    numbers = [(5_000_000_000 + place, place) for place in range(len(records))]
    expected = reply_by_tables(version, asked, numbers)
    assert write_reply(version, 99, asked, numbers) == expected
    single = read_single(body, version)
    if shape == "one":
        assert single is not None
        assert single[0].reply.write(99, *numbers[0]) == expected
    elif len(records) > 1:
        assert single is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ({}, {}),
        ({"orders": []}, {}),
        ({"orders": [1], "p": []}, {}),
        ({"orders": [1]}, {"records": None}),
        ({"orders": [1]}, {"records": b""}),
        ({"orders": [1]}, {"transactional_id": "t1"}),
        ({"orders": [1]}, {"transactional_id": ""}),
        ({"orders": list(range(MAX_PARTITIONS + 1))}, {}),
    ],
    ids=["no topic", "no partition", "an empty topic", "null", "empty", "transaction", "empty id", "too many"],
)
def test_other_shapes_are_left_to_the_tables(version: int, shape: dict[str, list[int]], fields: dict[str, Any]) -> None:
    body = memoryview(produce(version, shape, **fields))
    assert read_request(body, version) is None
    assert read_single(body, version) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", ["one", "topics"])
def test_a_request_that_is_cut_anywhere_is_left_to_the_tables(version: int, shape: str) -> None:
    body = produce(version, SHAPES[shape], records=bytes(150))
    for _ in range(2):
        for end in range(len(body)):
            assert read_single(memoryview(body)[:end], version) is None, end
            assert read_request(memoryview(body)[:end], version) is None, end
        # From here on its beginning is remembered.
        assert read_request(memoryview(body), version) is not None
        read_single(memoryview(body), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_behind_the_request_and_tagged_fields_are_left_to_the_tables(version: int) -> None:
    body = produce(version, SHAPES["one"])
    assert read_single(memoryview(body), version) is not None
    for other in [body + b"\0", body[:-1] + b"\1\0\0"]:
        assert read_single(memoryview(other), version) is None
        assert read_request(memoryview(other), version) is None


def test_a_length_that_goes_on_and_on_is_not_followed() -> None:
    body = produce(9, SHAPES["one"])
    assert read_single(memoryview(body), 9) is not None
    start = body.index(bytes(60)) - 1
    assert read_single(memoryview(body[:start] + b"\x80" * 100_000), 9) is None


def test_a_length_with_bytes_that_mean_nothing_is_left_to_the_tables() -> None:
    # A reply repeats the number of topics, and the tables write it in one byte.
    body = produce(9, SHAPES["one"])
    assert body[7] == 2
    longer = body[:7] + b"\x82\0" + body[8:]
    assert by_tables(longer, 9) == by_tables(body, 9)
    assert read_request(memoryview(longer), 9) is None


@pytest.mark.parametrize("version", [3, 9])
def test_a_topic_whose_name_is_no_text_is_left_to_the_tables(version: int) -> None:
    body = produce(version, SHAPES["one"]).replace(b"orders", b"\xffrders")
    assert read_single(memoryview(body), version) is None
    assert read_request(memoryview(body), version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_read_as_the_tables_would_or_not_at_all(version: int) -> None:
    read = 0
    for seed in range(600):
        chance = random.Random(seed * 100 + version)
        body = bytearray(produce(version, SHAPES[chance.choice(["one", "several", "topics"])], records=bytes(5)))
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(min(len(body), 60))
            body[place] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        view = memoryview(body)
        found, single = read_request(view, version), read_single(view, version)
        try:
            expected = by_tables(bytes(body), version)
        except DecodeError:
            assert found is None, seed
            assert single is None, seed
            continue
        acks = decode(ProduceRequest, version, body).acks
        if found is not None:
            read += 1
            assert found[0].acks == acks, seed
            assert flat(*found) == expected, seed
        if single is not None:
            (single_acks, topic, index, _, _), records = single
            assert single_acks == acks, seed
            assert [(topic, index, bytes(records))] == expected, seed
    assert read > 100


def test_what_is_remembered_of_requests_is_bounded() -> None:
    for index in range(quick_produce._REMEMBERED + 10):
        version = 9 if index % 2 else 7
        assert read_single(memoryview(produce(version, {"orders": [index]}, records=b"r")), version) is not None
    assert sum(map(len, quick_produce._targets)) <= quick_produce._REMEMBERED
