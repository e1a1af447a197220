"""Measures end-to-end latency at 1,000 and 11,574 messages a second, open loop, beside a C program's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.batches import GB
from benchmarks.measure import Step
from benchmarks.plots import percentile_curves, save_plot
from benchmarks.processes import Server
from benchmarks.programs import load
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.stage import Stage, running
from benchmarks.systems import Floor, Penstock, System
from benchmarks.workloads import CURRENT, OLD, Generation

ROUNDS: Final = 3
SECONDS: Final = 1.5
WARMUP_SECONDS: Final = 0.3
# A billion messages a day.
RATES: Final = (1_000, 11_574)
LINGER_MS: Final = 5
_SHARES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


@dataclass(slots=True, frozen=True, eq=False)
class Pace:
    """How messages of 1 KB come: their number a second, gathered for a while or one a request."""

    rate: int
    linger_ms: int
    acks: int
    generation: Generation = CURRENT

    @property
    def name(self) -> str:
        gathered = f"linger {self.linger_ms} ms" if self.linger_ms else "one a request"
        spoken = "" if self.generation == CURRENT else f", {self.generation}"
        return f"{self.rate:,}/s, {gathered}, acks={'all' if self.acks == -1 else self.acks}{spoken}"

    @property
    def targets(self) -> tuple[Target, ...]:
        """Of a broker that flushes before a reader sees a message."""
        match self.rate, bool(self.linger_ms):
            case 1_000, False:
                return Target("p99 ms", 5, at_most=True), Target("cores", 0.35, at_most=True)
            case 11_574, True:
                return (Target("p99 ms", 10, at_most=True),)
            case 11_574, False:
                return Target("p99 ms", 10, at_most=True), Target("p99.9 ms", 25, at_most=True)
        return ()


PACES: Final = (
    *(Pace(rate, linger, acks) for rate in RATES for linger in (0, LINGER_MS) for acks in (1, -1)),
    *(Pace(rate, linger, 1, OLD) for rate in RATES for linger in (0, LINGER_MS)),
)


@dataclass(slots=True, frozen=True)
class Sample:
    """One run of the load generator; times are in milliseconds from when a message was due to when it was read."""

    p50: float
    p99: float
    p999: float
    max: float
    ack_p99: float
    cpu_us_per_message: float
    memory_bytes: int
    # Pairs of a time in µs and how many messages took about that, no two of the same time.
    buckets: Sequence[tuple[float, int]] = ()
    # The part of a core that the server was busy.
    cores: float = 0.0


Results = Mapping[Pace, Mapping[str, Rounds[Sample]]]


def run(step: Step) -> list[Table]:
    with running((Penstock(), Floor()), step, warm_bytes=GB // 4) as stage:
        results = measure_all(stage, PACES, rounds=ROUNDS)
    how = (
        f"From when a message was due to when a consumer had it, in ms; one partition, one connection each way; "
        f"{CURRENT} unless others are named. Cores is the part of a core that the server was busy. "
        f"Medians of {ROUNDS} rounds of {SECONDS:g} s in turns, the spread of p99 beside it; {stage.cores}."
    )
    return [make_table(results, title="End to end", how=how, judged=Penstock.name)]


def measure_all(stage: Stage, paces: tuple[Pace, ...], *, rounds: int, seconds: float = SECONDS) -> Results:
    return {pace: stage.take_turns(pace.name, partial(_measure, stage, pace, seconds), rounds=rounds) for pace in paces}


def _measure(stage: Stage, pace: Pace, seconds: float, system: System, server: Server) -> Sample:
    with stage.topic(system, server) as topic:
        return sample(stage, server, topic, pace, seconds=seconds)[0]


def sample(
    stage: Stage, server: Server, topic: str, pace: Pace, *, seconds: float = SECONDS, **options: object
) -> tuple[Sample, dict[str, Any]]:
    """Run the load generator once against a topic that is there. Returns all that it reported."""
    before = server.cpu_seconds()
    told = load(
        "e2e",
        port=server.port,
        topics=[topic],
        cores=stage.cores.load,
        rate=pace.rate,
        linger_ms=pace.linger_ms,
        acks=pace.acks,
        seconds=seconds,
        warmup_seconds=WARMUP_SECONDS,
        buckets=True,
        # On a core that it shares, it would take the server's time.
        spin=stage.cores.are_apart,
        **pace.generation.options,
        **options,
    )
    used = server.cpu_seconds() - before
    if told["missing"]:
        raise RuntimeError(f"{told['missing']} of {told['sent']} messages were not read")
    latency = told["latency"]
    found = Sample(
        p50=latency["p50_us"] / 1e3,
        p99=latency["p99_us"] / 1e3,
        p999=latency["p999_us"] / 1e3,
        max=latency["max_us"] / 1e3,
        ack_p99=told["ack"]["p99_us"] / 1e3,
        cpu_us_per_message=used * 1e6 / told["received"],
        memory_bytes=server.memory_bytes(),
        buckets=[(time, count) for time, count in latency["buckets"]],
        cores=used / told["seconds"],
    )
    return found, told


def make_table(results: Results, *, title: str, how: str, judged: str) -> Table:
    """A row for each pace and system; targets are those of the system that is judged."""
    rows = []
    for pace, of in results.items():
        for name, rounds in of.items():
            values: dict[str, str | float] = {
                "what": pace.name,
                "by": name,
                "p50 ms": rounds.median(lambda one: one.p50),
                "p99 ms": rounds.median(lambda one: one.p99),
                "spread": rounds.spread(lambda one: one.p99),
                "p99.9 ms": rounds.median(lambda one: one.p999),
                "max ms": rounds.median(lambda one: one.max),
                "ack p99 ms": rounds.median(lambda one: one.ack_p99),
                "CPU µs/message": rounds.median(lambda one: one.cpu_us_per_message),
                "cores": rounds.median(lambda one: one.cores),
            }
            rows.append(Row(values, pace.targets if name == judged else ()))
    raw = {
        pace.name: {name: {"rounds": rounds.as_json("buckets"), "curve": curve(rounds)} for name, rounds in of.items()}
        for pace, of in results.items()
    }
    return Table(title, how, rows, raw)


def curve(rounds: Rounds[Sample]) -> list[tuple[float, float]]:
    """Of all rounds together: which share of the messages took at most how many ms."""
    counts = Counter[float]()
    for one in rounds.samples:
        for time_us, count in one.buckets:
            counts[time_us] += count
    total, seen, points = counts.total(), 0, []
    shares = iter(_SHARES)
    share: float | None = next(shares)
    for time_us in sorted(counts):
        seen += counts[time_us]
        while share is not None and seen >= share * total:
            points.append((share, time_us / 1e3))
            share = next(shares, None)
    return points


def draw(tables: list[Table], path: Path) -> bool:
    """Percentiles, a panel for each rate."""
    panels = []
    for rate in RATES:
        start = f"{rate:,}/s, "
        lines = {
            f"{pace.removeprefix(start)}, {name}": told["curve"]
            for pace, of in tables[0].raw.items()
            if pace.startswith(start)
            for name, told in of.items()
        }
        dashed = frozenset(label for label in lines if not label.endswith(Penstock.name))
        panels.append(percentile_curves(f"{rate:,} messages a second", lines, dashed))
    return save_plot(path, panels)
