"""The world of one schedule: brokers, a metadata log, a network, clients and faults, all decided by a seed."""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from penstock.machines.cluster_records import NO_LEADER
from tools.simulate.outcome import Outcome
from tools.simulate.replication.faults import FAULTY_MS, Faults
from tools.simulate.replication.ledger import Ledger
from tools.simulate.replication.metadata import Metadata
from tools.simulate.replication.node import Node

HEALING_MS: Final = 6000
CHECK_EVERY_MS: Final = 60


def simulate(seed: int, *, told: bool = False) -> Outcome:
    """Run one schedule; `told` for its transcript."""
    return World(seed, told=told).run()


class World:
    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.chance_of = draw = self.random.random
        self.now = 0
        self.problems: list[str] = []
        self.states: Counter[str] = Counter()
        self.told: list[str] | None = [] if told else None
        self.steps = 0
        self.is_healing = self.is_over = False
        self._count = 0
        self._events: list[tuple[int, int, Callable[..., None], Node | None, int, tuple[Any, ...]]] = []

        # What kind of schedule it is.
        self.loss = draw() * 0.1 if draw() < 0.7 else 0.0
        self.late = draw() * 0.15
        self.repeats = draw() < 0.5
        self.metadata_delay = self.random.choice((5, 15, 60))
        self.slow_flush = draw() < 0.3
        self.min_isr = self.random.choice((1, 2, 2, 2, 3))
        self.keeps_two = self.min_isr > 1 and draw() < 0.6
        """At least two replicas are always needed, so that one disk may be lost."""
        self.is_unsynced = seed % 16 == 7
        """What is written counts, flushed or not (penstock.flush=os): a machine may lose its power, one at a time."""
        if self.is_unsynced:
            self.min_isr, self.keeps_two = max(2, self.min_isr), True
        self.partitions = 1 if draw() < 0.7 else 2
        self.cuts: set[tuple[int, int]] = set()

        brokers = 3 if draw() < 0.75 else self.random.choice((4, 5))
        self.nodes: dict[int, Node] = {broker_id: Node(self, broker_id) for broker_id in range(1, brokers + 1)}
        self.ledger = Ledger(self)
        self.metadata = Metadata(self)
        self.faults = Faults(self)

    def run(self) -> Outcome:
        try:
            for node in self.nodes.values():
                node.start()
            self.metadata.reconcile()
            self.faults.begin()
            self._run_until(FAULTY_MS)
            if not self.is_over:
                self._heal()
                self._run_until(FAULTY_MS + HEALING_MS)
        except Exception as error:
            # Of production or of the simulation: in either case this seed shows it.
            self.problem(f"{type(error).__name__}: {error}")
        if not self.is_over:
            self.problem(f"not in sync again after {HEALING_MS} ms: {self._unhealthy()}")
        schedule = self.random.getrandbits(60)
        return Outcome(
            self.seed, self.problems, self.states, self.told or [], self.steps, self.now / 1000, self.metadata.entries,
            schedule,
        )  # fmt: skip

    # Telling

    def tell(self, text: str) -> None:
        if self.told is not None:
            self.told.append(f"{self.now:5} {text}")

    def problem(self, text: str) -> None:
        self.problems.append(text)
        self.is_over = True
        self.tell(f"PROBLEM {text}")

    def reach(self, state: str) -> None:
        self.states[state] += 1
        if self.told is not None:
            self.told.append(f"{self.now:5} ({state})")

    # Time

    def chance(self, probability: float) -> bool:
        return self.chance_of() < probability

    def after(self, delay: int, node: Node | None, act: Callable[..., None], *arguments: Any) -> None:
        """What a broker is to do later; a crash forgets it, a pause delays it."""
        self._count += 1
        incarnation = node.incarnation if node is not None else 0
        heappush(self._events, (self.now + delay, self._count, act, node, incarnation, arguments))

    def _run_until(self, end: int) -> None:
        events = self._events
        while events and not self.is_over and events[0][0] <= end:
            at, _, act, node, incarnation, arguments = heappop(events)
            self.now = at
            if node is not None:
                if node.incarnation != incarnation:
                    continue
                if node.paused_until > at:
                    self._count += 1
                    heappush(events, (node.paused_until + 1, self._count, act, node, incarnation, arguments))
                    continue
            self.steps += 1
            act(*arguments)
        if not self.is_over:
            self.now = max(self.now, end)

    def delay(self) -> int:
        """Of a message."""
        if not self.is_healing and self.chance_of() < self.late:
            return int(self.chance_of() * 300)
        return 1 + int(self.chance_of() * 6)

    def flush_delay(self) -> int:
        if self.slow_flush and not self.is_healing and self.chance_of() < 0.2:
            return int(self.chance_of() * 200)
        return 1 + int(self.chance_of() * 5)

    def fetch_pause(self, node: Node, *, full: bool) -> int:
        if node.slow_until > self.now:
            return int(self.chance_of() * 200)
        return 2 if full else 4 + int(self.chance_of() * 30)

    # The network

    def is_lost(self, more: float = 0.0) -> bool:
        return not self.is_healing and self.chance_of() < self.loss + more

    def send(self, sender: Node, receiver: Node, act: Callable[..., None], *arguments: Any) -> None:
        """A message between brokers is lost, late, or comes twice. `act` gets the receiver first."""
        if not self.is_healing:
            if self.is_lost() or (sender.id, receiver.id) in self.cuts:
                return
            if self.is_lost():
                self.after(self.delay(), None, self._arrive, receiver, act, arguments)
        self.after(self.delay(), None, self._arrive, receiver, act, arguments)

    def _arrive(self, receiver: Node, act: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not receiver.is_up:
            return
        if receiver.paused_until > self.now:
            self.after(receiver.paused_until - self.now + 1, receiver, act, receiver, *arguments)
        else:
            act(receiver, *arguments)

    # After the faults

    def _heal(self) -> None:
        """All brokers come back, the network and the controller work again."""
        self.tell("the faults are over")
        self.is_healing = True
        self.cuts.clear()
        self.metadata.zombie = None
        for node in self.nodes.values():
            node.slow_until = node.deaf_until = 0
            node.paused_until = min(node.paused_until, self.now)
            self.faults.restart(node)
            self.metadata.rejoin(node)
        self.metadata.elect_controller()
        self._check()

    def _check(self) -> None:
        self.metadata.reconcile_later()
        for node in self.nodes.values():
            if node.index < self.metadata.entries:
                self.metadata.read_later(node)
        if self._unhealthy():
            self.after(CHECK_EVERY_MS, None, self._check)
        else:
            self.is_over = True
            self.ledger.check_end()

    def _unhealthy(self) -> str:
        """Why the partitions are not whole again."""
        partitions = self.metadata.view.partitions
        if not partitions:
            return "there is no topic"
        for key, (image, _) in partitions.items():
            if image.leader == NO_LEADER or len(image.isr) < len(image.replicas):
                return f"{image}"
            leader = self.nodes[image.leader].replicas.get(key)
            if leader is None or leader.leader is None or leader.leader.leader_epoch < image.leader_epoch:
                return f"{image}, whose leader does not know"
            end = leader.log.end_offset
            for replica in [self.nodes[broker].replicas.get(key) for broker in image.replicas]:
                if replica is None or not replica.log.flushed == replica.log.end_offset == end:
                    return f"{image}, with a replica that has not all"
            if leader.high_watermark < end:
                return f"{image}, not all is committed"
        return ""
