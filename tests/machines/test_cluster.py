"""The image of the cluster: what each record changes, and that a snapshot is worth the records before it."""

from collections import Counter

import pytest

from penstock.machines.cluster import BrokerImage, ClusterImage, PartitionImage, TopicImage, partition_record
from penstock.machines.cluster_records import (
    NO_LEADER,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    FeatureLevel,
    PartitionChanged,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
)

ORDERS, PAYMENTS = b"orders".ljust(16), b"payments".ljust(16)


def image_of(*records: Record) -> ClusterImage:
    image = ClusterImage()
    for record in records:
        image.apply(record)
    return image


def partition(topic_id: bytes, number: int, *, leader: int = 1, epoch: int = 0) -> PartitionChanged:
    return PartitionChanged(topic_id, number, (1, 2), (1,), (2,), leader, epoch, epoch + 1)


EVERYTHING: tuple[Record, ...] = (
    FeatureLevel("penstock.version", 1),
    BrokerRegistered(1, 10, "one", 9092, "a"),
    BrokerRegistered(2, 11, "two", 9093, None),
    ConfigChanged("cluster", "", {"log.retention.ms": "1"}),
    ConfigChanged("broker", "2", {"log.retention.ms": "2"}),
    TopicCreated(ORDERS, "eu.orders", {"retention.ms": "3"}),
    partition(ORDERS, 0),
    partition(ORDERS, 1, leader=2, epoch=4),
    TopicCreated(PAYMENTS, "payments", {}),
    partition(PAYMENTS, 0, leader=NO_LEADER),
    ProducerIdsAllocated(2000),
)


def test_a_topic_is_found_by_its_name_and_by_its_id() -> None:
    image = image_of(*EVERYTHING)

    assert image.topics["eu.orders"] == TopicImage(
        ORDERS,
        "eu.orders",
        [PartitionImage(0, (1, 2), (1,), (2,), 1, 0, 1), PartitionImage(1, (1, 2), (1,), (2,), 2, 4, 5)],
        {"retention.ms": "3"},
    )
    assert image.topics_by_id[ORDERS] is image.topics["eu.orders"]


def test_a_change_replaces_the_image_of_its_partition_and_no_other() -> None:
    image = image_of(*EVERYTHING)
    before = list(image.topics["eu.orders"].partitions)

    image.apply(partition(ORDERS, 0, leader=2, epoch=7))

    after = image.topics["eu.orders"].partitions
    assert (before[0].leader, after[0].leader, after[0].leader_epoch) == (1, 2, 7)
    assert after[1] is before[1]


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    image = image_of(*EVERYTHING[:5])
    for record in (*EVERYTHING[5:8], TopicDeleted(ORDERS)):
        image.apply(record)

    assert image == image_of(*EVERYTHING[:5])
    assert image.colliding_topic("eu.orders") is None


def test_leaders_are_counted() -> None:
    image = image_of(*EVERYTHING)
    assert image.leader_counts == Counter({1: 1, 2: 1})

    image.apply(partition(ORDERS, 0, leader=2, epoch=1))
    assert image.leader_counts == Counter({2: 2})

    image.apply(TopicDeleted(ORDERS))
    assert image.leader_counts == Counter()


def test_a_name_collides_with_itself_and_with_its_likes() -> None:
    image = image_of(*EVERYTHING)

    assert [image.colliding_topic(name) for name in ("eu.orders", "eu_orders", "eu-orders")] == [
        "eu.orders",
        "eu.orders",
        None,
    ]


def test_configs_are_set_and_taken_away() -> None:
    image = image_of(*EVERYTHING)

    image.apply(ConfigChanged("topic", "eu.orders", {"retention.ms": None, "segment.bytes": "5"}))
    image.apply(ConfigChanged("cluster", "", {"log.retention.ms": None, "unset": None}))
    image.apply(ConfigChanged("broker", "1", {"log.retention.ms": "9"}))
    image.apply(ConfigChanged("broker", "2", {"log.retention.ms": None}))

    assert image.configs_of("topic", "eu.orders") == {"segment.bytes": "5"}
    assert image.configs_of("cluster", "") == {}
    assert image.configs_of("broker", "1") == {"log.retention.ms": "9"}
    assert image.configs_of("broker", "2") == {}
    assert image.broker_configs == {1: {"log.retention.ms": "9"}}


def test_a_broker_registers_again_and_leaves() -> None:
    image = image_of(*EVERYTHING)

    image.apply(BrokerRegistered(1, 12, "moved", 1, None))
    assert image.brokers[1] == BrokerImage(1, 12, "moved", 1, None)

    image.apply(BrokerUnregistered(1, 12))
    assert list(image.brokers) == [2]


def test_features_and_producer_ids_are_kept() -> None:
    image = image_of(*EVERYTHING)

    assert image.features == {"penstock.version": 1}
    assert image.next_producer_id == 2000


def test_a_snapshot_rebuilds_the_image() -> None:
    image = image_of(*EVERYTHING)

    assert image.snapshot() == list(EVERYTHING)
    assert image_of(*image.snapshot()) == image
    assert ClusterImage().snapshot() == []


def test_a_snapshot_shares_nothing_that_changes() -> None:
    image = image_of(*EVERYTHING)
    snapshot = image.snapshot()

    image.apply(ConfigChanged("topic", "payments", {"retention.ms": "8"}))
    image.apply(ConfigChanged("cluster", "", {"log.retention.ms": "8"}))
    image.apply(ConfigChanged("broker", "2", {"log.retention.ms": "8"}))

    assert snapshot == list(EVERYTHING)


def test_the_record_of_a_partition_makes_it_look_the_same() -> None:
    record = partition(ORDERS, 1, leader=2, epoch=4)

    assert partition_record(ORDERS, image_of(*EVERYTHING).topics["eu.orders"].partitions[1]) == record


@pytest.mark.parametrize(
    "record",
    [TopicCreated(b"3" * 16, "payments", {}), partition(PAYMENTS, 2), BrokerUnregistered(1, 9)],
)
def test_a_record_that_nobody_decided_is_noticed(record: Record) -> None:
    with pytest.raises(AssertionError):
        image_of(*EVERYTHING, record)
