"""The cost of a request when partitions or connections become a thousand, as a multiple of the cost with one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import wire
from benchmarks.batches import GB, KB
from benchmarks.measure import Step
from benchmarks.plots import Curves
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.stage import Stage, running
from benchmarks.suite import Results
from benchmarks.systems import Penstock

FLAT: Final = Target("cost × least", 1.3, at_most=True)
# Above this one journal for all partitions would be worth its trouble.
ACK: Final = Target("ack p99 ms", 100, at_most=True)
PARTITIONS: Final = (1, 100, 1000)
CONNECTIONS: Final = (1, 10, 100, 1000)


@dataclass(slots=True, frozen=True)
class Load:
    """What is sent to each number of something."""

    name: str
    options: Mapping[str, Any]
    is_judged: bool = True


def grow_partitions(step: Step, is_quick: bool) -> Results:
    batches = {"batch_bytes": 16 * KB, "connections": 10, "in_flight": 16}
    single = {"connections": 10, "in_flight": 16}
    loads = [
        Load("16 KB, acks=all", {**batches, "acks": -1}),
        Load("single, acks=all", {**single, "acks": -1}),
        Load("16 KB, acks=1", {**batches, "acks": 1}),
        Load("single, acks=1", {**single, "acks": 1}),
    ]
    how = "16 KB batches and single messages over 10 connections with 16 requests in flight, partitions in turn."
    return _grow("partitions", PARTITIONS, loads, how=how, step=step, is_quick=is_quick)


def grow_connections(step: Step, is_quick: bool) -> Results:
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
        is_quick=is_quick,
    )


def _grow(what: str, counts: Sequence[int], loads: Sequence[Load], *, how: str, step: Step, is_quick: bool) -> Results:
    rounds, seconds = (1, 0.3) if is_quick else (3, 1.0)
    system = Penstock()
    found: dict[str, dict[int, Rounds[wire.Sample]]] = {}
    with running([system], step, warm_bytes=GB) as stage:
        server = stage.servers[system]
        for count in counts:
            step(f"{what}: a topic for {count:,}")
            _make_topic(system, server, count, partitions=count if what == "partitions" else 1)
        for each in loads:
            samples: dict[int, list[wire.Sample]] = {count: [] for count in counts}
            for number in range(rounds):
                for count in counts if number % 2 == 0 else reversed(counts):
                    step(f"{what}: {each.name}, {count:,}, round {number + 1} of {rounds}")
                    options = {**each.options, what: count, "seconds": seconds}
                    samples[count].append(_measure(stage, server, _name(count), options))
            found[each.name] = {count: Rounds(taken) for count, taken in samples.items()}
    rows = [row for each in loads for row in _rows(what, each, found[each.name])]
    raw = {name: {str(count): rounds.as_json() for count, rounds in of.items()} for name, of in found.items()}
    title = f"More {what}"
    ending = f"Cost is the broker's CPU for a MB, as a multiple of that with one. Medians of {rounds}; {stage.cores}."
    lines = {
        name: [(float(count), rounds.median(lambda one: one.cpu_s_per_gb)) for count, rounds in of.items()]
        for name, of in found.items()
    }
    panel = Curves(
        title,
        what,
        "CPU-s/GB",
        lines,
        has_log_x=True,
        has_log_y=True,
        x_labels={count: f"{count:,}" for count in counts},
    )
    return Results(shown=[Table(title, f"{how} {ending}", rows, raw)], panels=[panel])


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


def _rows(what: str, each: Load, found: Mapping[int, Rounds[wire.Sample]]) -> list[Row]:
    least = found[min(found)]
    rows = []
    for count, rounds in found.items():
        targets = () if count == min(found) or not each.is_judged else (FLAT,)
        if what == "partitions" and "acks=all" in each.name:
            targets = (*targets, ACK)
        rows.append(
            Row(
                {
                    "what": f"{count:,}: {each.name}",
                    "MB/s": rounds.median(lambda one: one.mb_per_s),
                    "requests/s": rounds.median(lambda one: one.requests_per_s),
                    "CPU-s/GB": rounds.median(lambda one: one.cpu_s_per_gb),
                    "spread": rounds.spread(lambda one: one.cpu_s_per_gb),
                    "CPU µs/request": rounds.median(lambda one: one.cpu_us_per_request),
                    "cost × least": rounds.ratio(least, lambda one: one.cpu_s_per_gb),
                    "ack p50 ms": rounds.median(lambda one: one.latency["p50_us"] / 1e3),
                    "ack p99 ms": rounds.median(lambda one: one.latency["p99_us"] / 1e3),
                },
                targets,
            )
        )
    return rows
