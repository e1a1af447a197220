"""`write_tables` writes statistics as Parquet files, a table for each kind."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.spark.lake.lake import locate, open_filesystem
from penstock.spark.statistics.buckets import Distribution
from penstock.spark.statistics.run import Stats

if TYPE_CHECKING:
    import pyarrow as pa


def write_tables(stats: Stats, folder: str | os.PathLike[str]) -> list[str]:
    """Write `topics.parquet`, `partitions.parquet`, `hours.parquet`, `keys.parquet`, `audits.parquet` and
    `findings.parquet` to a folder, or under a URI, in place of those that are there. Returns their paths."""
    import pyarrow.parquet as pq

    filesystem, base = open_filesystem(locate(folder))
    filesystem.create_dir(base, recursive=True)
    paths = []
    for name, table in make_tables(stats).items():
        path = f"{base}/{name}.parquet"
        pq.write_table(table, path, filesystem=filesystem)
        paths.append(path)
    return paths


def make_tables(stats: Stats) -> "dict[str, pa.Table]":
    """The statistics as tables of Arrow, by their names."""
    import pyarrow as pa

    text, whole, real, date = pa.string(), pa.int64(), pa.float64(), pa.timestamp("ms", "UTC")
    counts = {"topic": text, "partition": pa.int32(), "messages": whole, "bytes": whole}
    topics = {"topic": text, "messages": whole, "bytes": whole, "keys": whole, "without_key": whole, "ahead": whole}
    for prefix in ("size", "latency_ms"):
        topics |= {f"{prefix}_{name}": real if name == "mean" else whole for name in _DISTRIBUTION}
    audits = ("numbered", "unnumbered", "producers", "duplicates", "gaps", "removed", "missing_offsets")
    finding = {"kind": text, "producer_id": whole, "epoch": pa.int32(), "offset": whole, "sequence": whole}
    return {
        "topics": _table(
            topics,
            [
                asdict(each) | _spread("size", each.sizes) | _spread("latency_ms", each.latency_ms)
                for each in stats.topics
            ],
        ),
        "partitions": _table(counts | {"heat": real}, [asdict(each) for each in stats.partitions]),
        "hours": _table(
            counts | {"hour": date, "smallest": whole, "largest": whole},
            [asdict(each) | {"hour": each.hour_ms} for each in stats.hours],
        ),
        "keys": _table(
            {"topic": text, "key": pa.binary(), "messages": whole, "bytes": whole, "share": real},
            [asdict(each) for each in stats.keys],
        ),
        "audits": _table(
            {"topic": text, "partition": pa.int32()} | dict.fromkeys(audits, whole),
            [asdict(each) for each in stats.audits],
        ),
        "findings": _table(
            {"topic": text, "partition": pa.int32(), **finding, "count": whole},
            [
                asdict(found) | {"topic": each.topic, "partition": each.partition}
                for each in stats.audits
                for found in each.findings
            ],
        ),
    }


_DISTRIBUTION = ("count", "min", "mean", "p50", "p95", "p99", "max")


def _spread(prefix: str, found: Distribution | None) -> dict[str, Any]:
    return {f"{prefix}_{name}": None if found is None else getattr(found, name) for name in _DISTRIBUTION}


def _table(columns: dict[str, Any], rows: Sequence[dict[str, Any]]) -> "pa.Table":
    import pyarrow as pa

    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()})
