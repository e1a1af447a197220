"""The codec against `kio`, which was written by others from the same definitions, and the rules of the codec itself."""

import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import LoadableEntityType, api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.protocol import Entity

from penstock.protocol.apis import Api, all_apis
from penstock.protocol.codec import decode, decoder, encode, encode_chunks, encoder
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.schema import ZERO_UUID, Message, Row
from penstock.protocol.schemas.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, EndTxnMarker
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.schemas.headers import RequestHeader, ResponseHeader
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.protocol.schemas.topics import CreatableTopicResult, CreateTopicsResponse
from penstock.protocol.schemas.versions import ApiVersionsResponse
from tests.protocol.messages import (
    Draw,
    Draws,
    all_versions,
    fields_of,
    full_message,
    random_message,
    structs_in,
    versions_of,
)
from tools.generate_schemas import EXTENSION_TAGS_FROM

MESSAGES_PER_VERSION = 200
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def draw_one_of(*edges: int, bits: int) -> Draw:
    return lambda rng: rng.choice(edges) if rng.random() < 0.5 else rng.getrandbits(bits)


# kio gives some numbers a type of their own, which cannot hold all of them: error codes are an enum, and times are
# `datetime`s, read and written through floats, which are exact to the millisecond within these bounds.
KIO_DRAWS: dict[str, Draw] = {
    "error_code": lambda rng: int(rng.choice(tuple(KioErrorCode))),
    "timedelta_i64": draw_one_of(0, 1, -1, 1 << 43, -1 << 43, bits=43),
    "datetime_i64": draw_one_of(0, 1, 1 << 31, 1 << 47, bits=47),
    "datetime_i64 | None": draw_one_of(-1, 0, 1, 1 << 47, bits=47),
}

PARTS: dict[type[Message], tuple[str, LoadableEntityType]] = {
    RequestHeader: ("request_header", EntityType.header),
    ResponseHeader: ("response_header", EntityType.header),
    ConsumerProtocolSubscription: ("consumer_protocol_subscription", EntityType.data),
    ConsumerProtocolAssignment: ("consumer_protocol_assignment", EntityType.data),
    EndTxnMarker: ("end_txn_marker", EntityType.data),
}


@pytest.mark.parametrize("api", all_apis(), ids=lambda api: api.name)
def test_requests_and_responses_of_every_version_are_the_same_to_kio(api: Api) -> None:
    name = api_key_map[api.key]
    for version in versions_of(api.request):
        compare_with_kio(api.request, version, load_entity_schema(name, version, EntityType.request))
    for version in versions_of(api.response):
        compare_with_kio(api.response, version, load_entity_schema(name, version, EntityType.response))


@pytest.mark.parametrize("cls", PARTS, ids=lambda cls: cls.__name__)
def test_headers_and_embedded_messages_are_the_same_to_kio(cls: type[Message]) -> None:
    for version in versions_of(cls):
        name, kind = PARTS[cls]
        compare_with_kio(cls, version, load_entity_schema(name, version, kind))


def test_kio_knows_every_version_that_we_know_and_two_that_kafka_4_2_does_not() -> None:
    theirs = {(key, version) for key, name in api_key_map.items() for version in schema_name_map[name]}
    ours = {(api.key, version) for api in all_apis() for version in versions_of(api.request)}
    describe_log_dirs, broker_heartbeat = 35, 63
    assert ours - theirs == set()
    assert {(key, version) for key, version in theirs - ours if key in {api.key for api in all_apis()}} == {
        (describe_log_dirs, 5),
        (broker_heartbeat, 2),
    }


def compare_with_kio(cls: type[Message], version: int, entity_type: type[Entity]) -> None:
    read, write = entity_reader(entity_type), entity_writer(entity_type)
    draws = draws_for(cls, version, entity_type)
    for number in range(MESSAGES_PER_VERSION):
        seed = f"{cls.__name__} v{version} {number}"
        message = random_message(cls, version, Random(seed), draws)
        ours = encode(message, version)
        entity, size = read(ours, 0)
        assert size == len(ours), f"kio leaves bytes behind, seed {seed!r}"
        assert from_kio(cls, version, entity) == message, f"kio reads another message, seed {seed!r}"
        buffer = io.BytesIO()
        write(buffer, entity)
        assert buffer.getvalue() == ours, f"kio writes other bytes, seed {seed!r}"
        assert decode(cls, version, buffer.getvalue()) == message, f"we read another message, seed {seed!r}"


