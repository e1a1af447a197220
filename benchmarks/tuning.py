"""Measures latency against throughput: what a producer's linger and batch size change, for it and for the broker."""

from pathlib import Path
from typing import Any, Final

from benchmarks import latency, wire
from benchmarks.batches import KB, MB
from benchmarks.latency import Pace
from benchmarks.measure import Step
from benchmarks.plots import Curves, save_plot
from benchmarks.report import Row, Table
from benchmarks.samples import Rounds
from benchmarks.stage import running
from benchmarks.systems import Penstock
from benchmarks.workloads import Workload

ROUNDS: Final = 3
RATE: Final = 11_574
LINGERS_MS: Final = (0, 1, 2, 5, 10, 20, 50)
BATCH_KB: Final = (1, 4, 16, 64, 256, 1000)


def run(step: Step) -> list[Table]:
    paces = tuple(Pace(RATE, linger, acks) for linger in LINGERS_MS for acks in (1, -1))
    sizes = tuple(
        Workload(
            f"{size} KB, acks={'all' if acks == -1 else acks}",
            "produce",
            {"batch_bytes": size * KB, "connections": 4, "in_flight": 4, "acks": acks},
            min(size * 10, 300) * MB,
        )
        for size in BATCH_KB
        for acks in (1, -1)
    )
    with running((Penstock(),), step, warm_bytes=700 * MB) as stage:
        lingers = latency.measure_all(stage, paces, rounds=ROUNDS)
        batches = wire.measure_all(stage, sizes, rounds=ROUNDS)
    return [linger_table(lingers, str(stage.cores)), batch_table(batches, str(stage.cores))]


def linger_table(results: latency.Results, cores: str) -> Table:
    rows = []
    for pace, of in results.items():
        rounds = of[Penstock.name]
        rows.append(
            Row(
                {
                    "linger ms": float(pace.linger_ms),
                    "acks": "all" if pace.acks == -1 else str(pace.acks),
                    "p50 ms": rounds.median(lambda one: one.p50),
                    "p99 ms": rounds.median(lambda one: one.p99),
                    "spread": rounds.spread(lambda one: one.p99),
                    "broker CPU µs/message": rounds.median(lambda one: one.cpu_us_per_message),
                }
            )
        )
    how = (
        f"{RATE:,} messages of 1 KB a second, open loop, from when each was due to when a consumer had it. Medians of "
        f"{ROUNDS} rounds, the spread of p99 beside it; {cores}."
    )
    return Table("Linger", how, rows, {"rows": [row.values for row in rows]})


def batch_table(results: wire.Results, cores: str) -> Table:
    rows = []
    for workload, of in results.items():
        rounds: Rounds[wire.Sample] = of[Penstock.name]
        size, _, acks = workload.name.partition(" KB, acks=")
        rows.append(
            Row(
                {
                    "batch KB": float(size),
                    "acks": acks,
                    "MB/s": rounds.median(lambda one: one.mb_per_s),
                    "spread": rounds.spread(lambda one: one.mb_per_s),
                    "broker CPU-s/GB": rounds.median(lambda one: one.cpu_s_per_gb),
                }
            )
        )
    how = f"Four connections, four requests in flight on each, as fast as they go. Medians of {ROUNDS} rounds; {cores}."
    return Table("Batch size", how, rows, {"rows": [row.values for row in rows]})


def draw(tables: list[Table], path: Path) -> bool:
    lingers, batches = (table.raw["rows"] for table in tables)

    def line(rows: list[dict[str, Any]], acks: str, x: str, y: str, *, least_x: float) -> list[tuple[float, float]]:
        return [(max(row[x], least_x), row[y]) for row in rows if row["acks"] == acks]

    latencies = {
        f"{name}, acks={acks}": line(lingers, acks, "linger ms", f"{name} ms", least_x=0.5)
        for acks in ("1", "all")
        for name in ("p50", "p99")
    }
    costs = {f"acks={acks}": line(batches, acks, "batch KB", "broker CPU-s/GB", least_x=1) for acks in ("1", "all")}
    speeds = {f"acks={acks}": line(batches, acks, "batch KB", "MB/s", least_x=1) for acks in ("1", "all")}
    x_labels = {float(size): f"{size}" for size in BATCH_KB}
    panels = [
        Curves(
            f"{RATE:,} messages a second: latency by linger (0 means one message a request)",
            "linger, ms",
            "ms",
            latencies,
            dashed=frozenset(label for label in latencies if label.startswith("p99")),
            has_log_x=True,
            has_log_y=True,
            x_labels={max(float(linger), 0.5): str(linger) for linger in LINGERS_MS},
        ),
        Curves(
            "As fast as it goes: MB/s by batch size", "batch, KB", "MB/s", speeds, has_log_x=True, x_labels=x_labels
        ),
        Curves(
            "What a GB costs the broker, by batch size",
            "batch, KB",
            "CPU seconds",
            costs,
            has_log_x=True,
            has_log_y=True,
            x_labels=x_labels,
        ),
    ]
    return save_plot(path, panels)
