"""Metadata records on their way to the log and back, and what happens with records from the future."""

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.machines.cluster_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ControllerElected,
    DamagedRecordsError,
    FeatureLevel,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    PartitionsReassigned,
    ProducerIdsAllocated,
    ReassignedPartition,
    Record,
    TopicCreated,
    TopicDeleted,
    UnknownRecordError,
    changes_of,
    decode,
    encode,
    split,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.binary(min_size=16, max_size=16)
BROKERS = st.lists(INT32, max_size=5).map(tuple)
LISTENERS = st.dictionaries(st.text(), st.tuples(st.text(), INT32), max_size=3)
PARTITIONS = st.builds(PartitionImage, INT32, BROKERS, BROKERS, BROKERS, INT32, INT32, INT32)
REASSIGNED = st.builds(ReassignedPartition, INT32, BROKERS, BROKERS, BROKERS, INT32, INT32, INT32, BROKERS)
RECORDS = st.one_of(
    st.builds(ControllerElected, INT32, INT64),
    st.builds(BrokerRegistered, INT32, INT64, LISTENERS, st.none() | st.text(), st.text(), st.text()),
    st.builds(BrokerFenced, INT32, INT64),
    st.builds(BrokerUnregistered, INT32, INT64),
    st.builds(TopicCreated, IDS, st.text(), st.dictionaries(st.text(), st.text())),
    st.builds(PartitionsCreated, IDS, INT32, st.lists(BROKERS, max_size=5).map(tuple)),
    st.builds(PartitionsChanged, IDS, st.lists(PARTITIONS, max_size=5).map(tuple)),
    st.builds(PartitionsReassigned, IDS, st.lists(REASSIGNED, max_size=5).map(tuple)),
    st.builds(TopicDeleted, IDS),
    st.builds(
        ConfigChanged,
        st.sampled_from(["topic", "broker", "cluster"]),
        st.text(),
        st.dictionaries(st.text(), st.none() | st.text()),
    ),
    st.builds(ProducerIdsAllocated, INT64),
    st.builds(FeatureLevel, st.text(), INT32),
)


def entry_of(body: object) -> bytes:
    encoded = msgspec.msgpack.encode(body)
    return zlib.crc32(encoded).to_bytes(4, "big") + encoded


def entry_with(*record: object) -> bytes:
    return entry_of(["9.8.7", 3, 7, [["feature:1", "a", 1], record]])


@given(st.lists(RECORDS, max_size=5), INT64, INT64)
def test_what_is_encoded_is_decoded(records: list[Record], controller_epoch: int, index: int) -> None:
    entry = decode(encode(records, controller_epoch=controller_epoch, index=index))

    assert entry.records == records
    assert (entry.penstock, entry.controller_epoch, entry.index) == (penstock.__version__, controller_epoch, index)


def test_an_item_that_was_added_within_a_version_is_overlooked() -> None:
    assert decode(entry_with("producer-ids:1", 5, {"later": [1]})).records[1] == ProducerIdsAllocated(5)


def test_a_newer_version_names_the_penstock_to_upgrade_to() -> None:
    with pytest.raises(UnknownRecordError, match=r"'producer-ids' of version 2.* producer-ids:1.* to 9\.8\.7 or newer"):
        decode(entry_with("producer-ids:2", []))


def test_a_newer_version_is_refused_even_if_its_items_would_fit() -> None:
    with pytest.raises(UnknownRecordError, match="version 2"):
        decode(entry_with("producer-ids:2", 5))


def test_an_unknown_type_names_the_penstock_to_upgrade_to() -> None:
    with pytest.raises(UnknownRecordError, match=r"'quota' of version 1.* does not know.* to 9\.8\.7 or newer"):
        decode(entry_with("quota:1", "u"))


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x00\x00\x00\x00",
        b"\xff\xfe",
        entry_of({}),
        entry_of([]),
        entry_of(["0.1.0", 1, 1]),
        entry_of(["0.1.0", 1, "one", []]),
        entry_of(["0.1.0", 1, 1, [[]]]),
        entry_of(["0.1.0", 1, 1, [["feature:1", "a"]]]),
        entry_of(["0.1.0", 1, 1, [["feature:1", "a", "b"]]]),
        entry_with("feature:1", "a", 1)[:-1],
    ],
)
def test_damage_is_told_from_the_future(entry: bytes) -> None:
    with pytest.raises(DamagedRecordsError, match="damaged"):
        decode(entry)


