"""A task's pass over a piece, without Spark around it."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.errors import CorruptBatchError
from penstock.protocol.compression import Codec
from penstock.protocol.records import NewRecord, build
from penstock.spark.lake.archiving import find_source, source_options
from penstock.spark.planning import Range
from penstock.spark.source.fetch import Chunk
from penstock.spark.statistics import scan as stats_scan
from penstock.spark.statistics.audit import Auditor, Finding, Kind, Part, Span
from penstock.spark.statistics.plan import Piece, Scope
from penstock.spark.statistics.scan import Job, read_part, scan
from penstock.spark.statistics.tally import Tally, arrow_schema
from tests.client import one_batch
from tests.spark.cluster import TestCluster
from tests.spark.lakes import add, span


def run(cluster: TestCluster, topic: str, **options: Any) -> list[dict[str, Any]]:
    source = find_source(cluster.link, topic)
    wanted = Range(topic, source.topic_id, 0, options.pop("start", 0), options.pop("end"))
    job = Job(source_options(topic, cluster.bootstrap), source, Scope())
    rows: list[dict[str, Any]] = pa.Table.from_batches(
        scan(job, Piece(wanted, **options), 3), arrow_schema()
    ).to_pylist()
    return rows


def count(rows: list[dict[str, Any]], kind: str = "traffic", column: str = "messages") -> int:
    return sum(row[column] for row in rows if row["kind"] == kind)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_within_the_range_are_counted_and_no_others(cluster: TestCluster, codec: Codec) -> None:
    topic = cluster.create("ranged")
    for _ in range(3):
        cluster.send(topic, ["x" * 10] * 10, codec=codec)
    rows = run(cluster, topic, start=5, end=25)
    assert (count(rows), count(rows, column="bytes"), count(rows, "key"), count(rows, "size")) == (20, 200, 20, 20)


def test_a_gap_in_a_real_log_is_found(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cluster.create("gap")
    # A broker takes any number from a producer that it does not know.
    monkeypatch.setattr(one_batch, "build", partial(build, producer_id=777, producer_epoch=0, base_sequence=4))
    cluster.send(topic, ["x"] * 3)
    rows = run(cluster, topic, end=3, is_lead=True, is_from_beginning=True)
    (row,) = [row for row in rows if row["kind"] == "audit"]
    part = read_part(row["part"])
    assert (row["partition"], row["bucket"], part.records, part.spans[0].first_sequence) == (0, 3, 3, 4)


def test_the_producers_times_are_read_behind_the_brokers(cluster: TestCluster) -> None:
    topic = cluster.create("appended", message_timestamp_type="LogAppendTime")
    for codec in (Codec.NONE, Codec.LZ4):
        cluster.send(topic, [NewRecord(b"x", timestamp=1000), NewRecord(b"x", timestamp=1500)], codec=codec)
    rows = run(cluster, topic, end=4)
    waits = [row for row in rows if row["kind"] == "latency"]
    assert sum(row["messages"] for row in waits) == 4
    assert 500 <= max(row["largest"] for row in waits) - min(row["smallest"] for row in waits) < 3_600_000
    assert all(row["hour"] > 400_000 for row in rows if row["kind"] == "traffic")


def test_damaged_batches_are_refused_whichever_clock_they_have() -> None:
    for log_append_time in (None, 5):
        data = build([NewRecord(b"x" * 100, timestamp=1)], log_append_time=log_append_time)
        data[-5] ^= 1
        chunk = Chunk(memoryview(data), 1, 1, ())
        wanted = Range("orders", "", 0, 0, 1)
        with pytest.raises(CorruptBatchError, match="cannot be read"):
            stats_scan._add_chunk(Tally("orders", Scope()), Auditor(0, 1), wanted, 0, chunk, checks_crcs=True)


def test_what_is_deleted_from_the_log_meanwhile_comes_from_the_lake_or_is_left_out(
    cluster: TestCluster, tmp_path: Path
) -> None:
    topic = cluster.create("overtaken")
    cluster.send_count(topic, 30)
    source = find_source(cluster.link, topic)
    lake = add(tmp_path, span(0, 15, source=source), source=source)
    cluster.delete_records(topic, 20)
    assert count(run(cluster, topic, end=30)) == 10
    assert count(run(cluster, topic, end=30, archived_in=lake.path)) == 25


def test_rows_of_the_lake_have_the_size_that_records_of_the_log_have(cluster: TestCluster, tmp_path: Path) -> None:
    topic = cluster.create("sized")
    source = find_source(cluster.link, topic)
    lake = add(tmp_path, span(0, 10, source=source), source=source)
    rows = run(cluster, topic, start=2, end=8, lake=lake.path)
    keys = sum(0 if number % 3 == 0 else len(f"key-{number}") for number in range(2, 8))
    values = sum(0 if number % 5 == 4 else len(f"value-{number}") for number in range(2, 8))
    headers = sum(0 if number % 2 else 2 * (1 + len(f"{number}")) for number in range(2, 8))
    assert (count(rows), count(rows, column="bytes")) == (6, keys + values + headers)
    assert not [row for row in rows if row["kind"] in ("audit", "latency")]


def test_a_part_is_the_same_after_its_way_to_the_driver() -> None:
    part = Part(1, 9, spans=[Span(1, 0, 5, 1, 0)], findings=[Finding(Kind.GAP, 1, 0, 5, 2, 3)])
    assert read_part(json.dumps(asdict(part)).encode()) == part
