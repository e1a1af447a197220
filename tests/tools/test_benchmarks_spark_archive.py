"""The benchmark of archives: what it makes of its measurements."""

from benchmarks.spark_archive import make_table


def test_the_ratio_is_taken_within_each_round_and_codec() -> None:
    found = {
        "penstock pipeline archive, snappy": [400.0, 100.0, 900.0],
        "Spark's Parquet write, snappy": [100.0, 50.0, 200.0],
        "penstock pipeline archive, zstd": [200.0],
        "Spark's Parquet write, zstd": [100.0],
    }
    rows = make_table(found).rows
    assert [(row.values["rows/s"], row.values["ratio"], row.is_met) for row in rows] == [
        (400.0, 4.0, True),
        (100.0, 1.0, None),
        (200.0, 2.0, False),
        (100.0, 1.0, None),
    ]
