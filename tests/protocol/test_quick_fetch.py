"""What the quick way reads and writes is what the tables read and write, and everything else it leaves to them."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.protocol import quick_fetch
from penstock.protocol.apis import api
from penstock.protocol.codec import decode, encode
from penstock.protocol.errors import DecodeError
from penstock.protocol.quick_fetch import MAX_BYTES, Asked, Position, read_request, read_single, write_reply
from penstock.protocol.schemas.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.protocol.session import Request, write_response

VERSIONS = range(4, FetchRequest.schema.versions.last + 1)
TOPIC_ID = bytes(range(1, 17))
# Topics with their partitions, as requests name them.
SHAPES = {
    "nothing": {},
    "one": {"orders": [7]},
    "several": {"orders": [7, 0, 0x7FFF_FFFF]},
    "topics": {"orders": [7, 8], "p": [0], "n" * 249: [3, 1, 2], "empty": []},
    "long name": {"n" * 249: [1]},
    "name of 127": {"n" * 127: [1]},
    "many": {"orders": list(range(200))},
}
# Sizes on both sides of those from which on a length takes another byte.
SIZES = [1, 126, 127, 16_382, 16_383, 1_000_000]


@dataclass
class Row:
    """What is found in a partition."""

    high_watermark: int
    last_stable_offset: int
    log_start: int
    records: bytes | None


def topic_of(version: int, name: str) -> str | bytes:
    """A topic's name, or an id that is made of it."""
    return TOPIC_ID[:-1] + name[:1].encode() if version >= 13 else name


