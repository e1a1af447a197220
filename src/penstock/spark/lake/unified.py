"""`read` makes one DataFrame of what is archived of a topic and what its log has, with every record once.

The table has a cut for each partition: rows below it come from the lake, and rows above it from the log.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.client.admin.offsets import EARLIEST, LATEST
from penstock.client.cluster.cluster import Cluster
from penstock.client.metadata import TopicPartition
from penstock.spark import planning, positions
from penstock.spark.lake.archiving import LostRecordsError, find_source, source_options
from penstock.spark.lake.lake import Lake, LakeError, Source
from penstock.spark.lake.spans import SpanPlan, read_span
from penstock.spark.link import connect
from penstock.spark.options import SourceOptions
from penstock.spark.planning import Range
from penstock.spark.schema import schema_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOKS: Final = 3
"""Limits how often the table and the log are looked at again because an archive run truncated the log in between."""


def read(
    spark: "SparkSession",
    topic: str,
    *,
    bootstrap: str | Mapping[str, Any],
    lake: str | None = None,
    min_partitions: int | None = None,
) -> "DataFrame":
    """All records of a topic as they are now: those in the lake, a folder that `archive` has filled, and those that
    only the log has. The columns are those of the source, including headers. Later records are not part of the
    DataFrame, however often it is read; records that are archived and truncated meanwhile still are.

    Example:
        read(session(), "orders", bootstrap="localhost:9092", lake="/lake/orders").groupBy("partition").count()
    """
    options = source_options(topic, bootstrap)
    link = connect(options.settings)
    source = find_source(link, topic)
    table, ranges = _look(lambda ends: link.run(_plan(link.cluster, options, source, ends)), source, lake)
    parts = planning.split(ranges, min_parts=min_partitions or spark.sparkContext.defaultParallelism)
    path = None if table is None else table.path
    live = read_span(spark, SpanPlan(dict(options.settings), source, path, tuple(parts)))
    return live if table is None else read_lake(spark, table).unionByName(live)


def read_lake(spark: "SparkSession", lake: Lake) -> "DataFrame":
    """A version of the table, read by Spark's own Parquet reader, which needs no jar."""
    schema = schema_text(includes_headers=True)
    # A path alone would be one of the cluster's default file system.
    base = lake.path if "://" in lake.path else f"file://{lake.path}"
    paths = [f"{base}/{each.path}" for each in lake.files()]
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)


def _look(
    plan: Callable[[Mapping[int, int]], tuple[list[Range], list[Range]]], source: Source, lake: str | None
) -> tuple[Lake | None, list[Range]]:
    """The table, and the ranges that the log has above it."""
    lost: list[Range] = []
    for _ in range(LOOKS):
        table = None if lake is None else Lake.load(lake)
        if table is not None and not table.exists:
            raise LakeError(f"there is no table in {table.path}: archive the topic first, or leave the lake out")
        ranges, lost = plan({} if table is None else table.ends(source))
        if not lost:
            return table, ranges
    raise LostRecordsError(
        f"{'; '.join(map(str, lost))}: deleted before they were archived. Archive with skip_lost (--skip-lost) to go "
        "on without them"
    )


async def _plan(
    cluster: Cluster, options: SourceOptions, source: Source, ends: Mapping[int, int]
) -> tuple[list[Range], list[Range]]:
    """The ranges that the log has and the table lacks, and those that neither has."""
    keys = [TopicPartition(source.topic, number) for number in range(source.partitions)]
    first = await positions.list_ends(cluster, dict.fromkeys(keys, EARLIEST), options)
    last = await positions.list_ends(cluster, dict.fromkeys(keys, LATEST), options)
    ranges, lost = [], []
    for key in keys:
        start = ends.get(key.partition, first[key])
        if start < first[key]:
            lost.append(Range(source.topic, source.topic_id, key.partition, start, first[key]))
        if start < last[key]:
            ranges.append(Range(source.topic, source.topic_id, key.partition, start, last[key]))
    return ranges, lost
