"""Records of the log of groups, byte by byte as Kafka writes them."""

from dataclasses import replace

import pytest

from penstock.machines.groups.records import (
    GroupForgotten,
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetForgotten,
    StoredMember,
    decode,
    encode,
)
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import ZERO_UUID

TOPIC_ID = bytes(range(1, 17))
OFFSET = OffsetCommitted("gé", "topic", 7, 1234567890123, 5, "note", 1700000000001)
MEMBER = StoredMember("c-1", "one", "c", "/10.0.0.1", 60000, 10000, b"\0\1", b"\2")
GROUP = GroupStored("gé", "consumer", 3, "range", "c-1", 1700000000002, (MEMBER,))
EMPTY = GroupStored("gé", "", 0, None, None, 1700000000002, ())

OFFSET_KEY = "0001000367c3a90005746f70696300000007"
GROUP_KEY = "0002000367c3a9"

# Written by the serializers of Kafka 4.2.0.
WRITTEN: list[tuple[GroupRecord, str, str | None]] = [
    (OFFSET, OFFSET_KEY, "00040000011f71fb04cb00000005056e6f74650000018bcfe5680100"),
    (
        OFFSET._replace(topic_id=TOPIC_ID),
        OFFSET_KEY,
        "00040000011f71fb04cb00000005056e6f74650000018bcfe568010100100102030405060708090a0b0c0d0e0f10",
    ),
    (
        OFFSET._replace(leader_epoch=-1, expire_timestamp_ms=1700000900001),
        OFFSET_KEY,
        "00010000011f71fb04cb00046e6f74650000018bcfe568010000018bcff323a1",
    ),
    (OffsetForgotten("gé", "topic", 7), OFFSET_KEY, None),
    (
        GROUP,
        GROUP_KEY,
        (
            "00030008636f6e73756d657200000003000572616e67650003632d310000018bcfe56802000000010003632d3100036f6e6500016300"
            "092f31302e302e302e310000ea60000027100000000200010000000102"
        ),
    ),
    (EMPTY, GROUP_KEY, "0003000000000000ffffffff0000018bcfe5680200000000"),
    (GroupForgotten("gé"), GROUP_KEY, None),
]
OLD_MEMBER = replace(MEMBER, instance_id=None)
OLDER: list[tuple[GroupRecord, str, str]] = [
    (OFFSET._replace(leader_epoch=-1), OFFSET_KEY, "00000000011f71fb04cb00046e6f74650000018bcfe56801"),
    (OFFSET._replace(leader_epoch=-1), OFFSET_KEY, "00020000011f71fb04cb00046e6f74650000018bcfe56801"),
    (OFFSET, OFFSET_KEY, "00030000011f71fb04cb0000000500046e6f74650000018bcfe56801"),
    # The oldest type of key, which was followed by a value of version 0.
    (OFFSET._replace(leader_epoch=-1), "0000" + OFFSET_KEY[4:], "00000000011f71fb04cb00046e6f74650000018bcfe56801"),
    (
        replace(GROUP, state_timestamp_ms=-1, members=(replace(OLD_MEMBER, rebalance_timeout_ms=10000),)),
        GROUP_KEY,
        (
            "00000008636f6e73756d657200000003000572616e67650003632d31000000010003632d3100016300092f31302e302e302e3100002710"
            "0000000200010000000102"
        ),
    ),
    (
        replace(GROUP, state_timestamp_ms=-1, members=(OLD_MEMBER,)),
        GROUP_KEY,
        (
            "00010008636f6e73756d657200000003000572616e67650003632d31000000010003632d3100016300092f31302e302e302e310000ea60"
            "000027100000000200010000000102"
        ),
    ),
    (
        replace(GROUP, members=(OLD_MEMBER,)),
        GROUP_KEY,
        (
            "00020008636f6e73756d657200000003000572616e67650003632d310000018bcfe56802000000010003632d3100016300092f31302e30"
            "2e302e310000ea60000027100000000200010000000102"
        ),
    ),
    (
        GROUP,
        GROUP_KEY,
        (
            "000409636f6e73756d6572000000030672616e676504632d310000018bcfe568020204632d31046f6e6502630a2f31302e302e302e31"
            "0000ea600000271003000102020000"
        ),
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN)
def test_records_are_written_as_kafka_writes_them(record: GroupRecord, key: str, value: str | None) -> None:
    assert encode(record) == (bytes.fromhex(key), None if value is None else bytes.fromhex(value))


@pytest.mark.parametrize(("record", "key", "value"), [*WRITTEN, *OLDER])
def test_records_of_every_version_are_read(record: GroupRecord, key: str, value: str | None) -> None:
    as_bytes = None if value is None else bytes.fromhex(value)
    assert decode(bytes.fromhex(key), as_bytes) == record
    assert decode(memoryview(bytes.fromhex(key)), as_bytes and memoryview(as_bytes)) == record


def test_an_offset_without_a_topic_id_has_the_zero_id() -> None:
    read = decode(*encode(OFFSET))
    assert isinstance(read, OffsetCommitted)
    assert read.topic_id == ZERO_UUID


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 4096, 16383, 16384])
def test_metadata_of_any_length_is_read_back(length: int) -> None:
    record = OFFSET._replace(metadata="é" * (length // 2), topic="t" * (length % 200))
    assert decode(*encode(record)) == record


@pytest.mark.parametrize("kind", [3, 5, 11, 32767, -1])
def test_records_of_other_types_are_not_ours_to_read(kind: int) -> None:
    assert decode(kind.to_bytes(2, "big", signed=True) + b"whatever", b"\0\0whatever") is None
    assert decode(kind.to_bytes(2, "big", signed=True), None) is None


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1", b"\0\2\0\5ab", bytes.fromhex(GROUP_KEY) + b"!"])
def test_a_damaged_key_is_no_record(key: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode(key, None)


@pytest.mark.parametrize(("key", "value"), [(key, value) for _, key, value in WRITTEN if value is not None])
def test_a_value_that_was_cut_is_no_record(key: str, value: str) -> None:
    whole = bytes.fromhex(value)
    for length in range(len(whole)):
        with pytest.raises(DecodeError):
            decode(bytes.fromhex(key), whole[:length])
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(key), whole + b"!")


@pytest.mark.parametrize("version", [b"\0\5", b"\xff\xff"])
def test_a_value_of_an_unknown_version_says_what_to_do(version: bytes) -> None:
    with pytest.raises(DecodeError, match="upgrade"):
        decode(bytes.fromhex(OFFSET_KEY), version + bytes(30))
