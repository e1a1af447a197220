"""Measures MB/s and the broker's CPU with librdkafka, which is what most users have, and whose speed is the bound."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks import programs
from benchmarks.batches import GB, KB, MB
from benchmarks.measure import Step
from benchmarks.processes import Server
from benchmarks.report import Row, Table
from benchmarks.samples import Rounds
from benchmarks.stage import Stage, running
from benchmarks.systems import Penstock, System

ROUNDS: Final = 3
MESSAGES: Final = 200_000
BATCHES: Final = {"1 MB": MB, "100 KB": 100 * KB, "16 KB": 16 * KB}


@dataclass(slots=True, frozen=True)
class Sample:
    """Sent and read back by librdkafka; CPU is the broker's."""

    produce_seconds: float
    produce_cpu_seconds: float
    consume_seconds: float
    consume_cpu_seconds: float


def run(step: Step) -> list[Table]:
    systems = (Penstock(),)
    with running(systems, step, warm_bytes=3 * MESSAGES * KB) as stage:
        results = measure_all(stage, rounds=ROUNDS)
    how = (
        f"{MESSAGES:,} messages of 1 KB sent and read by confluent-kafka in a process of its own, acks=1. Medians of "
        f"{ROUNDS} rounds, the spread of MB/s beside it; {stage.cores}."
    )
    return [make_table(results, title="librdkafka", how=how)]


def measure_all(stage: Stage, *, rounds: int) -> dict[str, dict[str, Rounds[Sample]]]:
    """By size of batches, then by the system's name."""
    return {
        name: stage.take_turns(f"batches of {name}", partial(_measure, stage, size), rounds=rounds)
        for name, size in BATCHES.items()
    }


def _measure(stage: Stage, batch_bytes: int, system: System, server: Server) -> Sample:
    with stage.topic(system, server) as topic:
        before = server.cpu_seconds()
        produced = _client(stage, "produce", server, topic, batch_bytes)
        between = server.cpu_seconds()
        consumed = _client(stage, "consume", server, topic, batch_bytes)
        after = server.cpu_seconds()
    return Sample(produced, between - before, consumed, after - between)


def _client(stage: Stage, mode: str, server: Server, topic: str, batch_bytes: int) -> float:
    """The seconds that it took."""
    command = [sys.executable, "-m", "benchmarks.rdkafka_client", mode]
    command += [f"127.0.0.1:{server.port}", topic, str(MESSAGES), str(KB), str(batch_bytes)]
    return float(programs.run(command, stage.cores.load)["seconds"])


def make_table(results: Mapping[str, Mapping[str, Rounds[Sample]]], *, title: str, how: str) -> Table:
    size = MESSAGES * KB
    rows = []
    for batch, of in results.items():
        for name, rounds in of.items():
            values: dict[str, str | float] = {
                "batch": batch,
                "by": name,
                "produce MB/s": rounds.median(lambda one: size / MB / one.produce_seconds),
                "produce spread": rounds.spread(lambda one: size / MB / one.produce_seconds),
                "produce CPU-s/GB": rounds.median(lambda one: one.produce_cpu_seconds * GB / size),
                "consume MB/s": rounds.median(lambda one: size / MB / one.consume_seconds),
                "consume spread": rounds.spread(lambda one: size / MB / one.consume_seconds),
                "consume CPU-s/GB": rounds.median(lambda one: one.consume_cpu_seconds * GB / size),
            }
            rows.append(Row(values))
    raw = {batch: {name: rounds.as_json() for name, rounds in of.items()} for batch, of in results.items()}
    return Table(title, how, rows, raw)
