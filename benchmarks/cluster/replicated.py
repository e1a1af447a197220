"""Measures three brokers with ten thousand partitions of three replicas each: idle, under a steady load, with one
broker killed, with the controller killed, while it is away, and when it is back."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.batches import KB, MB
from benchmarks.cluster.asking import Connection, Copies, Probe, Watcher, ask_metadata
from benchmarks.cluster.brokers import Brokers, cluster_of
from benchmarks.cluster.load import PRODUCERS, Load, Told
from benchmarks.cluster.metrics import Metrics
from benchmarks.cluster.partitions import BROKERS, MAX_REQUEST_KB, Shape, fill
from benchmarks.cluster.syncs import Syncs
from benchmarks.measure import Step
from benchmarks.processes import ServerError
from benchmarks.report import Row, Table, Target
from benchmarks.scratch import CACHE, MEMORY
from penstock.protocol.schemas.topics import ElectLeadersRequest

REPLICAS: Final = 3
MIN_ISR: Final = 2
MESSAGES_A_SECOND: Final = 500
FEWEST_A_SECOND: Final = 50
SESSION_SECONDS: Final = 18.0
ELECTION_VERSION: Final = 2
PREFERRED: Final = 0
# A busy machine takes its time.
PATIENCE_SECONDS: Final = 600.0
_WATCH_SECONDS: Final = 0.1
# How long it is looked at while nothing happens.
_STEADY_SECONDS: Final = 10.0
_LOOKS: Final = "penstock_in_sync_looks_total"
_PROPOSALS: Final = "penstock_in_sync_proposals_total"
_REQUESTS: Final = "penstock_in_sync_requests_total"
_INDEX: Final = "penstock_metadata_index"
_LARGEST: Final = "largest request KB"
_CONFIGS: Final = {
    # As Kafka's own: brokers share the machine with each other, ZooKeeper and the load.
    "zookeeper.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    # It is asked for below, when it can be seen what it costs.
    "auto.leader.rebalance.enable": "false",
}


@dataclass(slots=True)
class _Reading:
    """Of every broker that runs, by its number."""

    metrics: dict[int, Metrics]
    syncs: dict[int, Syncs]
    cpu_seconds: dict[int, float]
    at: float


@dataclass(slots=True)
class Stage:
    """The cluster, and what has been found out."""

    brokers: Brokers
    shape: Shape
    step: Step
    load: Load | None = None
    rate: int = 0
    rows: list[Row] = field(default_factory=list)
    work: list[Row] = field(default_factory=list)
    memory: list[Row] = field(default_factory=list)
    # Brokers that are about to be killed.
    going: set[int] = field(default_factory=set)

    def read(self) -> _Reading:
        brokers = self.brokers
        metrics = {number: Metrics.read(brokers.metrics_ports[number]) for number in brokers.running}
        syncs = {number: brokers.syncs[number].read() for number in range(BROKERS)}
        return _Reading(metrics, syncs, brokers.cpu_seconds(), time.monotonic())

    @contextmanager
    def measured(self, what: str) -> Iterator[dict[str, float]]:
        """A step of the run, which may say seconds of its own. Brokers that are asked run all the time."""
        self.step(f"{self.shape.name}: {what}")
        traffic = self.brokers.traffic
        before = self.read()
        traffic.largest = 0
        asked, asked_bytes = traffic.requests, traffic.request_bytes
        if self.load is not None:
            self.load.mark()
        probed = next(number for number in before.metrics if number not in self.going)
        # What a scrape costs is not what is measured.
        before.cpu_seconds, before.at = self.brokers.cpu_seconds(), time.monotonic()
        told: dict[str, float] = {}
        with Probe(self.brokers.ports[probed]) as probe:
            yield told
        seconds = time.monotonic() - before.at
        used = self.brokers.cpu_seconds()
        sent = {
            "requests to ZooKeeper": float(traffic.requests - asked),
            "KB": (traffic.request_bytes - asked_bytes) / KB,
            _LARGEST: traffic.largest / KB,
        }
        loaded = self.load.ask() if self.load is not None else Told()
        after = self.read()
        cpu = [used[number] - before.cpu_seconds.get(number, 0.0) for number in used]
        turns = {
            number: metrics.longest_turn_seconds(before.metrics.get(number))
            for number, metrics in after.metrics.items()
            if number in before.metrics
        }
        self.rows.append(
            Row(
                {
                    "step": what,
                    "s": told.get("seconds", seconds),
                    "writes s": told.get("writes", ""),
                    "CPU s of a broker, most": max(cpu),
                    "all": sum(cpu),
                    "CPU % of a core, mean": 100 * sum(cpu) / len(cpu) / seconds,
                    "longest turn ms": 1000 * max(turns.values(), default=0.0),
                    "longest wait ms": 1000 * probe.longest_seconds,
                    "longest ack ms": 1000 * loaded.longest_seconds if self.load is not None else "",
                    "load average": os.getloadavg()[0],
                }
            )
        )
        self._count(what, before, after, sent)
        self.memory.append(_memory_row(what, self.brokers))

    def _count(self, what: str, before: _Reading, after: _Reading, sent: dict[str, float]) -> None:
        def grown(name: str) -> float:
            return sum(metrics.since(before.metrics.get(number), name) for number, metrics in after.metrics.items())

        syncs = [after.syncs[number].since(before.syncs[number]) for number in after.syncs]
        index = max(metrics.get(_INDEX) for metrics in after.metrics.values())
        index_before = max(metrics.get(_INDEX) for metrics in before.metrics.values())
        self.work.append(
            Row(
                {
                    "step": what,
                    **sent,
                    "log entries": index - index_before,
                    "AlterPartition": grown(_REQUESTS),
                    "partitions in them": grown(_PROPOSALS),
                    "looks": grown(_LOOKS),
                    "syncs of files": float(sum(each.files for each in syncs)),
                    "of file systems": float(sum(each.file_systems for each in syncs)),
                },
                (Target(_LARGEST, MAX_REQUEST_KB, at_most=True),),
            )
        )

    def wait_until(self, what: str, is_so: Callable[[Copies], bool]) -> float:
        """Until every broker that runs says so; returns when that was."""
        watchers = [Watcher(self.brokers.ports[number]) for number in self.brokers.running]
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            for watcher in watchers:
                while not is_so(copies := watcher.ask()):
                    if time.monotonic() > deadline:
                        raise ServerError(f"after {PATIENCE_SECONDS:.0f} s a broker waits for {what}: {copies}")
                    time.sleep(_WATCH_SECONDS)
            return time.monotonic()
        finally:
            for watcher in watchers:
                watcher.close()

    def all_led(self, without: int | None = None) -> float:
        """`without` a broker that was killed, which is said to be alive until its session ends."""
        return self.wait_until(
            "leaders", lambda copies: copies.led == self.shape.total and without not in copies.leaders
        )

    def all_whole(self) -> float:
        return self.wait_until("full in-sync replicas", lambda copies: copies.whole == self.shape.total)


def run(step: Step, shape: Shape) -> list[Table]:
    step(f"{shape.name}: starting ZooKeeper and brokers")
    within = MEMORY if os.access(MEMORY, os.W_OK) else CACHE
    with cluster_of(BROKERS, is_counted=True, configs=_CONFIGS, within=within) as brokers:
        stage = Stage(brokers, shape, step)
        stage.memory.append(_memory_row("started", brokers))
        _create(stage)
        with stage.measured("a message to each, acks=all"):
            fill(shape, stage.brokers.addresses(), PATIENCE_SECONDS)
        with stage.measured("idle"):
            time.sleep(_STEADY_SECONDS)
        topics = shape.names()
        with Load(brokers.addresses(), topics, partitions=shape.partitions, rate=MESSAGES_A_SECOND) as load:
            stage.load = load
            stage.rate = _find_rate(load, step)
            with stage.measured("under load"):
                time.sleep(_STEADY_SECONDS)
            for what in ("a broker", "the controller"):
                _kill_and_return(stage, what)
            step(f"{shape.name}: reading what was written")
            told = load.finish()
            stage.load = None
    if told.failed or told.missing or told.waiting:
        raise ServerError(f"the load has lost messages: {told}")
    return _tables(stage, told)


def _tables(stage: Stage, told: Told) -> list[Table]:
    name = stage.shape.name
    return [
        Table(
            f"Replicated, {name} × {REPLICAS}",
            f"Three brokers and three nodes of ZooKeeper, each a process, on all cores of one machine; "
            f"min.insync.replicas is {MIN_ISR}, every partition has records, and {PRODUCERS} idempotent acks=all "
            f"producers write {stage.rate} messages a second to all of them in turn, which a consumer reads. A "
            f"session lasts {SESSION_SECONDS:.0f} s: so long after a kill nothing happens. Seconds are those until "
            "every broker says "
            "so by Metadata; writes are those until all messages are acknowledged that were sent before that. CPU is "
            "that of brokers that run in the end. The longest turn is that of an event loop by its own lag metric, at "
            "most; the longest wait is that of a small question which one "
            f"broker is asked every 5 ms. Of {told.sent:,} messages {told.acknowledged:,} were acknowledged, "
            f"{told.failed:,} failed, and {told.missing:,} of those acknowledged were not read.",
            stage.rows,
        ),
        Table(
            f"What it took, {name} × {REPLICAS}",
            "All brokers together, in the steps above: what they sent to ZooKeeper, whose own limit is 1 MB; entries "
            "of the metadata log; what they asked the controller for, and how often a partition was looked at for "
            "that; syncs, one by one and of the whole file system.",
            stage.work,
        ),
        Table(
            f"Memory of a replicated broker, {name} × {REPLICAS}",
            "Resident MB of each broker after each step.",
            stage.memory,
        ),
    ]


def _create(stage: Stage) -> None:
    shape, brokers = stage.shape, stage.brokers
    told = ask_metadata(brokers.ports[0])
    asked = next(number for number in brokers.running if number != told.controller_id)
    patience = {"socket.timeout.ms": 300_000, "log_level": 0}
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{brokers.ports[asked]}", **patience})
    with stage.measured("created"):
        topics = [
            NewTopic(name, shape.partitions, REPLICAS, config={"min.insync.replicas": str(MIN_ISR)})
            for name in shape.names()
        ]
        for created in admin.create_topics(topics, request_timeout=PATIENCE_SECONDS).values():
            created.result(PATIENCE_SECONDS)
        stage.all_led()


def _find_rate(load: Load, step: Step) -> int:
    """Wait until messages are acknowledged as they come. A machine that is busy with other things gets fewer."""
    rate, before = MESSAGES_A_SECOND, 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        step(f"the load, {rate} messages a second")
        time.sleep(_STEADY_SECONDS)
        told = load.ask()
        if told.failed or time.monotonic() > deadline:
            raise ServerError(f"the load does not get going: {told}")
        if told.read and told.waiting <= rate:
            return rate
        if told.waiting > max(before, 2 * rate) and rate > FEWEST_A_SECOND:
            rate //= 2
            load.set_rate(rate)
        before = told.waiting


def _kill_and_return(stage: Stage, what: str) -> None:
    brokers, load = stage.brokers, stage.load
    assert load is not None
    controller = ask_metadata(brokers.ports[0]).controller_id
    victim = controller if what == "the controller" else next(each for each in brokers.running if each != controller)
    stage.going.add(victim)
    with stage.measured(f"{what} killed") as took:
        killed = time.monotonic()
        brokers.kill(victim)
        took["seconds"] = stage.all_led(without=victim) - killed
        took["writes"] = _writes_are_back(load) - killed
    with stage.measured(f"{what} away"):
        time.sleep(_STEADY_SECONDS)
    with stage.measured(f"{what} is back"):
        brokers.start(victim)
        stage.all_whole()
    stage.going.discard(victim)
    with stage.measured(f"{what} leads again"):
        _elect_preferred(brokers)
        stage.wait_until("preferred leaders", _is_shared_out)
    with stage.measured(f"{what} is back for a while"):
        time.sleep(_STEADY_SECONDS)


def _writes_are_back(load: Load) -> float:
    """Until all that was sent so far is acknowledged; returns when that was."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    sent = load.ask().sent
    while (told := load.ask()).oldest < sent:
        if time.monotonic() > deadline:
            raise ServerError(f"messages are not acknowledged: {told}")
        time.sleep(_WATCH_SECONDS)
    return time.monotonic()


def _elect_preferred(brokers: Brokers) -> None:
    timeout_ms = int(PATIENCE_SECONDS * 1000)
    with Connection(brokers.ports[min(brokers.running)]) as connection:
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=timeout_ms)
        response = connection.ask(request, ELECTION_VERSION)
    if response.error_code:
        raise ServerError(f"preferred leaders were not elected: error {response.error_code}")


def _is_shared_out(copies: Copies) -> bool:
    return (
        max(copies.leaders.values()) - min(copies.leaders.values()) <= copies.leaders.total() // 10
        and len(copies.leaders) == BROKERS
    )


def _memory_row(what: str, brokers: Brokers) -> Row:
    found = {number: server.memory_bytes() / MB for number, server in brokers.running.items()}
    return Row({"after": what, **{f"broker {number}": found.get(number, "") for number in range(BROKERS)}})
