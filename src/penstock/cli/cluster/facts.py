"""`look_at_cluster` asks a cluster for its brokers, and for what each of them leads and holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.cli.output import warn
from penstock.client.admin.brokers import ClusterDescription, describe_cluster
from penstock.client.admin.configs import Resource, ResourceType, describe_configs
from penstock.client.admin.log_dirs import LogDir, describe_log_dirs
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Partition, Topic

# Limits how long a broker that is away delays the output.
LOOK_TIMEOUT_MS = 10_000
# Limits the topics that one request asks about.
TOPICS_AT_ONCE = 500


@dataclass(slots=True, frozen=True)
class ClusterFacts:
    """`folders` are those of the brokers that have answered. `min_isr` is the number of in-sync replicas that acks=all
    needs, of each topic of which a replica is not in sync."""

    cluster: ClusterDescription
    topics: Sequence[Topic]
    folders: Mapping[int, Sequence[LogDir]]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    leads: Counter[int] = field(default_factory=Counter)
    holds: Counter[int] = field(default_factory=Counter)

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)

    @property
    def without_leader(self) -> int:
        return sum(partition.leader < 0 for topic in self.topics for partition in topic.partitions)

    @property
    def under_replicated(self) -> int:
        """The partitions of which a replica is not in sync."""
        return sum(len(each.isr) < len(each.replicas) for topic in self.topics for each in topic.partitions)

    @property
    def below_min_isr(self) -> int:
        """The partitions that have a leader and too few in-sync replicas for acks=all."""
        return sum(
            partition.leader >= 0 and len(partition.isr) < self.needed(topic.name, partition)
            for topic in self.topics
            for partition in topic.partitions
        )

    def needed(self, topic: str, partition: Partition) -> int:
        """How many in-sync replicas acks=all needs: no more than there are replicas."""
        return min(self.min_isr.get(topic, 1), len(partition.replicas))

    def size(self, broker: int) -> int | None:
        """The bytes of all replicas on a broker; None if it has not said."""
        if broker not in self.folders:
            return None
        return sum(size for folder in self.folders[broker] for size in folder.sizes.values())

    def free(self, broker: int) -> int | None:
        """The bytes that are free on the disks of a broker; None if it has not said."""
        known = [each.usable_bytes for each in self.folders.get(broker, ()) if each.usable_bytes >= 0]
        return sum(known) if known else None


async def look_at_cluster(cluster: Cluster) -> ClusterFacts:
    """A broker that does not answer is named on standard error."""
    described = await describe_cluster(cluster, include_fenced=True, timeout_ms=LOOK_TIMEOUT_MS)
    topics = await cluster.all_topics(timeout_ms=LOOK_TIMEOUT_MS)
    folders: dict[int, Sequence[LogDir]] = {}
    for broker, found in (await describe_log_dirs(cluster, timeout_ms=LOOK_TIMEOUT_MS)).items():
        if isinstance(found, ClientError):
            warn(f"broker {broker}: {found}")
        else:
            folders[broker] = found
    facts = ClusterFacts(described, topics, folders, await _min_isr(cluster, topics))
    for topic in topics:
        for partition in topic.partitions:
            facts.leads[partition.leader] += 1
            facts.holds.update(partition.replicas)
    return facts


async def _min_isr(cluster: Cluster, topics: Sequence[Topic]) -> dict[str, int]:
    """Topics whose replicas are all in sync have enough of them, and are not asked about."""
    asked = [
        Resource(ResourceType.TOPIC, topic.name)
        for topic in topics
        if any(len(each.isr) < len(each.replicas) for each in topic.partitions)
    ]
    found: dict[str, int] = {}
    for first in range(0, len(asked), TOPICS_AT_ONCE):
        part = asked[first : first + TOPICS_AT_ONCE]
        names = ["min.insync.replicas"]
        for resource, configs in (
            await describe_configs(cluster, part, names=names, timeout_ms=LOOK_TIMEOUT_MS)
        ).items():
            if isinstance(configs, ClientError):
                warn(f"{resource}: {configs}")
            elif names[0] in configs:
                found[resource.name] = int(configs[names[0]].value or 1)
    return found
