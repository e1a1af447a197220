"""Gives the partitions of a topic more replicas, and waits until these have everything."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.cli.progress import Progress

if TYPE_CHECKING:
    from penstock.client.cluster.cluster import Cluster
    from penstock.client.metadata import TopicPartition

Targets = Mapping["TopicPartition", tuple[int, ...]]

LOOK_SECONDS: Final = 0.2


async def change_factor(cluster: "Cluster", topic: str, factor: int) -> Targets:
    """Have the cluster change the number of replicas; returns where the partitions that change are to be."""
    from penstock.client.admin.reassignments import alter_reassignments, plan_replication_factor
    from penstock.client.errors import unwrap

    targets = await plan_replication_factor(cluster, topic, factor)
    if targets:
        unwrap(await alter_reassignments(cluster, targets))
    return targets


async def until_in_sync(cluster: "Cluster", topic: str, targets: Targets) -> None:
    """Wait until the brokers that the partitions are to be on have everything."""
    total = sum(len(replicas) for replicas in targets.values())
    with Progress(f"copying {topic}", total=total, unit="replicas in sync") as progress:
        seen = 0
        while (done := await _in_sync(cluster, topic, targets)) < total:
            progress.advance(done - seen, done - seen)
            seen = done
            await asyncio.sleep(LOOK_SECONDS)


async def _in_sync(cluster: "Cluster", topic: str, targets: Targets) -> int:
    found = await cluster.topic(topic, fresh=True)
    return sum(len({*replicas}.intersection(found.partition(key.partition).isr)) for key, replicas in targets.items())
