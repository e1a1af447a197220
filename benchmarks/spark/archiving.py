"""Measures the rows a second that `penstock pipeline archive` writes, beside Spark's own Parquet write from the same
source."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measure import Step
from benchmarks.plots import Bars
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.spark.sessions import Session
from benchmarks.spark.topics import Filled
from benchmarks.spark.turns import Sample, Way, per_second, take_turns

LEAST_RATIO: Final = 3.0
OURS: Final = "penstock pipeline archive"
THEIRS: Final = "Spark's Parquet write"


class Case(NamedTuple):
    """Rows of one payload in one codec."""

    payload: str
    codec: str


CASES: Final = (Case("orders", "snappy"), Case("orders", "zstd"), Case("alike", "snappy"), Case("chance", "snappy"))


def measure(orders: Filled, folder: Path, spark: Session, *, rounds: int, step: Step) -> tuple[Table, Bars]:
    """Again and again a whole topic, each time into a new folder."""
    topics = {orders.topic: orders}
    for case in CASES:
        if case.payload not in topics:
            step(f"sending {orders.rows:,} rows of {case.payload}")
            topics[case.payload] = orders.beside(case.payload, orders.rows)
    found: dict[tuple[Case, str], Rounds[Sample]] = {}
    for case in CASES:
        step(f"archiving {case.payload}")
        topic = topics[case.payload]
        source = {"format": "penstock", "options": {**topic.options, "includeHeaders": "true"}}
        told = {"codec": case.codec, "folder": str(folder / "archived")}
        ways = {
            OURS: Way(spark, "archive", {**told, "bootstrap": topic.bootstrap, "topic": topic.topic}),
            THEIRS: Way(spark, "write", {**told, **source}),
        }
        samples = take_turns(topic, ways, rounds=rounds, step=step)
        found |= {(case, way): taken for way, taken in samples.items()}
    groups = {
        f"{case.payload}, {case.codec}": {way: found[case, way].median(per_second) / 1000 for way in (OURS, THEIRS)}
        for case in CASES
    }
    return make_table(found, CASES, orders.rows, rounds), Bars("Archiving rows of 1 KB", "thousand rows/s", groups)


def make_table(
    found: Mapping[tuple[Case, str], Rounds[Sample]], cases: Sequence[Case], rows: int, rounds: int
) -> Table:
    """Ours beside Spark's, of the same rows in the same codec."""
    made = []
    for case in cases:
        theirs = found[case, THEIRS]
        for way in (OURS, THEIRS):
            samples = found[case, way]
            values: dict[str, str | float] = {
                "way": f"{way}, {case.payload}, {case.codec}",
                "rows/s": samples.median(per_second),
                "spread": samples.spread(per_second),
                "CPU µs/row": samples.median(lambda each: each.cpu_us),
                "broker's": samples.median(lambda each: each.broker_cpu_us),
                "ratio": samples.ratio(theirs, per_second),
            }
            made.append(Row(values, (Target("ratio", LEAST_RATIO, at_most=False),) if way == OURS else ()))
    how = (
        f"{rows:,} rows of 1 KB, headers included, from the broker into Parquet, on local[2]; medians of {rounds} "
        "rounds in turns. `orders` is JSON that snappy makes a third of, `alike` one value over and over, `chance` "
        "what no codec makes smaller. Ours is a whole run: Delta commit, check of the files and commit of the group. "
        "The ratio is that of rows/s, within each round, to Spark's write in the same codec (zstd at level 1 in both)."
    )
    raw = {f"{way}, {case.payload}, {case.codec}": each.as_json() for (case, way), each in found.items()}
    return Table("Archiving", how, made, raw=raw)
