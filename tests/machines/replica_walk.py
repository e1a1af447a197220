"""A random walk of one partition: its replicas write, copy, propose, crash and come back, and each of them reads the
metadata log when chance lets it, while replicas are added, damaged ones begin again, and the number that acks=all needs
is changed."""

from random import Random
from typing import Any

from penstock.machines.cluster import MIN_ISR, ClusterImage, PartitionImage
from penstock.machines.config_changes import ConfigChange, ConfigOperation
from penstock.machines.controller import Controller, TopicDefaults
from penstock.machines.decisions import Refused
from penstock.machines.partition_leader import Answered, PartitionLeader, Proposal
from penstock.machines.registration import Registration
from tests.machines.config_rules import SomeConfigs

TOPIC, TOPIC_ID = "orders", b"o" * 16
BROKERS = 5
NUMBERS = ("1", "2", "3", None)


class Configs(SomeConfigs):
    NUMBERS = SomeConfigs.NUMBERS | {("topic", MIN_ISR)}


class Replica:
    """What one broker has and believes. Its log is what it has for good: records are numbers, each written once."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = 0
        self.log: list[int] = []
        self.high_watermark = 0
        self.is_damaged = False
        self.read = 0
        self.image: PartitionImage | None = None
        self.leader: PartitionLeader | None = None
        self.proposal: Proposal | None = None


class Walk:
    """`step` as often as is wanted; each step checks that all who may lead have all that is committed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.image = ClusterImage()
        self.controller = Controller(self.image, Configs())
        self.replicas = [Replica(broker_id) for broker_id in range(BROKERS)]
        # The states of the partition, and how many in-sync replicas were wanted at that time.
        self.states: list[tuple[PartitionImage, int | None]] = []
        self.committed: list[int] = []
        self.now_ms = 0
        self.epochs = self.records = 0
        self.raised = self.completed = self.cancelled = self.begun_again = 0
        for broker_id in range(BROKERS):
            self.register(broker_id)
        first = self.random.randint(1, 3)
        defaults = TopicDefaults(partitions=1, replication_factor=1)
        assignment = [(0, list(range(first)))]
        self.decide("create_topic", TOPIC, topic_id=TOPIC_ID, defaults=defaults, assignment=assignment)
        for replica in self.replicas:
            self.see(replica)

    @property
    def newest(self) -> PartitionImage:
        return self.states[-1][0]

    def step(self) -> None:
        self.now_ms += self.random.choice([1] * 30 + [40_000])
        moves = [self.write] + [self.copy] * 8 + [self.propose] * 3 + [self.see_more] * 5 + [self.come] * 2
        moves += [self.leave] if self.random.random() < 0.3 else []
        moves += [self.add] if self.random.random() < 0.2 else []
        moves += [self.cancel] if self.random.random() < 0.1 else []
        moves += [self.give_up] if self.random.random() < 0.1 else []
        moves += [self.change_min_isr] if self.random.random() < 0.05 else []
        move = self.random.choice(moves)
        leading = [replica for replica in self.replicas if replica.leader is not None]
        move(self.random.choice(leading if leading and move in (self.write, self.propose) else self.replicas))
        self.check()

    # What the controller decides

    def decide(self, command: str, *arguments: Any, **named: Any) -> bool:
        """Every record is a state that may be seen alone."""
        try:
            decision = getattr(self.controller, command)(*arguments, **named)
        except Refused:
            return False
        for record in decision.records:
            self.image.apply(record)
            if topic := self.image.topics.get(TOPIC):
                state = (topic.partitions[0], self.image.min_isr(topic)) if topic.partitions else None
                if state is not None and (not self.states or state != self.states[-1]):
                    self.completed += bool(self.states and self.newest.adding and not state[0].adding)
                    self.states.append(state)
        return True

    def register(self, broker_id: int) -> None:
        self.epochs += 1
        replica = self.replicas[broker_id]
        replica.epoch, replica.leader, replica.proposal = self.epochs, None, None
        listeners = {"PLAIN": ("h", 9092)}
        registration = Registration(broker_id, self.epochs, listeners, None, f"of {broker_id}", was_clean=False)
        self.decide("register_broker", registration)

    def leave(self, replica: Replica) -> None:
        """Its session ends. It may not know that, and go on."""
        self.decide("broker_lost", replica.broker_id, replica.epoch)

    def come(self, replica: Replica) -> None:
        if not self.image.brokers[replica.broker_id].is_alive or self.random.random() < 0.02:
            self.register(replica.broker_id)
            while replica.read < len(self.states):
                self.see(replica)

    def add(self, replica: Replica) -> None:
        present = self.newest.replicas
        new = [broker for broker in range(BROKERS) if broker not in present]
        chosen = self.random.sample(new, min(len(new), self.random.randint(1, 2)))
        target = [*present, *chosen]
        if self.random.random() < 0.3:
            self.random.shuffle(target)
        self.raised += self.decide("add_replicas", TOPIC, 0, target) and bool(chosen)

    def cancel(self, replica: Replica) -> None:
        self.cancelled += self.decide("cancel_addition", TOPIC, 0)

    def change_min_isr(self, replica: Replica) -> None:
        value = self.random.choice(NUMBERS)
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        self.decide("change_configs", "topic", TOPIC, [ConfigChange(MIN_ISR, operation, value)])

    # What replicas do

    def see_more(self, replica: Replica) -> None:
        if replica.read < len(self.states):
            self.see(replica)

    def see(self, replica: Replica) -> None:
        """Read the next state of the metadata log."""
        image, min_isr = self.states[replica.read]
        replica.read += 1
        before = -1 if replica.image is None else replica.image.leader_epoch
        replica.image = image
        is_spare = image.leader not in (replica.broker_id, -1) and replica.broker_id not in (*image.isr, *image.elr)
        if replica.is_damaged and is_spare and image.leader_epoch > before:
            replica.log, replica.high_watermark, replica.is_damaged = [], 0, False
            self.begun_again += 1
        if replica.broker_id not in image.replicas:
            replica.log, replica.high_watermark = [], 0
        leader = replica.leader
        if leader is not None and (image.leader, image.leader_epoch) == (replica.broker_id, leader.leader_epoch):
            leader.state_changed(
                image.isr, image.partition_epoch, min_isr, replicas=image.replicas, adding=image.adding
            )
            return
        replica.leader = replica.proposal = None
        # What a broker led before it registered anew it does not lead now.
        if image.leader == replica.broker_id and self.image.brokers[replica.broker_id].broker_epoch == replica.epoch:
            replica.leader = PartitionLeader.elected(
                broker_id=replica.broker_id,
                broker_epoch=replica.epoch,
                leader_epoch=image.leader_epoch,
                partition_epoch=image.partition_epoch,
                replicas=image.replicas,
                isr=image.isr,
                adding=image.adding,
                min_isr=min_isr,
                log_start=0,
                log_end=len(replica.log),
                durable_end=len(replica.log),
                high_watermark=replica.high_watermark,
                now_ms=self.now_ms,
            )

    def write(self, replica: Replica) -> None:
        if replica.leader is not None:
            self.records += 1
            replica.log.append(self.records)
            replica.leader.log_advanced(len(replica.log))

    def copy(self, replica: Replica) -> None:
        """Fetch from the broker that leads, as far as both know: what parts is cut, then some of it is copied."""
        image = replica.image
        if image is None or replica.broker_id not in image.replicas or replica.leader is not None or image.leader < 0:
            return
        other = self.replicas[image.leader]
        leader = other.leader
        if leader is None or leader.leader_epoch != image.leader_epoch or replica.broker_id not in leader.followers:
            return
        shared = 0
        while shared < min(len(replica.log), len(other.log)) and replica.log[shared] == other.log[shared]:
            shared += 1
        del replica.log[shared:]
        leader.follower_fetched(
            replica.broker_id,
            broker_epoch=replica.epoch,
            session=1,
            offset=shared,
            log_start=0,
            leader_end=len(other.log),
            now_ms=self.now_ms,
        )
        replica.log += other.log[shared : shared + self.random.randint(0, 9)]
        replica.high_watermark = max(replica.high_watermark, min(leader.high_watermark, len(replica.log)))

    def propose(self, replica: Replica) -> None:
        """Ask the controller; the answer, or the request, may be lost."""
        leader = replica.leader
        if leader is None:
            return
        proposal = leader.next_proposal(self.now_ms, len(replica.log))
        if proposal is None:
            return
        fate = self.random.random()
        accepted = fate < 0.9 and self.decide(
            "alter_partition", replica.broker_id, replica.epoch, TOPIC_ID, 0, proposal
        )
        if fate > 0.7:
            leader.answered(proposal, Answered.UNKNOWN)
        else:
            leader.answered(proposal, Answered.ACCEPTED if accepted else Answered.REFUSED, now_ms=self.now_ms)

    def give_up(self, replica: Replica) -> None:
        """It finds damage in its log, and asks not to be counted on, in the state that it knows."""
        image = replica.image
        if image is not None and replica.broker_id in image.replicas:
            replica.is_damaged = True
            others = tuple((member, -1) for member in image.isr if member != replica.broker_id)
            proposal = Proposal(image.leader_epoch, image.partition_epoch, others)
            self.decide("alter_partition", replica.broker_id, replica.epoch, TOPIC_ID, 0, proposal)

    # What must be true

    def check(self) -> None:
        for replica in self.replicas:
            if replica.leader is not None:
                replica.high_watermark = max(replica.high_watermark, replica.leader.high_watermark)
                told = replica.log[: replica.leader.high_watermark]
                shorter = min(len(told), len(self.committed))
                assert told[:shorter] == self.committed[:shorter], f"broker {replica.broker_id} commits other records"
                if len(told) > len(self.committed):
                    self.committed = told
        image = self.newest
        assert {*image.isr, *image.elr, *image.adding} <= {*image.replicas}, image
        assert not image.adding or not {*image.adding} <= {*image.isr}, image
        for broker_id in (*image.isr, *image.elr):
            has = self.replicas[broker_id].log[: len(self.committed)]
            assert has == self.committed, f"broker {broker_id} lacks committed records in {image}"
