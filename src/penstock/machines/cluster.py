"""The image of the cluster: what exists, where it is and who leads it, as a fold over the metadata log."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from penstock.machines.cluster_records import (
    NO_LEADER,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    FeatureLevel,
    PartitionChanged,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
)
from penstock.machines.topic_names import collision_key


@dataclass(frozen=True, slots=True)
class BrokerImage:
    broker_id: int
    broker_epoch: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """`leader` is -1 while nobody may lead. Replicas are in order of preference."""

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


@dataclass(slots=True)
class TopicImage:
    """The list of partitions is indexed by their numbers; a change replaces the image of the partition."""

    topic_id: bytes
    name: str
    partitions: list[PartitionImage]
    configs: dict[str, str]


@dataclass(slots=True)
class ClusterImage:
    """To be read by everyone and changed by `apply` alone."""

    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    cluster_configs: dict[str, str] = field(default_factory=dict)
    broker_configs: dict[int, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: dict[str, int] = field(default_factory=dict)

    # Bookkeeping, derived from the topics.
    topics_by_id: dict[bytes, TopicImage] = field(init=False, repr=False, default_factory=dict)
    leader_counts: Counter[int] = field(init=False, repr=False, default_factory=Counter)
    _names_by_collision_key: dict[str, str] = field(init=False, repr=False, default_factory=dict)

    def colliding_topic(self, name: str) -> str | None:
        """The topic that does not let one of this name exist: itself, or one that differs in '.' and '_' only."""
        return self._names_by_collision_key.get(collision_key(name))

    def configs_of(self, resource: ConfigResource, name: str) -> dict[str, str]:
        """What was set for it; empty for a broker of which nothing is known. The topic must exist."""
        match resource:
            case "topic":
                return self.topics[name].configs
            case "broker":
                return self.broker_configs.get(int(name), {})
            case "cluster":
                return self.cluster_configs

    def apply(self, record: Record) -> None:
        """Take in a record of the log, in the log's order."""
        match record:
            case PartitionChanged():
                self._change_partition(record)
            case TopicCreated():
                self._create_topic(record)
            case TopicDeleted():
                self._delete_topic(record)
            case ConfigChanged():
                self._change_configs(record)
            case BrokerRegistered(broker_id, broker_epoch, host, port, rack):
                self.brokers[broker_id] = BrokerImage(broker_id, broker_epoch, host, port, rack)
            case BrokerUnregistered():
                broker = self.brokers.pop(record.broker_id)
                assert broker.broker_epoch == record.broker_epoch, f"{record} names another registration: {broker}"
            case ProducerIdsAllocated():
                self.next_producer_id = record.next_producer_id
            case FeatureLevel():
                self.features[record.name] = record.level
            case _:
                assert_never(record)

    def snapshot(self) -> list[Record]:
        """Records that make an empty image equal to this one."""
        records: list[Record] = [FeatureLevel(name, level) for name, level in self.features.items()]
        records += [
            BrokerRegistered(broker.broker_id, broker.broker_epoch, broker.host, broker.port, broker.rack)
            for broker in self.brokers.values()
        ]
        if self.cluster_configs:
            records.append(ConfigChanged("cluster", "", {**self.cluster_configs}))
        records += [
            ConfigChanged("broker", str(broker_id), {**configs}) for broker_id, configs in self.broker_configs.items()
        ]
        for topic in self.topics.values():
            records.append(TopicCreated(topic.topic_id, topic.name, dict(topic.configs)))
            records += [partition_record(topic.topic_id, partition) for partition in topic.partitions]
        if self.next_producer_id:
            records.append(ProducerIdsAllocated(self.next_producer_id))
        return records

    def _create_topic(self, record: TopicCreated) -> None:
        assert record.name not in self.topics, f"topic {record.name!r} is created twice"
        topic = TopicImage(record.topic_id, record.name, [], dict(record.configs))
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        self._names_by_collision_key[collision_key(record.name)] = record.name

    def _change_partition(self, record: PartitionChanged) -> None:
        partitions = self.topics_by_id[record.topic_id].partitions
        partition = PartitionImage(
            record.partition,
            record.replicas,
            record.isr,
            record.elr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
        )
        assert record.partition <= len(partitions), f"{record} leaves a gap behind {len(partitions)} partitions"
        if record.partition == len(partitions):
            partitions.append(partition)
        else:
            self._count_leaders([partitions[record.partition]], -1)
            partitions[record.partition] = partition
        self._count_leaders([partition], 1)

    def _delete_topic(self, record: TopicDeleted) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        del self._names_by_collision_key[collision_key(topic.name)]
        self._count_leaders(topic.partitions, -1)

    def _change_configs(self, record: ConfigChanged) -> None:
        configs = self.configs_of(record.resource, record.name)
        for name, value in record.values.items():
            if value is None:
                configs.pop(name, None)
            else:
                configs[name] = value
        if record.resource == "broker":
            self._keep_broker_configs(int(record.name), configs)

    def _keep_broker_configs(self, broker_id: int, configs: dict[str, str]) -> None:
        if configs:
            self.broker_configs[broker_id] = configs
        else:
            self.broker_configs.pop(broker_id, None)

    def _count_leaders(self, partitions: Sequence[PartitionImage], difference: int) -> None:
        for partition in partitions:
            if partition.leader != NO_LEADER:
                self.leader_counts[partition.leader] += difference


def partition_record(topic_id: bytes, partition: PartitionImage) -> PartitionChanged:
    """The record that makes a partition look like this."""
    return PartitionChanged(
        topic_id,
        partition.index,
        partition.replicas,
        partition.isr,
        partition.elr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
    )
