"""Write a golden metadata log: entries with every type of record, to be read by every later version.

    python -m tools.golden_metadata tests/formats/golden_metadata/format-2

Made once for each released format, and from then on only read. The content is the same at every run.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ControllerElected,
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
    encode,
)

ORDERS, GONE, AGAIN = bytes(range(16)), bytes(range(16, 32)), bytes(range(32, 48))
SNAPSHOT_AT = 7


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    if target.exists():
        sys.exit(f"{target} exists: a golden log is written once")
    write(target)
    print(f"written to {target}")


def write(target: Path) -> None:
    target.mkdir(parents=True)
    image = ClusterImage()
    for index, (controller_epoch, records) in enumerate(entries(), 1):
        entry = encode(records, controller_epoch=controller_epoch, index=index)
        (target / f"{index}.entry").write_bytes(entry)
        image.apply_all(records)
        if index == SNAPSHOT_AT:
            snapshot = encode(image.snapshot(), controller_epoch=controller_epoch, index=index)
            (target / f"{index}.snapshot").write_bytes(snapshot)
    (target / "expected.json").write_text(json.dumps(describe(image), indent=1) + "\n")


def entries() -> Iterator[tuple[int, list[Record]]]:
    """The controller epoch and the records of each entry."""
    listeners = {"PLAIN": ("broker.example", 9092), "INTERNAL": ("10.0.0.1", 9093)}
    yield 1, [ControllerElected(1, 1), FeatureLevel("penstock.version", 1)]
    yield 1, [BrokerRegistered(broker, 10 + broker, listeners, "a", f"f{broker}", f"f{broker}") for broker in (1, 2)]
    yield 1, [TopicCreated(GONE, "gone.by", {}), PartitionsCreated(GONE, 0, ((1,),))]
    yield 1, [TopicCreated(ORDERS, "orders", {"retention.ms": "5"}), PartitionsCreated(ORDERS, 0, ((1, 2), (2, 1)))]
    yield 1, [PartitionsCreated(ORDERS, 2, ((70_000, 1, 2),)), TopicDeleted(GONE), ProducerIdsAllocated(2**40)]
    growing = (ReassignedPartition(1, (2, 1, 3), (2, 1), (), 2, 0, 1, (3,)),)
    yield 1, [PartitionsReassigned(ORDERS, growing)]
    yield 3, [ControllerElected(2, 3), ConfigChanged("cluster", "", {"log.retention.ms": "1"})]
    lost = (
        PartitionImage(0, (1, 2), (2,), (), 2, 1, 1),
        PartitionImage(2, (70_000, 1, 2), (2,), (70_000,), -1, 300, 1),
    )
    yield 3, [PartitionsChanged(ORDERS, lost), BrokerFenced(1, 11)]
    yield 3, [BrokerRegistered(3, 2**33, {}, None, "new", "old"), BrokerUnregistered(1, 11)]
    yield 3, [ConfigChanged("topic", "orders", {"retention.ms": None, "cleanup.policy": "compact"})]
    yield 4, [ControllerElected(3, 4), ConfigChanged("broker", "3", {"log.retention.ms": "2"})]
    yield 4, [TopicCreated(AGAIN, "gone.by", {}), PartitionsCreated(AGAIN, 0, ((2,),))]


def describe(image: ClusterImage) -> dict[str, Any]:
    """Everything that an image says, as JSON."""
    found: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(
            {
                "controller": [image.controller_id, image.controller_epoch],
                "brokers": list(image.brokers.values()),
                "topics": [
                    {
                        "id": topic.topic_id.hex(),
                        "name": topic.name,
                        "configs": topic.configs,
                        "partitions": [msgspec.structs.asdict(partition) for partition in topic.partitions],
                    }
                    for topic in image.topics.values()
                ],
                "cluster_configs": image.cluster_configs,
                "broker_configs": {str(broker): configs for broker, configs in image.broker_configs.items()},
                "next_producer_id": image.next_producer_id,
                "features": image.features,
            }
        )
    )
    return found


if __name__ == "__main__":
    main()
