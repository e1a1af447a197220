"""The metadata log, its members and its controllers: those of production decide, and what they decide is read late."""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from penstock.machines.cluster import FLUSH, MIN_ISR, BrokerImage, ClusterImage, PartitionImage
from penstock.machines.cluster_records import NO_LEADER, ConfigResource, Record
from penstock.machines.controller import Controller, TopicDefaults
from penstock.machines.decisions import ControllerDecision, Refused
from penstock.machines.partition_leader import PartitionLeader, Proposal
from penstock.machines.registration import Registration
from penstock.protocol.error_codes import ErrorCode
from tools.simulate.replication import states

if TYPE_CHECKING:
    from tools.simulate.replication.node import Node
    from tools.simulate.replication.replica import Key, Replica
    from tools.simulate.replication.world import World

Command = Callable[[Controller], ControllerDecision[Any]]

TOPIC: Final = "t"
REPLICAS: Final = 3
_DEFAULTS: Final = TopicDefaults(1, REPLICAS)


class View:
    """What the image of the cluster says about replication, as of one entry of the metadata log."""

    __slots__ = ("brokers", "partitions")

    def __init__(self, image: ClusterImage) -> None:
        self.brokers: dict[int, BrokerImage] = dict(image.brokers)
        self.partitions: dict[Key, tuple[PartitionImage, int | None]] = {
            (topic.topic_id, partition.index): (partition, image.min_isr(topic))
            for topic in image.topics.values()
            for partition in topic.partitions
        }


class _AnyConfig:
    def problem(self, resource: ConfigResource, values: object) -> str | None:
        return None

    def default_list(self, resource: ConfigResource, name: str) -> str | None:
        return None


_RULES: Final = _AnyConfig()


