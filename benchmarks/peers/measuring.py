"""Gives every system the same work, in turns: through Kafka's protocol or its own, by one load generator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from benchmarks import latency, wire
from benchmarks.batches import KB, MB
from benchmarks.latency import Pace
from benchmarks.peers.foreign import Foreign
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.warming import Patience, Warmth, warm
from benchmarks.processes import Server
from benchmarks.programs import ProgramError, load
from benchmarks.samples import Rounds
from benchmarks.stage import Stage
from benchmarks.systems import FLUSHED_BY_OS, System
from benchmarks.workloads import CURRENT, FILL_BATCH_BYTES, FILL_BYTES, OLD, Generation, Workload

S = TypeVar("S")
# One that cannot keep up with a rate is not waited for longer.
DRAIN_SECONDS: Final = 2.0
FOREIGN_READERS: Final = 4
# What a system is warmed up with, beside messages at a steady rate.
_KINDS: Final[Sequence[tuple[str, Mapping[str, int]]]] = (
    ("produce", {"connections": 10, "in_flight": 1}),
    ("produce", {"connections": 100, "in_flight": 1}),
    ("produce", {"connections": 10, "in_flight": 16}),
    ("produce", {"batch_bytes": 16 * KB, "connections": 4, "in_flight": 4}),
    ("fetch", {"max_bytes": 16 * KB}),
    ("fetch", {"max_bytes": 128 * KB}),
)
_WARMING_RATE: Final = 1_000


@dataclass(slots=True, frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    seconds: float
    paced_rounds: int
    paced_seconds: float
    patience: Patience
    # Of each kind of load in a cycle of warming.
    warming_seconds: float
    start_rounds: int


FULL: Final = Effort(
    rounds=3,
    seconds=1.0,
    paced_rounds=3,
    paced_seconds=3.0,
    patience=Patience(seconds=60, within=0.05, at_most_seconds=180),
    warming_seconds=0.5,
    start_rounds=3,
)
QUICK: Final = Effort(
    rounds=3,
    seconds=0.3,
    paced_rounds=1,
    paced_seconds=1.2,
    patience=Patience(seconds=4, within=0.05, at_most_seconds=8),
    warming_seconds=0.1,
    start_rounds=1,
)


@dataclass(slots=True, frozen=True)
class Paced:
    """End to end at one rate. Times are of the messages that arrived."""

    sample: latency.Sample
    missing: int


@dataclass(slots=True)
class Findings:
    """By work, then by the system's name. A system that failed at something is left out there, and named."""

    throughput: dict[Workload, dict[str, Rounds[wire.Sample]]] = field(default_factory=dict)
    paced: dict[Pace, dict[str, Rounds[Paced]]] = field(default_factory=dict)
    # How each was warmed, by the name of the system and its settings.
    warmed: dict[tuple[str, str], Warmth] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


