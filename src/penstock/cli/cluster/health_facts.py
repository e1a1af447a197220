"""`look_at_health` asks a cluster for the facts by which its health is decided."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.broker.partitions.disk_space import reserved
from penstock.cli.cluster.facts import LOOK_TIMEOUT_MS, TOPICS_AT_ONCE, ClusterFacts, look_at_cluster
from penstock.cli.cluster.findings import Disk, HealthFacts, Replicas
from penstock.cli.output import warn
from penstock.client.admin.configs import Config, ConfigSource, Resource, ResourceType, describe_configs
from penstock.client.admin.elections import elect_leaders, eligible_leaders
from penstock.client.admin.reassignments import Reassignment, list_reassignments
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BrokerError, ClientError, UnsendableError
from penstock.client.metadata import Topic, TopicPartition
from penstock.protocol.error_codes import ErrorCode

DEFAULT_FACTOR = "default.replication.factor"
OFFSETS_FACTOR = "offsets.topic.replication.factor"
RESERVE = "penstock.disk.reserve.bytes"
MIN_ISR = "min.insync.replicas"


async def look_at_health(cluster: Cluster) -> HealthFacts:
    facts = await look_at_cluster(cluster)
    eligible = await eligible_leaders(cluster, timeout_ms=LOOK_TIMEOUT_MS)
    ongoing = await _ongoing(cluster)
    alive = {broker.id for broker in facts.cluster.brokers} - facts.cluster.fenced
    controller = facts.cluster.controller_id if await _controller_answers(cluster) else None
    configs = await _broker_configs(cluster, facts.folders)
    # The controller makes topics; any other broker knows the number as well.
    of_one = configs.get(facts.cluster.controller_id) or next(iter(configs.values()), {})
    new_replicas = _integer(of_one.get(DEFAULT_FACTOR))
    asked = await _asked(cluster, (topic for topic in facts.topics if _has_few(topic, new_replicas or 0)))
    partitions = []
    for topic in facts.topics:
        for each in topic.partitions:
            key = TopicPartition(topic.name, each.index)
            partitions.append(
                Replicas(
                    key,
                    each.leader,
                    each.replicas,
                    each.isr,
                    eligible=eligible.get(key, ()),
                    needed=facts.needed(topic.name, each),
                    is_internal=topic.is_internal,
                    adding=ongoing[key].adding if key in ongoing else (),
                    asked=asked.get(topic.name, 1),
                )
            )
    lacking = _lacking(facts, partitions)
    return HealthFacts(
        controller=controller if controller in alive else None,
        alive=alive,
        away=facts.cluster.fenced,
        silent=alive - facts.folders.keys(),
        partitions=partitions,
        new_replicas=new_replicas,
        new_offsets_replicas=_new_offsets_replicas(of_one, new_replicas, len(facts.cluster.brokers)),
        behind=lacking.behind,
        to_copy=lacking.to_copy,
        racks={broker.id: broker.rack for broker in facts.cluster.brokers},
        disks=_disks(facts, configs),
        offline=_offline(facts, partitions),
    )


async def _controller_answers(cluster: Cluster) -> bool:
    """Brokers go on naming a controller that is gone. To elect no leader changes nothing, and only a controller does
    it; one that was elected just now is waited for."""
    try:
        await elect_leaders(cluster, (), timeout_ms=LOOK_TIMEOUT_MS)
    except BrokerError as error:
        # A controller that does not let this client do so is one, too.
        return error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
    except UnsendableError:
        return True
    except ClientError:
        return False
    return True


async def _ongoing(cluster: Cluster) -> dict[TopicPartition, Reassignment]:
    try:
        return await list_reassignments(cluster, timeout_ms=LOOK_TIMEOUT_MS)
    except ClientError as error:
        warn(f"replicas that are being added are not known: {error}")
        return {}


async def _broker_configs(cluster: Cluster, brokers: Iterable[int]) -> dict[int, Mapping[str, Config]]:
    """What health goes by, of the brokers that have answered."""
    asked = [Resource(ResourceType.BROKER, str(broker)) for broker in brokers]
    names = [DEFAULT_FACTOR, OFFSETS_FACTOR, RESERVE]
    told = await describe_configs(cluster, asked, names=names, timeout_ms=LOOK_TIMEOUT_MS)
    return {int(each.name): found for each, found in told.items() if not isinstance(found, ClientError)}


def _new_offsets_replicas(configs: Mapping[str, Config], new_replicas: int | None, brokers: int) -> int | None:
    """How many replicas the topic of groups is to have: unless it is set, as many as other topics get."""
    config = configs.get(OFFSETS_FACTOR)
    if config is None or config.source is ConfigSource.DEFAULT:
        return new_replicas
    factor = _integer(config)
    return None if factor is None else min(factor, brokers)


def _integer(config: Config | None) -> int | None:
    return None if config is None or config.value is None else int(config.value)


def _has_few(topic: Topic, new_replicas: int) -> bool:
    return not topic.is_internal and any(len(each.replicas) < new_replicas for each in topic.partitions)


async def _asked(cluster: Cluster, topics: Iterable[Topic]) -> dict[str, int]:
    """The min.insync.replicas of topics that have one of their own."""
    resources = [Resource(ResourceType.TOPIC, topic.name) for topic in topics]
    found: dict[str, int] = {}
    for first in range(0, len(resources), TOPICS_AT_ONCE):
        part = resources[first : first + TOPICS_AT_ONCE]
        told = await describe_configs(cluster, part, names=[MIN_ISR], timeout_ms=LOOK_TIMEOUT_MS)
        for resource, configs in told.items():
            if isinstance(configs, ClientError):
                warn(f"{resource}: {configs}")
            elif MIN_ISR in configs and configs[MIN_ISR].source is ConfigSource.TOPIC:
                found[resource.name] = _integer(configs[MIN_ISR]) or 1
    return found


def _disks(facts: ClusterFacts, configs: Mapping[int, Mapping[str, Config]]) -> dict[int, Sequence[Disk]]:
    disks: dict[int, Sequence[Disk]] = {}
    for broker, folders in facts.folders.items():
        reserve = _integer(configs.get(broker, {}).get(RESERVE))
        disks[broker] = [
            Disk(
                folder.path,
                total_bytes=folder.total_bytes if folder.total_bytes > 0 else None,
                free_bytes=folder.usable_bytes if folder.usable_bytes >= 0 else None,
                # Apache Kafka has none.
                reserve_bytes=0 if reserve is None else reserved(reserve, folder.total_bytes),
                fault=None if folder.error is None else str(folder.error),
            )
            for folder in folders
        ]
    return disks


def _offline(facts: ClusterFacts, partitions: Iterable[Replicas]) -> dict[int, Sequence[TopicPartition]]:
    """The logs that a broker should have, and that are not in a folder of it that works."""
    offline: dict[int, list[TopicPartition]] = {}
    working = {
        broker: {key for folder in folders for key in folder.sizes}
        for broker, folders in facts.folders.items()
        if all(folder.error is None for folder in folders)
    }
    for each in partitions:
        # A replica that is being added begins with no log.
        for broker in set(each.replicas) - set(each.adding):
            if broker in working and each.key not in working[broker]:
                offline.setdefault(broker, []).append(each.key)
    return {broker: sorted(keys) for broker, keys in offline.items()}


@dataclass(slots=True)
class _Lacking:
    """About how many bytes each broker lacks, and all replicas that are added together."""

    behind: Counter[int] = field(default_factory=Counter)
    to_copy: int = 0


def _lacking(facts: ClusterFacts, partitions: Iterable[Replicas]) -> _Lacking:
    """By what lies in folders; logs that were compacted differ anyway."""
    lacking = _Lacking()
    sizes = {
        broker: {key: size for folder in folders for key, size in folder.sizes.items()}
        for broker, folders in facts.folders.items()
    }
    for each in partitions:
        whole = sizes.get(each.leader, {}).get(each.key)
        for broker in set(each.replicas) - set(each.isr):
            if whole is not None and broker in sizes:
                missing = max(0, whole - sizes[broker].get(each.key, 0))
                if broker in each.adding:
                    lacking.to_copy += missing
                else:
                    lacking.behind[broker] += missing
    return lacking
