"""Makes the tables and plots of Penstock beside others: one line a system, every figure as a ratio, and the targets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final, TypeVar

from benchmarks import footprint, latency, wire
from benchmarks.batches import KB, MB
from benchmarks.latency import Pace
from benchmarks.peers.measuring import Findings, Paced
from benchmarks.peers.warming import Patience
from benchmarks.plots import Bars, Curves, percentile_curves
from benchmarks.report import Row, Table, Target, format_number
from benchmarks.samples import Rounds
from benchmarks.systems import FLUSHED_BY_OS, Penstock
from benchmarks.workloads import OLD, Workload

OURS: Final = Penstock.name
KAFKA: Final = "Apache Kafka"
NOTHING: Final = "–"
_SIZES: Final = ("1 MB", "100 KB", "16 KB")
_FETCHES: Final = ("1 MB", "128 KB", "16 KB")
_SINGLE: Final = "one message a request"
_PIPELINED: Final = f"{_SINGLE}, c10 d16"
_WAITING: Final = f"{_SINGLE}, c10 d1"
_MANY: Final = f"{_SINGLE}, c100 d1"
_SINGLES: Final = (f"{_SINGLE}, c1 d1", _WAITING, _PIPELINED, _MANY)
# How the names of what is done in old versions end.
_OLD_PRODUCE: Final = f", Produce {OLD.produce}"
_OLD_FETCH: Final = f", Fetch {OLD.fetch}"
# CPU of a request, at most as a multiple of that of a warm Kafka; in old versions, too.
CPU_TARGETS: Final[Mapping[str, float]] = {
    f"{_MANY}, acks=1": 1.1,
    f"{_WAITING}, acks=1": 1.3,
    "produce 16 KB, acks=1": 0.6,
    "fetch 16 KB": 1.2,
    "fetch 128 KB": 1.3,
}

S = TypeVar("S")
Measure = Callable[[wire.Sample], float]


def mb_per_s(one: wire.Sample) -> float:
    return one.mb_per_s


def cpu_s_per_gb(one: wire.Sample) -> float:
    return one.cpu_s_per_gb


def requests_per_s(one: wire.Sample) -> float:
    return one.requests_per_s


def cpu_us_per_request(one: wire.Sample) -> float:
    return one.cpu_us_per_request


_PACED_FIGURES: Final[Mapping[str, Callable[[Paced], float]]] = {
    "p99 ms": lambda one: one.sample.p99,
    "p99.9 ms": lambda one: one.sample.p999,
    "cores": lambda one: one.sample.cores,
}


def unflushed_targets(pace: Pace) -> tuple[Target, ...]:
    """Of a broker that does not flush before a reader sees a message."""
    stricter = Target("p99 ms", 2, at_most=True)
    return (stricter, *pace.targets[1:]) if pace.rate == latency.RATES[0] and pace.targets else pace.targets


class Figures:
    """Findings by the names of the work."""

    def __init__(self, findings: Findings, starts: Mapping[str, Rounds[footprint.Sample]]) -> None:
        self.throughput = {workload.name: of for workload, of in findings.throughput.items()}
        self.paces = findings.paced
        self.paced = {pace.name: of for pace, of in findings.paced.items()}
        self.starts = starts

    def median(self, what: str, system: str, of: Measure) -> float | None:
        rounds = self.throughput.get(what, {}).get(system)
        return rounds.median(of) if rounds else None

    def ratio(self, what: str, other: str, of: Measure) -> float | None:
        """Of ours to another's."""
        both = self.throughput.get(what, {})
        return both[OURS].ratio(both[other], of) if OURS in both and other in both else None

    def best_other(self, what: str, of: Measure) -> str | None:
        """Of all but Kafka, the system that has the most."""
        medians = {name: rounds.median(of) for name, rounds in self.throughput.get(what, {}).items()}
        others = [name for name in medians if name not in (OURS, FLUSHED_BY_OS, KAFKA)]
        return max(others, key=medians.__getitem__) if others else None


