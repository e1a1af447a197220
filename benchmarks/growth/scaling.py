"""Measures the cost of a request with a thousand partitions or connections, as a multiple of the cost with one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from benchmarks import wire
from benchmarks.batches import GB, KB
from benchmarks.measure import Step
from benchmarks.plots import Curves
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target, format_number
from benchmarks.revisions import ROOT, short_name, unpack
from benchmarks.samples import Rounds
from benchmarks.stage import Stage, running
from benchmarks.suite import Asked, Results
from benchmarks.systems import Penstock
from benchmarks.workloads import CURRENT, OLD

S = TypeVar("S")
FLAT: Final = Target("cost × least", 1.3, at_most=True)
# Above this one journal for all partitions would be worth its trouble.
ACK: Final = Target("ack p99 ms", 100, at_most=True)
PARTITIONS: Final = (1, 100, 1000)
CONNECTIONS: Final = (1, 10, 100, 1000)

Counted = Mapping[tuple[str, int], Rounds[wire.Sample]]
"""By the system's name and the number of partitions or connections."""


@dataclass(slots=True, frozen=True)
class Load:
    """What is sent to each number of something."""

    name: str
    options: Mapping[str, Any]
    is_judged: bool = True


def grow_partitions(step: Step, asked: Asked) -> Results:
    batches = {"batch_bytes": 16 * KB, "connections": 10, "in_flight": 16}
    single = {"connections": 10, "in_flight": 16}
    loads = [
        Load("16 KB, acks=all", {**batches, "acks": -1}),
        Load("single, acks=all", {**single, "acks": -1}),
        Load("16 KB, acks=1", {**batches, "acks": 1}),
        Load("single, acks=1", {**single, "acks": 1}),
        Load(f"16 KB, acks=1, Produce {OLD.produce}", {**batches, "acks": 1, **OLD.options}),
        Load(f"single, acks=1, Produce {OLD.produce}", {**single, "acks": 1, **OLD.options}),
    ]
    how = "16 KB batches and single messages over 10 connections with 16 requests in flight, partitions in turn."
    return _grow("partitions", PARTITIONS, loads, how=how, step=step, asked=asked)


def grow_connections(step: Step, asked: Asked) -> Results:
    loads = [
        Load("16 KB, 5 in flight", {"batch_bytes": 16 * KB, "in_flight": 5, "acks": 1}),
        # Here more connections mean more requests in one turn of the loop, which makes each of them cheaper.
        Load("single, 1 in flight", {"in_flight": 1, "acks": 1}, is_judged=False),
    ]
    return _grow(
        "connections",
        CONNECTIONS,
        loads,
        how="16 KB batches and single messages to one partition, acks=1; so many in flight on each connection.",
        step=step,
        asked=asked,
    )


def systems_of(asked: Asked) -> list[Penstock]:
    """The broker of another revision first, if one was named, and that of this checkout."""
    if asked.beside is None:
        return [Penstock()]
    other = Penstock(name=f"before ({short_name(asked.beside)})", source=unpack(asked.beside))
    return [other, Penstock(source=ROOT / "src")]


def beside_other(found: Mapping[tuple[str, int], Rounds[S]], case: tuple[str, int], of: Callable[[S], float]) -> str:
    """Ours as a multiple of the other revision's, where there is one."""
    others = [system for system, count in found if system != Penstock.name and count == case[1]]
    if case[0] != Penstock.name or not others:
        return ""
    return format_number(found[case].ratio(found[others[0], case[1]], of))


