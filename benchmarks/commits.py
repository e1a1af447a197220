"""Measures what a commit of offsets costs the broker: a thousand groups, each of ten partitions."""

import sys
from dataclasses import dataclass
from typing import Final

from benchmarks import programs
from benchmarks.batches import MB
from benchmarks.measure import Step
from benchmarks.processes import Server
from benchmarks.report import Row, Table
from benchmarks.samples import Rounds
from benchmarks.stage import Stage, running
from benchmarks.systems import Penstock, System

ROUNDS: Final = 3
GROUPS: Final = 1000
PARTITIONS: Final = 10
COMMITS: Final = 10_000
CONNECTIONS: Final = 50


@dataclass(slots=True, frozen=True)
class Sample:
    seconds: float
    cpu_seconds: float
    start_seconds: float


def run(step: Step) -> list[Table]:
    with running((Penstock(),), step, warm_bytes=100 * MB) as stage:
        results = stage.take_turns("commits", lambda system, server: measure(stage, system, server), rounds=ROUNDS)
    return [make_table(results, cores=str(stage.cores))]


def measure(stage: Stage, system: System, server: Server) -> Sample:
    with stage.topic(system, server, PARTITIONS) as topic:
        command = [sys.executable, "-m", "benchmarks.commits_client", str(server.port), topic]
        command += [str(PARTITIONS), str(GROUPS), str(COMMITS), str(CONNECTIONS)]
        before = server.cpu_seconds()
        result = programs.run(command, stage.cores.load)
        return Sample(result["seconds"], server.cpu_seconds() - before, result["start_seconds"])


def make_table(results: dict[str, Rounds[Sample]], *, cores: str) -> Table:
    rows = []
    for name, rounds in results.items():
        values: dict[str, str | float] = {
            "by": name,
            "commits/s": rounds.median(lambda one: COMMITS / one.seconds),
            "spread": rounds.spread(lambda one: COMMITS / one.seconds),
            "CPU µs/commit": rounds.median(lambda one: one.cpu_seconds / COMMITS * 1e6),
            "CPU µs/offset": rounds.median(lambda one: one.cpu_seconds / COMMITS / PARTITIONS * 1e6),
        }
        rows.append(Row(values))
    how = (
        f"{GROUPS:,} groups commit offsets of {PARTITIONS} partitions each, over {CONNECTIONS} connections with one "
        f"request in flight on each; every commit is flushed before it is answered. {cores}."
    )
    return Table("Commits of groups", how, rows, {name: rounds.as_json() for name, rounds in results.items()})