def summary(figures: Figures, systems: Sequence[str], how: str) -> Table:
    """A column for each system: its figure, and that as a multiple of ours at equal promise."""
    rows: list[Row] = []

    def tell(figure: str, found: Mapping[str, Rounds[S]], of: Callable[[S], float]) -> None:
        if found:
            base = FLUSHED_BY_OS if FLUSHED_BY_OS in found else OURS
            rows.append(Row({"figure": figure, **{name: _cell(found, name, of, base) for name in systems}}))

    def tell_all(pattern: str, fillings: Sequence[str], unit: str, of: Measure) -> None:
        for filling in fillings:
            what = pattern.format(filling)
            tell(f"{what}: {unit}", figures.throughput.get(what, {}), of)

    for acks in ("1", "all"):
        tell_all(f"produce {{}}, acks={acks}", _SIZES, "MB/s", mb_per_s)
        tell_all(f"produce {{}}, acks={acks}", _SIZES, "CPU-s/GB", cpu_s_per_gb)
        tell_all(f"{{}}, acks={acks}", _SINGLES, "requests/s", requests_per_s)
        tell_all(f"{{}}, acks={acks}", _SINGLES, "CPU µs", cpu_us_per_request)
    tell_all("fetch {}", _FETCHES, "MB/s", mb_per_s)
    tell_all("fetch {}", _FETCHES, "CPU-s/GB", cpu_s_per_gb)
    tell_all(f"produce {{}}, acks=1{_OLD_PRODUCE}", _SIZES, "CPU-s/GB", cpu_s_per_gb)
    tell_all(f"{{}}, acks=1{_OLD_PRODUCE}", _SINGLES, "CPU µs", cpu_us_per_request)
    tell_all(f"fetch {{}}{_OLD_FETCH}", _FETCHES, "CPU-s/GB", cpu_s_per_gb)
    for what, of in figures.paced.items():
        # Percentiles of a system that does not keep up only show how long it was tried.
        kept = {name: rounds for name, rounds in of.items() if keeps_up(rounds)}
        tell(f"{what}: p50 ms", kept, lambda one: one.sample.p50)
        tell(f"{what}: p99 ms", kept, lambda one: one.sample.p99)
        tell(f"{what}: p99.9 ms", kept, lambda one: one.sample.p999)
    tell("memory when idle: MB", figures.starts, lambda one: one.memory_bytes / MB)
    tell("start: s", figures.starts, lambda one: one.start_seconds)
    return Table("Penstock and its peers", how, rows)


def wire_table(findings: Findings, how: str) -> Table:
    rows = []
    for workload, of in findings.throughput.items():
        for name, rounds in of.items():
            ours = of.get(OURS)
            per_message = max(1.0, _messages(workload))
            rows.append(
                Row(
                    {
                        "what": workload.name,
                        "by": name,
                        "MB/s": rounds.median(mb_per_s),
                        "spread": rounds.spread(mb_per_s),
                        f"× {OURS}": rounds.ratio(ours, mb_per_s) if ours else NOTHING,
                        "CPU-s/GB": rounds.median(cpu_s_per_gb),
                        "spread ": rounds.spread(cpu_s_per_gb),
                        f"× {OURS} ": rounds.ratio(ours, cpu_s_per_gb) if ours else NOTHING,
                        "requests/s": rounds.median(requests_per_s),
                        "CPU µs/request": rounds.median(cpu_us_per_request),
                        "CPU µs/message": rounds.median(cpu_us_per_request) / per_message,
                    }
                )
            )
    raw = {
        workload.name: {name: found.as_json() for name, found in of.items()}
        for workload, of in findings.throughput.items()
    }
    return Table("Produce and fetch", how, rows, raw)


def paced_table(findings: Findings, how: str) -> Table:
    rows = []
    for pace, of in findings.paced.items():
        for name, rounds in of.items():
            ours = of.get(OURS)
            rows.append(
                Row(
                    {
                        "what": pace.name,
                        "by": name,
                        "p50 ms": rounds.median(lambda one: one.sample.p50),
                        "p99 ms": rounds.median(lambda one: one.sample.p99),
                        "spread": rounds.spread(lambda one: one.sample.p99),
                        f"× {OURS}": rounds.ratio(ours, lambda one: one.sample.p99) if ours else NOTHING,
                        "p99.9 ms": rounds.median(lambda one: one.sample.p999),
                        "max ms": rounds.median(lambda one: one.sample.max),
                        "ack p99 ms": rounds.median(lambda one: one.sample.ack_p99),
                        "CPU µs/message": rounds.median(lambda one: one.sample.cpu_us_per_message),
                        "cores": rounds.median(lambda one: one.sample.cores),
                        "": "" if keeps_up(rounds) else "does not keep up",
                    }
                )
            )
    raw = {
        pace.name: {
            name: [{"missing": one.missing, **asdict(one.sample), "buckets": None} for one in rounds.samples]
            for name, rounds in of.items()
        }
        for pace, of in findings.paced.items()
    }
    return Table("End to end", how, rows, raw)


def warming_table(findings: Findings, patience: Patience) -> Table:
    rows = [
        Row(
            {
                "system": name,
                "settings": settings,
                "warmed s": warmth.seconds,
                "warm": "yes" if warmth.is_warm else "no, measured as it was",
                "cycles": float(len(warmth.readings)),
                "CPU of a request, last × first": warmth.gain,
            }
        )
        for (name, settings), warmth in findings.warmed.items()
    ]
    how = (
        f"Each was loaded with every kind of request until its CPU for a request stayed within "
        f"{patience.within:.0%} of the median for {patience.seconds:g} s, and for {patience.at_most_seconds:g} s at "
        f"most. A cycle is all kinds once, in both generations of versions."
    )
    raw = {
        f"{name}, {settings}": [asdict(reading) for reading in warmth.readings]
        for (name, settings), warmth in findings.warmed.items()
    }
    return Table("Warming", how, rows, raw)


