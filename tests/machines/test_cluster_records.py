"""Metadata records on their way to the log and back, and what happens with records from the future."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.machines.cluster_records import (
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    DamagedRecordsError,
    FeatureLevel,
    PartitionChanged,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
    UnknownRecordError,
    decode,
    encode,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.binary(min_size=16, max_size=16)
BROKERS = st.lists(INT32, max_size=5).map(tuple)
RECORDS = st.one_of(
    st.builds(BrokerRegistered, INT32, INT64, st.text(), INT32, st.none() | st.text()),
    st.builds(BrokerUnregistered, INT32, INT64),
    st.builds(TopicCreated, IDS, st.text(), st.dictionaries(st.text(), st.text())),
    st.builds(PartitionChanged, IDS, INT32, BROKERS, BROKERS, BROKERS, INT32, INT32, INT32),
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


def entry_with(record: dict[str, object], *, penstock: str = "9.8.7") -> bytes:
    fine = {"type": "feature", "version": 1, "name": "a", "level": 1}
    return json.dumps({"penstock": penstock, "records": [fine, record]}).encode()


@given(st.lists(RECORDS, max_size=5))
def test_what_is_encoded_is_decoded(records: list[Record]) -> None:
    assert decode(encode(records)) == records


def test_an_entry_is_readable_and_says_who_wrote_it() -> None:
    entry = json.loads(encode([TopicDeleted(b"\x00" * 16), FeatureLevel("penstock.version", 1)]))

    assert entry == {
        "penstock": penstock.__version__,
        "records": [
            {"type": "topic-gone", "version": 1, "topic_id": "AAAAAAAAAAAAAAAAAAAAAA=="},
            {"type": "feature", "version": 1, "name": "penstock.version", "level": 1},
        ],
    }


def test_entries_of_version_1_stay_readable() -> None:
    entry = (
        b'{"penstock":"0.1.0","records":['
        b'{"type":"broker","broker_id":1,"broker_epoch":7,"host":"h","port":9092,"rack":null,"version":1},'
        b'{"type":"topic","topic_id":"AAECAwQFBgcICQoLDA0ODw==","name":"t","configs":{"retention.ms":"5"},"version":1},'
        b'{"type":"partition","topic_id":"AAECAwQFBgcICQoLDA0ODw==","partition":0,"replicas":[1],"isr":[1],"elr":[],'
        b'"leader":1,"leader_epoch":2,"partition_epoch":3,"version":1},'
        b'{"type":"config","resource":"broker","name":"1","values":{"a":"b","c":null},"version":1},'
        b'{"type":"producer-ids","next_producer_id":1000,"version":1},'
        b'{"type":"feature","name":"penstock.version","level":1,"version":1},'
        b'{"type":"topic-gone","topic_id":"AAECAwQFBgcICQoLDA0ODw==","version":1},'
        b'{"type":"broker-gone","broker_id":1,"broker_epoch":7,"version":1}]}'
    )
    topic_id = bytes(range(16))
    records: list[Record] = [
        BrokerRegistered(1, 7, "h", 9092, None),
        TopicCreated(topic_id, "t", {"retention.ms": "5"}),
        PartitionChanged(topic_id, 0, (1,), (1,), (), 1, 2, 3),
        ConfigChanged("broker", "1", {"a": "b", "c": None}),
        ProducerIdsAllocated(1000),
        FeatureLevel("penstock.version", 1),
        TopicDeleted(topic_id),
        BrokerUnregistered(1, 7),
    ]

    assert decode(entry) == records
    assert encode(records) == entry.replace(b"0.1.0", penstock.__version__.encode())


def test_a_field_that_was_added_within_a_version_is_overlooked() -> None:
    entry = entry_with({"type": "producer-ids", "version": 1, "next_producer_id": 5, "added": {"later": [1]}})

    assert decode(entry)[1] == ProducerIdsAllocated(5)


def test_a_newer_version_names_the_penstock_to_upgrade_to() -> None:
    entry = entry_with({"type": "producer-ids", "version": 2, "blocks": []})

    with pytest.raises(
        UnknownRecordError, match=r"'producer-ids' of version 2.* up to version 1.* to 9\.8\.7 or newer"
    ):
        decode(entry)


def test_a_newer_version_is_refused_even_if_its_fields_would_fit() -> None:
    entry = entry_with({"type": "producer-ids", "version": 2, "next_producer_id": 5})

    with pytest.raises(UnknownRecordError, match="version 2"):
        decode(entry)


def test_an_unknown_type_names_the_penstock_to_upgrade_to() -> None:
    entry = entry_with({"type": "quota", "version": 1, "user": "u"})

    with pytest.raises(UnknownRecordError, match=r"'quota' of version 1.* does not know.* to 9\.8\.7 or newer"):
        decode(entry)


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b'{"penstock":"0.1.0","records":[{"type":"feature","name":"a"}]}',
        b'{"penstock":"0.1.0","records":[{"type":"feature","version":1,"name":"a"}]}',
        b'{"penstock":"0.1.0","records":[{"type":"feature","version":1,"name":"\xff","level":1}]}',
        b'{"penstock":"0.1.0","records":[{"type":"topic-gone","version":1,"topic_id":"!"}]}',
        b'{"penstock":' + b"[" * 100_000,
        b'{"deep":' + b"[" * 100_000,
    ],
)
def test_damage_is_told_from_the_future(entry: bytes) -> None:
    with pytest.raises(DamagedRecordsError, match="damaged"):
        decode(entry)


@given(st.lists(RECORDS, min_size=1, max_size=2), st.data())
def test_a_changed_byte_gives_records_or_one_of_two_errors(records: list[Record], data: st.DataObject) -> None:
    entry = bytearray(encode(records))
    entry[data.draw(st.integers(0, len(entry) - 1))] = data.draw(st.integers(0, 255))

    try:
        found = decode(bytes(entry))
    except (DamagedRecordsError, UnknownRecordError):
        return
    assert isinstance(found, list)
