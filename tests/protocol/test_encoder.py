"""Bytes that the encoder writes, one primitive after the other, and values that it refuses."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from penstock.protocol.codec import encode, stepwise_encoder
from penstock.protocol.encoder import compile_encoder, compile_stepwise_encoder
from penstock.protocol.errors import EncodeError
from penstock.protocol.schema import ZERO_UUID, Message, Records, row
from penstock.protocol.schemas.groups import HeartbeatRequest
from penstock.protocol.schemas.headers import RequestHeader
from penstock.protocol.schemas.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.protocol.messages import all_versions, random_message


class Leaf(Message):
    number: int = row("int8", "0+", default=7)


class Everything(Message, versions="0-1", flexible="1+"):
    flag: bool = row("bool", "0+", default=False)
    tiny: int = row("int8", "0+", default=0)
    short: int = row("int16", "0+", default=0)
    port: int = row("uint16", "0+", default=0)
    count: int = row("int32", "0+", default=0)
    hash: int = row("uint32", "0+", default=0)
    offset: int = row("int64", "0+", default=0)
    share: float = row("float64", "0+", default=0.0)
    id: bytes = row("uuid", "0+", default=ZERO_UUID)
    name: str | None = row("string", "0+", default="", nullable="0+")
    data: bytes | None = row("bytes", "0+", default=b"", nullable="0+")
    records: Records | None = row("records", "0+", default=None, nullable="0+")
    leaf: Leaf = row(Leaf, "0+", factory=Leaf)
    maybe: Leaf | None = row(Leaf, "0+", default=None, nullable="0+")
    numbers: Sequence[int] | None = row(["int16"], "0+", default=(), nullable="0+")
    names: Sequence[str] = row(["string"], "0+", default=())
    ids: Sequence[bytes] = row(["uuid"], "0+", default=())
    leaves: Sequence[Leaf] = row([Leaf], "0+", default=())
    extra: Leaf = row(Leaf, "1+", factory=Leaf, tag=0, tagged="1+")
    hint: str | None = row("string", "1+", default=None, nullable="1+", tag=300, tagged="1+")


# What `everything` begins with.
FIXED_DIGITS = "01 fe fffd ffff fffffffc ffffffff fffffffffffffffb 3ff8000000000000" + "11" * 16


def everything(**values: Any) -> Everything:
    return Everything(
        flag=True,
        tiny=-2,
        short=-3,
        port=65535,
        count=-4,
        hash=4294967295,
        offset=-5,
        share=1.5,
        id=b"\x11" * 16,
        **values,
    )


def test_older_versions_write_lengths_as_integers() -> None:
    message = everything(
        name="é", data=b"ab", records=b"cd", maybe=Leaf(number=1), numbers=[1, -1], names=["x", ""], ids=[b"\x22" * 16]
    )
    assert encode(message, 0) == bytes.fromhex(
        f"{FIXED_DIGITS} 0002c3a9 00000002 6162 00000002 6364 07 01 01 00000002 0001 ffff"
        f"00000002 0001 78 0000 00000001 {'22' * 16} 00000000"
    )


def test_flexible_versions_write_lengths_as_varints_and_end_every_struct_with_tags() -> None:
    message = everything(
        name="é", data=b"ab", records=b"cd", maybe=Leaf(number=1), numbers=[1, -1], names=["x", ""], ids=[b"\x22" * 16]
    )
    assert encode(message, 1) == bytes.fromhex(
        f"{FIXED_DIGITS} 03c3a9 03 6162 03 6364 07 00 01 01 00 03 0001 ffff 03 02 78 01 02 {'22' * 16} 01 00"
    )


def test_null_has_a_length_of_its_own() -> None:
    message = everything(name=None, data=None, records=None, maybe=None, numbers=None)
    assert encode(message, 0) == bytes.fromhex(
        f"{FIXED_DIGITS} ffff ffffffff ffffffff 07 ff ffffffff 00000000 00000000 00000000"
    )
    assert encode(message, 1) == bytes.fromhex(f"{FIXED_DIGITS} 00 00 00 07 00 ff 00 01 01 01 00")


def test_tags_carry_their_number_and_length_as_varints() -> None:
    message = everything(extra=Leaf(number=8), hint="hello")
    assert encode(message, 1).endswith(bytes.fromhex("02 00 02 08 00 ac02 06 06 68656c6c6f"))


def test_lengths_from_127_on_take_two_bytes() -> None:
    assert encode(everything(name="x" * 126), 1)[46:48] == b"\x7fx"
    assert encode(everything(name="x" * 127), 1)[46:49] == b"\x80\x01x"
    assert encode(everything(name=None, leaves=[Leaf()] * 127), 1)[-257:-254] == b"\x80\x01\x07"
    long_hint = encode(everything(hint="x" * 200), 1)
    assert long_hint.endswith(bytes.fromhex("01 ac02 ca01 c901") + b"x" * 200)


def test_the_client_id_keeps_its_old_form_in_a_flexible_header() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=1, client_id="ab")
    assert encode(header, 2) == bytes.fromhex("0012 0003 00000001 0002 6162 00")


def test_chunks_are_appended_behind_those_that_are_there() -> None:
    chunks: list[Any] = [b"before"]
    compile_encoder(HeartbeatRequest, 0)(HeartbeatRequest(group_id="g", member_id="m"), chunks)
    assert b"".join(chunks) == b"before" + bytes.fromhex("0001 67 00000000 0001 6d")


def test_neighbouring_numbers_are_written_together() -> None:
    chunks: list[Any] = []
    compile_encoder(Everything, 0)(everything(), chunks)
    assert chunks[0] == bytes.fromhex(FIXED_DIGITS) + b"\0\0"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tiny", 128),
        ("tiny", "1"),
        ("short", 40000),
        ("port", -1),
        ("count", 1 << 31),
        ("count", 1.5),
        ("hash", -1),
        ("offset", 1 << 63),
        ("share", "much"),
        ("id", b"short"),
        ("id", b"much longer than a uuid"),
        ("id", "0123456789abcdef"),
        ("ids", [b"short"]),
        ("name", b"bytes"),
        ("name", "lone surrogate \ud800"),
        ("names", [None]),
        ("names", [1]),
        ("names", 5),
        ("data", 5),
        ("numbers", [1 << 15]),
        ("numbers", ["1"]),
        ("leaf", 5),
        ("leaves", [None]),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused(version: int, field: str, value: object) -> None:
    message = everything()
    setattr(message, field, value)
    with pytest.raises(EncodeError, match=rf"^Everything v{version}: a value does not fit its field: "):
        encode(message, version)


def test_a_string_that_its_length_cannot_count_is_refused() -> None:
    assert len(encode(HeartbeatRequest(group_id="x" * 32767), 3)) > 32767
    with pytest.raises(EncodeError, match="HeartbeatRequest v3: a value does not fit its field"):
        encode(HeartbeatRequest(group_id="x" * 32768), 3)
    assert len(encode(HeartbeatRequest(group_id="x" * 32768), 4)) > 32768


def test_a_field_that_the_version_lacks_is_named_in_the_refusal() -> None:
    with pytest.raises(EncodeError, match="Everything v0 has no field hint: leave it out or use another version"):
        encode(everything(hint="x"), 0)
    with pytest.raises(EncodeError, match="Everything v0 has no field extra"):
        encode(everything(extra=Leaf(number=8)), 0)
    assert encode(everything(extra=Leaf(number=7)), 0) == encode(everything(), 0)


def test_messages_are_written_to_the_same_bytes_step_by_step() -> None:
    rng = Random(1)
    for cls, version in all_versions():
        message = random_message(cls, version, rng)
        chunks: list[Any] = []
        for _ in stepwise_encoder(cls, version)(message, chunks):
            pass
        assert b"".join(chunks) == encode(message, version), (cls.__name__, version)


def test_there_is_a_stop_after_each_message_of_each_array() -> None:
    partitions = [MetadataResponsePartition(partition_index=number) for number in range(5)]
    message = MetadataResponse(topics=[MetadataResponseTopic(name=name, partitions=partitions) for name in "abc"])
    steps = compile_stepwise_encoder(MetadataResponse, 12)(message, [])
    # Partitions, their topics, and the end.
    assert sum(1 for _ in steps) == 3 * 5 + 3 + 1


def test_a_value_that_does_not_fit_is_refused_step_by_step_too() -> None:
    message = MetadataResponse(topics=[MetadataResponseTopic(name="a"), MetadataResponseTopic(error_code=1 << 20)])
    with pytest.raises(EncodeError, match="does not fit its field"):
        list(compile_stepwise_encoder(MetadataResponse, 12)(message, []))
    with pytest.raises(EncodeError, match="has no version 99"):
        stepwise_encoder(MetadataResponse, 99)
