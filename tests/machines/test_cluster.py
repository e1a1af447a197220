"""The image of the cluster: what each record changes, and that a snapshot is worth the records before it."""

from collections import Counter

import msgspec
import pytest

from penstock.machines.cluster import (
    BrokerImage,
    ClusterImage,
    ImageChange,
    PartitionImage,
    TopicImage,
    difference,
)
from penstock.machines.cluster_records import (
    NO_LEADER,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ControllerElected,
    FeatureLevel,
    PartitionsChanged,
    PartitionsCreated,
    PartitionsReassigned,
    ProducerIdsAllocated,
    ReassignedPartition,
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


def partition(number: int, *, leader: int = 1, epoch: int = 0) -> PartitionImage:
    return PartitionImage(number, (1, 2), (1,), (2,), leader, epoch, epoch + 1)


def changed(topic_id: bytes, number: int, *, leader: int = 1, epoch: int = 0) -> PartitionsChanged:
    return PartitionsChanged(topic_id, (partition(number, leader=leader, epoch=epoch),))


EVERYTHING: tuple[Record, ...] = (
    FeatureLevel("penstock.version", 1),
    ControllerElected(2, 5),
    BrokerRegistered(1, 10, {"PLAIN": ("one", 9092)}, "a", "folder-1", "folder-1"),
    BrokerRegistered(2, 11, {"PLAIN": ("two", 9093)}, None, "folder-2", "folder-2"),
    BrokerFenced(2, 11),
    ConfigChanged("cluster", "", {"log.retention.ms": "1"}),
    ConfigChanged("broker", "2", {"log.retention.ms": "2"}),
    TopicCreated(ORDERS, "eu.orders", {"retention.ms": "3"}),
    PartitionsChanged(ORDERS, (partition(0), partition(1, leader=2, epoch=4))),
    TopicCreated(PAYMENTS, "payments", {}),
    changed(PAYMENTS, 0, leader=NO_LEADER),
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

    image.apply(changed(ORDERS, 0, leader=2, epoch=1))

    after = image.topics["eu.orders"].partitions
    assert (before[0].leader, after[0].leader, after[0].leader_epoch) == (1, 2, 1)
    assert after[1] is before[1]


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    image = image_of(*EVERYTHING[:7])
    for record in (*EVERYTHING[7:9], TopicDeleted(ORDERS)):
        image.apply(record)

    assert image == image_of(*EVERYTHING[:7])
    assert image.colliding_topic("eu.orders") is None


def test_leaders_are_counted() -> None:
    image = image_of(*EVERYTHING)
    assert image.leader_counts == Counter({1: 1, 2: 1})

    image.apply(changed(ORDERS, 0, leader=2, epoch=1))
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

    image.apply(BrokerRegistered(1, 12, {"PLAIN": ("moved", 1)}, None, "other", "folder-1"))
    assert image.brokers[1] == BrokerImage(1, 12, {"PLAIN": ("moved", 1)}, None, "other", True, "folder-1")
    assert image.brokers[1].address("PLAIN") == ("moved", 1)
    assert image.brokers[1].address("TLS") is None
    assert [broker.broker_id for broker in image.live_brokers()] == [1]

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


def test_a_snapshot_has_partitions_in_their_order_whether_their_replicas_change_or_not() -> None:
    image = image_of(TopicCreated(ORDERS, "orders", {}), PartitionsCreated(ORDERS, 0, ((1, 2), (2, 1), (1, 2))))
    growing = ReassignedPartition(1, (2, 1, 3), (2, 1), (), 2, 0, 1, (3,))
    image.apply(PartitionsReassigned(ORDERS, (growing,)))

    again = image_of(*image.snapshot())

    assert again == image
    assert again.topics["orders"].partitions[1] == growing
    assert again.replica_counts[3] == 1


def test_a_snapshot_shares_nothing_that_changes() -> None:
    image = image_of(*EVERYTHING)
    snapshot = image.snapshot()

    image.apply(ConfigChanged("topic", "payments", {"retention.ms": "8"}))
    image.apply(ConfigChanged("cluster", "", {"log.retention.ms": "8"}))
    image.apply(ConfigChanged("broker", "2", {"log.retention.ms": "8"}))

    assert snapshot == list(EVERYTHING)


def test_new_partitions_are_led_by_the_first_of_their_replicas() -> None:
    image = image_of(TopicCreated(ORDERS, "orders", {}), PartitionsCreated(ORDERS, 0, ((2, 1), (1, 2))))

    assert image.topics["orders"].partitions == [
        PartitionImage(0, (2, 1), (2, 1), (), 2, 0, 0),
        PartitionImage(1, (1, 2), (1, 2), (), 1, 0, 0),
    ]
    assert image.replica_counts == Counter({1: 2, 2: 2})
    assert image.partition_count == 2


@pytest.mark.parametrize(
    "record",
    [
        TopicCreated(b"3" * 16, "payments", {}),
        changed(PAYMENTS, 2),
        PartitionsCreated(PAYMENTS, 0, ((1,),)),
        PartitionsCreated(PAYMENTS, 2, ((1,),)),
        BrokerUnregistered(1, 9),
        BrokerFenced(1, 9),
    ],
)
def test_a_record_that_nobody_decided_is_noticed(record: Record) -> None:
    with pytest.raises(AssertionError):
        image_of(*EVERYTHING, record)


def test_a_change_of_a_partition_must_follow_the_last_one() -> None:
    for epoch in (0, 1, 3):
        with pytest.raises(AssertionError, match="does not follow"):
            image_of(
                *EVERYTHING, PartitionsChanged(ORDERS, (msgspec.structs.replace(partition(0), partition_epoch=epoch),))
            )


def test_a_copy_changes_by_itself() -> None:
    image = image_of(*EVERYTHING)
    copy = image.copy()
    assert copy == image
    assert copy.colliding_topic("eu_orders") == "eu.orders"
    assert copy.topics_by_id[ORDERS] is copy.topics["eu.orders"]

    copy.apply_all(
        [
            changed(ORDERS, 0, leader=2, epoch=1),
            PartitionsCreated(PAYMENTS, 1, ((1,),)),
            ConfigChanged("topic", "payments", {"retention.ms": "8"}),
            ConfigChanged("cluster", "", {"log.retention.ms": "8"}),
            ConfigChanged("broker", "2", {"log.retention.ms": "8"}),
            FeatureLevel("more", 1),
            BrokerFenced(1, 10),
            TopicDeleted(PAYMENTS),
            ControllerElected(1, 6),
        ]
    )

    assert image == image_of(*EVERYTHING)
    assert image.colliding_topic("payments") == "payments"


class TestChanges:
    """What a change names, for those that follow the image."""

    def test_a_new_topic_has_new_partitions(self) -> None:
        change = ClusterImage().apply_all(
            [TopicCreated(ORDERS, "orders", {}), PartitionsCreated(ORDERS, 0, ((1,), (1,)))]
        )

        assert change == ImageChange(created={"orders"}, partitions={ORDERS: {0, 1}})

    def test_a_change_of_a_partition_names_it_alone(self) -> None:
        change = image_of(*EVERYTHING).apply_all([changed(ORDERS, 0, leader=2, epoch=1)])

        assert change == ImageChange(partitions={ORDERS: {0}})

    def test_a_deleted_topic_is_told_as_it_was(self) -> None:
        image = image_of(*EVERYTHING)
        was = image.topics["eu.orders"]

        change = image.apply_all([changed(ORDERS, 0, leader=2, epoch=1), TopicDeleted(ORDERS)])

        assert change == ImageChange(deleted={"eu.orders": was})

    def test_a_topic_that_is_made_again_is_told_as_it_was_and_as_new(self) -> None:
        image = image_of(*EVERYTHING)
        was = image.topics["payments"]
        again = b"again".ljust(16)

        change = image.apply_all(
            [TopicDeleted(PAYMENTS), TopicCreated(again, "payments", {}), PartitionsCreated(again, 0, ((1,),))]
        )

        assert change == ImageChange(created={"payments"}, deleted={"payments": was}, partitions={again: {0}})

    def test_a_topic_that_came_and_went_is_not_told(self) -> None:
        image = image_of(*EVERYTHING)
        was, brief = image.topics["payments"], b"brief".ljust(16)
        change = image.apply_all([TopicDeleted(PAYMENTS), TopicCreated(brief, "payments", {})])

        change.merge(image.apply_all([PartitionsCreated(brief, 0, ((1,),))]))
        change.merge(image.apply_all([ConfigChanged("topic", "payments", {"a": "b"})]))
        change.merge(image.apply_all([TopicDeleted(brief)]))

        assert change == ImageChange(deleted={"payments": was})

    def test_configs_are_told_by_topic_or_for_all(self) -> None:
        image = image_of(*EVERYTHING)

        assert image.apply_all([ConfigChanged("topic", "payments", {"a": "b"})]) == ImageChange(configured={"payments"})
        for resource, name in (("broker", "1"), ("cluster", "")):
            change = image.apply_all([ConfigChanged(resource, name, {"a": "b"})])  # type: ignore[arg-type]
            assert change == ImageChange(configs=True)

    def test_brokers_and_the_controller_are_told(self) -> None:
        image = image_of(*EVERYTHING)

        assert image.apply_all([BrokerFenced(1, 10), ControllerElected(1, 6)]) == ImageChange(
            brokers={1}, controller=True
        )
        assert image.apply_all([ProducerIdsAllocated(3000), FeatureLevel("a", 1)]) == ImageChange()

    def test_a_reader_that_missed_entries_compares(self) -> None:
        old, new = image_of(*EVERYTHING), image_of(*EVERYTHING)
        change = new.apply_all([changed(ORDERS, 1, leader=1, epoch=5), TopicDeleted(PAYMENTS), BrokerFenced(1, 10)])

        assert difference(old, new) == change
        assert difference(new, new.copy()) == ImageChange()
