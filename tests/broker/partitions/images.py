"""The states of partitions that tests lead."""

from penstock.machines.cluster_records import PartitionImage


def sole_replica(index: int = 0, leader_epoch: int = 0) -> PartitionImage:
    """A partition that broker 0 alone has."""
    return PartitionImage(index, (0,), (0,), (), 0, leader_epoch, 0)
