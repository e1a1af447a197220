"""Measures the memory of an idle server, and the time from its start until it answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.batches import MB
from benchmarks.cores import choose_cores
from benchmarks.measure import Step
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.scratch import scratch_folder
from benchmarks.systems import Floor, Penstock, System

ROUNDS: Final = 5
TARGETS: Final = (Target("idle MB", 80, at_most=True), Target("start s", 1, at_most=True))


@dataclass(slots=True, frozen=True)
class Sample:
    start_seconds: float
    cpu_seconds: float
    memory_bytes: int


def run(step: Step) -> list[Table]:
    results = measure_all((Penstock(), Floor()), step, rounds=ROUNDS)
    return [make_table(results, judged=Penstock.name)]


def measure_all(systems: tuple[System, ...], step: Step, *, rounds: int) -> dict[str, Rounds[Sample]]:
    cores = choose_cores()
    found: dict[str, list[Sample]] = {system.name: [] for system in systems}
    for number in range(rounds):
        for system in systems:
            step(f"starting {system.name}, round {number + 1} of {rounds}")
            with scratch_folder(warm_bytes=0) as folder, system.start(Path(folder), cores.server) as server:
                found[system.name].append(Sample(server.start_seconds, server.cpu_seconds(), server.memory_bytes()))
    return {name: Rounds(samples) for name, samples in found.items()}


def make_table(results: dict[str, Rounds[Sample]], *, judged: str) -> Table:
    rows = []
    for name, rounds in results.items():
        values: dict[str, str | float] = {
            "by": name,
            "start s": rounds.median(lambda one: one.start_seconds),
            "spread": rounds.spread(lambda one: one.start_seconds),
            "CPU s": rounds.median(lambda one: one.cpu_seconds),
            "idle MB": rounds.median(lambda one: one.memory_bytes / MB),
        }
        rows.append(Row(values, TARGETS if name == judged else ()))
    how = "A fresh data folder, on one core: until the first answer to a client; resident memory then."
    return Table("Start and memory", how, rows, {name: rounds.as_json() for name, rounds in results.items()})
