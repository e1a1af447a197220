"""A program is what happens to the simulated cluster by chance: a seed decides its kind, its theme and every step."""

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final

from penstock.protocol.batch import split, stamp
from penstock.protocol.records import NewRecord, build
from tools.simulate.power.broker import SimulatedBroker
from tools.simulate.power.clients import SimulatedProducer
from tools.simulate.power.ledger import PREHISTORY
from tools.simulate.power.metadata import TOPIC, TOPIC_ID
from tools.simulate.power.world import World


class Kind(Enum):
    """What the partition's log is like."""

    PLAIN = "plain"
    HOLED = "with holes"
    """The first leader's log has holes from before it led."""
    COPIED = "compacted before it was copied"
    """The first leader's log was compacted, really, before it led."""
    COMPACTING = "compacted"
    """Every replica compacts its log now and then."""

    @property
    def is_compacted(self) -> bool:
        return self in (Kind.COPIED, Kind.COMPACTING)


KEYS: Final = [b"%d" % number for number in range(6)]
_STEPS: Final = {"produce": 14, "work": 52, "wait": 5, "depose": 2, "rejoin": 6, "kill": 1, "restart": 1, "sleep": 2,
                 "delete": 2, "roll": 2, "save": 4, "compact": 0, "replace": 1, "prefer": 1, "outrun": 1}  # fmt: skip
_THEMES: Final[list[dict[str, int]]] = [
    {},
    {"depose": 6, "prefer": 3},
    {"outrun": 5, "delete": 5, "sleep": 4},
    {"kill": 3, "restart": 3, "replace": 3},
]


