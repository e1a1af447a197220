"""`look_at` asks brokers for what metadata does not have: where partitions begin and end, and how large they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.cli.output import warn
from penstock.client.admin.elections import eligible_leaders
from penstock.client.admin.log_dirs import Compaction, describe_log_dirs
from penstock.client.admin.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic, TopicPartition

# Limits how long a broker that is away delays the output.
LOOK_TIMEOUT_MS = 10_000
# Limits the warnings that are printed; a thousand partitions may have lost one broker.
WARNINGS = 5


@dataclass(slots=True, frozen=True)
class TopicFacts:
    """Facts of partitions beyond metadata; those that no broker could give are missing."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    sizes: dict[TopicPartition, int]
    compaction: dict[TopicPartition, Compaction]
    eligible: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)

    def messages(self, key: TopicPartition) -> int | None:
        return self.ends[key] - self.starts[key] if key in self.starts and key in self.ends else None


async def look_at(cluster: Cluster, topics: Sequence[Topic]) -> TopicFacts:
    """Ends and sizes of all partitions. A broker that does not answer is named on standard error."""
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
                    # The largest replica of a partition is the one that has everything.
                    sizes[key] = max(size, sizes.get(key, 0))
                    if key in folder.compaction and size == sizes[key]:
                        compaction[key] = folder.compaction[key]
    # A replica that is in sync is not merely eligible.
    torn = [topic.name for topic in topics if any(len(each.isr) < len(each.replicas) for each in topic.partitions)]
    eligible = await eligible_leaders(cluster, torn, timeout_ms=LOOK_TIMEOUT_MS)
    facts = TopicFacts(await offsets(EARLIEST), await offsets(LATEST), sizes, compaction, eligible)
    for problem in list(problems)[:WARNINGS]:
        warn(problem)
    if len(problems) > WARNINGS:
        warn(f"and {len(problems) - WARNINGS} more")
    return facts


def keys_of(found: Topic) -> list[TopicPartition]:
    return [TopicPartition(found.name, partition.index) for partition in found.partitions]
