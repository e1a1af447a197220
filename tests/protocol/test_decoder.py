"""Hostile bytes: whatever comes, decoding gives a value or a DecodeError, in memory bounded by what came."""

import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import pytest

from penstock.protocol.codec import decode, decoder, encode
from penstock.protocol.decoder import compile_decoder, minimum_size, skip_tags
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message, row
from penstock.protocol.schemas.configs import ListConfigResourcesRequest
from penstock.protocol.schemas.fetch import FetchResponse
from penstock.protocol.schemas.groups import HeartbeatRequest
from penstock.protocol.schemas.headers import RequestHeader
from penstock.protocol.schemas.metadata import DescribeTopicPartitionsRequest, MetadataRequest, MetadataRequestTopic
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest
from penstock.protocol.schemas.versions import ApiVersionsResponse
from tests.protocol.messages import (
    all_messages,
    all_versions,
    fields_of,
    full_message,
    random_message,
    structs_in,
    versions_of,
)

MUTATED_CASES = 100_000
SHARDS = 20


@pytest.fixture(scope="module")
def compiled() -> None:
    """Everything that is compiled once is compiled, so that what is measured later is the reading alone."""
    for cls, version in all_versions():
        decode(cls, version, encode(full_message(cls, version, Random(0)), version))


def measure(cls: type[Message], version: int, received: bytes) -> tuple[Exception | None, int]:
    """What went wrong in reading, if anything did, and the most memory that it held at once."""
    read, view = decoder(cls, version), memoryview(received)
    problem: Exception | None = None
    tracemalloc.start()
    try:
        read(view, 0)
    except Exception as error:
        problem = error
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return problem, peak


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("shard", range(SHARDS))
def test_mutated_bytes_give_a_value_or_a_decode_error_in_bounded_memory(shard: int) -> None:
    kinds = list(all_versions())
    values = errors = 0
    for case in range(MUTATED_CASES // SHARDS):
        seed = f"{shard} {case}"
        rng = Random(seed)
        cls, version = rng.choice(kinds)
        hostile = mutated(*rng.sample(samples(cls, version), 2), rng=rng)
        told = f"{cls.__name__} v{version}, seed {seed!r}, bytes {hostile.hex()}"
        problem, peak = measure(cls, version, hostile)
        if problem is None:
            values += 1
        else:
            assert type(problem) is DecodeError, told
            assert str(problem).startswith(f"{cls.__name__} v{version}: "), told
            errors += 1
        assert peak <= 64 * len(hostile) + 64 * 1024, told
    assert values > 100, f"only {values} of the mutated messages were readable: the mutations never get deep"
    assert errors > 100, f"only {errors} of the mutated messages were not readable: the mutations are harmless"


@cache
def samples(cls: type[Message], version: int) -> list[bytes]:
    return [encode(random_message(cls, version, Random(number)), version) for number in range(20)]


def mutated(one: bytes, other: bytes, *, rng: Random) -> bytes:
    data = bytearray(one)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(MUTATIONS)(data, other, rng)
    return bytes(data)


def flip_bit(data: bytearray, _: bytes, rng: Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite_a_length(data: bytearray, _: bytes, rng: Random) -> None:
    start, claim = rng.randrange(len(data) + 1), rng.choice(CLAIMS)
    data[start : start + len(claim)] = claim


def insert(data: bytearray, _: bytes, rng: Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.choice(CLAIMS) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 5))


def truncate(data: bytearray, _: bytes, rng: Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def repeat(data: bytearray, _: bytes, rng: Random) -> None:
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randrange(1, 32)]
    data[start:start] = piece * rng.randrange(1, 20)


def splice(data: bytearray, other: bytes, rng: Random) -> None:
    data[rng.randrange(len(data) + 1) :] = other[rng.randrange(len(other) + 1) :]


def stuff_a_varint(data: bytearray, _: bytes, rng: Random) -> None:
    start = rng.randrange(len(data) + 1)
    data[start:start] = rng.choice((b"\x80", b"\xff")) * rng.randrange(1, 12)


MUTATIONS: list[Callable[[bytearray, bytes, Random], None]] = [
    flip_bit,
    overwrite_a_length,
    insert,
    truncate,
    repeat,
    splice,
    stuff_a_varint,
]

# Lengths and counts as an attacker would like them: huge, negative, and varints that do not end where they must.
CLAIMED = {
    "int16": [bytes.fromhex(digits) for digits in ("7fff", "0100", "8000", "fffe")],
    "int32": [bytes.fromhex(digits) for digits in ("7fffffff", "00100000", "80000000", "fffffffe")],
    "varint": [
        bytes.fromhex(digits) for digits in ("ffffffff07", "ffffffff0f", "ffffffff1f", "80808080808001", "ff01")
    ],
}
CLAIMS = [
    *CLAIMED["int16"],
    *CLAIMED["int32"],
    *CLAIMED["varint"],
    b"\xff\xff",
    b"\xff\xff\xff\xff",
    b"\0",
    b"\1",
    b"\2",
]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_the_most_elements_that_fit_the_bytes_stay_within_the_memory_bound(cls: type[Message]) -> None:
    """The worst for memory is not a lie but the truth: as many elements as there are bytes for, each of the fewest
    bytes that cost the most. The bound's constant is left unused, so that what holds for few bytes holds for many."""
    for version in versions_of(cls):
        for path in paths_to_arrays(cls, version):
            flood(cls, version, path, size=1024)


@pytest.mark.usefixtures("compiled")
def test_the_greediest_messages_stay_within_the_memory_bound() -> None:
    flood(ProduceRequest, 12, ("topic_data", "partition_data"), size=64 * 1024)
    flood(ListConfigResourcesRequest, 1, ("resource_types",), size=64 * 1024)
    flood(MetadataRequest, 3, ("topics",), size=64 * 1024)


def flood(cls: type[Message], version: int, path: tuple[str, ...], size: int) -> None:
    for fill in (fill_with_nulls, fill_with_nothing, fill_with_a_little):
        message, elements = flooded(cls, version, path, fill)
        with_one = len(encode(message, version))
        elements += elements
        each = len(encode(message, version)) - with_one
        elements *= max(1, size // each // 2)
        received = encode(message, version)
        problem, peak = measure(cls, version, received)
        told = f"{cls.__name__} v{version}, {'.'.join(path)} by {fill.__name__}: {peak} of {len(received)}"
        assert problem is None, told
        assert peak <= 64 * len(received), told


Fill = Callable[[str, bool], Any]


def fill_with_nulls(kind: str, nullable: bool) -> Any:
    return None if nullable else fill_with_nothing(kind, nullable)


def fill_with_nothing(kind: str, _: bool) -> Any:
    # Empty records are a view; numbers are such as Python makes a new object for.
    return {"string": "", "bytes": b"", "records": b"", "uuid": b"u" * 16, "bool": True, "float64": 0.5}.get(
        kind, 60000 if kind.startswith("u") else -100
    )


def fill_with_a_little(kind: str, nullable: bool) -> Any:
    return {"string": "ā", "bytes": b"ab"}.get(kind) or fill_with_nothing(kind, nullable)


def paths_to_arrays(cls: type[Message], version: int) -> Iterator[tuple[str, ...]]:
    for name, row_, _, _ in fields_of(cls, version):
        if row_.is_array:
            yield (name,)
        if not isinstance(row_.element, str):
            yield from ((name, *path) for path in paths_to_arrays(row_.element, version))


def flooded(cls: type[Message], version: int, path: tuple[str, ...], fill: Fill) -> tuple[Any, list[Any]]:
    """A message with one element in the array at `path`, as little elsewhere as `fill` makes of it, and that array."""
    values: dict[str, Any] = {}
    elements: list[Any] = []
    for name, row_, is_tagged, is_nullable in fields_of(cls, version):
        on_path = path[:1] == (name,)
        if is_tagged and not on_path:
            continue
        if row_.is_array and not on_path and fill is not fill_with_a_little:
            values[name] = None if is_nullable and fill is fill_with_nulls else []
            continue
        element = row_.element
        if isinstance(element, str):
            value = fill(element, is_nullable and not row_.is_array)
        elif is_nullable and not on_path and fill is fill_with_nulls:
            value = None
        else:
            value, inner = flooded(element, version, path[1:] if on_path else (), fill)
            elements = inner if on_path else elements
        values[name] = [value] if row_.is_array else value
        if path == (name,):
            elements = values[name]
    return cls(**values), elements


@pytest.mark.usefixtures("compiled")
def test_nothing_is_allocated_for_a_length_or_count_that_is_not_there() -> None:
    claims = 0
    for cls, version in all_versions():
        for before_it, width in places_of_lengths(cls, version):
            for claim in CLAIMED[width]:
                hostile = before_it + claim + b"some"
                told = f"{cls.__name__} v{version}, bytes {hostile.hex()}"
                problem, peak = measure(cls, version, hostile)
                assert type(problem) is DecodeError, told
                assert str(problem).startswith(f"{cls.__name__} v{version}: "), told
                assert peak <= 64 * 1024, told
                claims += 1
    assert claims > 5000


def places_of_lengths(cls: type[Message], version: int) -> Iterator[tuple[bytes, str]]:
    """What stands before every length and count in a message, and how that is written."""
    message = full_message(cls, version, Random(0))
    for struct in structs_in(message, version):
        for name, row_, _, _ in fields_of(type(struct), version):
            few: dict[Any, Any] = {"string": ("", "x"), "bytes": (b"", b"x"), "records": (b"", b"x")}
            value = getattr(struct, name)
            if not row_.is_array and row_.element not in few:
                continue
            none, one = ([], value) if row_.is_array else few[row_.element]
            setattr(struct, name, none)
            without = encode(message, version)
            setattr(struct, name, one)
            with_one = encode(message, version)
            setattr(struct, name, value)
            # The last byte of the length is the first in which they differ.
            place = next(i for i, (left, right) in enumerate(zip(without, with_one, strict=False)) if left != right)
            if version in cls.schema.flexible and row_.compact:
                yield without[:place], "varint"
            elif row_.kind == "string":
                yield without[: place - 1], "int16"
            else:
                yield without[: place - 3], "int32"


def test_no_part_of_a_message_from_its_start_is_a_message() -> None:
    for cls, version in all_versions():
        encoded = encode(random_message(cls, version, Random(f"{cls.__name__} v{version}")), version)
        for end in range(min(len(encoded), 300)):
            with pytest.raises(DecodeError, match=f"^{cls.__name__} v{version}: "):
                decode(cls, version, encoded[:end])


@pytest.mark.parametrize(
    ("cls", "version", "digits", "problem"),
    [
        (HeartbeatRequest, 0, "0001 61 00000001 00", "it ends at byte 8, in the middle"),
        (HeartbeatRequest, 0, "0009 61", "a length is larger than what remains"),
        (HeartbeatRequest, 0, "ffff", "group_id may not be null"),
        (HeartbeatRequest, 0, "0002 c328 00000000 0000", "a string is not UTF-8: invalid continuation byte"),
        (HeartbeatRequest, 4, "00", "group_id may not be null"),
        (HeartbeatRequest, 4, "ffffffffff00", "the varint at byte 0 is longer than 32 bits need"),
        (HeartbeatRequest, 4, "01 00000000 01 00 01 05 09 61", "a tagged field is longer than what remains"),
        (HeartbeatRequest, 4, "01 00000000 01 00 ffffffff0f", "the varint at byte 12 runs past the end of the data"),
        (HeartbeatRequest, 3, "0000 00000000 0000 fffe", "a negative length of group_instance_id"),
        (RequestHeader, 2, "0012 0003 00000001 8000 00", "a negative length of client_id"),
        (FetchResponse, 4, "00000000 00000002 0000", "an array is longer than what remains"),
        (FetchResponse, 4, "00000000 ffffffff", "responses may not be null"),
        (
            ApiVersionsResponse,
            3,
            "0000 01 00000000 01 0109 0000000000000005 00",
            "tagged field 1 has another length than",
        ),
        (
            ApiVersionsResponse,
            3,
            "0000 01 00000000 01 017f 0000000000000005",
            "a tagged field is longer than what remains",
        ),
    ],
)
def test_an_error_names_the_message_and_the_problem(
    cls: type[Message], version: int, digits: str, problem: str
) -> None:
    with pytest.raises(DecodeError) as refused:
        decode(cls, version, bytes.fromhex(digits))
    assert str(refused.value).startswith(f"{cls.__name__} v{version}: {problem}")


def test_a_nullable_struct_is_null_by_its_first_byte() -> None:
    assert decode(DescribeTopicPartitionsRequest, 0, bytes.fromhex("01 000007d0 ff 00")).cursor is None
    cursor = decode(DescribeTopicPartitionsRequest, 0, bytes.fromhex("01 000007d0 01 0274 00000005 00 00")).cursor
    assert cursor is not None
    assert (cursor.topic_name, cursor.partition_index) == ("t", 5)


def test_a_decoder_returns_the_position_behind_the_message() -> None:
    _, position = decoder(RequestHeader, 1)(memoryview(bytes.fromhex("0012 0003 00000001 0002 6162 99")), 0)
    assert position == 12


def test_empty_arrays_share_one_object() -> None:
    response = decode(FetchResponse, 4, bytes(8))
    assert response.responses == ()


def test_the_minimum_size_is_what_an_element_of_nothing_takes() -> None:
    assert minimum_size(MetadataRequestTopic, 0, flexible=False) == 2
    assert minimum_size(PartitionProduceData, 9, flexible=True) == 6
    for cls, version in all_versions():
        flexible = version in cls.schema.flexible
        smallest = encode(flooded(cls, version, (), fill_with_nulls)[0], version)
        assert minimum_size(cls, version, flexible) == len(smallest), f"{cls.__name__} v{version}"


def test_elements_of_no_bytes_cannot_be_counted_beyond_the_bytes_that_remain() -> None:
    class Nothing(Message):
        later: int = row("int32", "1+", default=0)

    class Nothings(Message, versions="0"):
        nothings: list[Nothing] = row([Nothing], "0+", default=())

    read = compile_decoder(Nothings, 0)
    message, _ = read(memoryview(bytes.fromhex("00000002 0000")), 0)
    assert message.nothings == [Nothing(), Nothing()]
    with pytest.raises(DecodeError, match="Nothings v0: an array is longer than what remains"):
        read(memoryview(bytes.fromhex("00000003 0000")), 0)


def test_passing_over_tagged_fields_ends_behind_them() -> None:
    assert skip_tags(memoryview(bytes.fromhex("02 00 01 aa 7f 00 ff")), 0) == 6
    with pytest.raises(DecodeError, match="a tagged field is longer than what remains"):
        skip_tags(memoryview(bytes.fromhex("01 00 02 aa")), 0)
