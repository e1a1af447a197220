"""A founding is what a cluster begins with in a store that was empty: the state that another store had, or that of an
export."""

from dataclasses import replace

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import NO_CONTROLLER, NO_LEADER, PartitionImage, encode

FIRST_INDEX = 1

PRODUCER_ID_STEP = 1_000_000_000
"""Producer ids that an import passes over: more than a cluster gives away between an export and the loss of its
metadata."""
PRODUCER_IDS_PER_MS = 1000
"""They also go on with the time, so that a second import of the same export passes over those of the first."""


def founding_entry() -> bytes:
    """The first entry of the log. It says nothing, since the snapshot has everything."""
    return encode([], controller_epoch=0, index=FIRST_INDEX)


def founding_snapshot(image: ClusterImage) -> bytes:
    """The state as of the first entry. Epochs of brokers and of the controller begin again: those of the new store may
    be lower than the old store's were, and a broker with an older epoch would be refused."""
    founded = image.copy()
    founded.controller_id, founded.controller_epoch = NO_CONTROLLER, 0
    founded.brokers = {broker_id: replace(broker, broker_epoch=0) for broker_id, broker in image.brokers.items()}
    return encode(founded.snapshot(), controller_epoch=0, index=FIRST_INDEX)


def imported_snapshot(image: ClusterImage, *, now_ms: int) -> bytes:
    """As `founding_snapshot`, of a state that the brokers may have left behind them since: no replica is known to have
    everything, so that none leads before all have reported where their logs end; no broker is alive; and no producer id
    is given away that may have been since."""
    imported = image.copy()
    imported.brokers = {broker_id: replace(broker, is_alive=False) for broker_id, broker in image.brokers.items()}
    for topic in imported.topics.values():
        topic.partitions[:] = [_unreported(partition) for partition in topic.partitions]
    imported.next_producer_id = max(image.next_producer_id + PRODUCER_ID_STEP, now_ms * PRODUCER_IDS_PER_MS)
    return founding_snapshot(imported)


def _unreported(partition: PartitionImage) -> PartitionImage:
    # Those that were being added may be the ones that have everything by now: they have to report as well.
    return PartitionImage(
        partition.index,
        partition.replicas,
        isr=(),
        elr=(),
        leader=NO_LEADER,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
