"""Measures what a micro-batch of two rows costs: from the broker by our source and by Spark's Kafka connector, and from
Spark's rate source, which reads nothing at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.measure import Step
from benchmarks.plots import Bars
from benchmarks.report import Row, Table, Target
from benchmarks.spark.sessions import Session
from benchmarks.spark.topics import PARTITIONS, Filled

OURS, CONNECTOR, RATE = "our source", "Spark's Kafka connector", "Spark's rate source"
MOST_MS: Final = 100.0
WARMING: Final = 60
"""Batches that do not count: the compiler of the JVM takes its time."""


class Sparks(NamedTuple):
    """The sessions that take turns."""

    tuned: Session
    """With the settings that we ship, for which the target is."""
    plain: Session
    connector: Session
    """Tuned as well; the one that has Spark's Kafka connector."""


def measure(
    filled: Filled, folder: Path, sparks: Sparks, *, rounds: int, batches: int, step: Step
) -> tuple[Table, Bars]:
    limited = {**filled.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PARTITIONS)}
    ours = {"format": "penstock", "options": limited}
    kafka = {"format": "kafka", "options": limited}
    rate = {
        "format": "rate-micro-batch",
        "options": {"rowsPerBatch": str(PARTITIONS), "numPartitions": str(PARTITIONS)},
    }
    names = {
        sparks.tuned: f"{sparks.tuned.version}, tuned",
        sparks.plain: f"{sparks.plain.version}",
        sparks.connector: f"{sparks.connector.version}, tuned",
    }
    ways = [(way, spark, told) for spark in sparks for way, told in ((OURS, ours), (RATE, rate))]
    ways.append((CONNECTOR, sparks.connector, kafka))
    found: dict[tuple[str, str], list[float]] = {(way, names[spark]): [] for way, spark, _ in ways}
    for number in range(1, rounds + 1):
        for way, spark, told in ways:
            step(f"micro-batches: {way}, {names[spark]}, round {number} of {rounds}")
            counts = {"warming": WARMING, "batches": batches}
            answer = spark.ask("stream", **told, **counts, folder=str(folder / "checkpoint"))
            found[way, names[spark]].append(answer["batch_ms"])
    groups: dict[str, dict[str, float]] = {f"Spark {name}": {} for name in names.values()}
    for (way, name), took in found.items():
        groups[f"Spark {name}"][way] = median(took)
    table = make_table(found, target=names[sparks.tuned], rounds=rounds, batches=batches)
    return table, Bars("Fixed cost of a micro-batch", "ms", groups)


def make_table(found: Mapping[tuple[str, str], Sequence[float]], *, target: str, rounds: int, batches: int) -> Table:
    """Every way beside the rate source in the same session."""
    rows = []
    for (way, name), took in found.items():
        beside = found[RATE, name]
        values: dict[str, str | float] = {
            "way": way,
            "Spark": name,
            "ms a batch": float(median(took)),
            "ratio": float(median(mine / other for mine, other in zip(took, beside, strict=True))),
        }
        is_held = way == OURS and name == target
        rows.append(Row(values, (Target("ms a batch", MOST_MS, at_most=True),) if is_held else ()))
    how = (
        f"Batches of {PARTITIONS} rows in {PARTITIONS} tasks, one as soon as the last is done, into nothing, by "
        f"Spark's own clock: the median of {batches} batches behind the first {WARMING}, and of {rounds} rounds. The "
        "ratio is to the rate source in the same session and round. Tuned is with the settings that we ship."
    )
    raw = {f"{way}, {name}": list(took) for (way, name), took in found.items()}
    return Table("Fixed cost of a micro-batch", how, rows, raw=raw)
