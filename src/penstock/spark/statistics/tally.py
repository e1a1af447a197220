"""`Tally` counts the records of a task by partition and hour, by key, and by size and latency, in rows that Spark adds
up."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.statistics.buckets import bucket_of
from penstock.spark.statistics.plan import Scope
from penstock.spark.statistics.times import TimeTally

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

HOUR_MS: Final = 3_600_000
MAX_KEYS: Final = 100_000
"""Limits the keys that a task holds before it hands them to Spark."""

COLUMNS: Final = {
    "kind": "string",
    "topic": "string",
    "partition": "int",
    "hour": "bigint",
    "key": "binary",
    "bucket": "int",
    "messages": "bigint",
    "bytes": "bigint",
    "smallest": "bigint",
    "largest": "bigint",
    "part": "binary",
}
"""The columns of the rows. Their kind decides which are set: `traffic` has partition and hour, `key` the key, `size`
and `latency` a bucket, `time` the number of a bucket in `hour` and the place of its width in `bucket`, and `audit` an
audited part of a partition."""
IDENTITY: Final = ("kind", "topic", "partition", "hour", "key", "bucket")
"""Rows that agree in these columns are added up."""


class Tally:
    """The counts of one topic."""

    def __init__(self, topic: str, scope: Scope) -> None:
        self._topic = topic
        self._scope = scope
        self._traffic: list[pa.Table] = []
        self._times = TimeTally()
        self._keys: list[pa.Table] = []
        self._sizes: dict[int, int] = {}
        self._latencies: dict[int, int] = {}
        self._latency_span: tuple[int, int] | None = None
        self._early = 0

    def add(
        self,
        partition: int,
        keys: "pa.Array",
        sizes: "NDArray[np.int64]",
        *,
        times_ms: "NDArray[np.int64]",
        latencies_ms: "NDArray[np.int64] | None" = None,
        has_latency: "NDArray[np.bool_] | None" = None,
    ) -> None:
        """Count some records. A time below 0 stands for no time."""
        import numpy as np
        import pyarrow as pa

        wanted = _within(times_ms, self._scope)
        if not wanted.all():
            keys, sizes, times_ms = keys.filter(pa.array(wanted)), sizes[wanted], times_ms[wanted]
            if latencies_ms is not None and has_latency is not None:
                latencies_ms, has_latency = latencies_ms[wanted], has_latency[wanted]
        if not len(sizes):
            return
        self._times.add(times_ms)
        hours = pa.array(times_ms // HOUR_MS, mask=times_ms < 0)
        rows = pa.table({"partition": np.full(len(sizes), partition, np.int32), "hour": hours, "size": sizes})
        self._traffic.append(
            rows.group_by(["partition", "hour"]).aggregate([("size", each) for each in ("count", "sum", "min", "max")])
        )
        rows = pa.table({"key": keys, "size": sizes})
        self._keys.append(rows.group_by("key").aggregate([("size", "count"), ("size", "sum")]))
        _count(self._sizes, bucket_of(sizes))
        if latencies_ms is not None and has_latency is not None and has_latency.any():
            self._add_latencies(latencies_ms[has_latency])

    def overflow(self) -> "Iterator[pa.RecordBatch]":
        """Yield the keys if there are many, and forget them."""
        if sum(each.num_rows for each in self._keys) > MAX_KEYS:
            merged = self._merged_keys()
            self._keys = [merged]
            if merged.num_rows > MAX_KEYS // 2:
                yield from self._key_rows()

    def rows(self) -> "Iterator[pa.RecordBatch]":
        """Yield all counts."""
        import pyarrow as pa

        if self._traffic:
            table = pa.concat_tables(self._traffic)
            table = table.group_by(["partition", "hour"]).aggregate(
                [("size_count", "sum"), ("size_sum", "sum"), ("size_min", "min"), ("size_max", "max")]
            )
            yield from make_rows(
                "traffic",
                self._topic,
                partition=table["partition"],
                hour=table["hour"],
                messages=table["size_count_sum"],
                bytes=table["size_sum_sum"],
                smallest=table["size_min_min"],
                largest=table["size_max_max"],
            )
        times = self._times
        if times.counts:
            levels = [times.level] * len(times.counts)
            counts = list(times.counts.values())
            yield from make_rows("time", self._topic, hour=list(times.counts), bucket=levels, messages=counts)
        yield from self._key_rows()
        yield from make_rows("size", self._topic, bucket=list(self._sizes), messages=list(self._sizes.values()))
        if self._latency_span is not None:
            count = len(self._latencies)
            yield from make_rows(
                "latency",
                self._topic,
                bucket=list(self._latencies),
                messages=list(self._latencies.values()),
                smallest=[self._latency_span[0]] * count,
                largest=[self._latency_span[1]] * count,
            )
        if self._early:
            yield from make_rows("early", self._topic, messages=[self._early])

    def _add_latencies(self, found: "NDArray[np.int64]") -> None:
        early = found < 0
        self._early += int(early.sum())
        found = found[~early]
        if not len(found):
            return
        _count(self._latencies, bucket_of(found))
        first, last = self._latency_span or (int(found[0]), int(found[0]))
        self._latency_span = min(first, int(found.min())), max(last, int(found.max()))

    def _merged_keys(self) -> "pa.Table":
        import pyarrow as pa

        table = pa.concat_tables(self._keys)
        merged = table.group_by("key").aggregate([("size_count", "sum"), ("size_sum", "sum")])
        return merged.rename_columns({"size_count_sum": "size_count", "size_sum_sum": "size_sum"})

    def _key_rows(self) -> "Iterator[pa.RecordBatch]":
        if self._keys:
            table = self._merged_keys()
            self._keys = []
            yield from make_rows(
                "key", self._topic, key=table["key"], messages=table["size_count"], bytes=table["size_sum"]
            )


def make_rows(kind: str, topic: str, **columns: Any) -> "Iterator[pa.RecordBatch]":
    """Rows of one kind; the columns that are not given are null."""
    import pyarrow as pa

    count = len(next(iter(columns.values())))
    columns |= {"kind": [kind] * count, "topic": [topic] * count}
    table = pa.table({name: columns.get(name, pa.nulls(count)) for name in COLUMNS}).cast(arrow_schema())
    yield from table.to_batches(max_chunksize=10_000)


def arrow_schema() -> "pa.Schema":
    import pyarrow as pa

    kinds = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in COLUMNS.items()])


def _within(times_ms: "NDArray[np.int64]", scope: Scope) -> "NDArray[np.bool_]":
    import numpy as np

    wanted = np.ones(len(times_ms), np.bool_)
    if scope.since_ms is not None:
        wanted &= times_ms >= scope.since_ms
    if scope.until_ms is not None:
        wanted &= times_ms < scope.until_ms
    return wanted


def _count(counts: dict[int, int], buckets: "NDArray[np.int32]") -> None:
    import numpy as np

    for bucket, count in zip(*np.unique(buckets, return_counts=True), strict=True):
        counts[int(bucket)] = counts.get(int(bucket), 0) + int(count)
