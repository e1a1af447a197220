"""What the quick way reads and writes is what the tables read and write, and everything else it leaves to them."""

import random
from typing import Any

import pytest

from penstock.protocol.apis import api
from penstock.protocol.codec import encode
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
from penstock.protocol.single_fetch import FIRST_VERSION, Position, read_single

LAST_VERSION = FetchRequest.schema.versions.last
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
TOPIC_ID = bytes(range(1, 17))


def fetch(
    version: int, *, topics: int = 1, partitions: int = 1, name: str = "orders", position: Any = (), **fields: Any
) -> bytes:
    wanted = FetchPartition(partition=7, **dict(position))
    names: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": name}
    asked = FetchTopic(**names, partitions=[wanted] * partitions)
    return encode(FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": [asked] * topics, **fields}), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(20))
def test_a_request_for_one_partition_is_read_as_the_tables_would(version: int, seed: int) -> None:
    chance = random.Random(seed)
    position = Position(
        current_leader_epoch=chance.randint(-1, 9),
        fetch_offset=chance.randrange(1 << 62),
        last_fetched_epoch=chance.randint(-1, 9),
        log_start_offset=chance.randint(-1, 9),
        max_bytes=chance.randrange(1 << 31),
    )
    fields = position._asdict()
    fields["partition_max_bytes"] = fields.pop("max_bytes")
    name, rack = "t" * chance.choice((1, 6, 120)), "r" * chance.choice((0, 3, 100))
    wait, least, most = (chance.randrange(1 << 31) for _ in range(3))
    body = fetch(version, name=name, position=fields, max_wait_ms=wait, min_bytes=least, max_bytes=most, rack_id=rack)
    found = read_single(memoryview(body), version)
    assert found is not None, seed
    target, read = found
    assert target[:5] == (wait, least, most, TOPIC_ID if version >= 13 else name, 7), seed
    assert read == position, seed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("size", [1, 126, 127, 16_382, 16_383, 1_000_000])
def test_a_reply_is_byte_for_byte_that_of_the_tables(version: int, isolation: int, size: int) -> None:
    found = read_single(memoryview(fetch(version, isolation_level=isolation)), version)
    assert found is not None
    records = bytes(size)
    partition = PartitionData(
        partition_index=7,
        high_watermark=5_000_000_000,
        last_stable_offset=4_000_000_000,
        log_start_offset=3,
        aborted_transactions=() if isolation else None,
        records=records,
    )
    names: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "orders"}
    response = FetchResponse(responses=[FetchableTopicResponse(**names, partitions=[partition])])
    key = FetchRequest.schema.key
    assert key is not None
    by_tables = write_response(Request(api(key), version, 99, None, memoryview(b"")), response, version)
    chunks = found[0].reply.write(99, 5_000_000_000, 4_000_000_000, 3, records)
    assert chunks[1] is records
    assert b"".join(chunks) == b"".join(by_tables)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "fields",
    [
        {"topics": 2},
        {"topics": 0},
        {"partitions": 2},
        {"partitions": 0},
        {"session_id": 5},
        {"session_epoch": 0},
        {"forgotten": True},
        {"cluster_id": "another"},
        {"rack_id": "r" * 200},
        {"replica": True},
    ],
    ids=lambda fields: "-".join(f"{name}-{value}"[:20] for name, value in fields.items()),
)
def test_other_shapes_are_left_to_the_tables(version: int, fields: dict[str, Any]) -> None:
    fields = dict(fields)
    if fields.pop("forgotten", False):
        fields["forgotten_topics_data"] = [ForgottenTopic(partitions=[1])]
    if fields.pop("replica", False):
        fields |= {"replica_state": ReplicaState(replica_id=1)} if version >= 15 else {"replica_id": 1}
    assert read_single(memoryview(fetch(version, **fields)), version) is None


@pytest.mark.parametrize("name", ["", "n" * 127, "n" * 249])
def test_names_whose_length_is_unusual_are_left_to_the_tables(name: str) -> None:
    assert read_single(memoryview(fetch(12, name=name)), 12) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_or_goes_on_is_left_to_the_tables(version: int) -> None:
    body = fetch(version, rack_id="here")
    for end in range(len(body)):
        assert read_single(memoryview(body[:end]), version) is None, end
    assert read_single(memoryview(body), version) is not None
    for end in range(len(body)):
        assert read_single(memoryview(body[:end]), version) is None, end
    assert read_single(memoryview(body + b"\0"), version) is None


def test_a_topic_whose_name_is_no_text_is_left_to_the_tables() -> None:
    body = bytearray(fetch(12))
    body[body.index(b"orders")] = 0xFF
    assert read_single(memoryview(body), 12) is None


@pytest.mark.parametrize("seed", range(200))
def test_damaged_requests_never_break_it(seed: int) -> None:
    chance = random.Random(seed)
    version = chance.choice(VERSIONS)
    body = bytearray(fetch(version, rack_id="here"))
    for _ in range(chance.randint(1, 4)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    found = read_single(memoryview(body), version)
    assert found is None or len(found) == 2, seed
