"""The image of the cluster says what exists, where it is and who leads it. It is a fold over the metadata log."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from penstock.machines.cluster_records import (
    NO_CONTROLLER,
    NO_LEADER,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    ControllerElected,
    FeatureLevel,
    Listeners,
    PartitionImage,
    PartitionsChanged,
    PartitionsCreated,
    PartitionsReassigned,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
    changes_of,
)
from penstock.machines.topic_names import collision_key

MIN_ISR = "min.insync.replicas"
"""The config that says how many replicas must be in sync for acks=all."""
FLUSH = "penstock.flush"
FLUSHED = "ack"
"""The value of `penstock.flush` by which only flushed records count; with any other, written ones do."""

__all__ = ["BrokerImage", "ClusterImage", "ImageChange", "PartitionImage", "TopicImage", "difference"]


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """`folder` is the id of its data folder, `home_folder` that of the folder in which its replicas are."""

    broker_id: int
    broker_epoch: int
    listeners: Listeners
    rack: str | None
    folder: str
    is_alive: bool
    home_folder: str

    @property
    def is_usable(self) -> bool:
        """Whether it may lead partitions: it is alive, and came with the folder in which its replicas are."""
        return self.is_alive and self.folder == self.home_folder

    def address(self, listener_name: str) -> tuple[str, int] | None:
        """The host and the port that clients of a listener connect to; None if the broker has no such listener."""
        return self.listeners.get(listener_name)


@dataclass(slots=True)
class TopicImage:
    """The list of partitions is indexed by their numbers; a change replaces the image of the partition."""

    topic_id: bytes
    name: str
    partitions: list[PartitionImage]
    configs: dict[str, str]


@dataclass(slots=True)
class ImageChange:
    """What some records changed in an image.

    `partitions` are those that are new or changed, by the id of their topic, which still exists. A topic that was
    deleted and created again is in `created` and, as it was, in `deleted`. One that was created and deleted since is in
    neither. `configured` are topics that existed before and whose own configs changed; `configs` says that those of
    brokers or of the cluster did.
    """

    partitions: dict[bytes, set[int]] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    deleted: dict[str, TopicImage] = field(default_factory=dict)
    configured: set[str] = field(default_factory=set)
    configs: bool = False
    brokers: set[int] = field(default_factory=set)
    controller: bool = False

    def merge(self, later: "ImageChange") -> None:
        """Add what changed after this."""
        for topic in later.deleted.values():
            self.topic_deleted(topic)
        self.created |= later.created
        for topic_id, partitions in later.partitions.items():
            self.partitions.setdefault(topic_id, set()).update(partitions)
        self.configured |= later.configured - self.created
        self.configs |= later.configs
        self.brokers |= later.brokers
        self.controller |= later.controller

    def topic_deleted(self, topic: TopicImage) -> None:
        self.partitions.pop(topic.topic_id, None)
        self.configured.discard(topic.name)
        if topic.name in self.created:
            self.created.remove(topic.name)
        else:
            self.deleted[topic.name] = topic

    def topic_configured(self, name: str) -> None:
        if name not in self.created:
            self.configured.add(name)


@dataclass(slots=True)
class ClusterImage:
    """Any component may read it; only `apply` and `apply_all` change it."""

    controller_id: int = NO_CONTROLLER
    controller_epoch: int = 0
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    cluster_configs: dict[str, str] = field(default_factory=dict)
    broker_configs: dict[int, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: dict[str, int] = field(default_factory=dict)

    # Bookkeeping, derived from the topics.
    topics_by_id: dict[bytes, TopicImage] = field(init=False, repr=False, default_factory=dict)
    partition_count: int = field(init=False, repr=False, default=0)
    leader_counts: Counter[int] = field(init=False, repr=False, default_factory=Counter)
    replica_counts: Counter[int] = field(init=False, repr=False, default_factory=Counter)
    _names_by_collision_key: dict[str, str] = field(init=False, repr=False, default_factory=dict)

    def live_brokers(self) -> list[BrokerImage]:
        return [broker for broker in self.brokers.values() if broker.is_alive]

    def usable_brokers(self) -> list[BrokerImage]:
        """The brokers that may lead, and get new partitions."""
        return [broker for broker in self.brokers.values() if broker.is_usable]

    def colliding_topic(self, name: str) -> str | None:
        """The topic that does not let one of this name exist: itself, or one that differs in '.' and '_' only."""
        return self._names_by_collision_key.get(collision_key(name))

    def min_isr(self, topic: TopicImage) -> int | None:
        """How many in-sync replicas are wanted for acks=all; None if nothing is set. All brokers agree on it, as it is
        in the log."""
        value = topic.configs.get(MIN_ISR, self.cluster_configs.get(MIN_ISR))
        return None if value is None else int(value)

    def flush(self, topic: TopicImage) -> str | None:
        """How the topic is flushed; None if nothing is set: every broker then goes by its own file."""
        return topic.configs.get(FLUSH, self.cluster_configs.get(FLUSH))

    def configs_of(self, resource: ConfigResource, name: str) -> dict[str, str]:
        """What was set for it; empty for a broker of which nothing is known. The topic must exist."""
        match resource:
            case "topic":
                return self.topics[name].configs
            case "broker":
                return self.broker_configs.get(int(name), {})
            case "cluster":
                return self.cluster_configs

    def copy(self) -> "ClusterImage":
        """An image that changes apart from this one. What never changes is shared."""
        image = ClusterImage(
            self.controller_id,
            self.controller_epoch,
            dict(self.brokers),
            {
                topic.name: TopicImage(topic.topic_id, topic.name, list(topic.partitions), dict(topic.configs))
                for topic in self.topics.values()
            },
            dict(self.cluster_configs),
            {broker_id: dict(configs) for broker_id, configs in self.broker_configs.items()},
            self.next_producer_id,
            dict(self.features),
        )
        image.topics_by_id = {topic.topic_id: topic for topic in image.topics.values()}
        image.partition_count = self.partition_count
        image.leader_counts = self.leader_counts.copy()
        image.replica_counts = self.replica_counts.copy()
        image._names_by_collision_key = dict(self._names_by_collision_key)
        return image

    def apply(self, record: Record) -> None:
        """Take in a record of the log, in the log's order."""
        self._apply(record, ImageChange())

    def apply_all(self, records: Iterable[Record]) -> ImageChange:
        """Take in records of the log, in the log's order; what they changed."""
        change = ImageChange()
        for record in records:
            self._apply(record, change)
        return change

    def snapshot(self) -> list[Record]:
        """Records that make an empty image equal to this one."""
        records: list[Record] = [FeatureLevel(name, level) for name, level in self.features.items()]
        if self.controller_epoch:
            records.append(ControllerElected(self.controller_id, self.controller_epoch))
        for broker in self.brokers.values():
            records.append(
                BrokerRegistered(
                    broker.broker_id,
                    broker.broker_epoch,
                    broker.listeners,
                    broker.rack,
                    broker.folder,
                    broker.home_folder,
                )
            )
            if not broker.is_alive:
                records.append(BrokerFenced(broker.broker_id, broker.broker_epoch))
        if self.cluster_configs:
            records.append(ConfigChanged("cluster", "", {**self.cluster_configs}))
        records += [
            ConfigChanged("broker", str(broker_id), {**configs}) for broker_id, configs in self.broker_configs.items()
        ]
        for topic in self.topics.values():
            records.append(TopicCreated(topic.topic_id, topic.name, dict(topic.configs)))
            records += changes_of(topic.topic_id, topic.partitions)
        if self.next_producer_id:
            records.append(ProducerIdsAllocated(self.next_producer_id))
        return records

    def _apply(self, record: Record, change: ImageChange) -> None:
        match record:
            case PartitionsChanged() | PartitionsReassigned():
                self._change_partitions(record.topic_id, record.changes, change)
            case PartitionsCreated():
                self._create_partitions(record, change)
            case TopicCreated():
                self._create_topic(record)
                change.created.add(record.name)
            case TopicDeleted():
                change.topic_deleted(self._delete_topic(record))
            case ConfigChanged():
                self._change_configs(record)
                if record.resource == "topic":
                    change.topic_configured(record.name)
                else:
                    change.configs = True
            case BrokerRegistered():
                self.brokers[record.broker_id] = BrokerImage(
                    record.broker_id,
                    record.broker_epoch,
                    record.listeners,
                    record.rack,
                    record.folder,
                    is_alive=True,
                    home_folder=record.home_folder,
                )
                change.brokers.add(record.broker_id)
            case BrokerFenced():
                self.brokers[record.broker_id] = replace(self._registered(record), is_alive=False)
                change.brokers.add(record.broker_id)
            case BrokerUnregistered():
                del self.brokers[self._registered(record).broker_id]
                change.brokers.add(record.broker_id)
            case ControllerElected():
                self.controller_id, self.controller_epoch = record.broker_id, record.controller_epoch
                change.controller = True
            case ProducerIdsAllocated():
                self.next_producer_id = record.next_producer_id
            case FeatureLevel():
                self.features[record.name] = record.level
            case _:
                assert_never(record)

    def _registered(self, record: BrokerFenced | BrokerUnregistered) -> BrokerImage:
        broker = self.brokers[record.broker_id]
        assert broker.broker_epoch == record.broker_epoch, f"{record} names another registration: {broker}"
        return broker

    def _create_topic(self, record: TopicCreated) -> None:
        assert record.name not in self.topics, f"topic {record.name!r} is created twice"
        topic = TopicImage(record.topic_id, record.name, [], dict(record.configs))
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        self._names_by_collision_key[collision_key(record.name)] = record.name

    def _create_partitions(self, record: PartitionsCreated, change: ImageChange) -> None:
        there = len(self.topics_by_id[record.topic_id].partitions)
        assert record.first == there, f"partitions are created from {record.first} on where {there} exist"
        new = [
            PartitionImage(index, replicas, replicas, (), replicas[0], 0, 0)
            for index, replicas in enumerate(record.replicas, record.first)
        ]
        self._change_partitions(record.topic_id, new, change)

    def _change_partitions(self, topic_id: bytes, changes: Sequence[PartitionImage], change: ImageChange) -> None:
        partitions = self.topics_by_id[topic_id].partitions
        for partition in changes:
            index = partition.index
            if index == len(partitions):
                partitions.append(partition)
            else:
                assert index < len(partitions), f"{partition} leaves a gap after {len(partitions)} partitions"
                before = partitions[index]
                assert partition.partition_epoch == before.partition_epoch + 1, f"{partition} does not follow {before}"
                self._count(before, -1)
                partitions[index] = partition
            self._count(partition, 1)
        change.partitions.setdefault(topic_id, set()).update(partition.index for partition in changes)

    def _delete_topic(self, record: TopicDeleted) -> TopicImage:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        del self._names_by_collision_key[collision_key(topic.name)]
        for partition in topic.partitions:
            self._count(partition, -1)
        return topic

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

    def _count(self, partition: PartitionImage, difference: int) -> None:
        self.partition_count += difference
        if partition.leader != NO_LEADER:
            self.leader_counts[partition.leader] += difference
        for replica in partition.replicas:
            self.replica_counts[replica] += difference


def difference(old: ClusterImage, new: ClusterImage) -> ImageChange:
    """What changed from one image of a cluster to another, for a reader that missed the records between them."""
    change = ImageChange(
        deleted={topic.name: topic for topic in old.topics.values() if topic.topic_id not in new.topics_by_id},
        configs=(old.cluster_configs, old.broker_configs) != (new.cluster_configs, new.broker_configs),
        brokers={
            broker_id
            for broker_id in old.brokers.keys() | new.brokers.keys()
            if old.brokers.get(broker_id) != new.brokers.get(broker_id)
        },
        controller=(old.controller_id, old.controller_epoch) != (new.controller_id, new.controller_epoch),
    )
    for topic in new.topics.values():
        before = old.topics_by_id.get(topic.topic_id)
        known = [] if before is None else before.partitions
        if before is None:
            change.created.add(topic.name)
        elif before.configs != topic.configs:
            change.configured.add(topic.name)
        changed = {
            partition.index
            for partition in topic.partitions
            if partition.index >= len(known) or partition != known[partition.index]
        }
        if changed:
            change.partitions[topic.topic_id] = changed
    return change
