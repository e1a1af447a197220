"""A world is one run of a program: three brokers with a replica each, producers, and the one whose power is lost."""

from collections import Counter
from random import Random
from typing import Final

from penstock.broker.config.typed import BrokerConfig, TopicConfig
from penstock.broker.partitions.partition import Partition
from penstock.machines.cluster_records import NO_LEADER
from penstock.storage.files.memory import Crashed, Damage, MemoryFiles
from tools.simulate.power.broker import SimulatedBroker
from tools.simulate.power.clients import SimulatedProducer
from tools.simulate.power.ledger import Ledger
from tools.simulate.power.metadata import BROKERS, TOPIC, Metadata

START_MS: Final = 1_700_000_000_000
ROUNDS: Final = 60
"""After so many, all have copied everything."""

# Small enough for rolls and index entries within a few batches.
_CONFIGS: Final = {"internal.segment.bytes": "700", "index.interval.bytes": "150", "retention.ms": "-1"}
_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
_settings: Final = {
    is_compacted: TopicConfig(_CONFIGS | (_COMPACTED if is_compacted else {}), BrokerConfig({})).settings()
    for is_compacted in (False, True)
}


class World:
    """Everything that one run needs, and what was seen of it."""

    def __init__(self, seed: int, *, victim: int, is_compacted: bool, compacts: bool, cuts_many: bool) -> None:
        self.metadata = Metadata()
        self.configs = _CONFIGS | (_COMPACTED if is_compacted else {})
        self.settings = _settings[is_compacted]
        self.cuts_many = cuts_many
        self.now_ms = START_MS
        self.states: Counter[str] = Counter()
        self.transcript: list[str] = []
        self.ledger = Ledger(compacts=compacts)
        self.brokers = [SimulatedBroker(self, number, MemoryFiles(seed=seed)) for number in BROKERS]
        self.victim = self.brokers[victim]
        self.producers = [SimulatedProducer(number, self.ledger) for number in (1, 2)]
        self.end_before: int | None = None
        """Where the log of the victim ended when its power was lost, if not all of it was flushed."""
        self._crash_call: int | None = None

    @property
    def is_broken(self) -> bool:
        return bool(self.ledger.problems)

    def crash_at(self, call: int) -> None:
        """Let the power of the victim go at one of the calls that change something on its disk."""
        self._crash_call = call
        self.victim.files.crash_at(call)

    # What brokers report

    def reach(self, state: str) -> None:
        self.states[state] += 1

    def note(self, text: str) -> None:
        self.transcript.append(f"{self.now_ms - START_MS} {text}")

    def recovered(self, broker: SimulatedBroker) -> None:
        if broker.partitions.failed:
            self.ledger.problem(f"broker {broker.broker_id} is offline: {list(broker.partitions.failed.values())}")
        for replica in broker.partitions.replicas():
            self.ledger.check_recovered(broker, replica)
            self._note_recovered(broker, replica)

    def _note_recovered(self, broker: SimulatedBroker, replica: Partition) -> None:
        """Which states this start has come through."""
        log = replica.log
        if any(end > log.recovery_point for _, end in log._holes.entries):
            self.reach("a hole above the recovery point was known to a start")
        if log.epochs.latest > log.last_record_epoch:
            self.reach("an epoch was saved, and no record of it")
        if broker.directory.reports[f"{TOPIC}-0"].cut_bytes:
            self.reach("a start cut off what was torn")
        if replica._snapshot_offset:
            self.reach("producers were restored from a snapshot")
        if replica.high_watermark > log.start_offset:
            self.reach("a high watermark was restored")
        if self.end_before is not None and broker.broker_id == self.victim.broker_id:
            self.reach(f"records that were not flushed were {'lost' if log.end_offset < self.end_before else 'kept'}")

    def asks(self, broker: SimulatedBroker, offset: int) -> None:
        self.ledger.told(broker, offset)

    def flushed(self, broker: SimulatedBroker) -> None:
        if broker.led is not None:
            self.ledger.told(broker, broker.led.log.flushed_offset)
            self.ledger.note(broker)

    def learned(self, broker: SimulatedBroker) -> None:
        self.ledger.note(broker)

    def cuts(self, broker: SimulatedBroker, offset: int) -> None:
        self.note(f"broker {broker.broker_id} cuts its log to {offset}")
        self.ledger.cuts(broker, offset)

    def begins_anew(self, broker: SimulatedBroker, offset: int) -> None:
        self.note(f"broker {broker.broker_id} begins anew at {offset}")
        self.ledger.begins_anew(broker.broker_id, offset)

    def deletes(self, broker: SimulatedBroker, offset: int) -> None:
        self.note(f"broker {broker.broker_id} deletes what comes before {offset}")
        self.ledger.deleted_to = max(self.ledger.deleted_to, offset)

    def after_step(self) -> None:
        if self.metadata.has_topic:
            self.ledger.elected(self.metadata.partition.leader_epoch)
        for broker in self.brokers:
            if broker.is_up:
                self.ledger.note(broker)
        if self.metadata.has_topic and self.metadata.partition.leader == NO_LEADER:
            self.reach("a partition had no leader")

    # What happens to brokers

    def cut_off(self, broker: SimulatedBroker) -> None:
        """Producers have lost their connections to it. They do not know what became of their batches."""
        for producer in self.producers:
            producer.is_cut_off = True

    def replace_disk(self, broker: SimulatedBroker) -> None:
        """The broker has another disk from now on, and its process ends. The calls are counted on."""
        self.reach("a broker came back with another disk")
        old, broker.files = broker.files, MemoryFiles(seed=broker.files._seed)
        broker.is_up = False
        broker.disks += 1
        broker.files.steps = old.steps
        if broker is self.victim and self._crash_call is not None:
            broker.files.crash_at(self._crash_call)
        self.metadata.lose(broker.broker_id)
        self.cut_off(broker)
        self.ledger.begins_anew(broker.broker_id, 0)

    def lose_power(self, brokers: list[SimulatedBroker], rng: Random) -> None:
        """The machines of these brokers stop where they are."""
        doing = self.victim.doing
        self._note_loss()
        self._crash_call = None
        for broker in brokers:
            broker.is_up = False
            self.cut_off(broker)
        if len(brokers) > 1:
            self.reach("all brokers lost their power at once")
        for damage in Damage:
            self._examine(self.victim, self.victim.files.after_crash(damage, rng))
        for broker in brokers:
            damage = rng.choice(list(Damage))
            self.note(f"broker {broker.broker_id} loses power in {doing}: {damage.name}")
            broker.files = broker.files.after_crash(damage, rng)
            self.end_before = None
            if rng.random() < 0.7:
                self.metadata.lose(broker.broker_id)

    def _note_loss(self) -> None:
        self.reach(f"{self.victim.doing or 'nothing'} was interrupted")
        replica = self.victim.replica
        if replica is not None:
            self.reach("a leader lost its power" if replica.is_led else "a follower lost its power")
            if replica.log.flushed_offset < replica.log.end_offset:
                self.end_before = replica.log.end_offset

    def _examine(self, broker: SimulatedBroker, files: MemoryFiles) -> None:
        """What a start would find, without taking part in anything."""
        stand_in = SimulatedBroker(self, broker.broker_id, files)
        stand_in.disks = broker.disks
        stand_in.open()

    def bring_back(self, broker: SimulatedBroker, rng: Random) -> None:
        """Start it, and perhaps lose its power once more before it is there."""
        if rng.random() < 0.2:
            undisturbed = SimulatedBroker(self, broker.broker_id, broker.files.copy())
            undisturbed.disks = broker.disks
            undisturbed.open()
            if steps := undisturbed.files.steps:
                broker.files.crash_at(rng.randint(1, steps))
                try:
                    broker.open()
                except Crashed:
                    self.reach("power was lost again before a broker was back")
                    broker.files = broker.files.after_crash(rng.choice(list(Damage)), rng)
        broker.start()

    # The end

    def settle(self) -> Partition | None:
        """Without faults all brokers come to have everything; the leader."""
        for _ in range(ROUNDS):
            self.now_ms += 1100
            for broker in self.brokers:
                if not self.metadata.is_alive(broker.broker_id):
                    broker.register()
            for broker in self.brokers:
                broker.learn_all()
            leader = next((broker for broker in self.brokers if broker.led is not None), None)
            if leader is not None and leader.led is not None:
                self._go_on(leader, leader.led)
            self.after_step()
            if self.is_broken:
                return None
            if self._waits_for_a_lost_disk:
                self.reach("a partition waited for a disk that was lost")
                return None
            if leader is not None and leader.led is not None and self._is_settled(leader.led):
                return leader.led
        self.ledger.problem(f"not settled: {self.metadata.partition}, {[self._end(b) for b in self.brokers]}")
        return None

    def _go_on(self, leader: SimulatedBroker, led: Partition) -> None:
        for producer in self.producers:
            if producer.is_cut_off or producer.leader_epoch < led.leader_epoch:
                producer.resend(led, self.now_ms)
        leader.end_turn()
        leader.flush()
        for broker in self.brokers:
            if broker is not leader:
                for _ in range(3):
                    broker.flush()
                    broker.ask()
                    if broker.asked is not None:
                        broker.take()
        leader.propose()

    def _is_settled(self, leader: Partition) -> bool:
        end = leader.log.end_offset
        return (
            len(self.metadata.partition.isr) == len(self.brokers)
            and not any(broker.has_work for broker in self.brokers)
            and all(self._end(broker) == (end, end) for broker in self.brokers)
            and not any(producer.in_flight for producer in self.producers)
        )

    @property
    def _waits_for_a_lost_disk(self) -> bool:
        """A broker got another disk, and before the cluster heard of that, it had become the only one with everything:
        an operator decides what becomes of the partition."""
        brokers = self.metadata.image.brokers
        return self.metadata.partition.leader < 0 and any(
            broker.is_alive and not broker.is_usable for broker in brokers.values()
        )

    def _end(self, broker: SimulatedBroker) -> tuple[int, int] | None:
        """Where its log ends, and its high watermark."""
        replica = broker.replica
        return None if replica is None else (replica.log.end_offset, replica.high_watermark)