class Comparison:
    """Systems that are running, and what is found out about them."""

    def __init__(self, stage: Stage, effort: Effort, findings: Findings) -> None:
        self._stage = stage
        self._effort = effort
        self._findings = findings
        # A slow writer would spend minutes on more than is read.
        self._shelf = Shelf(stage, int(FILL_BYTES * min(1.0, effort.seconds)))

    def warm_up(self, acks: int, systems: Sequence[System] = ()) -> None:
        """What is compiled while it runs is compiled before it is measured."""

        def warm_one(system: System, server: Server) -> None:
            topic, messages = self._shelf.topic(system, server, FILL_BATCH_BYTES)
            cycle = partial(self._warm_once, acks, topic, messages, system, server)
            settings = f"{settings_of(system)}; acks={'all' if acks == -1 else acks}"
            self._findings.warmed[system.name, settings] = warm(cycle, self._effort.patience, monotonic)

        self._take_turns("warming up", warm_one, rounds=1, systems=systems)

    def measure(self, workloads: Sequence[Workload], paces: Sequence[Pace], systems: Sequence[System] = ()) -> None:
        """All systems, or some of them. Those with a protocol of their own have no old versions of Kafka's."""
        for workload in workloads:
            work = partial(self._produce if workload.mode == "produce" else self._fetch, workload)
            able = self._able(systems, workload.generation)
            self._findings.throughput[workload] = self._take_turns(
                workload.name, work, rounds=self._effort.rounds, systems=able
            )
        for pace in paces:
            able = self._able(systems, pace.generation)
            self._findings.paced[pace] = self._take_turns(
                pace.name, partial(self._keep_pace, pace), rounds=self._effort.paced_rounds, systems=able
            )

    def close(self) -> None:
        """Free the disk of what was read."""
        self._shelf.clear()

    def _able(self, systems: Sequence[System], generation: Generation) -> list[System]:
        speakers = systems or list(self._stage.servers)
        return [each for each in speakers if generation == CURRENT or not isinstance(each, Foreign)]

    def _take_turns(
        self, what: str, work: Callable[[System, Server], S], *, rounds: int, systems: Sequence[System]
    ) -> dict[str, Rounds[S]]:
        taking_part = [each for each in self._stage.servers.items() if not systems or each[0] in systems]
        found: dict[str, list[S]] = {system.name: [] for system, _ in taking_part}
        for number in range(rounds):
            for system, server in taking_part if number % 2 == 0 else reversed(taking_part):
                if system.name not in found:
                    continue
                self._stage.step(f"{what}: {system.name}, round {number + 1} of {rounds}")
                try:
                    found[system.name].append(work(system, server))
                except (ProgramError, OSError) as error:
                    del found[system.name]
                    self._findings.failures.append(f"{system.name} failed at {what}: {error}.")
        return {name: Rounds(samples) for name, samples in found.items()}

    def _warm_once(self, acks: int, filled: str, messages: int, system: System, server: Server) -> list[float]:
        """CPU of a request of each kind, in every generation of versions that will be measured."""
        costs = []
        seconds = self._effort.warming_seconds
        for generation in (CURRENT,) if isinstance(system, Foreign) else (CURRENT, OLD):
            for mode, kind in _KINDS:
                options: dict[str, Any] = {**kind, **generation.options, "seconds": seconds}
                if mode == "fetch":
                    told = self._sample(system, server, mode, filled, **options, **_all_of(system, messages))
                else:
                    with self._stage.topic(system, server) as topic:
                        told = self._sample(system, server, mode, topic, acks=acks, **options)
                costs.append(told.cpu_us_per_request)
        paced = self._keep_pace(Pace(_WARMING_RATE, 0, acks), system, server, seconds=2 * seconds)
        return [*costs, paced.sample.cpu_us_per_message]

    def _produce(self, workload: Workload, system: System, server: Server) -> wire.Sample:
        with self._stage.topic(system, server) as topic:
            options = {**workload.with_versions, **workload.limits, "seconds": self._effort.seconds}
            return self._sample(system, server, "produce", topic, **options)

    def _fetch(self, workload: Workload, system: System, server: Server) -> wire.Sample:
        topic, messages = self._shelf.topic(system, server, workload.options["max_bytes"])
        options = {**workload.with_versions, "seconds": self._effort.seconds, **_all_of(system, messages)}
        return self._sample(system, server, "fetch", topic, **options)

    def _keep_pace(self, pace: Pace, system: System, server: Server, seconds: float | None = None) -> Paced:
        """For as long as all paces, unless it is said how long."""
        with self._stage.topic(system, server) as topic:
            before = server.cpu_seconds()
            told = self._load(
                system,
                server,
                "e2e",
                topic,
                rate=pace.rate,
                linger_ms=pace.linger_ms or None,
                acks=pace.acks,
                seconds=seconds or self._effort.paced_seconds,
                warmup_seconds=latency.WARMUP_SECONDS,
                **pace.generation.options,
                drain_seconds=DRAIN_SECONDS,
                buckets=True,
                spin=self._stage.cores.are_apart,
            )
            return _paced(told, server.cpu_seconds() - before, server.memory_bytes())

    def _sample(self, system: System, server: Server, mode: str, topic: str, **options: Any) -> wire.Sample:
        before = server.cpu_seconds()
        told = self._load(system, server, mode, topic, **options)
        used = server.cpu_seconds() - before
        return wire.Sample(
            told["requests"], told["bytes"], told["seconds"], used, server.memory_bytes(), told["latency"]
        )

    def _load(self, system: System, server: Server, mode: str, topic: str, **options: Any) -> dict[str, Any]:
        cores = self._stage.cores.load
        return load(mode, port=server.port, topics=[topic], cores=cores, protocol=protocol_of(system), **options)


class Shelf:
    """Topics to read from, each filled when it is first read. Some systems keep messages as they were written: for
    these there is a topic for each size of a fetch."""

    def __init__(self, stage: Stage, volume: int) -> None:
        self._stage = stage
        self._volume = volume
        self._held: dict[tuple[System, int], tuple[str, int]] = {}

    def topic(self, system: System, server: Server, fetch_bytes: int) -> tuple[str, int]:
        """Its name, and how many messages it has."""
        batch = FILL_BATCH_BYTES if not isinstance(system, Foreign) or system.has_fetch_sizes else fetch_bytes
        if (system, batch) not in self._held:
            name = f"bench-to-read-{len(self._held)}"
            system.make_topic(server, name)
            told = load(
                "produce",
                port=server.port,
                topics=[name],
                requests=self._volume // batch,
                batch_bytes=batch,
                in_flight=64 if batch < MB else 4,
                protocol=protocol_of(system),
            )
            self._held[system, batch] = name, told["messages"]
        return self._held[system, batch]

    def clear(self) -> None:
        for (system, _), (name, _) in self._held.items():
            system.drop_topic(self._stage.servers[system], name)


def protocol_of(system: System) -> str | None:
    """None is Kafka's."""
    return system.protocol if isinstance(system, Foreign) else None


def settings_of(system: System) -> str:
    """What differs from its defaults."""
    if isinstance(system, Foreign | Kafka):
        return system.settings()
    return "penstock.flush=os" if system.name == FLUSHED_BY_OS else "defaults"


def _all_of(system: System, messages: int) -> dict[str, int]:
    """Options with which a fetch goes on until its time is over."""
    if isinstance(system, Foreign):
        return {"connections": FOREIGN_READERS, "in_flight": 1, "messages": messages}
    return {"loops": 1000}


def _paced(told: Mapping[str, Any], cpu_seconds: float, memory_bytes: int) -> Paced:
    times = told["latency"]
    sample = latency.Sample(
        p50=times["p50_us"] / 1e3,
        p99=times["p99_us"] / 1e3,
        p999=times["p999_us"] / 1e3,
        max=times["max_us"] / 1e3,
        ack_p99=told["ack"]["p99_us"] / 1e3,
        cpu_us_per_message=cpu_seconds * 1e6 / max(1, told["received"]),
        memory_bytes=memory_bytes,
        buckets=[(time, count) for time, count in times["buckets"]],
        cores=cpu_seconds / told["seconds"],
    )
    return Paced(sample, told["missing"])