def keeps_up(rounds: Rounds[Paced]) -> bool:
    return rounds.median(lambda one: one.missing) == 0


def target_table(figures: Figures) -> Table:
    """What was to be reached, as far as it was measured."""
    rows: list[Row] = []

    def hold(what: str, figure: str, value: float | None, limit: float, *, at_most: bool) -> None:
        if value is not None:
            rows.append(Row({"what": what, "figure": figure, "measured": value}, (Target("measured", limit, at_most),)))

    for what, limit in CPU_TARGETS.items():
        for spoken in (what, f"{what}{_OLD_FETCH if what.startswith('fetch') else _OLD_PRODUCE}"):
            value = figures.ratio(spoken, KAFKA, cpu_us_per_request)
            hold(spoken, f"CPU a request, of {KAFKA}'s", value, limit, at_most=True)
    for size in _SIZES:
        what = f"produce {size}, acks=1"
        hold(what, f"MB/s, × {KAFKA}'s", figures.ratio(what, KAFKA, mb_per_s), 1.5, at_most=False)
        if other := figures.best_other(what, mb_per_s):
            hold(what, f"MB/s, × {other}'s, the best other", figures.ratio(what, other, mb_per_s), 3, at_most=False)
    for what in (f"{_PIPELINED}, acks=all", f"{_MANY}, acks=all"):
        hold(what, f"requests/s, × {KAFKA}'s", figures.ratio(what, KAFKA, requests_per_s), 5, at_most=False)
    for size in _FETCHES:
        hold(f"fetch {size}", f"MB/s, × {KAFKA}'s", figures.ratio(f"fetch {size}", KAFKA, mb_per_s), 1, at_most=False)
    for pace, of in figures.paces.items():
        for system, targets in ((OURS, pace.targets), (FLUSHED_BY_OS, unflushed_targets(pace))):
            for target in targets if system in of else ():
                value = of[system].median(_PACED_FIGURES[target.column])
                hold(f"{pace.name}: {system}", target.column, value, target.limit, at_most=True)
    if start := figures.starts.get(OURS):
        hold("idle", "MB of memory", start.median(lambda one: one.memory_bytes / MB), 80, at_most=True)
        hold("start", "s", start.median(lambda one: one.start_seconds), 1, at_most=True)
    return Table("Targets", f"{sum(bool(row.is_met) for row in rows)} of {len(rows)} are met.", rows)


def panels(findings: Findings) -> list[Bars | Curves]:
    batches: dict[str, dict[str, float]] = {}
    speeds: dict[str, dict[str, float]] = {}
    singles: dict[str, dict[str, float]] = {}
    for workload, of in findings.throughput.items():
        is_single = workload.name.startswith("one ")
        into = singles if is_single else batches
        measure = cpu_us_per_request if is_single else cpu_s_per_gb
        label = workload.name.removeprefix("one message a request, ")
        into[label] = {name: rounds.median(measure) for name, rounds in of.items()}
        if not is_single:
            speeds[label] = {name: rounds.median(mb_per_s) for name, rounds in of.items()}
    drawn: list[Bars | Curves] = []
    if batches:
        drawn.append(
            Bars("Batches and fetches of messages of 1 KB: what they cost", "server's CPU seconds for a GB", batches)
        )
        drawn.append(Bars("How fast", "MB/s", speeds))
    if singles:
        drawn.append(Bars("One message of 1 KB a request", "server's CPU µs for a request", singles))
    for pace, paced in findings.paced.items():
        lines = {
            name: latency.curve(Rounds([one.sample for one in rounds.samples]))
            for name, rounds in paced.items()
            if keeps_up(rounds)
        }
        if lines and _is_plotted(pace):
            drawn.append(percentile_curves(pace.name, lines, frozenset(set(lines) - {OURS})))
    return drawn


def _is_plotted(pace: Pace) -> bool:
    return not pace.linger_ms and pace.rate == latency.RATES[-1]


def _messages(workload: Workload) -> float:
    """In a request, about."""
    size = workload.options.get("batch_bytes") or workload.options.get("max_bytes") or KB
    return float(size / KB)


def _cell(found: Mapping[str, Rounds[S]], name: str, of: Callable[[S], float], base: str) -> str:
    if name not in found:
        return NOTHING
    told = format_number(found[name].median(of))
    if name == base or base not in found:
        return told
    return f"{told} (× {format_number(found[name].ratio(found[base], of))})"
