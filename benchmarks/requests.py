"""Measures the CPU of a request and the time of a message beside a warm Apache Kafka, at equal promise, and says which
targets are met.

Four servers run side by side and are measured in turns: Penstock and Apache Kafka with their defaults, Penstock with
penstock.flush=os, which promises what Kafka does by default, and Kafka with log.flush.interval.messages=1, which
promises what Penstock does by default.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks import wire
from benchmarks.batches import GB
from benchmarks.latency import LINGER_MS, RATES, Pace
from benchmarks.measure import Step
from benchmarks.peers.installing import install
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.measuring import FULL, QUICK, Comparison, Findings, Paced
from benchmarks.peers.tables import (
    CPU_TARGETS,
    KAFKA,
    OURS,
    cpu_us_per_request,
    keeps_up,
    requests_per_s,
    unflushed_targets,
    warming_table,
)
from benchmarks.processes import ServerError
from benchmarks.report import Row, Table, Target, format_number, judge
from benchmarks.samples import Rounds
from benchmarks.stage import running
from benchmarks.suite import Asked, Results, Suite, main
from benchmarks.systems import FLUSHED_BY_OS, Penstock, flushed_by_os
from benchmarks.workloads import CURRENT, OLD, WORKLOADS, Workload

PARTS: Final = ("produce", "fetch", "latency", "flushed")
FLUSHING_KAFKA: Final = "Apache Kafka, flushing"
_WARM_BYTES: Final = 2 * GB
_UNFLUSHED: Final = "in the page cache"
_FLUSHED: Final = "on the disk"
_RATIO: Final = "Penstock / Kafka"
_NOTHING_MISSING: Final = Target("missing", 0, at_most=True)

Throughput = Mapping[Workload, Mapping[str, Rounds[wire.Sample]]]


def run(step: Step, asked: Asked) -> Results:
    effort = QUICK if asked.is_quick else FULL
    if missing := install(("java", "mvn"), jars=True):
        raise ServerError(f"Apache Kafka could not be installed: {missing}")
    ours, kafka = Penstock(), Kafka(flush=False)
    plain = (ours, flushed_by_os(), kafka)
    flushed = (ours, Kafka(flush=True, name=FLUSHING_KAFKA))
    systems = (*plain, flushed[1]) if "flushed" in asked.parts else plain
    found = Findings()
    with running(systems, step, warm_bytes=_WARM_BYTES) as stage:
        comparison = Comparison(stage, effort, found)
        comparison.warm_up(1, plain)
        if "flushed" in asked.parts:
            comparison.warm_up(-1, flushed[1:])
        unflushed_work = [each for each in WORKLOADS if each.mode in asked.parts and each.options.get("acks", 1) == 1]
        comparison.measure(unflushed_work, _paces(1) if "latency" in asked.parts else (), plain)
        if "flushed" in asked.parts:
            flushed_work = [each for each in WORKLOADS if each.options.get("acks") == -1]
            comparison.measure(flushed_work, _paces(-1), flushed)
        cores = str(stage.cores)
    rounds = f"Medians of {effort.rounds} rounds in turns; {cores}."
    tables = [
        cost_table(found.throughput, rounds),
        promise_table(found.throughput, rounds),
        latency_table(found.paced, f"Medians of {effort.paced_rounds} rounds of {effort.paced_seconds:g} s; {cores}."),
    ]
    shown = [table for table in tables if table.rows]
    if targets := judge(shown):
        shown.append(targets)
    return Results(shown=[*shown, warming_table(found, effort.patience)], remarks=found.failures)


def _paces(acks: int) -> list[Pace]:
    slow, fast = RATES
    current = [Pace(slow, 0, acks), Pace(fast, 0, acks), Pace(fast, LINGER_MS, acks)]
    return [*current, Pace(slow, 0, acks, OLD)] if acks == 1 else current


def cost_table(throughput: Throughput, ending: str) -> Table:
    """CPU of a request with acks=1, of all three; the defaults of Penstock are held against those of Kafka."""
    rows = []
    raw = {
        workload.name: {name: rounds.as_json() for name, rounds in of.items()} for workload, of in throughput.items()
    }
    for workload, of in throughput.items():
        if _is_flushed(workload) or not {OURS, FLUSHED_BY_OS, KAFKA} <= set(of):
            continue
        ratios = [ours / theirs for ours, theirs in zip(_costs(of[OURS]), _costs(of[KAFKA]), strict=True)]
        values: dict[str, str | float] = {
            "what": workload.name,
            "CPU µs: Penstock": of[OURS].median(cpu_us_per_request),
            "flush=os": of[FLUSHED_BY_OS].median(cpu_us_per_request),
            "Kafka": of[KAFKA].median(cpu_us_per_request),
            _RATIO: of[OURS].ratio(of[KAFKA], cpu_us_per_request),
            "spread": f"{format_number(min(ratios))}–{format_number(max(ratios))}",
            "flush=os / Kafka": of[FLUSHED_BY_OS].ratio(of[KAFKA], cpu_us_per_request),
        }
        limit = CPU_TARGETS.get(_current_name(workload))
        rows.append(Row(values, (Target(_RATIO, limit, at_most=True),) if limit else ()))
    how = (
        f"Messages of 1 KB, one partition, acks=1. Batches go over 4 connections with 4 requests in flight, cN dM is N "
        f"connections with M in flight, 4 fetches are in flight. {CURRENT} unless another version is named. "
        f"Penstock and Kafka have their defaults. {ending}"
    )
    return Table("CPU of a request, beside a warm Kafka", how, rows, raw)


def promise_table(throughput: Throughput, ending: str) -> Table:
    """Each beside the one that promises as much: what is acknowledged is in the page cache, or on the disk."""
    rows = []
    for workload, of in throughput.items():
        if workload.mode == "fetch" or workload.generation != CURRENT:
            continue
        promise, ours, theirs = (
            (_FLUSHED, OURS, FLUSHING_KAFKA) if _is_flushed(workload) else (_UNFLUSHED, FLUSHED_BY_OS, KAFKA)
        )
        if ours not in of or theirs not in of:
            continue
        rows.append(
            Row(
                {
                    "what": workload.name,
                    "an ack means": promise,
                    "requests/s: Penstock": of[ours].median(requests_per_s),
                    "Kafka": of[theirs].median(requests_per_s),
                    "×": of[ours].ratio(of[theirs], requests_per_s),
                    "CPU µs: Penstock": of[ours].median(cpu_us_per_request),
                    "Kafka ": of[theirs].median(cpu_us_per_request),
                    "× ": of[ours].ratio(of[theirs], cpu_us_per_request),
                    "ack p99 ms: Penstock": of[ours].median(_ack_p99_ms),
                    "Kafka  ": of[theirs].median(_ack_p99_ms),
                }
            )
        )
    how = (
        f"In the page cache: Penstock with penstock.flush=os beside Kafka's defaults. On the disk: Penstock's defaults "
        f"and acks=all beside Kafka with log.flush.interval.messages=1. × is Penstock's as a multiple of Kafka's. "
        f"{ending}"
    )
    return Table("At equal promise", how, rows)


def latency_table(paced: Mapping[Pace, Mapping[str, Rounds[Paced]]], ending: str) -> Table:
    rows = []
    for pace, of in paced.items():
        for name, rounds in of.items():
            targets = {OURS: pace.targets, FLUSHED_BY_OS: unflushed_targets(pace)}.get(name, ())
            values: dict[str, str | float] = {
                "what": pace.name,
                "by": name,
                "p50 ms": rounds.median(lambda one: one.sample.p50),
                "p99 ms": rounds.median(lambda one: one.sample.p99),
                "spread": rounds.spread(lambda one: one.sample.p99),
                "p99.9 ms": rounds.median(lambda one: one.sample.p999),
                "ack p99 ms": rounds.median(lambda one: one.sample.ack_p99),
                "cores": rounds.median(lambda one: one.sample.cores),
                "missing": rounds.median(lambda one: one.missing),
            }
            # The times of a broker that does not keep up are those of what arrived, and mean nothing.
            rows.append(Row(values, targets if keeps_up(rounds) or not targets else (*targets, _NOTHING_MISSING)))
    how = (
        f"From when a message of 1 KB was due to when a reader had it, open loop. A reader of Penstock's defaults and "
        f"of the flushing Kafka gets what is on the disk. Cores is the part of a core that the server was busy; "
        f"messages that are missing were not read two seconds after the last was sent. {ending}"
    )
    return Table("End to end", how, rows)


def _is_flushed(workload: Workload) -> bool:
    return bool(workload.options.get("acks", 1) == -1)


def _current_name(workload: Workload) -> str:
    """Without the version that an old one is named by."""
    return workload.name if workload.generation == CURRENT else workload.name.rpartition(", ")[0]


def _costs(rounds: Rounds[wire.Sample]) -> Sequence[float]:
    return [sample.cpu_us_per_request for sample in rounds.samples]


def _ack_p99_ms(sample: wire.Sample) -> float:
    return sample.latency["p99_us"] / 1e3


SUITE: Final = Suite(name="requests", about=__doc__, parts=PARTS, run=run)

if __name__ == "__main__":
    sys.exit(main(SUITE, sys.argv[1:]))
