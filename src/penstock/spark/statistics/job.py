"""Runs the statistics on Spark: a Python data source counts a piece in each task, and Spark adds the counts up. This is
one pass over the data, and its result is small."""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import msgspec
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import InheritableThread, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Window, functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.spark.lake.archiving import source_options
from penstock.spark.lake.lake import Source
from penstock.spark.statistics.plan import Piece, Scope
from penstock.spark.statistics.scan import Job, scan
from penstock.spark.statistics.tally import COLUMNS, IDENTITY, arrow_schema
from penstock.spark.tasks import LOOK_SECONDS, TaskFailedError, sentence_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT: Final = "penstock-stats"

Items = Sequence[tuple[Job, Piece]]


def run_job(
    spark: "SparkSession", items: Items, *, top: int, watch: Callable[[int], None] = lambda _: None
) -> "pa.Table":
    """The rows of all pieces, added up. Of the keys there are the `top` ones of each topic and the null key, and rows
    of the kind `keys` say how many there are. `watch` is called with about how many offsets are done."""
    import pyarrow as pa

    if not items:
        return arrow_schema().empty_table()
    added = _count(spark, items)
    # Without this, each of the two actions would read everything.
    added.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        others = added.where("kind <> 'key' OR key IS NULL")
        total = sum(piece.range.size for _, piece in items)
        rows = _run(spark, "statistics", others.toArrow, lambda share: watch(int(share * total)), tasks=len(items))
        keys = _run(spark, "keys", _choose(added.where("kind = 'key' AND key IS NOT NULL"), top).toArrow)
        watch(total)
        return pa.concat_tables([rows, keys.select(rows.column_names)])
    finally:
        added.unpersist()


def _count(spark: "SparkSession", items: Items) -> "DataFrame":
    if spark not in _registered:
        spark.dataSource.register(StatsDataSource)
        _registered.add(spark)
    counted = spark.read.format(FORMAT).option("items", write_items(items)).load()
    return counted.groupBy(*IDENTITY).agg(
        functions.sum("messages").alias("messages"),
        functions.sum("bytes").alias("bytes"),
        functions.min("smallest").alias("smallest"),
        functions.max("largest").alias("largest"),
        functions.first("part").alias("part"),
    )


def _choose(keys: "DataFrame", top: int) -> "DataFrame":
    """The most frequent keys of each topic, equally frequent ones in the order of keys, and how many keys there are."""
    ranks = functions.row_number().over(Window.partitionBy("topic").orderBy(functions.desc("messages"), "key"))
    best = keys.withColumn("rank", ranks).where(functions.col("rank") <= top).drop("rank")
    nothing = [functions.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items()]
    counts = keys.groupBy("topic").agg(functions.count("*").alias("messages"))
    given = {"kind": functions.lit("keys"), "topic": functions.col("topic"), "messages": functions.col("messages")}
    columns = [given.get(name, empty).alias(name) for name, empty in zip(COLUMNS, nothing, strict=True)]
    return best.select(*COLUMNS).unionByName(counts.select(*columns))


# Spark warns when a source is registered again.
_registered: Final["WeakSet[SparkSession]"] = WeakSet()


class StatsDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    def reader(self, schema: "StructType") -> "StatsReader":
        return StatsReader(read_items(self.options["items"]))


class _SentJob(msgspec.Struct):
    settings: dict[str, str]
    source: Source
    scope: Scope


class _SentItems(msgspec.Struct):
    """The work as it is sent: each topic has one job and many pieces."""

    jobs: dict[str, _SentJob]
    pieces: list[Piece]


def write_items(items: Items) -> str:
    """The items as JSON. An option is text that any user may set, and reading JSON executes nothing."""
    jobs = {job.source.topic: _SentJob(dict(job.options.settings), job.source, job.scope) for job, _ in items}
    return msgspec.json.encode(_SentItems(jobs, [piece for _, piece in items])).decode()


def read_items(text: str) -> Items:
    sent = msgspec.json.decode(text, type=_SentItems)
    jobs = {
        topic: Job(source_options(topic, each.settings), each.source, each.scope) for topic, each in sent.jobs.items()
    }
    return [(jobs[piece.range.topic], piece) for piece in sent.pieces]


@dataclass
class StatsPartition(InputPartition):
    number: int
    job: Job
    piece: Piece


class StatsReader(DataSourceReader):
    def __init__(self, items: Items) -> None:
        self._partitions = [StatsPartition(number, *item) for number, item in enumerate(items)]

    def __getstate__(self) -> dict[str, Any]:
        # A task gets its own partition and does not need the others.
        return {"_partitions": []}

    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, StatsPartition)
        return scan(partition.job, partition.piece, partition.number)


def _run(
    spark: "SparkSession",
    name: str,
    action: Callable[[], Any],
    watch: Callable[[float], None] = lambda _: None,
    *,
    tasks: int = 0,
) -> Any:
    """The result of the action. `watch` is called now and then with the share of the stage of `tasks` tasks that is
    done.

    Spark's calls block, and an interrupt would have to wait for them, so they run in a thread."""
    group = f"penstock-{uuid.uuid4()}"
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            spark.sparkContext.setJobGroup(group, name, interruptOnCancel=True)
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread: threading.Thread = InheritableThread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            watch(_share_done(spark, group, tasks))
    except BaseException:
        spark.sparkContext.cancelJobGroup(group)
        thread.join()
        raise
    if not errors:
        return results[0]
    if isinstance(errors[0], Py4JJavaError | PySparkException):
        raise TaskFailedError(sentence_of(str(errors[0]))) from errors[0]
    raise errors[0]


def _share_done(spark: "SparkSession", group: str, tasks: int) -> float:
    tracker = spark.sparkContext.statusTracker()
    for job in tracker.getJobIdsForGroup(group):
        told = tracker.getJobInfo(job)
        for stage in () if told is None else told.stageIds:
            info = tracker.getStageInfo(stage)
            if info is not None and info.numTasks == tasks and tasks:
                return float(info.numCompletedTasks / tasks)
    return 0.0
