"""A world is one schedule of whole brokers: three of them, their clients, and faults, all decided by a seed."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from penstock.broker.partitions.partition import Partition
from penstock.client.errors import ClientError
from penstock.metadata.memory import SharedMetadata
from penstock.protocol.batch import split
from penstock.storage.files.memory import Damage, MemoryFiles
from tools.simulate.brokers.clients import GroupClient, Operator, ProducerClient, ReaderClient
from tools.simulate.brokers.determinism import clearing_away, determined
from tools.simulate.brokers.ledger import TOPIC, Ledger
from tools.simulate.brokers.loop import BrokersLoop
from tools.simulate.brokers.machine import PORT, Machine, State
from tools.simulate.loop import Owner

T = TypeVar("T")

BROKERS: Final = 3
SETTLE_SECONDS: Final = 180.0

STATES: Final = (
    "a broker lost its power",
    "a broker lost its power in the middle of a write or sync",
    "a broker's process died",
    "a broker lost its disk",
    "a broker stopped in order",
    "a broker stood still for longer than its session",
    "a leader stood still for longer than its session",
    "the controller died",
    "all brokers were down at once",
    "the network was cut one way",
    "the network was cut both ways",
    "a connection was reset",
    "a broker lost contact with the metadata store",
    "a group committed",
    "min.insync.replicas was changed",
    "preferred leaders were elected",
    "records were deleted",
    "a reader passed over what had been deleted",
    "a partition had fewer in sync than acks=all needs",
    "a partition had no leader",
    "a leader of an epoch above 5",
    "a producer gave a message up",
)
"""What a run of many schedules must have come through."""

EXPECTED_ERRORS: Final = (
    # Contact with the store was taken away for longer than a session.
    "out of contact with the metadata store for a whole session: records are taken with acks=all only",
    # Its partition has another leader, or too few replicas in sync.
    "a coordinator starts over",
    # It is created with three replicas, and not all brokers are there.
    "groups have no topic",
)
"""Lines of level error that faults of this simulation cause, by their message."""


@dataclass(slots=True)
class Outcome:
    seed: int
    problems: list[str]
    states: Counter[str]
    transcript: list[str]
    steps: int
    seconds: float
    entries: int
    digest: str
    acknowledged: int


def simulate(seed: int, *, told: bool = False) -> Outcome:
    """Run one schedule. With `told` the transcript has what brokers log, too."""
    # What has gone round in circles stays in memory otherwise: tens of megabytes of each schedule.
    with clearing_away(), determined(seed):
        return World(seed, told=told).run()


class World:
    def __init__(self, seed: int, *, told: bool = False) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.problems: list[str] = []
        self.states: Counter[str] = Counter()
        self.transcript: list[str] = []
        self.is_over = self.is_calm = False
        self.told = told
        self.loop = BrokersLoop(random, self.problem)
        self.loop.crashed = self._look_at_disks
        self.loop.thread_seconds = self._thread_seconds
        self.loop.network.late_share = random.choice([0.0, 0.01, 0.1])
        self._slow_disks = random.choice([0.0, 0.05, 0.3])
        self.session_seconds = 6.0
        self.shared = SharedMetadata(cluster_id="simulated", secret=bytes(32))
        self.partitions = random.choice([1, 2, 3])
        self.pace = random.choice([0.3, 1.0, 3.0])
        self._may_lose_disk = random.random() < 0.4
        # One replica alone may hold what is acknowledged where the number is 1: then no disk may be lost.
        self.numbers_in_sync = [2, 2, 3] if self._may_lose_disk else [1, 2, 2, 3]
        self.configs = {
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "3",
            "replica.lag.time.max.ms": str(random.choice([2_000, 10_000])),
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": "5000",
        }
        self.bootstrap = ",".join(f"broker-{number}:{PORT}" for number in range(BROKERS))
        self._owners = 0
        self.machines = [Machine(self, number) for number in range(BROKERS)]
        self.ledger = Ledger(self.partitions, self.problem, self.reach)
        self._fault_gap = random.choice([0.5, 2.0, 5.0])
        self._faults_left = 2 + int(random.random() * 12)

    # What is seen

    def problem(self, text: str) -> None:
        if not self.is_over:
            self.problems.append(text)
            self.note("-", f"PROBLEM: {text}")
            self.loop.is_stopping = True

    def reach(self, state: str) -> None:
        self.states[state] += 1

    def note(self, name: str, text: str) -> None:
        if self.is_over:
            return
        self.transcript.append(f"{self.loop.time():.4f} {self.loop.steps} {name}: {text}")

    def new_owner(self, name: str, check: Callable[[], None] | None = None) -> Owner:
        self._owners += 1
        owner = Owner(name, self._owners, check)
        self.loop.owners.append(owner)
        return owner

    # Faults

    def _thread_seconds(self) -> float:
        if self.random.random() < self._slow_disks and not self.is_calm:
            return self.random.choice([0.02, 0.3, 2.0])
        return self.random.choice([0.0, 0.0002, 0.001])

    async def _strike(self) -> None:
        while self._faults_left > 0:
            await asyncio.sleep(self.random.expovariate(1 / self._fault_gap))
            self._faults_left -= 1
            # At any step, and not only where a timer ends.
            self.loop.fault = self._strike_now
            self.loop.next_fault = self.loop.steps + 1 + int(self.random.random() * 200)
            while self.loop.next_fault > self.loop.steps:
                await asyncio.sleep(0.01)

    def _strike_now(self) -> None:
        random = self.random
        machine = random.choice(self.machines)
        if random.random() < 0.3:
            machine = next((each for each in self.machines if each.controls), machine)
        kinds = ["power", "power", "write", "kill", "stop", "pause", "pause", "cut", "cut", "reset", "store"]
        match random.choice(kinds):
            case "power":
                loses_disk = self._may_lose_disk and random.random() < 0.4
                self._may_lose_disk &= not loses_disk
                self._crash(machine, loses_power=True, loses_disk=loses_disk)
            case "write" if machine.state is not State.DOWN and not machine.files._crashed:
                machine.files.crash_at(machine.files.steps + 1 + int(random.random() * 12))
            case "kill":
                self._crash(machine, loses_power=False)
            case "stop" if machine.is_up:
                self.reach("a broker stopped in order")
                self.loop.create_task(machine.stop())
            case "pause" if machine.state is not State.DOWN and not machine.is_paused:
                self._pause(machine)
            case "cut":
                self._cut(machine)
            case "reset":
                for _ in range(random.choice([1, 3])):
                    if which := self.loop.network.reset_one():
                        self.reach("a connection was reset")
                        self.note("-", f"the connection of {which} is reset")
            case "store" if machine.is_up:
                self.reach("a broker lost contact with the metadata store")
                self.note(machine.name, "loses contact with the store")
                machine.cut_store()
                self.loop.call_later(random.choice([0.5, 4.5, 7.0]), machine.mend_store)
            case _:
                pass

    def _crash(self, machine: Machine, *, loses_power: bool, loses_disk: bool = False) -> None:
        if machine.state is State.DOWN:
            self._may_lose_disk |= loses_disk
            return
        what = "loses its disk" if loses_disk else "loses its power" if loses_power else "dies"
        self.note(machine.name, what)
        self.reach("a broker lost its power" if loses_power else "a broker's process died")
        if loses_disk:
            self.reach("a broker lost its disk")
        if machine.controls:
            self.reach("the controller died")
        machine.crash(loses_power=loses_power, loses_disk=loses_disk, damage=self.random.choice(list(Damage)))

    def disk_stopped(self, machine: Machine) -> None:
        """The power went in the middle of a call of the disk."""
        self.reach("a broker lost its power in the middle of a write or sync")
        self._crash(machine, loses_power=True)

    def _look_at_disks(self) -> None:
        for machine in self.machines:
            if machine.files._crashed and machine.state is not State.DOWN:
                self.disk_stopped(machine)

    def machine_ended(self, machine: Machine) -> None:
        if all(each.state is State.DOWN for each in self.machines):
            self.reach("all brokers were down at once")
        delay = 0.1 if self.is_calm else self.random.choice([0.1, 1.0, 4.0, 9.0])
        self.loop.call_later(delay, machine.start, context=self.nature)

    def _pause(self, machine: Machine) -> None:
        seconds = self.random.choice([0.2, 3.0, 7.0, 12.0])
        self.note(machine.name, f"stands still for {seconds} s")
        if seconds > self.session_seconds and machine.is_up:
            self.reach("a broker stood still for longer than its session")
            if any(partition.is_led for partition in self._replicas(machine)):
                self.reach("a leader stood still for longer than its session")
        machine.pause()
        self.loop.call_later(seconds, self._go_on, machine, machine.owner)

    def _go_on(self, machine: Machine, owner: Owner) -> None:
        if machine.owner is owner and machine.is_paused:
            self.note(machine.name, "goes on")
            machine.go_on()

    def _cut(self, machine: Machine) -> None:
        network, random = self.loop.network, self.random
        others = [each.name for each in self.machines if each is not machine]
        chosen = random.choice([others, others[:1], others[1:], ["producer-0"]])
        ways = random.choice(["there", "back", "both"])
        self.reach("the network was cut both ways" if ways == "both" else "the network was cut one way")
        pairs = [(machine.name, other) for other in chosen if ways != "back"]
        pairs += [(other, machine.name) for other in chosen if ways != "there"]
        self.note(machine.name, f"is cut off from {chosen}: {ways}")
        for pair in pairs:
            network.cut(*pair)
        self.loop.call_later(random.choice([0.3, 3.0, 8.0, 15.0]), self._mend, pairs)

    def _mend(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self.loop.network.mend(*pair)

    # The course of a run

    def run(self) -> Outcome:
        self.nature = self.new_owner("nature").context()
        with self._listening():
            try:
                self.loop.run(self._run())
            except AssertionError as error:
                self.problem(f"the simulation came to a halt: {error!r}")
            outcome = self._outcome()
            with clearing_away():
                self._clear_away()
                del self.machines, self.loop
        return outcome

    def _outcome(self) -> Outcome:
        digest = self.loop.network.digest
        for machine in self.machines:
            for path, data in contents_of(machine.files):
                digest.update(path.encode() + hashlib.blake2b(data).digest())
        for entry in self.shared.entries:
            digest.update(entry)
        digest.update(f"{self.loop.steps} {self.loop.schedule}".encode())
        return Outcome(
            self.seed,
            self.problems[:],
            self.states,
            self.transcript,
            self.loop.steps,
            self.loop.time(),
            self.shared.last,
            digest.hexdigest(),
            self.ledger.acknowledged,
        )

    async def _run(self) -> None:
        random, clients = self.random, list[asyncio.Task[None]]()
        for machine in self.machines:
            machine.start()
        await self._until(lambda: None if all(each.is_up for each in self.machines) else "brokers do not start")
        operator = Operator(self)
        await operator.admin.create_topic(TOPIC, self.partitions, replication_factor=3)
        reader = ReaderClient(self, "reader-0")
        producers = [
            self._as_client(
                f"producer-{number}", ProducerClient(self, f"producer-{number}").run(random.choice([30, 90]))
            )
            for number in range(random.choice([1, 2, 3]))
        ]
        clients.append(self._as_client("reader-0", reader.run()))
        for number in range(random.choice([1, 2])):
            clients.append(self._as_client(f"member-{number}", GroupClient(self, f"member-{number}").run()))
        operating = self._as_client("operator", operator.run())
        watching = self.loop.create_task(self._watch())
        await self._strike()
        await asyncio.sleep(random.choice([0.0, 1.0, 8.0]))
        await self._end_faults()
        await self._end(operating)
        await self._set_number(operator)
        await asyncio.wait(producers)
        for producer in producers:
            producer.result()
        await self._until(self._unsettled)
        await self._check_end(operator, reader)
        await self._end(watching, *clients)
        await operator.admin.close()

    def _as_client(self, name: str, work: object) -> "asyncio.Task[None]":
        return self.loop.create_task(work, context=self.new_owner(name).context())  # type: ignore[arg-type]

    async def _end(self, *tasks: "asyncio.Task[None]") -> None:
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.wait(tasks)

    async def _end_faults(self) -> None:
        self.note("-", "the faults end")
        self.is_calm = True
        self.loop.network.late_share = 0.0
        self.loop.network.mend_all()
        for machine in self.machines:
            machine.files._crash_step = None
            machine.go_on()
            machine.mend_store()
            machine.start()

    async def _set_number(self, operator: Operator) -> None:
        while True:
            try:
                await operator.admin.set_configs(TOPIC, {"min.insync.replicas": "2"})
                return
            except ClientError as error:
                self.note("operator", f"tries again: {error}")
                await asyncio.sleep(1.0)

    async def _until(self, unsettled: Callable[[], str | None]) -> None:
        deadline = self.loop.time() + SETTLE_SECONDS
        while (why := unsettled()) is not None:
            if self.loop.time() > deadline:
                self.problem(f"{SETTLE_SECONDS:.0f} s after the last fault, {why}")
            await asyncio.sleep(0.25)

    def _unsettled(self) -> str | None:
        for machine in self.machines:
            if not machine.is_up or machine.broker is None:
                return f"{machine.name} is not up"
            if machine.broker.services.registration.is_fenced:
                return f"{machine.name} is fenced"
            if machine.broker.services.cluster.index != self.shared.last:
                return f"{machine.name} is at {machine.broker.services.cluster.index} of {self.shared.last}"
        if sum(machine.controls for machine in self.machines) != 1:
            return "there is not one controller"
        assert self.machines[0].broker is not None
        image = self.machines[0].broker.services.image
        for topic in image.topics.values():
            for partition in topic.partitions:
                if partition.leader < 0 or len(partition.isr) < BROKERS:
                    return f"{topic.name}-{partition.index} has leader {partition.leader} and {partition.isr} in sync"
        return None

    async def _watch(self) -> None:
        """What partitions come through."""
        while True:
            await asyncio.sleep(0.2)
            for machine in self.machines:
                if machine.broker is None or not machine.is_up or TOPIC not in machine.broker.services.image.topics:
                    continue
                for partition in machine.broker.services.image.topics[TOPIC].partitions:
                    if partition.leader < 0:
                        self.reach("a partition had no leader")
                    if len(partition.isr) < 2:
                        self.reach("a partition had fewer in sync than acks=all needs")
                    if partition.leader_epoch > 5:
                        self.reach("a leader of an epoch above 5")

    # The end

    async def _check_end(self, operator: Operator, reader: ReaderClient) -> None:
        starts = await self._ask(lambda: operator.admin.beginning_offsets(TOPIC))
        ends = await self._ask(lambda: operator.admin.end_offsets(TOPIC))
        goal = {key.partition: offset for key, offset in ends.items()}
        begin = {key.partition: offset for key, offset in starts.items()}
        # The reader that was there all along, and one that comes now, read to the end.
        last = ReaderClient(self, "reader-1")
        last.positions.update(begin)
        reading = self._as_client("reader-1", last.run())
        for each in (reader, last):
            await self._until(lambda each=each: _behind(each, begin, goal))  # type: ignore[misc]
        await self._until(lambda: self._group_is_behind(begin, goal))
        await self._end(reading)
        for index, end in goal.items():
            found = {offset: value for offset, value in last.found[index].items() if offset < end}
            if begin[index] + len(found) != end:
                self.problem(f"partition {index} has {len(found)} records from {begin[index]} to {end}")
            self.ledger.check_whole(index, begin[index], found)
        await self._ask(operator.look_at_committed)
        await self._until(self._unequal)

    def _group_is_behind(self, begin: dict[int, int], goal: dict[int, int]) -> str | None:
        for index, end in goal.items():
            if end > begin[index] and self.ledger.partitions[index].committed < end:
                return f"the group is at {self.ledger.partitions[index].committed} of {end} of partition {index}"
        return None

    async def _ask(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except ClientError as error:
                self.note("operator", f"asks again: {error}")
                await asyncio.sleep(0.5)

    def _unequal(self) -> str | None:
        """Whether the logs of all replicas are equal, byte for byte. A leader may begin before its followers, where its
        predecessor had deleted more and told it to them alone."""
        found: dict[tuple[str, int], list[Partition]] = {}
        for machine in self.machines:
            for replica in self._replicas(machine):
                found.setdefault((replica.topic, replica.index), []).append(replica)
        for replicas in found.values():
            start = max(replica.log.start_offset for replica in replicas)
            marks = {replica.high_watermark for replica in replicas}
            if len(replicas) < BROKERS or len({contents(replica, start) for replica in replicas}) > 1:
                return f"the copies of {replicas[0].name} differ from {start} on"
            if len(marks) > 1:
                return f"the copies of {replicas[0].name} have high watermarks {sorted(marks)}"
        return None

    def _replicas(self, machine: Machine) -> list[Partition]:
        return [] if machine.broker is None else list(machine.broker.services.partitions.replicas())

    def _clear_away(self) -> None:
        """End every task where it is: what this runs is seen by none."""
        self.is_over = True
        for machine in self.machines:
            machine.files._crashed = True
        self.loop.clear_away()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Lines of level error are problems."""
        handler = _Listener(self)
        loggers = [logging.getLogger("penstock"), logging.getLogger("asyncio")]
        before = [(each, each.level, each.propagate) for each in loggers]
        for each in loggers:
            each.setLevel(logging.DEBUG if self.told else logging.ERROR)
            each.propagate = False
            each.addHandler(handler)
        try:
            yield
        finally:
            for each, level, propagates in before:
                each.removeHandler(handler)
                each.setLevel(level)
                each.propagate = propagates


