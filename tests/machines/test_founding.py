"""What a cluster begins with in another store."""

from dataclasses import replace

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import (
    BrokerFenced,
    BrokerRegistered,
    ConfigChanged,
    ControllerElected,
    FeatureLevel,
    PartitionImage,
    PartitionsCreated,
    ProducerIdsAllocated,
    ReassignedPartition,
    Record,
    TopicCreated,
    changes_of,
)
from penstock.machines.elections import awaits_reports
from penstock.machines.founding import (
    FIRST_INDEX,
    PRODUCER_ID_STEP,
    PRODUCER_IDS_PER_MS,
    founding_entry,
    founding_snapshot,
    imported_snapshot,
)
from penstock.machines.log_reader import LogReader

ORDERS = bytes(15) + b"\1"
RECORDS: list[Record] = [
    FeatureLevel("metadata.version", 1),
    ControllerElected(0, 7),
    BrokerRegistered(0, 12, {"PLAINTEXT": ("127.0.0.1", 9092)}, "rack", "folder-0", "folder-0"),
    BrokerRegistered(1, 13, {"PLAINTEXT": ("127.0.0.1", 9093)}, None, "folder-1", "folder-1"),
    BrokerFenced(1, 13),
    TopicCreated(ORDERS, "orders", {"retention.ms": "1"}),
    PartitionsCreated(ORDERS, 0, ((0,), (1,))),
    ConfigChanged("cluster", "", {"log.retention.ms": "5"}),
    ProducerIdsAllocated(3000),
]


def founded(image: ClusterImage) -> tuple[ClusterImage, LogReader]:
    made, reader = ClusterImage(), LogReader()
    made.apply_all(reader.read_snapshot(FIRST_INDEX, founding_snapshot(image)))
    return made, reader


def test_everything_but_epochs_and_the_controller_is_as_it_was() -> None:
    image = ClusterImage()
    image.apply_all(RECORDS)
    made, _ = founded(image)
    assert (made.controller_id, made.controller_epoch) == (-1, 0)
    assert made.brokers == {number: replace(each, broker_epoch=0) for number, each in image.brokers.items()}
    made.controller_id, made.controller_epoch, made.brokers = 0, 7, image.brokers
    assert made == image


def test_the_image_that_was_there_stays_as_it_was() -> None:
    image, same = ClusterImage(), ClusterImage()
    for each in (image, same):
        each.apply_all(RECORDS)
    founding_snapshot(image)
    assert image == same


def test_a_reader_goes_on_after_the_first_entry_with_the_first_controller_of_the_new_store() -> None:
    image = ClusterImage()
    image.apply_all(RECORDS)
    _, reader = founded(image)
    assert (reader.index, reader.controller_epoch) == (FIRST_INDEX, 0)
    assert LogReader().read(FIRST_INDEX, founding_entry()) == []


def imported(image: ClusterImage, now_ms: int = 0) -> ClusterImage:
    made = ClusterImage()
    made.apply_all(LogReader().read_snapshot(FIRST_INDEX, imported_snapshot(image, now_ms=now_ms)))
    return made


def test_an_import_has_topics_and_configs_as_they_were_and_no_broker_is_alive() -> None:
    image = ClusterImage()
    image.apply_all(RECORDS)
    made = imported(image)
    assert made.topics["orders"].topic_id == ORDERS
    assert made.topics["orders"].configs == {"retention.ms": "1"}
    assert (made.cluster_configs, made.features) == (image.cluster_configs, image.features)
    assert [(each.folder, each.home_folder, each.is_alive) for each in made.brokers.values()] == [
        ("folder-0", "folder-0", False),
        ("folder-1", "folder-1", False),
    ]


def test_after_an_import_no_replica_is_known_to_have_everything_not_even_one_that_was_being_added() -> None:
    image = ClusterImage()
    image.apply_all(RECORDS)
    grown = ReassignedPartition(0, (0, 1), (0,), (), 0, 4, 1, (1,))
    image.apply_all(changes_of(ORDERS, [grown]))
    first, second = imported(image).topics["orders"].partitions
    assert first == PartitionImage(0, (0, 1), (), (), -1, 4, 1)
    assert second == PartitionImage(1, (1,), (), (), -1, 0, 0)
    assert all(awaits_reports(each) for each in (first, second))


def test_an_import_passes_over_producer_ids_that_may_have_been_given_away_and_so_does_a_second_one() -> None:
    image = ClusterImage()
    image.apply_all(RECORDS)
    assert imported(image).next_producer_id == 3000 + PRODUCER_ID_STEP
    first = imported(image, now_ms=1_800_000_000_000).next_producer_id
    second = imported(image, now_ms=1_800_000_060_000).next_producer_id
    assert first == 1_800_000_000_000 * PRODUCER_IDS_PER_MS
    assert second - first == 60_000 * PRODUCER_IDS_PER_MS


def test_an_import_leaves_the_exported_image_as_it_was() -> None:
    image, same = ClusterImage(), ClusterImage()
    for each in (image, same):
        each.apply_all(RECORDS)
    imported_snapshot(image, now_ms=5)
    assert image == same