def fetch(version: int, shape: dict[str, list[int]], *, position: Any = (), **fields: Any) -> bytes:
    topics = []
    for name, indexes in shape.items():
        names: dict[str, Any] = {"topic_id" if version >= 13 else "topic": topic_of(version, name)}
        partitions = [FetchPartition(partition=index, **dict(position)) for index in indexes]
        topics.append(FetchTopic(**names, partitions=partitions))
    return encode(FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": topics, **fields}), version)


def chosen_position(chance: random.Random) -> dict[str, int]:
    return {
        "current_leader_epoch": chance.randint(-1, 9),
        "fetch_offset": chance.randrange(1 << 62),
        "last_fetched_epoch": chance.randint(-1, 9),
        "log_start_offset": chance.randint(-1, 9),
        "partition_max_bytes": chance.randrange(1 << 31),
    }


def position_in(version: int, fields: dict[str, int]) -> dict[str, int]:
    """Only what a version can say: the tables refuse to leave out what is not ignorable."""
    return {name: value for name, value in fields.items() if version >= 12 or name != "last_fetched_epoch"}


def by_tables(body: bytes, version: int) -> Asked | None:
    """What the tables read; None if there is more in the request than the quick way knows about."""
    request = decode(FetchRequest, version, body)
    partitions: list[tuple[str | bytes, int, Position]] = []
    for topic in request.topics:
        for wanted in topic.partitions:
            position = Position(
                wanted.current_leader_epoch,
                wanted.fetch_offset,
                wanted.last_fetched_epoch,
                wanted.log_start_offset,
                wanted.partition_max_bytes,
            )
            partitions.append((topic.topic_id if version >= 13 else topic.topic, wanted.partition, position))
    if request.replica_id != -1 or request.replica_state.replica_id != -1 or request.forgotten_topics_data:
        return None
    return Asked(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        (request.session_id, request.session_epoch),
        partitions,
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(20))
def test_a_request_for_one_partition_is_read_as_the_tables_would(version: int, seed: int) -> None:
    chance = random.Random(seed)
    name, rack = "t" * chance.choice((1, 6, 120)), "r" * chance.choice((0, 3, 100, 130))
    wait, least, most = (chance.randrange(1 << 31) for _ in range(3))
    # The second time what it begins and ends with is remembered.
    for _ in range(2):
        body = fetch(
            version,
            {name: [7]},
            position=position_in(version, chosen_position(chance)),
            max_wait_ms=wait,
            min_bytes=least,
            max_bytes=most,
            isolation_level=seed % 2,
            rack_id=rack,
        )
        found = read_single(memoryview(body), version)
        assert found is not None, seed
        target, position = found
        assert target.asks(position) == by_tables(body, version), seed
        assert read_request(memoryview(body), version) == by_tables(body, version), seed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("session", [(0, -1), (0, 0), (77, 1), (77, 0x7FFF_FFFF), (77, -1)])
def test_a_request_of_any_shape_is_read_as_the_tables_would(version: int, shape: str, session: tuple[int, int]) -> None:
    fields = {"session_id": session[0], "session_epoch": session[1]} if version >= 7 else {}
    position = position_in(version, chosen_position(random.Random(version)))
    body = fetch(version, SHAPES[shape], position=position, isolation_level=1, **fields)
    asked = read_request(memoryview(body), version)
    assert asked is not None
    assert asked == by_tables(body, version)
    single = read_single(memoryview(body), version)
    if version >= 7 and session != (0, -1):
        assert single is None
    elif shape == "one":
        assert single is not None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("session_id", [0, 77])
def test_a_reply_is_byte_for_byte_that_of_the_tables(version: int, shape: str, isolation: int, session_id: int) -> None:
    chance = random.Random(f"{version}{shape}")
    session_id = session_id if version >= 7 else 0
    topics: dict[str | bytes, list[tuple[int, Row]]] = {}
    responses = []
    for name, indexes in SHAPES[shape].items():
        topic, rows, partitions = topic_of(version, name), [], []
        for index in indexes:
            high_watermark, stable, log_start = (chance.randrange(1 << 62) for _ in range(3))
            size = chance.choice((0, 1, 126, 127, 16_382, 16_383))
            row = Row(high_watermark, stable, log_start, bytes(size) if size else None)
            rows.append((index, row))
            partitions.append(
                partition_data(index, high_watermark, stable, log_start, row.records or b"", isolation=isolation)
            )
        topics[topic] = rows
        names: dict[str, Any] = {"topic_id" if version >= 13 else "topic": topic}
        responses.append(FetchableTopicResponse(**names, partitions=partitions))
    written = write_reply(version, 99, isolation, session_id, topics)
    assert b"".join(written) == reply_by_tables(version, responses, session_id)
    given = [row.records for rows in topics.values() for _, row in rows if row.records]
    assert [chunk for chunk in written if any(chunk is records for records in given)] == given, "no copies"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("size", SIZES)
def test_a_reply_for_one_partition_is_byte_for_byte_that_of_the_tables(version: int, isolation: int, size: int) -> None:
    found = read_single(memoryview(fetch(version, SHAPES["one"], isolation_level=isolation)), version)
    assert found is not None
    records = bytes(size)
    names: dict[str, Any] = {"topic_id" if version >= 13 else "topic": topic_of(version, "orders")}
    data = partition_data(7, 5_000_000_000, 4_000_000_000, 3, records, isolation=isolation)
    chunks = found[0].reply.write(99, 5_000_000_000, 4_000_000_000, 3, records)
    assert chunks[1] is records
    assert b"".join(chunks) == reply_by_tables(version, [FetchableTopicResponse(**names, partitions=[data])], 0)


def partition_data(
    index: int, high_watermark: int, stable: int, log_start: int, records: bytes, *, isolation: int
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=log_start,
        aborted_transactions=() if isolation else None,
        records=records,
    )


def reply_by_tables(version: int, responses: list[FetchableTopicResponse], session_id: int) -> bytes:
    request = Request(api(1), version, 99, None, memoryview(b""))
    response = FetchResponse(session_id=session_id, responses=responses)
    return b"".join(write_response(request, response, version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("since", "fields"),
    [
        (7, {"forgotten_topics_data": [ForgottenTopic(partitions=[1])]}),
        (12, {"cluster_id": "another"}),
        (4, {"replica": True}),
    ],
    ids=["forgotten", "cluster", "replica"],
)
def test_other_shapes_are_left_to_the_tables(version: int, since: int, fields: dict[str, Any]) -> None:
    fields = dict(fields)
    if fields.pop("replica", False):
        fields |= {"replica_state": ReplicaState(replica_id=1)} if version >= 15 else {"replica_id": 1}
    if version < since:
        return
    body = memoryview(fetch(version, SHAPES["one"], **fields))
    assert read_single(body, version) is None
    assert read_request(body, version) is None


def test_a_long_request_is_left_to_the_tables() -> None:
    body = fetch(12, {"orders": list(range(2000))})
    assert len(body) > MAX_BYTES
    assert read_request(memoryview(body), 12) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", ["nothing", "one", "topics"])
def test_a_request_that_is_cut_or_goes_on_is_left_to_the_tables(version: int, shape: str) -> None:
    body = memoryview(fetch(version, SHAPES[shape], rack_id="here"))
    for _ in range(2):
        for end in range(len(body)):
            assert read_single(body[:end], version) is None, end
            assert read_request(body[:end], version) is None, end
        longer = memoryview(bytes(body) + b"\0")
        assert read_single(longer, version) is None
        assert read_request(longer, version) is None
        # From here on what it begins and ends with is remembered.
        assert read_request(body, version) is not None
        assert (read_single(body, version) is not None) == (shape == "one")


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("text", [b"orders", b"here"])
def test_a_topic_or_a_rack_whose_name_is_no_text_is_left_to_the_tables(version: int, text: bytes) -> None:
    body = fetch(version, SHAPES["one"], rack_id="here").replace(text, b"\xff" + text[1:])
    assert read_single(memoryview(body), version) is None
    assert read_request(memoryview(body), version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_read_as_the_tables_would_or_not_at_all(version: int) -> None:
    read = 0
    for seed in range(600):
        chance = random.Random(seed * 100 + version)
        body = bytearray(fetch(version, SHAPES[chance.choice(["nothing", "one", "several", "topics"])], rack_id="here"))
        for _ in range(chance.randint(1, 3)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        view = memoryview(body)
        asked, single = read_request(view, version), read_single(view, version)
        try:
            expected = by_tables(bytes(body), version)
        except DecodeError:
            assert asked is None, seed
            assert single is None, seed
            continue
        if asked is not None:
            read += 1
            assert asked == expected, seed
        if single is not None:
            target, position = single
            assert target.asks(position) == expected, seed
    assert read > 100


def test_what_is_remembered_of_requests_is_bounded() -> None:
    for index in range(quick_fetch._REMEMBERED + 10):
        version = 12 if index % 2 else 11
        assert read_single(memoryview(fetch(version, {"orders": [index]})), version) is not None
    assert sum(len(known) for *_, known in quick_fetch._SINGLE) <= quick_fetch._REMEMBERED


@pytest.mark.parametrize("version", range(7, VERSIONS.stop))
def test_sessions_are_not_remembered(version: int) -> None:
    before = sum(len(known) for *_, known in quick_fetch._SINGLE)
    for epoch in range(1, 5):
        body = fetch(version, {"sessions": [1]}, session_id=5, session_epoch=epoch)
        assert read_single(memoryview(body), version) is None
    assert sum(len(known) for *_, known in quick_fetch._SINGLE) == before
