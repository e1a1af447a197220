"""The decisions of the cluster: each command is answered with the records that carry it out, or refused."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeVar

from penstock.machines import config_changes, placement, topic_names
from penstock.machines.cluster import ClusterImage, TopicImage, partition_record
from penstock.machines.cluster_records import (
    BrokerRegistered,
    BrokerUnregistered,
    ConfigResource,
    FeatureLevel,
    PartitionChanged,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
)
from penstock.machines.config_changes import ConfigChange, ConfigRules
from penstock.machines.decisions import Decision, refuse
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID

MAX_NEW_PARTITIONS = 10_000
"""As many as Kafka makes at once: the command is carried out in one step, while everybody waits."""

DEFAULT = -1
"""As the number of partitions or replicas: whatever is the default."""

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    name: str
    topic_id: bytes


class Controller:
    """Reads the image and changes nothing: whoever appended the records applies them to it."""

    def __init__(self, image: ClusterImage, rules: ConfigRules) -> None:
        self._image = image
        self._rules = rules

    def create_topic(
        self,
        name: str,
        *,
        topic_id: bytes,
        defaults: TopicDefaults,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        assignment: Sequence[tuple[int, Sequence[int]]] = (),
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> Decision[CreatedTopic]:
        """`assignment` names, in place of both numbers, each partition and the brokers that hold it."""
        assert topic_id not in self._image.topics_by_id, f"{topic_id.hex()} is no new topic id"
        self._refuse_name(name)
        values = config_changes.given(configs or {}, "topic", self._rules)
        if assignment:
            if (partitions, replication_factor) != (DEFAULT, DEFAULT):
                refuse(
                    ErrorCode.INVALID_REQUEST,
                    "brokers are assigned by hand, so the numbers of partitions and replicas must both be -1",
                )
            replicas = self._assigned(assignment, first=0, factor=len(assignment[0][1]))
        else:
            partitions = defaults.partitions if partitions == DEFAULT else partitions
            factor = defaults.replication_factor if replication_factor == DEFAULT else replication_factor
            if partitions < 1:
                refuse(
                    ErrorCode.INVALID_PARTITIONS,
                    f"a topic has one partition or more, or -1 for the default: {partitions}",
                )
            replicas = self._place(partitions, factor)
        reply = CreatedTopic(name, topic_id, len(replicas), len(replicas[0]), values)
        return _decision(
            [TopicCreated(topic_id, name, values), *_new_partitions(topic_id, 0, replicas)], reply, validate_only
        )

    def delete_topic(self, name: str | None = None, *, topic_id: bytes = ZERO_UUID) -> Decision[DeletedTopic]:
        """By its name or by its id, not by both."""
        if (name is None) == (topic_id == ZERO_UUID):
            refuse(ErrorCode.INVALID_REQUEST, "a topic is deleted by its name or by its id: give one of them")
        if name is not None:
            topic = self._topic(name)
        elif topic_id in self._image.topics_by_id:
            topic = self._image.topics_by_id[topic_id]
        else:
            refuse(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}")
        return Decision((TopicDeleted(topic.topic_id),), DeletedTopic(topic.name, topic.topic_id))

    def create_partitions(
        self,
        name: str,
        count: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Decision[None]:
        """Let the topic have `count` partitions in all; `assignment` names the brokers of each new one."""
        topic = self._topic(name)
        existing = len(topic.partitions)
        if count <= existing:
            refuse(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {existing} partitions, and they can only become more: {count} are not",
            )
        factor = len(topic.partitions[0].replicas)
        if assignment is None:
            replicas = self._place(count - existing, factor, topic)
        else:
            if len(assignment) != count - existing:
                refuse(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{count - existing} new partitions need as many assignments, not {len(assignment)}",
                )
            replicas = self._assigned(list(enumerate(assignment, existing)), first=existing, factor=factor)
        return _decision(_new_partitions(topic.topic_id, existing, replicas), None, validate_only)

    def change_configs(
        self, resource: ConfigResource, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Decision[None]:
        """Each change on its own; configs that are not named stay."""
        name, current = self._configurable(resource, name)
        wanted = config_changes.changed(current, changes, resource, self._rules)
        return _decision(config_changes.records(resource, name, current, wanted), None, validate_only)

    def replace_configs(
        self,
        resource: ConfigResource,
        name: str,
        values: Sequence[tuple[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> Decision[None]:
        """Configs that are not named return to their defaults."""
        name, current = self._configurable(resource, name)
        wanted = config_changes.replaced(values, resource, self._rules)
        return _decision(config_changes.records(resource, name, current, wanted), None, validate_only)

    def register_broker(
        self, broker_id: int, *, broker_epoch: int, host: str, port: int, rack: str | None
    ) -> Decision[None]:
        """A broker has started, and the metadata store gave it this epoch."""
        broker = self._image.brokers.get(broker_id)
        if broker is not None and broker_epoch <= broker.broker_epoch:
            refuse(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} is registered with epoch {broker.broker_epoch}, which {broker_epoch} is not above",
            )
        return Decision((BrokerRegistered(broker_id, broker_epoch, host, port, rack),), None)

    def unregister_broker(self, broker_id: int) -> Decision[None]:
        """Forget a broker that will not come back. It must not hold a replica."""
        self._refuse_unregistered(broker_id)
        for topic in self._image.topics.values():
            for partition in topic.partitions:
                if broker_id in partition.replicas:
                    refuse(
                        ErrorCode.INVALID_REQUEST,
                        f"broker {broker_id} holds a replica of {topic.name}-{partition.index}; "
                        "move its replicas to other brokers, or delete their topics, first",
                    )
        broker = self._image.brokers[broker_id]
        return Decision((BrokerUnregistered(broker_id, broker.broker_epoch),), None)

    def broker_restarted(self, broker_id: int, *, clean: bool) -> Decision[None]:
        """It is registered anew and has recovered its logs: the partitions that only it holds are led by it again.

        After an unclean stop the end of a log may be gone, and other records may come to have the same offsets; a new
        leader epoch tells them apart. After a clean one nothing has changed, and no client needs to notice.
        """
        self._refuse_unregistered(broker_id)
        alone = (broker_id,)
        records = [
            partition_record(
                topic.topic_id,
                replace(
                    partition,
                    isr=alone,
                    elr=(),
                    leader=broker_id,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                ),
            )
            for topic in self._image.topics.values()
            for partition in topic.partitions
            if partition.replicas == alone and not (clean and partition.leader == broker_id)
        ]
        return Decision(tuple(records), None)

    def allocate_producer_ids(self, count: int) -> Decision[range]:
        """Ids that nobody else gets."""
        assert count > 0, f"{count} producer ids"
        first = self._image.next_producer_id
        return Decision((ProducerIdsAllocated(first + count),), range(first, first + count))

    def raise_feature(self, name: str, level: int) -> Decision[None]:
        """From now on every broker must know this level, for good."""
        current = self._image.features.get(name, 0)
        if level < current:
            refuse(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"feature {name} is at level {current}; it cannot go back to {level}, for its records may be in use",
            )
        return _decision([FeatureLevel(name, level)], None, level == current)

    def _topic(self, name: str) -> TopicImage:
        topic = self._image.topics.get(name)
        if topic is None:
            refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _refuse_unregistered(self, broker_id: int) -> None:
        if broker_id not in self._image.brokers:
            refuse(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")

    def _refuse_name(self, name: str) -> None:
        if problem := topic_names.problem(name):
            refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in self._image.topics:
            refuse(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        if other := self._image.colliding_topic(name):
            refuse(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"topic {other!r} exists, and {name!r} differs from it only in '.' and '_', which metrics cannot show",
            )

    def _configurable(self, resource: ConfigResource, name: str) -> tuple[str, Mapping[str, str]]:
        """The name as records spell it, and what is set for it."""
        match resource:
            case "topic":
                self._topic(name)
            case "broker":
                if not (name.isascii() and name.isdecimal() and len(name) <= 10):
                    refuse(ErrorCode.INVALID_REQUEST, f"a broker is named by its number, and {name!r} is none")
                self._refuse_unregistered(int(name))
                name = str(int(name))
            case "cluster":
                if name:
                    refuse(ErrorCode.INVALID_REQUEST, f"the configs of all brokers go by an empty name, not {name!r}")
        return name, self._image.configs_of(resource, name)

    def _place(self, count: int, factor: int, topic: TopicImage | None = None) -> list[tuple[int, ...]]:
        """Choose brokers for new partitions."""
        racks = {broker.broker_id: broker.rack for broker in self._image.brokers.values()}
        _refuse_too_many(count)
        if not 1 <= factor <= len(racks):
            refuse(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor {factor} is not possible: it is 1 or more, or -1 for the default, and at most "
                f"the number of brokers, which is {len(racks)}",
            )
        led_in_topic = Counter(partition.leader for partition in topic.partitions) if topic else {}
        return placement.place(count, factor, racks, led=self._image.leader_counts, led_in_topic=led_in_topic)

    def _assigned(
        self, assignment: Sequence[tuple[int, Sequence[int]]], *, first: int, factor: int
    ) -> list[tuple[int, ...]]:
        """Take brokers that were chosen by hand for new partitions."""
        _refuse_too_many(len(assignment))
        if problem := placement.problem(assignment, self._image.brokers, first=first, replication_factor=factor):
            refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        return [tuple(brokers) for _, brokers in sorted(assignment, key=itemgetter(0))]


def _new_partitions(topic_id: bytes, first: int, assigned: Sequence[tuple[int, ...]]) -> list[Record]:
    return [
        PartitionChanged(topic_id, partition, replicas, replicas, (), replicas[0], leader_epoch=0, partition_epoch=0)
        for partition, replicas in enumerate(assigned, first)
    ]


def _refuse_too_many(partitions: int) -> None:
    if partitions > MAX_NEW_PARTITIONS:
        refuse(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} new partitions are too many at once; begin with {MAX_NEW_PARTITIONS} and add the others",
        )


def _decision(records: Sequence[Record], reply: Reply, validate_only: bool) -> Decision[Reply]:
    return Decision(() if validate_only else tuple(records), reply)
