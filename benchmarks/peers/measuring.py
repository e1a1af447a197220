"""The same work for every system, in turns: through Kafka's protocol or its own, by the same load generator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from benchmarks import latency, wire
from benchmarks.batches import KB, MB
from benchmarks.latency import Pace
from benchmarks.peers.foreign import Foreign
from benchmarks.processes import Server
from benchmarks.programs import ProgramError, load
from benchmarks.samples import Rounds
from benchmarks.stage import Stage
from benchmarks.systems import System
from benchmarks.workloads import FILL_BATCH_BYTES, FILL_BYTES, Workload

S = TypeVar("S")
# One that cannot keep up with a rate is not waited for longer.
DRAIN_SECONDS: Final = 2.0
FOREIGN_READERS: Final = 4
# One that gets no faster than this, so often in a row, is warm.
_FASTER, _IN_VAIN = 1.05, 2


@dataclass(slots=True, frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    seconds: float
    paced_rounds: int
    paced_seconds: float
    # Of what a system is warmed up with, and how often at most.
    warmup_seconds: float
    warmups: int
    start_rounds: int


FULL: Final = Effort(
    rounds=3, seconds=1.0, paced_rounds=3, paced_seconds=3.0, warmup_seconds=2.0, warmups=10, start_rounds=3
)
QUICK: Final = Effort(
    rounds=3, seconds=0.3, paced_rounds=1, paced_seconds=1.2, warmup_seconds=0.5, warmups=5, start_rounds=1
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
    failures: list[str] = field(default_factory=list)


class Comparison:
    """Systems that are running, and what is found out about them."""

    def __init__(self, stage: Stage, effort: Effort, findings: Findings) -> None:
        self._stage = stage
        self._effort = effort
        self._findings = findings
        # A slow writer would spend minutes on more than is read.
        self._shelf = Shelf(stage, int(FILL_BYTES * min(1.0, effort.seconds)))

    def measure(self, workloads: Sequence[Workload], paces: Sequence[Pace]) -> None:
        effort = self._effort
        acks = workloads[0].options["acks"] if workloads else 1
        self._take_turns("warming up", partial(self._warm_up, acks), rounds=1)
        for workload in workloads:
            work = partial(self._produce if workload.mode == "produce" else self._fetch, workload)
            self._findings.throughput[workload] = self._take_turns(workload.name, work, rounds=effort.rounds)
        self._shelf.clear()
        for pace in paces:
            self._findings.paced[pace] = self._take_turns(
                pace.name, partial(self._keep_pace, pace), rounds=effort.paced_rounds
            )

    def _take_turns(self, what: str, work: Callable[[System, Server], S], *, rounds: int) -> dict[str, Rounds[S]]:
        found: dict[str, list[S]] = {system.name: [] for system in self._stage.servers}
        for number in range(rounds):
            order = list(self._stage.servers.items())
            for system, server in order if number % 2 == 0 else reversed(order):
                if system.name not in found:
                    continue
                self._stage.step(f"{what}: {system.name}, round {number + 1} of {rounds}")
                try:
                    found[system.name].append(work(system, server))
                except (ProgramError, OSError) as error:
                    del found[system.name]
                    self._findings.failures.append(f"{system.name} failed at {what}: {error}.")
        return {name: Rounds(samples) for name, samples in found.items()}

    def _warm_up(self, acks: int, system: System, server: Server) -> None:
        """What is compiled while it runs is compiled before it is measured: until it gets no faster."""
        seconds = self._effort.warmup_seconds
        kinds = ({"batch_bytes": 16 * KB, "connections": 4, "in_flight": 4}, {"connections": 10, "in_flight": 16})
        for kind in kinds:
            best, vain = 0.0, 0
            for _ in range(self._effort.warmups):
                with self._stage.topic(system, server) as topic:
                    told = self._load(system, server, "produce", topic, acks=acks, seconds=seconds, **kind)
                    reading = {"max_bytes": 16 * KB, "seconds": seconds / 2, **_all_of(system, told["messages"])}
                    self._load(system, server, "fetch", topic, **reading)
                rate = told["requests"] / told["seconds"]
                vain = 0 if rate > best * _FASTER else vain + 1
                best = max(best, rate)
                if vain == _IN_VAIN:
                    break
        for rate in latency.RATES:
            self._keep_pace(latency.Pace(rate, 0, acks), system, server)

    def _produce(self, workload: Workload, system: System, server: Server) -> wire.Sample:
        with self._stage.topic(system, server) as topic:
            options = {**workload.options, **workload.limits, "seconds": self._effort.seconds}
            return self._sample(system, server, "produce", topic, **options)

    def _fetch(self, workload: Workload, system: System, server: Server) -> wire.Sample:
        topic, messages = self._shelf.topic(system, server, workload.options["max_bytes"])
        options = {**workload.options, "seconds": self._effort.seconds, **_all_of(system, messages)}
        return self._sample(system, server, "fetch", topic, **options)

    def _keep_pace(self, pace: Pace, system: System, server: Server) -> Paced:
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
                seconds=self._effort.paced_seconds,
                warmup_seconds=latency.WARMUP_SECONDS,
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
    )
    return Paced(sample, told["missing"])