def _grow(what: str, counts: Sequence[int], loads: Sequence[Load], *, how: str, step: Step, asked: Asked) -> Results:
    rounds, seconds = (1, 0.3) if asked.is_quick else (3, 1.0)
    systems = systems_of(asked)
    found: dict[str, Counted] = {}
    with running(systems, step, warm_bytes=len(systems) * GB) as stage:
        for system in systems:
            for count in counts:
                step(f"{what}: a topic for {count:,} of {system.name}")
                _make_topic(system, stage.servers[system], count, partitions=count if what == "partitions" else 1)
        cases = [(system, count) for count in counts for system in systems]
        for each in loads:
            samples: dict[tuple[str, int], list[wire.Sample]] = {(system.name, count): [] for system, count in cases}
            for number in range(rounds):
                for system, count in cases if number % 2 == 0 else reversed(cases):
                    step(f"{what}: {each.name}, {count:,}, {system.name}, round {number + 1} of {rounds}")
                    options = {**each.options, what: count, "seconds": seconds}
                    taken = _measure(stage, stage.servers[system], _name(count), options)
                    samples[system.name, count].append(taken)
            found[each.name] = {case: Rounds(taken) for case, taken in samples.items()}
    rows = [row for each in loads for row in _rows(what, each, found[each.name])]
    raw = {
        name: {f"{system}, {count}": rounds.as_json() for (system, count), rounds in of.items()}
        for name, of in found.items()
    }
    title = f"More {what}"
    ending = (
        f"{CURRENT} unless another version is named. Cost is the broker's CPU for a MB, as a multiple of that with "
        f"one, and of that of the revision before, if one was named. Medians of {rounds}; {stage.cores}."
    )
    panel = Curves(
        title,
        what,
        "CPU-s/GB",
        {name: _line(of) for name, of in found.items()},
        has_log_x=True,
        has_log_y=True,
        x_labels={count: f"{count:,}" for count in counts},
    )
    return Results(shown=[Table(title, f"{how} {ending}", rows, raw)], panels=[panel])


def _line(of: Counted) -> list[tuple[float, float]]:
    """Of this checkout, by the count."""
    return [
        (float(count), rounds.median(lambda one: one.cpu_s_per_gb))
        for (system, count), rounds in of.items()
        if system == Penstock.name
    ]


def _name(count: int) -> str:
    return f"for-{count}"


def _make_topic(system: Penstock, server: Server, count: int, *, partitions: int) -> None:
    system.make_topic(server, _name(count), partitions)
    # The first append to a partition is a question of its own.
    options = {"partitions": partitions, "connections": min(10, partitions), "requests": partitions}
    load("produce", port=server.port, topics=[_name(count)], cores=(), **options)


def _measure(stage: Stage, server: Server, topic: str, options: Mapping[str, Any]) -> wire.Sample:
    before = server.cpu_seconds()
    told = load("produce", port=server.port, topics=[topic], cores=stage.cores.load, **options)
    used = server.cpu_seconds() - before
    return wire.Sample(told["requests"], told["bytes"], told["seconds"], used, server.memory_bytes(), told["latency"])


def _rows(what: str, each: Load, found: Counted) -> list[Row]:
    rows = []
    fewest = min(count for _, count in found)
    for (system, count), rounds in found.items():
        is_ours = system == Penstock.name
        targets = (FLAT,) if is_ours and count != fewest and each.is_judged else ()
        if is_ours and what == "partitions" and "acks=all" in each.name:
            targets = (*targets, ACK)
        rows.append(
            Row(
                {
                    "what": f"{count:,}: {each.name}",
                    "by": system,
                    "MB/s": rounds.median(lambda one: one.mb_per_s),
                    "requests/s": rounds.median(lambda one: one.requests_per_s),
                    "CPU-s/GB": rounds.median(lambda one: one.cpu_s_per_gb),
                    "spread": rounds.spread(lambda one: one.cpu_s_per_gb),
                    "CPU µs/request": rounds.median(lambda one: one.cpu_us_per_request),
                    "cost × least": rounds.ratio(found[system, fewest], lambda one: one.cpu_s_per_gb),
                    "× before": beside_other(found, (system, count), lambda one: one.cpu_s_per_gb),
                    "ack p50 ms": rounds.median(lambda one: one.latency["p50_us"] / 1e3),
                    "ack p99 ms": rounds.median(lambda one: one.latency["p99_us"] / 1e3),
                },
                targets,
            )
        )
    return rows