@given(st.lists(RECORDS, min_size=1, max_size=2), st.data())
def test_a_changed_byte_is_noticed(records: list[Record], data: st.DataObject) -> None:
    entry = bytearray(encode(records, controller_epoch=1, index=1))
    entry[data.draw(st.integers(0, len(entry) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(DamagedRecordsError):
        decode(bytes(entry))


def of_many(partitions: int, *, alive: tuple[int, ...] = (1, 2, 3)) -> PartitionsChanged:
    """Partitions of three replicas that have changed once."""
    return PartitionsChanged(
        b"o" * 16,
        tuple(
            PartitionImage(
                index,
                replicas,
                tuple(broker for broker in replicas if broker in alive),
                (),
                next(broker for broker in replicas if broker in alive),
                1,
                1,
            )
            for index, replicas in enumerate(replicas_of(partitions))
        ),
    )


def replicas_of(partitions: int) -> tuple[tuple[int, ...], ...]:
    return (((1, 2, 3), (2, 3, 1), (3, 1, 2)) * partitions)[:partitions]


def test_ten_thousand_partitions_take_little_room() -> None:
    created = PartitionsCreated(b"o" * 16, 0, replicas_of(10_000))

    assert len(encode([created], controller_epoch=1, index=1)) <= 41_000
    assert len(encode([of_many(10_000, alive=(2, 3))], controller_epoch=1, index=1)) <= 155_000


@pytest.mark.parametrize("max_bytes", [300, 5_000, 256 * 1024])
def test_what_is_too_large_for_an_entry_is_cut(max_bytes: int) -> None:
    created = PartitionsCreated(b"n" * 16, 5, replicas_of(20_000))
    changed = of_many(20_000)

    portions = split([ProducerIdsAllocated(1), created, changed, FeatureLevel("a", 1)], max_bytes)

    assert all(len(encode(portion, controller_epoch=2**63 - 1, index=2**63 - 1)) <= max_bytes for portion in portions)
    [first, *pieces, last] = [record for portion in portions for record in portion]
    assert (first, last) == (ProducerIdsAllocated(1), FeatureLevel("a", 1))
    following = 5
    for piece in pieces:
        if isinstance(piece, PartitionsCreated):
            assert (piece.topic_id, piece.first) == (b"n" * 16, following)
            following += len(piece.replicas)
    new = [one for piece in pieces if isinstance(piece, PartitionsCreated) for one in piece.replicas]
    changes = [one for piece in pieces if isinstance(piece, PartitionsChanged) for one in piece.changes]
    assert (tuple(new), tuple(changes)) == (created.replicas, changed.changes)


@given(st.lists(RECORDS, max_size=20), st.integers(100, 2000))
def test_portions_are_the_records_and_fit_unless_one_record_does_not(records: list[Record], max_bytes: int) -> None:
    portions = split(records, max_bytes)

    assert all(portions)
    for portion in portions:
        assert len(portion) == 1 or len(encode(portion, controller_epoch=1, index=1)) <= max_bytes
    cut = PartitionsCreated | PartitionsChanged | PartitionsReassigned
    if not any(isinstance(record, cut) for record in records):
        assert [record for portion in portions for record in portion] == records


def test_records_that_fit_into_an_entry_stay_together() -> None:
    records: list[Record] = [ProducerIdsAllocated(1), FeatureLevel("a", 1)]

    assert split(records, 1000) == [records]
    assert split([], 1000) == []


@given(st.lists(PARTITIONS | REASSIGNED, max_size=6))
def test_changes_of_partitions_stay_in_their_order(changes: list[PartitionImage]) -> None:
    records = changes_of(b"o" * 16, changes)

    found = decode(encode(records, controller_epoch=1, index=1)).records
    again = [each for one in found if isinstance(one, PartitionsChanged | PartitionsReassigned) for each in one.changes]
    assert again == changes
    assert [type(one) for one in again] == [type(one) for one in changes]


def test_a_broker_that_does_not_know_added_replicas_does_not_overlook_them() -> None:
    growing = ReassignedPartition(0, (1, 2), (1,), (), 1, 0, 1, (2,))

    [record] = changes_of(b"o" * 16, [growing])

    assert msgspec.to_builtins(record)[0] == "partitions-reassigned:1"


def test_cut_records_of_reassigned_partitions_are_of_their_kind() -> None:
    growing = [ReassignedPartition(index, (1, 2), (1,), (), 1, 0, 1, (2,)) for index in range(500)]

    portions = split(changes_of(b"o" * 16, growing), 300)

    pieces = [record for portion in portions for record in portion]
    assert len(pieces) > 1
    assert all(isinstance(record, PartitionsReassigned) for record in pieces)
    assert [one for record in pieces if isinstance(record, PartitionsReassigned) for one in record.changes] == growing
