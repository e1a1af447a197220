"""The benchmarks of the pipeline: what they make of their measurements."""

from benchmarks.samples import Rounds
from benchmarks.spark import archiving, micro_batches, reading
from benchmarks.spark.archiving import Case
from benchmarks.spark.turns import Sample


def samples(*per_second: float) -> Rounds[Sample]:
    return Rounds([Sample(1_000, 1_000 / each, 0.002, 0.001) for each in per_second])


def test_our_source_is_held_against_parquet_and_against_the_connector_within_each_round() -> None:
    found = {
        "our source, 4.3.0": samples(60, 50, 80),
        "Spark's Parquet reader, 4.3.0": samples(100, 50, 100),
        "our source, 4.2.0": samples(60, 50, 70),
        "Spark's Parquet reader, 4.2.0": samples(100, 100, 100),
        "Spark's Kafka connector, 4.2.0": samples(40, 20, 40),
    }
    rows = reading.make_table(found, "4.3.0", "4.2.0", 1_000, 3).rows
    assert [(round(float(row.values["rows/s"])), round(float(row.values["ratio"]), 3), row.is_met) for row in rows] == [
        (60, 0.8, True),
        (100, 1.0, None),
        (60, 1.75, False),
        (100, 1.0, None),
        (40, 0.4, None),
    ]
    assert (rows[0].values["CPU µs/row"], rows[0].values["broker's"]) == (2.0, 1.0)


def test_an_archive_is_held_against_sparks_write_of_the_same_rows_in_the_same_codec() -> None:
    one, two = Case("orders", "snappy"), Case("alike", "zstd")
    found = {
        (one, archiving.OURS): samples(400, 100, 900),
        (one, archiving.THEIRS): samples(100, 50, 200),
        (two, archiving.OURS): samples(200),
        (two, archiving.THEIRS): samples(100),
    }
    rows = archiving.make_table(found, [one, two], 1_000, 3).rows
    assert [(round(float(row.values["rows/s"])), round(float(row.values["ratio"]), 3), row.is_met) for row in rows] == [
        (400.0, 4.0, True),
        (100.0, 1.0, None),
        (200.0, 2.0, False),
        (100.0, 1.0, None),
    ]


def test_a_micro_batch_is_held_against_the_target_in_the_tuned_session_alone() -> None:
    found = {
        (micro_batches.OURS, "tuned"): [90.0, 120.0, 80.0],
        (micro_batches.RATE, "tuned"): [45.0, 40.0, 40.0],
        (micro_batches.OURS, "plain"): [200.0],
        (micro_batches.RATE, "plain"): [100.0],
    }
    rows = micro_batches.make_table(found, target="tuned", rounds=3, batches=50).rows
    assert [(row.values["ms a batch"], row.values["ratio"], row.is_met) for row in rows] == [
        (90.0, 2.0, True),
        (40.0, 1.0, None),
        (200.0, 2.0, None),
        (100.0, 1.0, None),
    ]
