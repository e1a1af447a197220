"""What a task counts, and the rows that it hands over."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.spark.statistics import tally as stats_tally
from penstock.spark.statistics.plan import Scope
from penstock.spark.statistics.tally import HOUR_MS, Tally, arrow_schema


def rows(tally: Tally, kind: str) -> list[dict[str, Any]]:
    table = pa.Table.from_batches(tally.rows(), arrow_schema())
    return [
        {name: cell for name, cell in row.items() if cell is not None and name not in ("kind", "topic")}
        for row in table.to_pylist()
        if row["kind"] == kind
    ]


def add(tally: Tally, keys: list[bytes | None], sizes: list[int], times_ms: list[int], **more: Any) -> None:
    arrays = {name: np.array(value) for name, value in more.items()}
    times = np.array(times_ms, np.int64)
    tally.add(1, pa.array(keys, pa.binary()), np.array(sizes, np.int64), times_ms=times, **arrays)


def test_traffic_is_added_up_by_hour_and_what_has_no_time_stands_apart() -> None:
    tally = Tally("orders", Scope())
    add(tally, [None] * 3, [1, 2, 3], [0, HOUR_MS - 1, HOUR_MS])
    add(tally, [None] * 2, [10, 20], [HOUR_MS, -1])
    found = sorted(rows(tally, "traffic"), key=lambda row: row.get("hour", -1))
    assert found == [
        {"partition": 1, "messages": 1, "bytes": 20, "smallest": 20, "largest": 20},
        {"partition": 1, "hour": 0, "messages": 2, "bytes": 3, "smallest": 1, "largest": 2},
        {"partition": 1, "hour": 1, "messages": 2, "bytes": 13, "smallest": 3, "largest": 10},
    ]


def test_times_are_counted_in_seconds_or_wider_buckets() -> None:
    tally = Tally("orders", Scope(since_ms=1_000))
    add(tally, [None] * 4, [1] * 4, [999, 1_000, 1_999, 2_000])
    assert rows(tally, "time") == [
        {"hour": 1, "bucket": 0, "messages": 2},
        {"hour": 2, "bucket": 0, "messages": 1},
    ]


def test_no_key_is_a_key_of_its_own_and_an_empty_one_is_another() -> None:
    tally = Tally("orders", Scope())
    add(tally, [None, b"", b"a"], [1, 2, 3], [0, 0, 0])
    add(tally, [b"a"], [4], [0])
    found = sorted(rows(tally, "key"), key=lambda row: int(row["bytes"]))
    assert found == [
        {"messages": 1, "bytes": 1},
        {"key": b"", "messages": 1, "bytes": 2},
        {"key": b"a", "messages": 2, "bytes": 7},
    ]


def test_only_latencies_that_are_known_and_not_negative_count() -> None:
    tally = Tally("orders", Scope())
    latencies = {"latencies_ms": [5, -3, 100, 99], "has_latency": [True, True, True, False]}
    add(tally, [None] * 4, [1] * 4, [0] * 4, **latencies)
    assert rows(tally, "latency") == [
        {"bucket": 5, "messages": 1, "smallest": 5, "largest": 100},
        {"bucket": 100, "messages": 1, "smallest": 5, "largest": 100},
    ]
    assert rows(tally, "early") == [{"messages": 1}]


def test_the_scope_cuts_everything_alike() -> None:
    tally = Tally("orders", Scope(10, 20))
    latencies = {"latencies_ms": [1, 2, 3, 4], "has_latency": [True] * 4}
    add(tally, [b"a", b"b", b"c", b"d"], [1, 2, 3, 4], [9, 10, 19, 20], **latencies)
    assert [row["key"] for row in rows(tally, "key")] == [b"b", b"c"]
    tally = Tally("orders", Scope(10, 20))
    add(tally, [b"a", b"b", b"c", b"d"], [1, 2, 3, 4], [9, 10, 19, 20], **latencies)
    assert [row["bucket"] for row in rows(tally, "latency")] == [2, 3]
    tally = Tally("orders", Scope(50))
    add(tally, [b"a"], [1], [0])
    assert list(tally.rows()) == []


def test_many_keys_are_handed_over_before_the_end_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_tally, "MAX_KEYS", 10)
    tally = Tally("orders", Scope())
    handed = []
    for turn in range(4):
        add(tally, [b"%d" % (turn * 8 + number) for number in range(8)], [1] * 8, [0] * 8)
        handed += [each.num_rows for each in tally.overflow()]
    assert handed == [16, 16]
    assert rows(tally, "key") == []
