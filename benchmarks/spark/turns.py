"""Takes several ways to do one piece of work on Spark in turns, and notes what each of them took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Step
from benchmarks.programs import ProgramError
from benchmarks.samples import Rounds
from benchmarks.spark.sessions import Session
from benchmarks.spark.topics import Filled


@dataclass(slots=True, frozen=True)
class Way:
    """One piece of work for a session."""

    session: Session
    work: str
    told: Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class Sample:
    """Of one round. `cpu_seconds` is that of Spark's processes, Python workers among them."""

    rows: int
    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.rows * 1e6

    @property
    def broker_cpu_us(self) -> float:
        return self.broker_cpu_seconds / self.rows * 1e6


def per_second(sample: Sample) -> float:
    return sample.rows / sample.seconds


def take_turns(filled: Filled, ways: Mapping[str, Way], *, rounds: int, step: Step) -> dict[str, Rounds[Sample]]:
    """Every way once a round, forwards and backwards in turn, after two rounds in which the JVMs warm up."""
    found: dict[str, list[Sample]] = {name: [] for name in ways}
    warming: Sequence[int] = (-1, 0)
    for number in (*warming, *range(1, rounds + 1)):
        for name in ways if number % 2 == 0 else reversed(list(ways)):
            step(f"{name}, {'warming up' if number in warming else f'round {number} of {rounds}'}")
            sample = _measure(filled, ways[name])
            if number not in warming:
                found[name].append(sample)
    return {name: Rounds(samples) for name, samples in found.items()}


def _measure(filled: Filled, way: Way) -> Sample:
    used = filled.server.cpu_seconds()
    answer = way.session.ask(way.work, **way.told)
    if answer.get("rows", filled.rows) != filled.rows:
        raise ProgramError(f"{way.work} has {answer['rows']} rows, and {filled.rows} were sent")
    return Sample(filled.rows, answer["seconds"], answer["cpu_seconds"], filled.server.cpu_seconds() - used)
