"""A world is one schedule: brokers, clients and faults, all decided by a seed, and what was seen of them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, Literal
from unittest.mock import patch

from penstock.broker.cluster import controlling
from penstock.broker.config.rules import TableRules
from penstock.broker.config.typed import BrokerConfig
from penstock.machines.cluster_records import NO_LEADER
from penstock.machines.config_changes import ConfigChange, ConfigOperation
from penstock.machines.controller import TopicDefaults
from penstock.machines.decisions import Refused
from penstock.metadata.memory import SharedMetadata
from penstock.metadata.store import StoreError
from tools.simulate.controller.ledger import Asked, Ledger
from tools.simulate.controller.node import Node
from tools.simulate.loop import Owner, SimulatedLoop
from tools.simulate.outcome import Outcome

SESSION_SECONDS: Final = 6.0
SETTLE_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 8.0
MAX_TOPICS: Final = 12

STATES: Final = (
    "another broker became the controller",
    "the same broker became the controller again",
    "two brokers believed to be the controller at once",
    "a former controller was fenced",
    "a snapshot of a former controller was refused",
    "the outcome of an append was unknown, and it was done",
    "the outcome of an append was unknown, and it was not done",
    "a lost answer was found out",
    "a lost request was sent again",
    "an entry arrived after its writer had died",
    "a duplicate of an append was refused",
    "the store refused an entry",
    "a snapshot had replaced what a broker was to read",
    "contact was doubtful",
    "a session was lost, and the broker registered again",
    "a session was lost at the start",
    "a registration replaced another of a session that went on",
    "a broker was paused for longer than its session",
    "a broker that believed to be the controller was paused for longer than its session",
    "a broker crashed at a request to the store",
    "a broker crashed while it started",
    "a broker was relieved before it stopped",
    "a broker stayed away",
    "a wake-up came without a cause",
    "a client was told that the outcome is unknown",
    "a client was told that the controller is another",
    "decisions shared an entry",
    "a decision took several entries",
    "a partition waited for its broker",
)
"""What a run of many schedules must have come through."""

Loss = Literal["request", "answer", "no room", "duplicate", None]


_rules = TableRules(BrokerConfig({}))


def simulate(seed: int, *, told: bool = False) -> Outcome:
    """Run one schedule; `told` for its transcript."""
    world = World(seed, told=told)
    with patch.multiple(
        controlling, SNAPSHOT_EVERY_ENTRIES=world.snapshot_every, DECIDED_AT_ONCE=2, GATHERED_COMMANDS=6
    ):
        return world.run()


class World:
    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.random = Random(seed)
        draw = self.random.random
        self.seed = seed
        self.session_seconds = SESSION_SECONDS
        self.rules = _rules
        self.problems: list[str] = []
        self.states: Counter[str] = Counter()
        self.transcript: list[str] = []
        self._is_told = told
        self.loop = SimulatedLoop(self.random, self.problem)
        self.nodes: dict[int, Node] = {}
        self.leaders: dict[int, Node] = {}
        self.ledger = Ledger(self)
        self.shared = SharedMetadata(
            max_entry_bytes=self.random.choice([300, 2000, 256 * 1024]), cluster_id="simulated", secret=bytes(32)
        )
        self.snapshot_every = self.random.choice([2, 4, 8, 30])
        self._owners = 0
        self._topics = 0
        self._topic_names: list[tuple[str, bytes]] = []
        self._brokers = self.random.choice([3, 3, 4, 5])
        self._faults_left = 3 + int(draw() * (14 if draw() < 0.9 else 60))
        self._fault_gap = self.random.choice([20, 60, 150])
        self._is_calm = False
        self.is_over = False
        # How often a request meets each fault.
        self._crash_share = self.random.choice([0.0, 0.003, 0.01])
        self._late_share = self.random.choice([0.0, 0.1, 0.4])
        self._loss_share = self.random.choice([0.0, 0.05, 0.2])
        self._spurious_share = self.random.choice([0.0, 0.05])
        self._slow_share = self.random.choice([0.0, 0.1])
        self._stays_away = int(draw() * self._brokers) if draw() < 0.25 else None

    # What is seen

    def problem(self, text: str) -> None:
        self.problems.append(text)
        self.note(None, f"PROBLEM: {text}")
        self.loop.is_stopping = True

    def reach(self, state: str) -> None:
        self.states[state] += 1

    def note(self, node: Node | None, text: str) -> None:
        if self._is_told:
            self.transcript.append(
                f"{self.loop.time():.3f} {self.loop.steps} {node.owner.name if node else '-'}: {text}"
            )

    def new_owner(self, name: str, check: Callable[[], None] | None = None) -> Owner:
        self._owners += 1
        return Owner(name, self._owners, check)

    def believer(self) -> Node | None:
        """A broker that believes to be the controller."""
        found = [node for node in self.nodes.values() if node.believes and not node.is_dead]
        return self.random.choice(found) if found else None

    # What a request meets

    def request_fault(self, name: str) -> tuple[float, Literal["before", "after", None]]:
        """How late it is, and what happens to its broker."""
        if self._is_calm:
            return 0.0, None
        drawn = self.random.random()
        fault: Literal["before", "after", None] = None
        if drawn < self._crash_share:
            fault = "before" if drawn < self._crash_share / 2 else "after"
        return self.short_delay(), fault

    def short_delay(self) -> float:
        if self._is_calm or self.random.random() >= self._late_share:
            return 0.0
        return self.random.choice([0.001, 0.003, 0.01, 0.05, 0.3, 1.5])

    def loss(self) -> Loss:
        if self._is_calm or self.random.random() >= self._loss_share:
            return None
        losses: list[Loss] = ["request", "answer", "answer", "no room", "duplicate"]
        return self.random.choice(losses)

    def outage(self) -> float:
        return self.random.choice([0.01, 0.5, 2.0, 4.5, 7.0, 9.0])

    def spurious(self) -> bool:
        return not self._is_calm and self.random.random() < self._spurious_share

    def slow_following(self) -> float:
        if self._is_calm or self.random.random() >= self._slow_share:
            return 0.0
        return self.random.choice([0.001, 0.02, 0.5, 2.0])

    def strike(self, node: Node, when: str) -> None:
        """A request is the moment of a fault."""
        if node.is_dead or self._is_calm:
            return
        if self.random.random() < 0.6:
            self.reach("a broker crashed at a request to the store")
            self._crash(node, when)
        elif node.running.is_set():
            self._pause(node, when)

    # Faults at any step

    def _strike_any(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if believer := self.believer():
            node = self.random.choice([node, believer])
        if not node.is_dead:
            match self.random.choice(["crash", "pause", "pause", "cut", "cut", "expire", "stop"]):
                case "crash":
                    self._crash(node, "at any step")
                case "pause" if node.running.is_set():
                    self._pause(node, "at any step")
                case "cut":
                    self.note(node, "is cut off")
                    node.store.cut()
                    self.loop.call_later(self.outage(), node.store.mend)
                case "expire" if node.store.is_open:
                    self.note(node, "loses its session unnoticed")
                    self.shared.expire(node.store.inner)
                case "stop" if node.is_up and node.running.is_set():
                    self.note(node, "stops")
                    node.stop()
                case _:
                    pass
        self._faults_left -= 1
        if self._faults_left > 0:
            self.loop.next_fault = self.loop.steps + 1 + int(self.random.expovariate(1 / self._fault_gap))

    def _crash(self, node: Node, when: str) -> None:
        self.note(node, f"crashes {when}")
        if not node.has_started:
            self.reach("a broker crashed while it started")
        node.crash()

    def _pause(self, node: Node, when: str) -> None:
        seconds = self.random.choice([0.01, 0.2, 3.0, 5.0, 6.5, 9.0, 20.0])
        self.note(node, f"is paused for {seconds} s {when}")
        if seconds > self.session_seconds:
            self.reach("a broker was paused for longer than its session")
            if node.believes:
                self.reach("a broker that believed to be the controller was paused for longer than its session")
        node.pause()
        stale = self.random.choice([0.0, 0.02, 0.5])
        self.loop.call_later(seconds, self._go_on, node, stale)

    def _go_on(self, node: Node, stale_seconds: float) -> None:
        if not node.running.is_set():
            self.note(node, "goes on")
            node.store.stale_until = self.loop.time() + stale_seconds
            node.go_on()

    def node_ended(self, node: Node) -> None:
        """Start another process in its place."""
        if self.loop.is_stopping or self.nodes.get(node.broker_id) is not node:
            return
        was_clean = node.is_stopping
        delay = 0.05 if self._is_calm else self.random.choice([0.05, 0.5, 3.0, 7.0])
        self.note(node, "has ended")
        context = self.new_owner("restart").context()
        self.loop.call_later(delay, self._start, node.broker_id, was_clean, context=context)

    def _start(self, broker_id: int, was_clean: bool) -> None:
        if self._is_calm and broker_id == self._stays_away:
            return
        if not self.is_over:
            self.nodes[broker_id] = Node(self, broker_id, was_clean=was_clean)

    # The course of a run

    def run(self) -> Outcome:
        try:
            with _silenced():
                self.loop.fault = self._strike_any
                self.loop.next_fault = 50 + int(self.random.random() * 200)
                self.loop.run(self._run())
                self._clear_away()
        except AssertionError as error:
            self.problem(f"the simulation came to a halt: {error}")
        finally:
            self.loop.close()
        return Outcome(
            self.seed,
            self.problems,
            self.states,
            self.transcript,
            self.loop.steps,
            self.loop.time(),
            len(self.ledger.log),
            self.loop.schedule,
        )

    def _clear_away(self) -> None:
        """After a problem the tasks are ended where they are."""
        left = asyncio.all_tasks(self.loop)
        if not left:
            return
        problems = self.problems[:]
        if not problems:
            problems = [f"tasks were left behind: {sorted(str(task.get_coro()) for task in left)[:3]}"]
        self.is_over = self._is_calm = True
        self.loop.fault = lambda: None
        for node in self.nodes.values():
            self.loop.release(node.owner)
        for task in left:
            task.cancel()
        self.loop.is_stopping = False
        for _ in range(20_000):
            if not asyncio.all_tasks(self.loop):
                break
            self.loop.turn()
        self.problems[:] = problems

    async def _run(self) -> None:
        for broker_id in range(self._brokers):
            self._start(broker_id, True)
        clients = [
            self.loop.create_task(self._client(number), context=self.new_owner(f"client {number}").context())
            for number in range(3)
        ]
        while self._faults_left > 0:
            await asyncio.sleep(1.0)
        await asyncio.sleep(self.random.choice([0.0, 1.0, 5.0]))
        self.note(None, "the faults stop")
        self._is_calm = True
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        if self._stays_away is not None:
            self.reach("a broker stayed away")
            node = self.nodes.pop(self._stays_away)
            self.note(node, "crashes for good")
            node.crash()
        await self._settle()
        # What was late has come by then.
        await asyncio.sleep(3.0)
        await self._settle()
        await self._last_change()
        self.ledger.check_end(list(self.nodes.values()))
        self.is_over = True
        for node in self.nodes.values():
            node.stop()
        await asyncio.gather(*(node.task for node in self.nodes.values()), return_exceptions=True)
        # Requests and watches that are on their way find the sessions ended.
        await asyncio.sleep(2 * self.session_seconds)

    async def _settle(self) -> None:
        deadline = self.loop.time() + SETTLE_SECONDS
        while (unsettled := self._unsettled()) is not None:
            if self.loop.time() > deadline:
                self.problem(f"{SETTLE_SECONDS:.0f} s after the last fault, {unsettled}")
            await asyncio.sleep(0.25)
        self.note(None, "all is settled")

    def _unsettled(self) -> str | None:
        """What is not as it should be once there are no faults."""
        nodes = list(self.nodes.values())
        for node in nodes:
            if node.store.is_cut or not node.is_up:
                return f"broker {node.broker_id} is not up"
            if node.registration.is_fenced:
                return f"broker {node.broker_id} is fenced"
            if node.cluster.index != self.shared.last:
                return f"broker {node.broker_id} is at {node.cluster.index} of {self.shared.last}"
        leaders = [node for node in nodes if node.controlling.is_controller]
        if len(leaders) != 1:
            return f"there are {len(leaders)} controllers"
        image, leader = self.ledger.images[-1], leaders[0]
        if self.shared.table.controller() != (leader.broker_id, leader.controlling.controller_epoch):
            return f"broker {leader.broker_id} is the controller, and {self.shared.table.controller()} has the lease"
        if (image.controller_id, image.controller_epoch) != self.shared.table.controller():
            return f"the image says that the controller is {image.controller_id}"
        live = {broker.broker_id: broker.broker_epoch for broker in image.live_brokers()}
        up = {node.broker_id: node.registration.broker_epoch for node in nodes}
        if live != up:
            return f"brokers {live} are alive, it is said, and {up} are"
        for topic in image.topics.values():
            for partition in topic.partitions:
                wanted = partition.replicas[0] if partition.replicas[0] in up else NO_LEADER
                if partition.leader == NO_LEADER:
                    self.reach("a partition waited for its broker")
                if partition.leader != wanted:
                    return f"{partition} of {topic.name} has the wrong leader"
        return None

    async def _last_change(self) -> None:
        node = next(node for node in self.nodes.values() if node.controlling.is_controller)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._create(node)
        while any(other.cluster.index != self.shared.last for other in self.nodes.values()):
            await asyncio.sleep(0.01)

    # Clients

    async def _client(self, number: int) -> None:
        busy: set[str] = set()
        while True:
            await asyncio.sleep(self.random.choice([0.0, 0.0, 0.01, 0.1, 0.5, 2.0]))
            node = self.believer()
            if node is None:
                await asyncio.sleep(0.2)
                continue
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._ask_something(node, number, busy)
            except (Refused, StoreError, TimeoutError):
                pass

    async def _ask_something(self, node: Node, number: int, busy: set[str]) -> None:
        # Each client has topics of its own, and asks for one change of one of them at a time.
        own = [topic for at, topic in enumerate(self._topic_names) if at % 3 == number and topic[0] not in busy]
        match self.random.choice(["create", "create", "burst", "delete", "config", "config", "ids"]):
            case "create" if len(self._topic_names) < MAX_TOPICS:
                await self._create(node)
            case "burst" if len(self._topic_names) < MAX_TOPICS:
                await asyncio.gather(*(self._create(node) for _ in range(5)), return_exceptions=True)
            case "delete" if own:
                name, topic_id = self.random.choice(own)
                self._topic_names.remove((name, topic_id))
                asked = Asked("delete", ("delete", topic_id), node, name)
                await node.ask(asked, lambda controller: controller.delete_topic(name))
            case "config" if own:
                name, _ = self.random.choice(own)
                self._topics += 1
                value = str(1_000_000 + self._topics)
                change = ConfigChange("retention.ms", ConfigOperation.SET, value)
                busy.add(name)
                asked = Asked("config", ("config", name, value), node, name)
                await node.ask(asked, lambda controller: controller.change_configs("topic", name, [change]))
                busy.discard(name)
            case "ids":
                await node.ask(Asked("ids", None, node), lambda controller: controller.allocate_producer_ids(10))
            case _:
                pass

    async def _create(self, node: Node) -> None:
        self._topics += 1
        name, topic_id = f"topic-{self._topics}", self.random.randbytes(16)
        partitions = self.random.choice([1, 2, 30])
        defaults = TopicDefaults(partitions, 1)
        await node.ask(
            Asked("create", ("create", topic_id), node, name),
            lambda controller: controller.create_topic(name, topic_id=topic_id, defaults=defaults),
        )
        self._topic_names.append((name, topic_id))


@contextmanager
def _silenced() -> Iterator[None]:
    """The log of production says in many lines what the transcript says."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