def draws_for(cls: type[Message], version: int, entity_type: type[Entity]) -> Draws:
    """How to draw, in `cls` and the structs in it, the fields to which kio gives a type of its own."""
    draws: dict[tuple[type[Message], str], Draw] = {}
    theirs = {field.name: field for field in fields(entity_type)}
    for name, row, _, _ in fields_of(cls, version):
        if is_our_own(row):
            draws[cls, name] = lambda _, default=row.default: default  # type: ignore[misc]
            continue
        field = theirs[kio_name(entity_type, name)]
        kind = field.metadata.get("kafka_type", "")
        if kind == "datetime_i64" and type(None) in get_args(field.type):
            kind += " | None"
        if kind in KIO_DRAWS:
            draws[cls, name] = KIO_DRAWS[kind]
        if not isinstance(row.element, str):
            draws.update(draws_for(row.element, version, innermost(field.type)))
    of_kafka = [name for name, row, _, _ in fields_of(cls, version) if not is_our_own(row)]
    assert len(theirs) == len(of_kafka), f"{cls.__name__} v{version} has other fields than kio's"
    return draws


def is_our_own(row: Row) -> bool:
    return row.tag is not None and row.tag >= EXTENSION_TAGS_FROM


@cache
def kio_name(entity_type: type[Entity], name: str) -> str:
    """kio drops the unit where it has a type for it."""
    return name if name in entity_type.__dataclass_fields__ else name.removesuffix("_ms")


def innermost(kind: Any) -> type[Entity]:
    """`tuple[E, ...] | None` and its like, down to E."""
    while get_origin(kind):
        kind = next(argument for argument in get_args(kind) if argument is not type(None))
    assert isinstance(kind, type)
    return kind


def from_kio(cls: type[Message], version: int, entity: Entity) -> Message:
    """kio's entity as a message of ours, every value in our terms."""
    values: dict[str, Any] = {}
    for name, row, _, _ in fields_of(cls, version):
        if is_our_own(row):
            continue
        value = getattr(entity, kio_name(type(entity), name))
        if value is not None and row.is_array:
            values[name] = [value_from_kio(row.element, version, item) for item in value]
        elif value is not None or row.is_array:
            values[name] = value_from_kio(row.element, version, value)
        else:
            values[name] = {"uuid": ZERO_UUID, "int64": -1}.get(str(row.element))
    return cls(**values)


def value_from_kio(element: str | type[Message], version: int, value: Any) -> Any:
    if value is not None and not isinstance(element, str):
        return from_kio(element, version, value)
    match value:
        case UUID():
            return value.bytes
        case None if element == "uuid":
            return ZERO_UUID
        case timedelta():
            return value // MILLISECOND
        case datetime():
            return round((value - EPOCH) / MILLISECOND)
        case _:
            return value


def test_a_tagged_field_at_its_default_is_left_out() -> None:
    assert encode(ApiVersionsResponse(), 3) == bytes.fromhex("0000 01 00000000 00")
    topic = CreatableTopicResult(name="t", error_message=None, configs=None)
    assert encode(CreateTopicsResponse(topics=[topic]), 7) == bytes.fromhex(
        "00000000 02 0274" + "00" * 16 + "0000 00 ffffffff ffff 00 00 00"
    )


def test_tagged_fields_that_differ_from_their_default_stand_in_the_order_of_their_tags() -> None:
    response = ApiVersionsResponse(zk_migration_ready=True, finalized_features_epoch=5)
    assert encode(response, 3) == bytes.fromhex("0000 01 00000000 02 0108 0000000000000005 0301 01")
    topic = CreatableTopicResult(name="t", topic_config_error_code=29, error_message=None, configs=None)
    assert encode(CreateTopicsResponse(topics=[topic]), 7) == bytes.fromhex(
        "00000000 02 0274" + "00" * 16 + "0000 00 ffffffff ffff 00 01 0002001d 00"
    )


def test_a_message_of_defaults_ends_without_tagged_fields() -> None:
    flexible = [(cls, version) for cls, version in all_versions() if version in cls.schema.flexible]
    assert len(flexible) > 200
    for cls, version in flexible:
        assert encode(cls(), version)[-1] == 0, f"{cls.__name__} v{version}"


def test_a_tagged_field_may_come_with_its_default() -> None:
    sent = bytes.fromhex("0000 01 00000000 01 0108 ffffffffffffffff")
    assert decode(ApiVersionsResponse, 3, sent) == ApiVersionsResponse()


def test_unknown_tagged_fields_are_passed_over() -> None:
    unknown = bytes.fromhex("02 8f4e 03 616263 904e 00")
    for cls, version in all_versions():
        if version not in cls.schema.flexible:
            continue
        message = random_message(cls, version, Random(f"{cls.__name__} v{version}"))
        for field in fields_of(cls, version):
            if field.is_tagged:
                setattr(message, field.name, field.row.default_value())
        encoded = encode(message, version)
        assert decode(cls, version, encoded[:-1] + unknown) == message, f"{cls.__name__} v{version}"


