"""What is known of topics beyond metadata: where their partitions begin and end, and how large they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from penstock.client.admin import EARLIEST, LATEST, Compaction, describe_log_dirs, list_offsets
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic, TopicPartition

# A broker that is away should not keep the others from being shown for long.
LOOK_TIMEOUT_MS = 10_000
# So many are told; a thousand partitions may have lost the same broker.
WARNINGS = 5


@dataclass(slots=True, frozen=True)
class TopicFacts:
    """What is known of partitions beyond metadata; what could not be learned is missing."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    sizes: dict[TopicPartition, int]
    compaction: dict[TopicPartition, Compaction]

    def messages(self, key: TopicPartition) -> int | None:
        return self.ends[key] - self.starts[key] if key in self.starts and key in self.ends else None


async def look_at(cluster: Cluster, topics: Sequence[Topic]) -> TopicFacts:
    """Ends and sizes of all partitions. A broker that cannot tell is named on standard error."""
    keys = [key for each in topics for key in keys_of(each)]
    problems: dict[str, None] = {}

    async def offsets(timestamp: int) -> dict[TopicPartition, int]:
        listed = await list_offsets(cluster, dict.fromkeys(keys, timestamp), timeout_ms=LOOK_TIMEOUT_MS)
        problems.update({str(each): None for each in listed.values() if isinstance(each, ClientError)})
        return {key: each.offset for key, each in listed.items() if not isinstance(each, ClientError)}

    sizes: dict[TopicPartition, int] = {}
    compaction: dict[TopicPartition, Compaction] = {}
    if keys:
        folders = await describe_log_dirs(cluster, partitions=keys, timeout_ms=LOOK_TIMEOUT_MS)
        for found in folders.values():
            if isinstance(found, ClientError):
                problems[str(found)] = None
                continue
            for folder in found:
                if folder.error is not None:
                    problems[str(folder.error)] = None
                for key, size in folder.sizes.items():
                    # Of the replicas of a partition the largest is the one that has everything.
                    sizes[key] = max(size, sizes.get(key, 0))
                    if key in folder.compaction and size == sizes[key]:
                        compaction[key] = folder.compaction[key]
    facts = TopicFacts(await offsets(EARLIEST), await offsets(LATEST), sizes, compaction)
    for problem in list(problems)[:WARNINGS]:
        click.echo(f"Warning: {problem}", err=True)
    if len(problems) > WARNINGS:
        click.echo(f"Warning: and {len(problems) - WARNINGS} more", err=True)
    return facts


def keys_of(found: Topic) -> list[TopicPartition]:
    return [TopicPartition(found.name, partition.index) for partition in found.partitions]
