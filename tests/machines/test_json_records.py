"""Entries of data folders that were made when metadata was JSON."""

import pytest

from penstock.machines.cluster_records import (
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    DamagedRecordsError,
    FeatureLevel,
    PartitionImage,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    encode,
)
from penstock.machines.json_records import NO_INDEX, decode, is_json

OLD_ENTRY = (
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


def test_every_record_of_the_old_form_is_read() -> None:
    topic_id = bytes(range(16))

    entry = decode(OLD_ENTRY)

    assert (entry.penstock, entry.controller_epoch, entry.index) == ("0.1.0", 0, NO_INDEX)
    assert entry.records == [
        BrokerRegistered(1, 7, {}, None, "", ""),
        TopicCreated(topic_id, "t", {"retention.ms": "5"}),
        PartitionsChanged(topic_id, (PartitionImage(0, (1,), (1,), (), 1, 2, 3),)),
        ConfigChanged("broker", "1", {"a": "b", "c": None}),
        ProducerIdsAllocated(1000),
        FeatureLevel("penstock.version", 1),
        TopicDeleted(topic_id),
        BrokerUnregistered(1, 7),
    ]


def test_the_forms_are_told_apart() -> None:
    assert is_json(OLD_ENTRY)
    assert not is_json(encode([], controller_epoch=1, index=1))


@pytest.mark.parametrize(
    "entry",
    [
        OLD_ENTRY[:-1],
        OLD_ENTRY.replace(b'"version":1', b'"version":2'),
        OLD_ENTRY.replace(b"producer-ids", b"producers"),
        OLD_ENTRY.replace(b'"leader":1', b'"leader":"one"'),
        b'{"penstock":"0.1.0","records":[1]}',
        b'{"penstock":"0.1.0","records":1}',
        b'{"penstock":"0.1.0"}',
        b'{"penstock":' + b"[" * 100_000,
        b'{"penstock":"\xff"}',
    ],
)
def test_damage_is_noticed(entry: bytes) -> None:
    with pytest.raises(DamagedRecordsError, match="damaged"):
        decode(entry)