class _Listener(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world, message = self._world, record.getMessage()
        if world.is_over:
            return
        owner = world.loop.current_owner().name
        facts = {name: value for name, value in record.__dict__.items() if name in _FACTS}
        if record.exc_info:
            facts["exception"] = repr(record.exc_info[1])
        if record.levelno >= logging.ERROR and message not in EXPECTED_ERRORS:
            world.problem(f"{owner} logs: {message} {facts}")
        elif world.told:
            world.note(owner, f"{record.levelname.lower()} {message} {facts}")


_FACTS: Final = frozenset({"error", "partition", "reason", "peer", "epoch", "offset", "leader", "broker_id", "topic"})


def _behind(reader: ReaderClient, begin: dict[int, int], goal: dict[int, int]) -> str | None:
    for index, end in goal.items():
        if reader.positions.get(index, begin[index]) < end:
            return f"{reader.name} is at {reader.positions.get(index)} of {end} of partition {index}"
    return None


def contents(replica: Partition, start: int) -> bytes:
    """What is in a log from an offset on, byte for byte."""
    log, found, offset = replica.log, b"", start
    while offset < log.end_offset:
        located = log.locate(offset, max_bytes=1 << 30, at_least_one=True)
        assert located is not None
        with located:
            data = located.read()
        found += data
        offset = split(memoryview(data))[-1][0].next_offset
    return found


def contents_of(files: MemoryFiles, path: str = "/") -> Iterator[tuple[str, bytes]]:
    """Every file of a disk, with its bytes."""
    for name in files.list(path):
        inner = f"{path.rstrip('/')}/{name}"
        status = files.stat(inner)
        assert status is not None
        if status.is_directory:
            yield from contents_of(files, inner)
        else:
            fd = files.open(inner)
            yield inner, files.pread(fd, status.size, 0)
            files.close(fd)
