"""Batches to messages: whatever the shape of the records, the same as the protocol's own reader makes of them."""

import random
from typing import Any

import pytest

from penstock.client.consumer.message_reader import RawMessage, read_messages
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.protocol.batch import HEADER, read_header, stamp_crc
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, build, iterate
from penstock.protocol.varint import varint

KEY = TopicPartition("orders", 3)


def read(batch: bytes | bytearray) -> list[RawMessage]:
    return list(read_messages(read_header(batch), bytes(batch), KEY))


def fields(messages: list[RawMessage]) -> list[tuple[Any, ...]]:
    return [(m.offset, m.timestamp, m.key, m.value, m.headers) for m in messages]


def check(batch: bytearray) -> list[RawMessage]:
    messages = read(batch)
    assert fields(messages) == [tuple(record) for record in iterate(batch)]
    for message in messages:
        assert (message.topic, message.partition) == KEY
        if not message.headers:
            assert message.size == len(message.key or b"") + len(message.value or b"")
    return messages


@pytest.mark.parametrize("count", [1, 7, 8, 63, 64, 65, 700, 9000])
@pytest.mark.parametrize("value", [b"", b"x" * 50, b"x" * 100, None], ids=["empty", "short", "long", "null"])
@pytest.mark.parametrize("key", [b"", b"12345678", None], ids=["empty key", "key", "null key"])
def test_records_of_one_shape_are_cut_apart(count: int, value: bytes | None, key: bytes | None) -> None:
    check(build([NewRecord(value, key=key, timestamp=1_700_000_000_000 + number // 7) for number in range(count)]))


@pytest.mark.parametrize("seed", range(5))
def test_records_of_all_shapes_are_read(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        records: list[NewRecord] = []
        while len(records) < 300 and chance.random() > 0.02:
            # Some in a row are alike.
            key = chance.choice([None, chance.randbytes(chance.randint(0, 200))])
            value = chance.choice([None, chance.randbytes(chance.choice((0, 5, 63, 64, 100, 9000)))])
            headers = [("trace", chance.randbytes(3)), ("none", None)] if chance.random() < 0.1 else []
            step = chance.choice((0, 0, 1, 40, 1000, 10**7, -50))
            for _ in range(chance.choice((1, 2, 10, 90))):
                before = records[-1].timestamp if records else 1_700_000_000_000
                records.append(NewRecord(value, key=key, headers=headers, timestamp=before + step))
        if records:
            check(build(records, base_offset=chance.choice((0, 17, 10**12))))


def test_a_message_says_where_it_came_from() -> None:
    batch = build(
        [NewRecord(b"v", timestamp=5)] * 20,
        base_offset=100,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=1,
        base_sequence=70,
    )
    messages = check(batch)
    assert [m.sequence for m in messages] == list(range(70, 90))
    assert {(m.crc, m.leader_epoch, m.producer_id) for m in messages} == {(read_header(batch).crc, 4, 9)}
    assert {type(m) for m in messages} == {Message}


def test_a_message_of_a_producer_without_an_id_has_no_sequence() -> None:
    assert {m.sequence for m in read(build([NewRecord(b"v", timestamp=5)] * 20))} == {-1}


def test_behind_the_largest_sequence_comes_the_first() -> None:
    batch = build([NewRecord(b"v", timestamp=5)] * 4, producer_id=9, producer_epoch=0, base_sequence=0x7FFF_FFFE)
    assert [m.sequence for m in read(batch)] == [0x7FFF_FFFE, 0x7FFF_FFFF, 0, 1]


@pytest.mark.parametrize("count", [3, 40])
def test_with_the_brokers_time_all_messages_have_it(count: int) -> None:
    records = [NewRecord(b"v" * (number % 3), timestamp=number) for number in range(count)]
    messages = check(build(records, log_append_time=77))
    assert {(m.timestamp, m.is_log_append_time) for m in messages} == {(77, True)}


def test_after_compaction_offsets_have_gaps() -> None:
    batch = build([NewRecord(b"v", timestamp=5)] * 20, offset_deltas=range(0, 40, 2), last_offset_delta=50)
    assert [m.offset for m in check(batch)] == list(range(0, 40, 2))


@pytest.mark.parametrize("where", ["fast", "any"])
def test_headers_count_with_what_they_take(where: str) -> None:
    records = [NewRecord(b"vv", key=b"k", headers=[("ab", b"c"), ("d", None)], timestamp=5)] * 3
    batch = build(records, offset_deltas=[0, 1, 2] if where == "fast" else [0, 2, 4])
    assert {m.size for m in check(batch)} == {3 + 1 + (1 + 2 + 1 + 1) + (1 + 1 + 1)}


@pytest.mark.parametrize("place", [-1, 70, 75, 90, 400])
def test_damage_is_found_behind_the_messages_before_it(place: int) -> None:
    batch = build([NewRecord(b"value", key=b"%03d" % number, timestamp=5) for number in range(100)])
    whole = fields(read(batch))
    batch[place] ^= 0xFF
    stamp_crc(batch)
    try:
        expected = [tuple(record) for record in iterate(batch)]
    except DecodeError as error:
        expected = []
        found: list[Any] = []
        with pytest.raises(DecodeError, match=str(error)[:20]):
            found.extend(read_messages(read_header(batch), bytes(batch), KEY))
        assert fields(found) == whole[: len(found)]
    if expected:
        assert fields(read(batch)) == expected


@pytest.mark.parametrize("count", [1, 40])
def test_bytes_behind_the_last_record_are_an_error(count: int) -> None:
    batch = build([NewRecord(b"value", timestamp=5)] * count)
    header = read_header(batch)
    header = header._replace(batch_length=header.batch_length + 1)
    with pytest.raises(DecodeError, match="bytes follow the last"):
        list(read_messages(header, HEADER.pack(*header) + bytes(batch[HEADER.size :]) + b"\0", KEY))


def test_a_length_that_is_written_longer_than_it_need_be_is_read_all_the_same() -> None:
    plain = bytes(build([NewRecord(b"v", timestamp=5)]))
    assert plain[61:62] == varint(7)
    longer = bytearray(plain[:61] + bytes((plain[61] | 0x80, 0)) + plain[62:])
    stamp_crc(longer)
    header = read_header(longer)._replace(batch_length=len(longer) - 12)
    assert fields(list(read_messages(header, HEADER.pack(*header) + bytes(longer[61:]), KEY))) == fields(read(plain))
