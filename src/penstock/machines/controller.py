"""The controller decides for the cluster: it answers each command with the records that carry it out, or refuses it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from penstock.machines import config_changes, elections, placement, topic_names
from penstock.machines.cluster import FLUSHED, MIN_ISR, BrokerImage, ClusterImage, PartitionImage, TopicImage
from penstock.machines.cluster_records import (
    NO_LEADER,
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigResource,
    ControllerElected,
    FeatureLevel,
    PartitionsChanged,
    PartitionsCreated,
    PartitionsReassigned,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
    changes_of,
)
from penstock.machines.config_changes import ConfigChange, ConfigRules
from penstock.machines.decisions import ControllerDecision, refuse
from penstock.machines.log_ends import LogEnd
from penstock.machines.partition_leader import UNKNOWN as NO_EPOCH
from penstock.machines.partition_leader import Proposal
from penstock.machines.registration import Registration
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID

MAX_NEW_PARTITIONS = 10_000
"""The most partitions that one command makes, as in Kafka: it is carried out in one step, while all requests wait."""

MAX_PARTITIONS = 50_000
"""The most partitions of all topics together, unless it is configured: each takes some memory and some time at a
start."""

MAX_REPLICATION_FACTOR = 16
"""The most replicas of a partition: each of them costs every write."""

DEFAULT = -1
"""Stands for the default, as the number of partitions or replicas."""

REPLICAS = 3
"""How many replicas a partition gets by default, if there are as many brokers."""

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """`min_isr` becomes a config of the topic, so that all brokers go by the same number."""

    partitions: int
    replication_factor: int
    min_isr: int | None = None


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
    """Reads the image and changes nothing: the caller appends the records and applies them to it."""

    def __init__(
        self,
        image: ClusterImage,
        rules: ConfigRules,
        *,
        max_partitions: int = MAX_PARTITIONS,
        max_replication_factor: int = MAX_REPLICATION_FACTOR,
        reports: Mapping[int, Registration] | None = None,
    ) -> None:
        """`reports` are the registrations of members, of which imported partitions wait for the ends of logs."""
        self._image = image
        self._rules = rules
        self._max_partitions = max_partitions
        self._max_replication_factor = max_replication_factor
        self._reports = {} if reports is None else reports

    def elected(self, broker_id: int, controller_epoch: int) -> ControllerDecision[None]:
        """A broker has taken the controller's lease: its first decision."""
        newest = self._image.controller_epoch
        if controller_epoch <= newest:
            refuse(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"broker {broker_id} became the controller with epoch {controller_epoch}, but broker "
                f"{self._image.controller_id} has done so with epoch {newest}",
            )
        return ControllerDecision((ControllerElected(broker_id, controller_epoch),), None)

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
    ) -> ControllerDecision[CreatedTopic]:
        """`assignment` names, in place of both numbers, each partition and the brokers that hold it."""
        assert topic_id not in self._image.topics_by_id, f"{topic_id.hex()} is no new topic id"
        self._refuse_name(name)
        values = config_changes.given(configs or {}, "topic", self._rules)
        if defaults.min_isr is not None:
            values.setdefault(MIN_ISR, str(defaults.min_isr))
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
            if factor == DEFAULT:
                factor = default_factor(self._image)
            if partitions < 1:
                refuse(
                    ErrorCode.INVALID_PARTITIONS,
                    f"a topic has one partition or more, or -1 for the default: {partitions}",
                )
            replicas = self._place(partitions, factor)
        if name not in topic_names.INTERNAL:
            self._refuse_full(len(replicas))
        reply = CreatedTopic(name, topic_id, len(replicas), len(replicas[0]), values)
        return _decision(
            [TopicCreated(topic_id, name, values), PartitionsCreated(topic_id, 0, tuple(replicas))],
            reply,
            validate_only,
        )

    def delete_topic(self, name: str | None = None, *, topic_id: bytes = ZERO_UUID) -> ControllerDecision[DeletedTopic]:
        """Delete a topic by its name or by its id, not by both."""
        if (name is None) == (topic_id == ZERO_UUID):
            refuse(ErrorCode.INVALID_REQUEST, "a topic is deleted by its name or by its id: give one of them")
        if name is not None:
            topic = self._topic(name)
        elif topic_id in self._image.topics_by_id:
            topic = self._image.topics_by_id[topic_id]
        else:
            refuse(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}")
        return ControllerDecision((TopicDeleted(topic.topic_id),), DeletedTopic(topic.name, topic.topic_id))

    def create_partitions(
        self,
        name: str,
        count: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> ControllerDecision[None]:
        """Let the topic have `count` partitions in all; `assignment` names the brokers of each new one."""
        topic = self._topic(name)
        existing = len(topic.partitions)
        if count <= existing:
            refuse(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {existing} partition{'s' * (existing > 1)}, of which there can only be more: "
                f"{count} would not be more",
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
        self._refuse_full(len(replicas))
        return _decision([PartitionsCreated(topic.topic_id, existing, tuple(replicas))], None, validate_only)

    def change_configs(
        self, resource: ConfigResource, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> ControllerDecision[None]:
        """Each change on its own; configs that are not named stay."""
        name, current = self._configurable(resource, name)
        wanted = config_changes.changed(current, changes, resource, self._rules)
        return _decision(self._configured(resource, name, current, wanted), None, validate_only)

    def replace_configs(
        self,
        resource: ConfigResource,
        name: str,
        values: Sequence[tuple[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> ControllerDecision[None]:
        """Configs that are not named return to their defaults."""
        name, current = self._configurable(resource, name)
        wanted = config_changes.replaced(values, resource, self._rules)
        return _decision(self._configured(resource, name, current, wanted), None, validate_only)

    def register_broker(self, registration: Registration) -> ControllerDecision[None]:
        """A broker has started and recovered its logs, and the metadata store gave it this epoch.

        What it led under an earlier registration ends; what only it has it leads again. After a clean stop a partition
        that it still leads has not changed, and no client needs to notice. To repeat a registration adds what is
        missing of its consequences.

        A broker that comes with another folder than the one in which its replicas are has nothing that could be led: it
        begins again with empty logs, and copies those of others. If it alone has everything of some partition, it gets
        none at all: it waits for its folder, or for `accept_folder`. So it does if it holds an imported partition that
        waits for the report of its replicas.

        After the machine has been started again, logs that are not flushed before a commit may lack what is committed.
        Others that have it lead these partitions, if there are any.
        """
        broker_id, epoch = registration.broker_id, registration.broker_epoch
        known = self._image.brokers.get(broker_id)
        if known is not None and epoch < known.broker_epoch:
            refuse(ErrorCode.STALE_BROKER_EPOCH, _stale(known, epoch))
        if known is not None and epoch == known.broker_epoch:
            led_again = self._led_again(broker_id) + self._led_by_reports(registration) if known.is_usable else []
            return ControllerDecision(tuple(led_again), None)
        home = self._home_folder(registration)
        has_its_replicas = registration.folder == home
        others = self._usable_ids() - {broker_id}
        lacking = self._not_flushed(registration)

        def restarted(topic: TopicImage, partition: PartitionImage, min_isr: int | None) -> PartitionImage | None:
            lacks_some = not has_its_replicas or topic.topic_id in lacking
            is_alone = partition.isr == (broker_id,) and not (lacks_some and partition.elr)
            if partition.leader == broker_id and is_alone and has_its_replicas:
                return None if registration.was_clean else elections.led_anew(partition)
            return elections.broker_left(partition, broker_id, others, min_isr, has_lost_its_log=lacks_some)

        def came(topic: TopicImage, partition: PartitionImage, min_isr: int | None) -> PartitionImage | None:
            return elections.broker_came(restarted(topic, partition, min_isr) or partition, broker_id, min_isr)

        # In this order every record leaves a sound image, and what a controller that crashed has left undone of it is
        # seen by the next one.
        if not has_its_replicas and not self._is_needed(broker_id):
            home = registration.folder
        registered = BrokerRegistered(
            broker_id, epoch, registration.listeners, registration.rack, registration.folder, home
        )
        led_again = self._changed_by_topic(came) + self._led_by_reports(registration) if has_its_replicas else []
        return ControllerDecision((*self._changed_by_topic(restarted), registered, *led_again), None)

    def missing_reports(self) -> tuple[set[int], int]:
        """The brokers that have not reported where their logs end, and how many imported partitions wait for them."""
        heard = {each.broker_id: each.log_ends for each in self._heard()}
        missing: set[int] = set()
        waiting = 0
        for topic in self._image.topics.values():
            for partition in topic.partitions:
                if elections.awaits_reports(partition):
                    key = (topic.topic_id, partition.index)
                    waiting += 1
                    missing |= {each for each in elections.reporters(partition) if key not in heard.get(each, ())}
        return missing, waiting

    def accept_folder(self, broker_id: int) -> ControllerDecision[None]:
        """An operator says that the folder with the replicas of a broker is lost: the broker begins again, with empty
        logs, in the folder that it came with."""
        self._refuse_unregistered(broker_id)
        broker = self._image.brokers[broker_id]
        if not broker.is_alive:
            refuse(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is not alive; start it with its new folder first")
        if broker.is_usable:
            return ControllerDecision((), None)
        accepted = BrokerRegistered(
            broker_id, broker.broker_epoch, broker.listeners, broker.rack, broker.folder, home_folder=broker.folder
        )
        return ControllerDecision((accepted, *self._led_again(broker_id)), None)

    def broker_lost(self, broker_id: int, broker_epoch: int) -> ControllerDecision[None]:
        """The session of a broker with the metadata store has ended."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch or not broker.is_alive:
            return ControllerDecision((), None)
        others = self._usable_ids() - {broker_id}
        # The broker is fenced last: if the controller crashes between entries, the next one still sees what to do.
        changed = self._changed(lambda partition, min_isr: elections.broker_left(partition, broker_id, others, min_isr))
        return ControllerDecision((*changed, BrokerFenced(broker_id, broker_epoch)), None)

    def shut_down_broker(self, broker_id: int, broker_epoch: int) -> ControllerDecision[None]:
        """A broker is about to stop, and asks to be relieved of what it leads."""
        self._refuse_unregistered(broker_id)
        broker = self._image.brokers[broker_id]
        if broker_epoch != broker.broker_epoch:
            refuse(ErrorCode.STALE_BROKER_EPOCH, _stale(broker, broker_epoch))
        return self.broker_lost(broker_id, broker_epoch)

    def alter_partition(
        self, broker_id: int, broker_epoch: int, topic_id: bytes, index: int, proposal: Proposal
    ) -> ControllerDecision[PartitionImage]:
        """The leader of a partition proposes who is in sync. It must lead, know the partition's newest state, and name
        replicas that are alive in the registration that it has seen.

        Any replica may propose those that are in sync without itself, all with no epoch: its log is damaged."""
        self._refuse_unregistered(broker_id)
        known = self._image.brokers[broker_id]
        if broker_epoch != known.broker_epoch:
            refuse(ErrorCode.STALE_BROKER_EPOCH, _stale(known, broker_epoch))
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            refuse(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id.hex()}")
        partition = _partition(topic, index)
        if (proposal.leader_epoch, proposal.partition_epoch) > (partition.leader_epoch, partition.partition_epoch):
            refuse(ErrorCode.NOT_CONTROLLER, "a newer controller has told the leader more than this one knows")
        members = dict(proposal.isr)
        gives_up = (
            broker_id in partition.replicas
            and members == dict.fromkeys({*partition.isr} - {broker_id}, NO_EPOCH)
            and proposal.leader_epoch == partition.leader_epoch
        )
        if not gives_up and (partition.leader != broker_id or proposal.leader_epoch != partition.leader_epoch):
            refuse(ErrorCode.FENCED_LEADER_EPOCH, f"broker {broker_id} leads {topic.name}-{index} no longer")
        if proposal.partition_epoch != partition.partition_epoch:
            refuse(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{topic.name}-{index} has changed {partition.partition_epoch} times, not {proposal.partition_epoch}",
            )
        if gives_up:
            others = self._usable_ids() - {broker_id}
            without = elections.given_up(partition, broker_id, others, self._image.min_isr(topic))
            if without is None:
                refuse(ErrorCode.NOT_ENOUGH_REPLICAS, f"{topic.name}-{index} cannot do without broker {broker_id}")
            return ControllerDecision(tuple(changes_of(topic_id, (without,))), without)
        if broker_id not in members or len(members) < len(proposal.isr) or not members.keys() <= {*partition.replicas}:
            refuse(
                ErrorCode.INVALID_REQUEST, f"{sorted(members)} cannot be the in-sync replicas of {topic.name}-{index}"
            )
        for member, epoch in members.items():
            replica = self._image.brokers.get(member)
            is_known = epoch == NO_EPOCH and member in partition.isr
            if replica is None or not replica.is_usable or not (is_known or epoch == replica.broker_epoch):
                refuse(ErrorCode.INELIGIBLE_REPLICA, f"broker {member} is not alive in epoch {epoch}")
        after = elections.isr_altered(partition, members, self._image.min_isr(topic))
        return ControllerDecision(tuple(changes_of(topic_id, (after,))), after)

    def add_replicas(self, name: str, index: int, replicas: Sequence[int]) -> ControllerDecision[PartitionImage]:
        """Let a partition have these replicas, in this order of preference: all that it has, and others, which copy its
        log. The reply is the state that it has then."""
        topic = self._topic(name)
        partition = _partition(topic, index)
        self._refuse_added(partition, replicas, f"{name}-{index}")
        after = elections.replicas_added(partition, tuple(replicas))
        if after is None:
            return ControllerDecision((), partition)
        return ControllerDecision(tuple(changes_of(topic.topic_id, (after,))), after)

    def cancel_addition(self, name: str, index: int) -> ControllerDecision[PartitionImage]:
        """Let those of the replicas that are being added go again that do not have everything yet."""
        topic = self._topic(name)
        partition = _partition(topic, index)
        after = elections.addition_cancelled(partition)
        if after is None:
            refuse(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{index} is not being copied to other brokers")
        return ControllerDecision(tuple(changes_of(topic.topic_id, (after,))), after)

    def raise_replicas(self, factors: Mapping[str, int]) -> ControllerDecision[int]:
        """Let every partition of these topics, of those that there are, have at least as many replicas, or as many as
        there are brokers. Returns how many partitions get more."""
        racks = {broker.broker_id: broker.rack for broker in self._usable()}
        records: list[Record] = []
        raised = 0
        for topic in [self._image.topics[name] for name in factors if name in self._image.topics]:
            factor = min(factors[topic.name], len(racks), self._max_replication_factor)
            present = [partition.replicas for partition in topic.partitions]
            extended = placement.extend(present, factor, racks, held=self._image.replica_counts)
            changes = [
                after
                for partition, replicas in zip(topic.partitions, extended, strict=True)
                if (after := elections.replicas_added(partition, replicas)) is not None
            ]
            records += changes_of(topic.topic_id, changes)
            raised += len(changes)
        return ControllerDecision(tuple(records), raised)

    def elect_leader(self, name: str, index: int, *, is_unclean: bool = False) -> ControllerDecision[PartitionImage]:
        """Let the preferred replica lead again; or, if there is no leader and an operator says so, any that is alive,
        which may lack committed records."""
        topic = self._topic(name)
        partition = _partition(topic, index)
        usable = self._usable_ids()
        if is_unclean:
            if partition.leader != NO_LEADER:
                refuse(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by broker {partition.leader}")
            after = elections.elected_unclean(partition, usable, self._ends(topic, index, self._heard()))
            if after is None:
                reason = " and has an open log" if elections.awaits_reports(partition) else ""
                refuse(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {name}-{index} is alive{reason}")
        else:
            if partition.leader == partition.replicas[0]:
                refuse(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by its preferred replica")
            after = elections.preferred_leads(partition, usable)
            if after is None:
                refuse(
                    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                    f"{name}-{index} is to be led by broker {partition.replicas[0]}, which is not alive or not in sync",
                )
        return ControllerDecision(tuple(changes_of(topic.topic_id, (after,))), after)

    def balance_leaders(self) -> ControllerDecision[int]:
        """Let preferred replicas lead wherever they can; returns how many partitions that moves."""
        usable = self._usable_ids()
        records = self._changed(lambda partition, _: elections.preferred_leads(partition, usable))
        moved = sum(
            len(record.changes) for record in records if isinstance(record, PartitionsChanged | PartitionsReassigned)
        )
        return ControllerDecision(tuple(records), moved)

    def unregister_broker(self, broker_id: int) -> ControllerDecision[None]:
        """Forget a broker that will not come back. It must not be alive, nor hold a replica."""
        self._refuse_unregistered(broker_id)
        broker = self._image.brokers[broker_id]
        if broker.is_alive:
            refuse(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is alive; stop it first")
        for topic in self._image.topics.values():
            for partition in topic.partitions:
                if broker_id in partition.replicas:
                    refuse(
                        ErrorCode.INVALID_REQUEST,
                        f"broker {broker_id} holds a replica of {topic.name}-{partition.index}; "
                        "move its replicas to other brokers, or delete their topics, first",
                    )
        return ControllerDecision((BrokerUnregistered(broker_id, broker.broker_epoch),), None)

    def allocate_producer_ids(self, count: int) -> ControllerDecision[range]:
        """Producer ids that are given out once."""
        assert count > 0, f"{count} producer ids"
        first = self._image.next_producer_id
        return ControllerDecision((ProducerIdsAllocated(first + count),), range(first, first + count))

    def raise_feature(self, name: str, level: int) -> ControllerDecision[None]:
        """Raise the level of a feature: from now on every broker must know it, for good."""
        current = self._image.features.get(name, 0)
        if level < current:
            refuse(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"feature {name} is at level {current}; it cannot go back to {level}, for its records may be in use",
            )
        return _decision([FeatureLevel(name, level)], None, level == current)

    def _usable_ids(self) -> set[int]:
        return {broker.broker_id for broker in self._usable()}

    def _usable(self) -> list[BrokerImage]:
        """The brokers that may lead, and get new partitions."""
        return self._image.usable_brokers()

    def _home_folder(self, registration: Registration) -> str:
        """The folder in which the replicas of the broker are, which may be another than the one it came with."""
        known = self._image.brokers.get(registration.broker_id)
        if known is None or not known.home_folder or not self._image.replica_counts[registration.broker_id]:
            return registration.folder
        return known.home_folder

    def _is_needed(self, broker_id: int) -> bool:
        """Whether the broker alone has everything of some partition, as far as that is known."""
        return any(
            {*partition.isr, *partition.elr} == {broker_id}
            or (elections.awaits_reports(partition) and broker_id in elections.reporters(partition))
            for topic in self._image.topics.values()
            for partition in topic.partitions
        )

    def _not_flushed(self, registration: Registration) -> set[bytes]:
        """The ids of topics of which the broker may lack what was committed, as it was not flushed."""
        if not registration.may_lack_unflushed:
            return set()
        return {
            topic.topic_id
            for topic in self._image.topics.values()
            if (self._image.flush(topic) or registration.flush) != FLUSHED
        }

    def _led_again(self, broker_id: int) -> list[Record]:
        return self._changed(lambda partition, min_isr: elections.broker_came(partition, broker_id, min_isr))

    def _heard(self) -> list[Registration]:
        """The brokers that may lead, as they have registered."""
        return [
            report
            for broker in self._usable()
            if (report := self._reports.get(broker.broker_id)) is not None
            and report.broker_epoch == broker.broker_epoch
        ]

    @staticmethod
    def _ends(topic: TopicImage, index: int, heard: Sequence[Registration]) -> dict[int, LogEnd]:
        """Where the logs of a partition end, by the brokers that have reported it."""
        key = (topic.topic_id, index)
        return {each.broker_id: each.log_ends[key] for each in heard if key in each.log_ends}

    def _led_by_reports(self, registration: Registration) -> list[Record]:
        """The imported partitions for which the report of this broker was the last that was missing."""
        if not registration.log_ends:
            return []
        heard = [*(each for each in self._heard() if each.broker_id != registration.broker_id), registration]
        records: list[Record] = []
        for topic in self._image.topics.values():
            changes = [
                after
                for partition in topic.partitions
                if (topic.topic_id, partition.index) in registration.log_ends
                and (after := elections.ends_reported(partition, self._ends(topic, partition.index, heard)))
            ]
            records += changes_of(topic.topic_id, changes)
        return records

    def _changed(self, rule: Callable[[PartitionImage, int | None], PartitionImage | None]) -> list[Record]:
        """What a rule makes of all partitions, of which it gets how many in-sync replicas are wanted, too; None leaves
        one as it is."""
        return self._changed_by_topic(lambda topic, partition, min_isr: rule(partition, min_isr))

    def _changed_by_topic(
        self, rule: Callable[[TopicImage, PartitionImage, int | None], PartitionImage | None]
    ) -> list[Record]:
        """As `_changed`, by a rule that goes by the topic as well."""
        records: list[Record] = []
        for topic in self._image.topics.values():
            min_isr = self._image.min_isr(topic)
            changes = [
                after for partition in topic.partitions if (after := rule(topic, partition, min_isr)) is not None
            ]
            records += changes_of(topic.topic_id, changes)
        return records

    def _configured(
        self, resource: ConfigResource, name: str, old: Mapping[str, str], new: Mapping[str, str]
    ) -> list[Record]:
        """New configs, and before them what they do to partitions: with fewer in-sync replicas needed, more is
        committed than those have that were eligible to lead."""
        records: list[Record] = []
        if resource != "broker" and old.get(MIN_ISR) != new.get(MIN_ISR):
            topics = [self._image.topics[name]] if resource == "topic" else self._image.topics.values()
            for topic in topics:
                value = new.get(MIN_ISR) if resource == "topic" else topic.configs.get(MIN_ISR)
                value = value or (new if resource == "cluster" else self._image.cluster_configs).get(MIN_ISR)
                min_isr = None if value is None else int(value)
                changes = [
                    after
                    for partition in topic.partitions
                    if (after := elections.min_isr_changed(partition, min_isr)) is not None
                ]
                records += changes_of(topic.topic_id, changes)
        return [*records, *config_changes.records(resource, name, old, new)]

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
            refuse(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
        if other := self._image.colliding_topic(name):
            refuse(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"topic {other!r} exists, and {name!r} differs from it only in '.' and '_', which metrics cannot show",
            )

    def _refuse_copies(self, factor: int) -> None:
        if factor > self._max_replication_factor:
            refuse(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor {factor} is not possible: it is 1 or more, or -1 for the default, and at most "
                f"{self._max_replication_factor}",
            )

    def _refuse_added(self, partition: PartitionImage, replicas: Sequence[int], name: str) -> None:
        """What a partition may not have as its replicas."""
        self._refuse_copies(len(replicas))
        if len({*replicas}) < len(replicas):
            refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name} cannot be twice on a broker: {list(replicas)}")
        if missing := [replica for replica in partition.replicas if replica not in replicas]:
            refuse(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{name} is on brokers {list(partition.replicas)}, and broker {missing[0]} is not among "
                f"{list(replicas)}: replicas can be added, but not removed yet",
            )
        usable = self._usable_ids()
        for replica in replicas:
            if replica not in self._image.brokers:
                refuse(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{name} cannot be on broker {replica}, which does not exist",
                )
            if replica not in usable and replica not in partition.replicas:
                refuse(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name} cannot be on broker {replica}, which is not alive"
                )

    def _refuse_full(self, new_partitions: int) -> None:
        """The cluster's own topics are made in any case: without them there are no groups."""
        existing = self._image.partition_count
        if existing + new_partitions > self._max_partitions:
            refuse(
                ErrorCode.POLICY_VIOLATION,
                f"there are {existing} partitions, and with {new_partitions} more there would be more than "
                f"{self._max_partitions} (penstock.max.partitions); delete topics or raise the limit",
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
        racks = {broker.broker_id: broker.rack for broker in self._usable()}
        _refuse_too_many(count)
        self._refuse_copies(factor)
        if not 1 <= factor <= len(racks):
            refuse(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the replication factor {factor} is not possible: it is 1 or more, or -1 for the default, and at most "
                f"the number of brokers that are alive, which is {len(racks)}",
            )
        led_in_topic = Counter(partition.leader for partition in topic.partitions) if topic else {}
        return placement.place(count, factor, racks, led=self._image.leader_counts, led_in_topic=led_in_topic)

    def _assigned(
        self, assignment: Sequence[tuple[int, Sequence[int]]], *, first: int, factor: int
    ) -> list[tuple[int, ...]]:
        """Take brokers that were chosen by hand for new partitions."""
        _refuse_too_many(len(assignment))
        self._refuse_copies(factor)
        usable = self._usable_ids()
        if problem := placement.problem(
            assignment, self._image.brokers, live=usable, first=first, replication_factor=factor
        ):
            refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        return [tuple(brokers) for _, brokers in sorted(assignment, key=itemgetter(0))]


def default_factor(image: ClusterImage) -> int:
    """How many replicas a partition gets if no number is set."""
    return max(1, min(REPLICAS, len(image.usable_brokers())))


def _partition(topic: TopicImage, index: int) -> PartitionImage:
    if not 0 <= index < len(topic.partitions):
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {index}")
    return topic.partitions[index]


def _stale(known: BrokerImage, epoch: int) -> str:
    return f"broker {known.broker_id} is registered with epoch {known.broker_epoch}, and {epoch} is another"


def _refuse_too_many(partitions: int) -> None:
    if partitions > MAX_NEW_PARTITIONS:
        refuse(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} new partitions are too many at once; begin with {MAX_NEW_PARTITIONS} and add the others",
        )


def _decision(records: Sequence[Record], reply: Reply, validate_only: bool) -> ControllerDecision[Reply]:
    return ControllerDecision(() if validate_only else tuple(records), reply)