class Program:
    """Takes steps in a world until it is told to stop."""

    def __init__(self, world: World, kind: Kind, rng: Random, theme: int) -> None:
        self._world = world
        self._kind = kind
        self._weights = _STEPS | _THEMES[theme % len(_THEMES)]
        if kind is Kind.COMPACTING:
            self._weights["compact"] = 8
        self._asleep: dict[int, int] = {}
        self.rng = rng

    def begin(self) -> None:
        """Three brokers start, and a topic is created. The first leader has a log from before, unless it is plain."""
        world = self._world
        for broker in world.brokers:
            if not broker.is_up:
                broker.start()
        world.metadata.create_topic(world.configs)
        if self._kind is not Kind.PLAIN:
            self._write_prehistory(world.brokers[0])
        for broker in world.brokers:
            broker.learn_all()
            world.after_step()

    def _write_prehistory(self, broker: SimulatedBroker) -> None:
        rng, world = self.rng, self._world
        log = broker.directory.log(TOPIC, 0, world.settings.log, identity=TOPIC_ID)
        is_holed = self._kind is Kind.HOLED
        number = 0
        broker.doing = "a copy"
        for _ in range(rng.randint(4, 9)):
            count = rng.choice([1, 2, 3])
            records = [
                NewRecord(b"%d %d" % (PREHISTORY, number + i), rng.choice(KEYS), timestamp=world.now_ms)
                for i in range(count)
            ]
            batch = build(records, producer_id=PREHISTORY, producer_epoch=0, base_sequence=number)
            number += count
            stamp(batch, log.end_offset + (rng.choice([0, 0, 1, 5]) if is_holed else 0), 0)
            log.append_replicated(split(batch), now_ms=world.now_ms)
        log.roll_if_due(world.now_ms + log.config.segment_ms)
        broker.flush()
        broker.save_recovery_points()
        if self._kind is Kind.COPIED and broker.compact_log(log, log.end_offset):
            world.reach("a log was compacted before it was copied")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self._world.after_step()
            if self._world.is_broken:
                return

    def step(self) -> None:
        world, rng = self._world, self.rng
        world.now_ms += rng.choice([1, 10, 100])
        name = rng.choices(list(self._weights), list(self._weights.values()))[0]
        step: Callable[[], None] = getattr(self, f"_{name}")
        step()

    def _awake(self) -> list[SimulatedBroker]:
        self._asleep = {number: left - 1 for number, left in self._asleep.items() if left > 0}
        return [broker for broker in self._world.brokers if broker.is_up and broker.broker_id not in self._asleep]

    def _leader(self) -> SimulatedBroker | None:
        """A broker that leads, or believes so."""
        leaders = [broker for broker in self._world.brokers if broker.led is not None]
        return self.rng.choice(leaders) if leaders else None

    # The steps

    def _produce(self) -> None:
        leader, rng = self._leader(), self.rng
        if leader is None or leader.led is None:
            return
        for _ in range(rng.choice([1, 1, 3])):
            producer: SimulatedProducer = rng.choice(self._world.producers)
            keys = rng.choices(KEYS, k=rng.choice([1, 1, 2, 4]))
            producer.send(leader.led, keys, rng.choice([0, 20, 120]), self._world.now_ms)
        self._world.note(f"producers send to broker {leader.broker_id}")
        leader.end_turn()

    def _work(self) -> None:
        for _ in range(self.rng.choice([1, 3, 6])):
            if awake := self._awake():
                broker = self.rng.choice(awake)
                broker.work(self.rng)
                self._world.after_step()

    def _wait(self) -> None:
        self._world.now_ms += self.rng.choice([500, 2000, 9000])

    def _depose(self) -> None:
        """The leader's session ends; the leader does not hear of it at once."""
        leader = self._world.metadata.partition.leader
        if leader >= 0:
            self._world.note(f"the session of broker {leader} ends")
            self._world.metadata.lose(leader)

    def _rejoin(self) -> None:
        world = self._world
        for broker in self._awake():
            if not world.metadata.is_alive(broker.broker_id):
                world.note(f"broker {broker.broker_id} registers again")
                broker.register()

    def _kill(self) -> None:
        broker = self.rng.choice(self._awake() or [None])
        if broker is not None:
            self._world.note(f"broker {broker.broker_id} is killed, and starts")
            broker.kill()
            self._world.cut_off(broker)
            broker.start()

    def _restart(self) -> None:
        broker = self.rng.choice(self._awake() or [None])
        if broker is not None:
            self._world.note(f"broker {broker.broker_id} stops, and starts")
            broker.stop()
            self._world.cut_off(broker)
            broker.start()

    def _sleep(self) -> None:
        self._asleep[self.rng.choice(self._world.brokers).broker_id] = self.rng.choice([5, 20, 40])

    def _delete(self) -> None:
        leader, rng = self._leader(), self.rng
        if leader is None or leader.led is None:
            return
        start, end = leader.led.log.start_offset, leader.led.high_watermark
        if start < end:
            offset = rng.choice([end, rng.randint(start, end), max(start, end - 1)])
            self._world.deletes(leader, offset)
            leader.delete_before(offset)

    def _roll(self) -> None:
        if awake := self._awake():
            self.rng.choice(awake).roll()

    def _save(self) -> None:
        if awake := self._awake():
            broker = self.rng.choice(awake)
            self.rng.choice([broker.save_high_watermark, broker.save_recovery_points])()

    def _compact(self) -> None:
        if awake := self._awake():
            broker = self.rng.choice(awake)
            broker.roll()
            broker.flush()
            broker.save_recovery_points()
            if broker.compact():
                self._world.reach("a replica compacted its log")

    def _replace(self) -> None:
        """A broker comes back with another disk, if others have everything."""
        world = self._world
        broker = self.rng.choice(self._awake() or [None])
        if broker is not None and not world.metadata.is_needed(broker.broker_id):
            world.note(f"broker {broker.broker_id} gets another disk")
            world.replace_disk(broker)
            broker.start()

    def _prefer(self) -> None:
        self._world.metadata.prefer()

    def _outrun(self) -> None:
        """A follower is away, and the others go on without it and delete what it lacks."""
        world, leader = self._world, self._leader()
        if leader is None or leader.led is None:
            return
        away = self.rng.choice([broker for broker in world.brokers if broker is not leader])
        if away.is_up:
            world.note(f"broker {away.broker_id} falls behind")
            self._asleep[away.broker_id] = 30
            world.metadata.lose(away.broker_id)
            leader.learn_all()
