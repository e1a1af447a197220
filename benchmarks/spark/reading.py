"""Measures the rows a second that Spark reads: from the broker by our source and by Spark's Kafka connector, and from
Parquet."""

from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Step
from benchmarks.plots import Bars
from benchmarks.programs import ProgramError
from benchmarks.report import Row, Table, Target
from benchmarks.samples import Rounds
from benchmarks.spark.sessions import Session
from benchmarks.spark.topics import Filled
from benchmarks.spark.turns import Sample, Way, per_second, take_turns

OURS, PARQUET, CONNECTOR = "our source", "Spark's Parquet reader", "Spark's Kafka connector"
LEAST_OF_PARQUET: Final = 0.6
LEAST_OF_CONNECTOR: Final = 2.0


def measure(
    filled: Filled, folder: Path, ours: Session, theirs: Session, *, rounds: int, step: Step
) -> tuple[Table, Bars]:
    """In the project's Spark (`ours`), and in the one that has the connector (`theirs`)."""
    lake = str(folder / "parquet")
    step("writing the rows as Parquet")
    penstock: dict[str, Any] = {"format": "penstock", "options": filled.options}
    ours.ask("write", **penstock, folder=lake, codec="snappy")
    kafka: dict[str, Any] = {"format": "kafka", "options": {**filled.options, "startingOffsets": "earliest"}}
    parquet: dict[str, Any] = {"format": "parquet", "path": lake}
    ways = {
        _name(OURS, ours): Way(ours, "read", penstock),
        _name(PARQUET, ours): Way(ours, "read", parquet),
        _name(OURS, theirs): Way(theirs, "read", penstock),
        _name(PARQUET, theirs): Way(theirs, "read", parquet),
        _name(CONNECTOR, theirs): Way(theirs, "read", kafka),
    }
    _check_alike(filled, ways)
    found = take_turns(filled, ways, rounds=rounds, step=step)
    groups: dict[str, dict[str, float]] = {f"Spark {each.version}": {} for each in (ours, theirs)}
    for name, samples in found.items():
        way, _, version = name.rpartition(", ")
        groups[f"Spark {version}"][way] = samples.median(per_second) / 1000
    table = make_table(found, ours.version, theirs.version, filled.rows, rounds)
    return table, Bars("Reading rows of 1 KB", "thousand rows/s", groups)


def make_table(found: dict[str, Rounds[Sample]], own: str, other: str, rows: int, rounds: int) -> Table:
    """Every way beside the one that it is held against, in the same Spark."""
    held: dict[str, tuple[str, Target | None]] = {
        f"{OURS}, {own}": (f"{PARQUET}, {own}", Target("ratio", LEAST_OF_PARQUET, at_most=False)),
        f"{OURS}, {other}": (f"{CONNECTOR}, {other}", Target("ratio", LEAST_OF_CONNECTOR, at_most=False)),
        f"{CONNECTOR}, {other}": (f"{PARQUET}, {other}", None),
    }
    made = []
    for name, samples in found.items():
        other_name, target = held.get(name, ("", None))
        ratio = samples.ratio(found[other_name], per_second) if other_name else 1.0
        values: dict[str, str | float] = {
            "way": name,
            "rows/s": samples.median(per_second),
            "spread": samples.spread(per_second),
            "CPU µs/row": samples.median(lambda each: each.cpu_us),
            "broker's": samples.median(lambda each: each.broker_cpu_us),
            "beside": other_name or "–",
            "ratio": ratio,
        }
        made.append(Row(values, (target,) if target else ()))
    how = (
        f"{rows:,} rows of 1 KB with all columns into nothing (`noop`), on local[2], the broker on the same two cores; "
        f"medians of {rounds} rounds in turns. The ratio is that of rows/s, within each round. CPU is that of the JVM "
        "and the Python workers, and beside it that of the broker. Parquet is Spark's own, with snappy."
    )
    return Table("Reading", how, made, raw={name: each.as_json() for name, each in found.items()})


def _name(way: str, session: Session) -> str:
    return f"{way}, {session.version}"


def _check_alike(filled: Filled, ways: dict[str, Way]) -> None:
    """All of them read the same, or it would be no race."""
    totals = {name: way.session.ask("total", **way.told)["total"] for name, way in ways.items()}
    first = next(iter(totals.values()))
    if first[0] != filled.rows or any(each != first for each in totals.values()):
        raise ProgramError(f"{filled.rows} rows were sent, and what was read is not the same: {totals}")
