"""The ledger knows what the metadata log has been, what clients were answered, and what must be true of both."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.machines import cluster_records
from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import (
    NO_LEADER,
    BrokerRegistered,
    ConfigChanged,
    ControllerElected,
    PartitionsChanged,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
)

if TYPE_CHECKING:
    from tools.simulate.controller.node import Node
    from tools.simulate.controller.world import World


@dataclass(slots=True, eq=False)
class Asked:
    """What a client has asked for; `mark` is how its record in the log is known. None waits for an answer."""

    kind: Literal["create", "delete", "config", "ids", "relieve"]
    mark: object
    node: "Node"
    name: str = ""
    outcome: Literal["made", "not made", "unknown", None] = None
    error: str = ""


@dataclass(slots=True)
class Ledger:
    world: "World"
    # What the log has ever been, and the image after each entry.
    log: list[bytes] = field(default_factory=list)
    images: list[ClusterImage] = field(default_factory=lambda: [ClusterImage()])
    writers: dict[int, "Node"] = field(default_factory=dict)
    marks: set[object] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    ids: list[range] = field(default_factory=list)
    unknown: set[int] = field(default_factory=set)

    # The log

    def look(self, node: "Node", controller_epoch: int) -> None:
        """A node has appended."""
        shared, problem = self.world.shared, self.world.problem
        if shared.entries[: len(self.log) - shared.dropped] != self.log[shared.dropped :]:
            problem("entries of the log have changed")
        for data in shared.entries[len(self.log) - shared.dropped :]:
            self.log.append(bytes(data))
            self._take(node, controller_epoch, data)

    def _take(self, node: "Node", controller_epoch: int, data: bytes) -> None:
        problem, index = self.world.problem, len(self.log)
        entry = cluster_records.decode(data)
        image = self.images[-1].copy()
        if (entry.index, entry.controller_epoch) != (index, controller_epoch):
            problem(f"entry {index} says that it is {entry.index} of epoch {entry.controller_epoch}")
        if entry.controller_epoch < image.controller_epoch:
            problem(f"entry {index} of epoch {entry.controller_epoch} follows one of epoch {image.controller_epoch}")
        if self.writers.setdefault(entry.controller_epoch, node) is not node:
            problem(f"epoch {entry.controller_epoch} has two controllers")
        first = entry.records[0]
        if entry.controller_epoch > image.controller_epoch and not isinstance(first, ControllerElected):
            problem(f"epoch {entry.controller_epoch} begins with {first}")
        for record in entry.records:
            self._check_record(node, image, record)
            image.apply(record)
        if image.controller_epoch != entry.controller_epoch:
            problem(f"entry {index} of epoch {entry.controller_epoch} elects epoch {image.controller_epoch}")
        if any(isinstance(record, PartitionsChanged) for record in entry.records) and any(
            partition.leader == NO_LEADER and image.brokers[partition.replicas[0]].is_alive
            for topic in image.topics.values()
            for partition in topic.partitions
        ):
            self.world.reach("a decision took several entries")
        if sum(isinstance(record, TopicCreated) for record in entry.records) > 1:
            self.world.reach("decisions shared an entry")
        self.images.append(image)

    def _check_record(self, node: "Node", image: ClusterImage, record: Record) -> None:
        world = self.world
        match record:
            case ControllerElected():
                if record.broker_id != node.broker_id or record.controller_epoch <= image.controller_epoch:
                    world.problem(f"{record} of broker {node.broker_id} after epoch {image.controller_epoch}")
                if image.controller_id not in (-1, record.broker_id):
                    world.reach("another broker became the controller")
                elif image.controller_id == record.broker_id:
                    world.reach("the same broker became the controller again")
            case BrokerRegistered():
                known = image.brokers.get(record.broker_id)
                if known is not None and record.broker_epoch <= known.broker_epoch:
                    world.problem(f"{record} after epoch {known.broker_epoch}")
            case ProducerIdsAllocated():
                if record.next_producer_id <= image.next_producer_id:
                    world.problem(f"producer ids from {record.next_producer_id} on after {image.next_producer_id}")
                self.marks.add(("ids", record.next_producer_id))
            case TopicCreated():
                self.marks.add(("create", record.topic_id))
            case TopicDeleted():
                self.marks.add(("delete", record.topic_id))
            case ConfigChanged():
                self.marks.update(("config", record.name, value) for value in record.values.values())
            case _:
                pass

    def snapshot_saved(self, index: int, data: bytes) -> None:
        image = ClusterImage()
        image.apply_all(cluster_records.decode(data).records)
        if image != self.images[index]:
            self.world.problem(f"the snapshot of entry {index} is not what the log says")

    def outcome_unknown(self, index: int) -> None:
        """Of the append of an entry, to its writer."""
        if index <= len(self.log):
            self.world.reach("the outcome of an append was unknown, and it was done")
        else:
            self.world.reach("the outcome of an append was unknown, and it was not done")

    # What clients were answered

    def answered(self, asked: Asked) -> None:
        """The answer has left the broker."""
        if asked.outcome == "made":
            if asked.mark is not None and asked.mark not in self.marks:
                self.world.problem(f"{asked.kind} {asked.name} was acknowledged, and the log has nothing of it")
            node = asked.node
            if not self._shows(node.cluster.image, asked):
                self.world.problem(
                    f"{asked.kind} {asked.name} was acknowledged by broker {node.broker_id} before it had followed it"
                )

    def ids_given(self, ids: range) -> None:
        if any(ids.start < given.stop and given.start < ids.stop for given in self.ids):
            self.world.problem(f"producer ids {ids} were given out twice")
        self.ids.append(ids)

    def _shows(self, image: ClusterImage, asked: Asked) -> bool:
        match asked.kind:
            case "create":
                assert isinstance(asked.mark, tuple)
                return asked.mark[1] in image.topics_by_id or ("delete", asked.mark[1]) in self.marks
            case "delete":
                assert isinstance(asked.mark, tuple)
                return asked.mark[1] not in image.topics_by_id
            case "ids":
                assert isinstance(asked.mark, tuple)
                return image.next_producer_id >= int(asked.mark[1])
            case _:
                return True

    def check_end(self, nodes: "list[Node]") -> None:
        """After everything has settled: nothing acknowledged is missing, nothing refused is there."""
        problem, image = self.world.problem, self.images[-1]
        for asked in self.asked:
            told = f"{asked.kind} {asked.name}"
            if asked.outcome is None and not asked.node.is_dead:
                problem(f"{told} was never answered by broker {asked.node.broker_id}")
            if asked.outcome == "made" and not self._shows(image, asked):
                problem(f"{told} was acknowledged and is gone")
            if asked.outcome == "not made" and asked.kind in ("create", "config") and asked.mark in self.marks:
                problem(f"{told} was refused ({asked.error}) and was made all the same")
        self._check_configs(image)
        for node in nodes:
            if node.cluster.image != image:
                problem(f"the image of broker {node.broker_id} is not what the log says")

    def _check_configs(self, image: ClusterImage) -> None:
        """One client at a time sets the configs of a topic: the last that was acknowledged, or one after it."""
        possible: dict[str, set[object]] = {}
        for asked in self.asked:
            if asked.kind == "config":
                assert isinstance(asked.mark, tuple)
                if asked.outcome == "made":
                    possible[asked.name] = {asked.mark[2]}
                elif asked.outcome != "not made" and asked.name in possible:
                    possible[asked.name].add(asked.mark[2])
        for name, values in possible.items():
            topic = image.topics.get(name)
            if topic is not None and topic.configs.get("retention.ms") not in values:
                self.world.problem(f"{name} has {topic.configs}, and one of {values} was acknowledged last")