def test_unknown_tagged_fields_stand_beside_known_ones() -> None:
    sent = bytes.fromhex("0000 01 00000000 03 0108 0000000000000005 0201 01 6302abcd")
    assert decode(ApiVersionsResponse, 3, sent) == ApiVersionsResponse(finalized_features_epoch=5)


def test_null_is_refused_where_it_is_not_allowed() -> None:
    refused = 0
    for cls, version in all_versions():
        message = full_message(cls, version, Random(0))
        for struct in structs_in(message, version):
            for name, row, _, is_nullable in fields_of(type(struct), version):
                # `struct` takes the truth of anything for a bool, None's too.
                if is_nullable or row.kind == "bool":
                    continue
                value = getattr(struct, name)
                setattr(struct, name, None)
                with pytest.raises(EncodeError, match=rf"^{cls.__name__} v{version}\b"):
                    encode(message, version)
                setattr(struct, name, value)
                refused += 1
        encode(message, version)
    assert refused > 3000


def test_a_field_that_the_version_lacks_is_refused_unless_it_is_ignorable() -> None:
    refused = ignored = 0
    for cls, version in all_versions():
        message = full_message(cls, version, Random(0))
        expected = encode(message, version)
        for struct in structs_in(message, version):
            for name, row in type(struct).schema.rows.items():
                if version in row.versions:
                    continue
                value = full_message(type(struct), row.versions.first, Random(1))
                setattr(struct, name, getattr(value, name))
                if row.ignorable:
                    assert encode(message, version) == expected, f"{type(struct).__name__}.{name} v{version}"
                    ignored += 1
                else:
                    with pytest.raises(EncodeError, match=rf"^{cls.__name__} v{version} has no field {name}: "):
                        encode(message, version)
                    refused += 1
                setattr(struct, name, row.default_value())
        assert encode(message, version) == expected
    assert refused > 100
    assert ignored > 100


def test_bytes_behind_a_message_are_an_error() -> None:
    for cls, version in all_versions():
        encoded = encode(random_message(cls, version, Random(0)), version)
        with pytest.raises(DecodeError, match=f"^{cls.__name__} v{version}: 1 bytes too many"):
            decode(cls, version, encoded + b"\0")


def test_a_message_may_begin_anywhere_in_the_buffer() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    assert decode(HeartbeatRequest, 4, b"header" + encode(request, 4), 6) == request


def test_a_version_that_a_message_does_not_have_is_refused() -> None:
    with pytest.raises(EncodeError, match="HeartbeatRequest has no version 5"):
        encode(HeartbeatRequest(), 5)
    with pytest.raises(DecodeError, match="HeartbeatResponse has no version -1"):
        decode(HeartbeatResponse, -1, b"")


def test_a_function_is_compiled_once() -> None:
    assert decoder(HeartbeatRequest, 3) is decoder(HeartbeatRequest, 3)
    assert encoder(HeartbeatRequest, 3) is not encoder(HeartbeatRequest, 4)


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_decoded_records_are_views_of_the_bytes_received(make: Any, version: int) -> None:
    sent = encode(produce_of(b"records"), version)
    buffer = make(sent)
    decoded = decode(ProduceRequest, version, buffer)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is (sent if make is memoryview else buffer)
    assert records.tobytes() == b"records"


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_to_encode_are_handed_on_uncopied_whatever_they_are(version: int) -> None:
    class FileRange:
        def __len__(self) -> int:
            return 1_000_000

    records = FileRange()
    chunks = encode_chunks(produce_of(records), version)
    assert sum(chunk is records for chunk in chunks) == 1
    in_memory = encode_chunks(produce_of(bytes(1_000_000)), version)
    assert [chunk for chunk in chunks if chunk is not records] == [
        chunk for chunk in in_memory if len(chunk) < 1_000_000
    ]


def test_fetched_records_are_handed_on_uncopied() -> None:
    records = memoryview(b"records")
    partition = PartitionData(partition_index=1, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    chunks = encode_chunks(response, 12)
    assert sum(chunk is records for chunk in chunks) == 1


def test_what_is_no_bytes_is_refused_when_a_message_is_made_one_piece() -> None:
    with pytest.raises(EncodeError, match="ProduceRequest v9: a value does not fit its field"):
        encode(produce_of("text"), 9)


def test_arrays_may_be_any_sequence() -> None:
    topics = [MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b")]
    assert encode(MetadataRequest(topics=topics), 4) == encode(MetadataRequest(topics=tuple(topics)), 4)


def produce_of(records: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(partition_data=[partition])])
