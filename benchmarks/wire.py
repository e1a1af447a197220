"""Measures MB/s, CPU-s/GB and CPU µs a request of producing and fetching over the network, beside a C program's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import programs
from benchmarks.batches import GB, MB
from benchmarks.measure import Step
from benchmarks.plots import Bars, save_plot
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.stage import Stage, running
from benchmarks.systems import Floor, Penstock, System
from benchmarks.workloads import CURRENT, FILL_BATCH_BYTES, FILL_BYTES, TARGETS, WORKLOADS, Workload

ROUNDS: Final = 3


@dataclass(slots=True, frozen=True)
class Sample:
    """One run of the load generator, and what the server used meanwhile."""

    requests: int
    bytes: int
    seconds: float
    cpu_seconds: float
    memory_bytes: int
    latency: Mapping[str, float] = field(default_factory=dict)

    @property
    def mb_per_s(self) -> float:
        return self.bytes / MB / self.seconds

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_seconds * GB / self.bytes

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_seconds * 1e6 / self.requests


Results = Mapping[Workload, Mapping[str, Rounds[Sample]]]
"""By workload, then by the system's name."""


def run(step: Step) -> list[Table]:
    systems = (Penstock(), Floor())
    warm_bytes = (len(systems) + 1) * max(FILL_BYTES, 600 * MB)
    with running(systems, step, warm_bytes=warm_bytes) as stage:
        limit = loopback(stage)
        results = measure_all(stage, WORKLOADS, rounds=ROUNDS)
    how = (
        f"Messages of 1 KB, one partition; batches and fetches over 4 and 2 connections, cN dM is N connections with M "
        f"requests in flight; {CURRENT} unless another version is named. CPU is the server's, all threads. "
        f"TCP over loopback carries {limit:,.0f} MB/s. "
        f"Medians of {ROUNDS} rounds in turns, the spread of CPU-s/GB beside it; {stage.cores}."
    )
    targets = {(name, Penstock.name): held for name, held in TARGETS.items()}
    table = make_table(results, title="Produce and fetch", how=how, reference=Floor.name, limit=limit, targets=targets)
    return [table]


def measure_all(stage: Stage, workloads: Sequence[Workload], *, rounds: int) -> Results:
    """Every workload on every system, in turns."""
    results = {
        workload: stage.take_turns(workload.name, partial(_produce, stage, workload), rounds=rounds)
        for workload in workloads
        if workload.mode == "produce"
    }
    results |= _fetch_all(stage, [each for each in workloads if each.mode == "fetch"], rounds=rounds)
    return results


def _produce(stage: Stage, workload: Workload, system: System, server: Server) -> Sample:
    with stage.topic(system, server, workload.options.get("partitions", 1)) as topic:
        return sample(stage, server, workload, topic)


def _fetch_all(
    stage: Stage, workloads: Sequence[Workload], *, rounds: int
) -> dict[Workload, dict[str, Rounds[Sample]]]:
    """All read the same topic, which is filled once."""
    topics: dict[str, str] = {}
    for system, server in stage.servers.items() if workloads else ():
        stage.step(f"filling a topic of {system.name}")
        topics[system.name] = topic = f"bench-to-read-{len(topics)}"
        system.make_topic(server, topic)
        load(
            "produce",
            port=server.port,
            topics=[topic],
            requests=FILL_BYTES // FILL_BATCH_BYTES,
            batch_bytes=FILL_BATCH_BYTES,
            in_flight=64,
            acks=-1,
        )
        # A first reader may pay for what later ones find done.
        load("fetch", port=server.port, topics=[topic])

    def read(workload: Workload, system: System, server: Server) -> Sample:
        return sample(stage, server, workload, topics[system.name])

    return {workload: stage.take_turns(workload.name, partial(read, workload), rounds=rounds) for workload in workloads}


def sample(stage: Stage, server: Server, workload: Workload, topic: str) -> Sample:
    """Run the load generator once against a topic that is there."""
    before = server.cpu_seconds()
    options = {**workload.with_versions, **workload.limits}
    told = load(workload.mode, port=server.port, topics=[topic], cores=stage.cores.load, **options)
    used = server.cpu_seconds() - before
    latency = {name: value for name, value in told["latency"].items() if name != "buckets"}
    return Sample(told["requests"], told["bytes"], told["seconds"], used, server.memory_bytes(), latency)


def loopback(stage: Stage, *, volume: int = GB, write_bytes: int = MB) -> float:
    """MB/s of bare TCP between the two cores."""
    stage.step("TCP over loopback")
    pinned = [str(core) for core in (*stage.cores.server, *stage.cores.load)] if stage.cores.are_apart else []
    command = [str(programs.program("loopback")), str(volume), str(write_bytes), *pinned]
    runs = [programs.run(command) for _ in range(3)]
    return float(median(told["bytes"] / MB / told["seconds"] for told in runs))


def make_table(
    results: Results,
    *,
    title: str,
    how: str,
    reference: str,
    limit: float,
    targets: Mapping[tuple[str, str], tuple[Target, ...]],
) -> Table:
    """A row for each workload and system. CPU is given as a multiple of the reference's; targets are by workload and
    system."""
    short = reference.partition(" ")[0]
    by_name = {workload.name: of for workload, of in results.items()}
    rows = []
    for workload, of in results.items():
        for name, rounds in of.items():
            values: dict[str, str | float] = {
                "what": workload.name,
                "by": name,
                "MB/s": rounds.median(lambda one: one.mb_per_s),
                "requests/s": rounds.median(lambda one: one.requests_per_s),
                "CPU-s/GB": rounds.median(lambda one: one.cpu_s_per_gb),
                "spread": rounds.spread(lambda one: one.cpu_s_per_gb),
                "CPU µs/request": rounds.median(lambda one: one.cpu_us_per_request),
                f"CPU × {short}": rounds.ratio(of[reference], lambda one: one.cpu_s_per_gb),
                "of acks=1": rounds.ratio(by_name[workload.unflushed][name], lambda one: one.mb_per_s)
                if workload.unflushed in by_name
                else "",
                "of loopback": rounds.median(lambda one: one.mb_per_s) / limit,
            }
            rows.append(Row(values, targets.get((workload.name, name), ())))
    raw = {workload.name: {name: rounds.as_json() for name, rounds in of.items()} for workload, of in results.items()}
    return Table(title, how, rows, {"loopback MB/s": limit, **raw})


def draw(tables: list[Table], path: Path) -> bool:
    """What batches cost by the GB, and single messages by the request."""
    by_gb: dict[str, dict[str, float]] = {}
    by_request: dict[str, dict[str, float]] = {}
    for row in tables[0].rows:
        what, name = str(row.values["what"]), str(row.values["by"])
        into, column = (by_request, "CPU µs/request") if what.startswith("one ") else (by_gb, "CPU-s/GB")
        into.setdefault(what.removeprefix("one message a request, "), {})[name] = float(row.values[column])
    return save_plot(
        path,
        [
            Bars("Batches and fetches of messages of 1 KB", "server's CPU seconds for a GB", by_gb),
            Bars("One message of 1 KB a request", "server's CPU µs for a request", by_request),
        ],
    )