class Metadata:
    __slots__ = (
        "_reconciles", "_seen", "_topics", "controller", "controller_epoch", "image", "members", "next_epoch", "view",
        "views", "wants_topic", "world", "zombie"
    )  # fmt: skip

    def __init__(self, world: "World") -> None:
        self.world = world
        self.image = ClusterImage()
        self.view = View(self.image)
        """The newest of the views, of which there is one for each entry."""
        self.views = [self.view]
        self.members: dict[int, Registration] = {}
        self.next_epoch = 1
        self.controller: Controller | None = Controller(self.image, _RULES)
        self.controller_epoch = 0
        self.zombie: Controller | None = None
        """A former controller, which knows what there was when it was replaced."""
        self.wants_topic = True
        self._topics = 0
        self._reconciles = False
        self._seen: dict[int, int] = {}
        """The registrations that the controller has dealt with."""

    @property
    def entries(self) -> int:
        return len(self.views) - 1

    def partition(self, key: "Key") -> PartitionImage | None:
        found = self.view.partitions.get(key)
        return None if found is None else found[0]

    def is_deposed(self, key: "Key", leader_epoch: int) -> bool:
        """Whether the metadata log has a newer epoch, or the topic no longer."""
        found = self.view.partitions.get(key)
        return found is None or found[0].leader_epoch > leader_epoch

    # The log

    def append(self, records: tuple[Record, ...]) -> None:
        """One entry of the controller."""
        if not records:
            return
        before = self.view
        self.image.apply_all(records)
        self.view = View(self.image)
        self.views.append(self.view)
        for key, (now, min_isr) in self.view.partitions.items():
            was = before.partitions.get(key)
            if was is not None and was[0] is not now:
                if self.world.told is not None:
                    self.world.tell(f"partition {key[0][-1]}-{key[1]}: {now}, min {min_isr}")
                self._look_at_election(was[0], now)
                self.world.ledger.partition_changed(key, was[0], now)
        for node in self.world.nodes.values():
            if node.is_up:
                self.read_later(node)

    def read_later(self, node: "Node") -> None:
        """A broker is to read what there is now, after a while."""
        world = self.world
        delay = 1 + int(world.chance_of() * (6 if world.is_healing else world.metadata_delay))
        world.after(delay, node, self._read, node, self.entries)

    def _read(self, node: "Node", index: int) -> None:
        if node.deaf_until > self.world.now:
            self.world.after(node.deaf_until - self.world.now, node, self._read, node, index)
        else:
            node.read_metadata(self.views[index], index)

    def _look_at_election(self, was: PartitionImage, now: PartitionImage) -> None:
        reach = self.world.reach
        if any(self.world.nodes[broker].may_lack_unflushed for broker in {*was.isr, *was.elr} - {*now.isr, *now.elr}):
            reach(states.NO_LONGER_ELIGIBLE)
        if not now.isr:
            reach(states.ISR_EMPTY)
        if now.leader == NO_LEADER:
            if len(now.isr) + len(now.elr) == 1:
                reach(states.AWAITED)
        elif now.leader != was.leader:
            reach(states.FROM_ISR if now.leader in was.isr else states.FROM_ELR)
        elif now.leader_epoch != was.leader_epoch:
            reach(states.LED_ANEW)
        elif len(now.isr) > len(was.isr):
            reach(states.JOINED)
            if any(self.world.nodes[broker].has_lost_disk for broker in now.isr if broker not in was.isr):
                reach(states.DISK_LOST)

    # Controllers

    def decide(self, command: Command, *, may_be_split: bool = True) -> ErrorCode:
        """The controller decides, and appends what it has decided; it may crash after a part of it, if that takes more
        than an entry."""
        world = self.world
        if self.controller is None:
            return ErrorCode.NOT_CONTROLLER
        try:
            records = command(self.controller).records
        except Refused as refused:
            return refused.code
        if may_be_split and len(records) > 1 and not world.is_healing and world.chance(0.08):
            world.reach(states.HALF_DONE)
            self.append(tuple(islice(records, world.random.randrange(1, len(records)))))
            self.change_controller()
            return ErrorCode.REQUEST_TIMED_OUT
        self.append(records)
        return ErrorCode.NONE

    def change_controller(self) -> None:
        """The controller is a former one from now on, and may not know it; the next one comes soon."""
        if self.controller is not None:
            self.zombie = Controller(self.image.copy(), _RULES)
            self.controller = None
            self.world.after(5 + int(self.world.chance_of() * 80), None, self.elect_controller)

    def elect_controller(self) -> None:
        if self.controller is None:
            self.controller_epoch += 1
            controller = Controller(self.image, _RULES)
            self.append(controller.elected(0, self.controller_epoch).records)
            self.controller = controller
            self._seen.clear()
            self.reconcile_later()

    def fence(self, decision: ControllerDecision[Any]) -> None:
        """A former controller has decided something, and the store does not take it."""
        self.world.reach(states.FENCED_CONTROLLER)

    def create_topic(self) -> bool:
        """All brokers that are to hold a replica must be usable. Returns whether there is a topic."""
        world = self.world
        if TOPIC in self.image.topics:
            return True
        self._topics += 1
        topic_id = self._topics.to_bytes(16, "big")
        code = self.decide(
            lambda controller: controller.create_topic(
                TOPIC,
                topic_id=topic_id,
                defaults=_DEFAULTS,
                partitions=world.partitions,
                replication_factor=REPLICAS,
                configs={MIN_ISR: str(world.min_isr)} | ({FLUSH: "os"} if world.is_unsynced else {}),
            ),
            may_be_split=False,
        )
        return code is ErrorCode.NONE

    # Members

    def join(self, node: "Node") -> None:
        """A broker gets a new session and a new epoch."""
        world = self.world
        if node.id in self.members and self.members[node.id].broker_epoch == node.epoch:
            world.reach(states.RESTART_IN_SESSION)
        if node.was_clean and not node.serves:
            world.reach(states.CLEAN_RESTART)
        self.next_epoch += 1
        node.epoch = self.next_epoch
        node.session += 1
        self.members[node.id] = Registration(
            node.id, node.epoch, {}, None, node.folder, node.was_clean, may_lack_unflushed=node.may_lack_unflushed
        )
        world.tell(f"broker {node.id} registers with epoch {node.epoch}")
        self.reconcile_later()
        self.read_later(node)

    def rejoin(self, node: "Node") -> None:
        """A broker hears that its session has ended: it registers again, and goes on with what its image says."""
        if node.id not in self.members:
            self.world.reach(states.SESSION_LOST)
            self.join(node)

    def leave(self, node: "Node", epoch: int) -> None:
        """The session of a registration has expired, if the broker does not live."""
        member = self.members.get(node.id)
        is_away = not node.is_up or node.paused_until > self.world.now
        if member is not None and member.broker_epoch == epoch and is_away:
            self.lose_session(node)

    def lose_session(self, node: "Node") -> None:
        if self.members.pop(node.id, None) is not None:
            self.world.tell(f"broker {node.id} has lost its session")
            self.reconcile_later()

    def reconcile_later(self) -> None:
        if not self._reconciles:
            self._reconciles = True
            self.world.after(1 + int(self.world.chance_of() * 12), None, self.reconcile)

    def reconcile(self) -> None:
        """The controller compares the members with its image."""
        self._reconciles = False
        for broker_id in self.world.nodes:
            known, member = self.image.brokers.get(broker_id), self.members.get(broker_id)
            if known is not None and known.is_alive and member is None:
                lost = known.broker_epoch
                self.decide(lambda controller, one=broker_id, epoch=lost: controller.broker_lost(one, epoch))  # type: ignore[misc]
            elif member is not None and self._seen.get(broker_id) != member.broker_epoch:
                code = self.decide(lambda controller, one=member: controller.register_broker(one))  # type: ignore[misc]
                if code is ErrorCode.NONE:
                    self._seen[broker_id] = member.broker_epoch
        if self.wants_topic and self.create_topic():
            self.wants_topic = False

    # Proposals

    def propose(self, replica: "Replica", leader: PartitionLeader, proposal: Proposal) -> None:
        """A proposal is on its way to a controller: lost, late, or twice."""
        world, node = self.world, replica.node
        copies = 1 + (world.repeats and not world.is_healing and world.chance(0.1))
        for _ in range(copies):
            if not world.is_lost(0.03):
                delay = world.delay()
                world.after(delay, None, self._proposed, replica, leader, proposal, node.epoch, node.incarnation)

    def _proposed(
        self, replica: "Replica", leader: PartitionLeader, proposal: Proposal, epoch: int, incarnation: int
    ) -> None:
        """It has reached the present controller, or a former one."""
        world, node, (topic_id, index) = self.world, replica.node, replica.key

        def command(controller: Controller) -> ControllerDecision[Any]:
            return controller.alter_partition(node.id, epoch, topic_id, index, proposal)

        if self.zombie is not None and (self.controller is None or world.chance(0.3)):
            try:
                self.fence(command(self.zombie))
                code = ErrorCode.NOT_CONTROLLER
            except Refused as refused:
                code = refused.code
                world.reach(states.ZOMBIE_REFUSED)
        else:
            code = self.decide(command)
            if code in states.OF_PROPOSALS:
                world.reach(states.OF_PROPOSALS[code])
        if world.told is not None:
            world.tell(f"{replica}: {proposal} was answered with {code.name}")
        if node.incarnation == incarnation and not world.is_lost(0.03):
            world.after(world.delay(), node, replica.proposal_answered, leader, proposal, code)
