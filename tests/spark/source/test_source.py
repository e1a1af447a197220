"""The format `penstock` in Spark: batches, streams, and every trap of Python data sources that concerns it."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from penstock.client.metadata import TopicPartition
from penstock.protocol.records import NewRecord
from penstock.spark.options import OptionsError
from penstock.spark.planning import Range
from penstock.spark.source.source import BatchReader, PenstockDataSource, RangePartition, StreamReader
from tests.spark.cluster import TestCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def batch(spark: "SparkSession", cluster: TestCluster, **options: str) -> "DataFrame":
    named = {name.replace("__", "."): value for name, value in options.items()}
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.options(**named).load()


def stream(spark: "SparkSession", cluster: TestCluster, **options: str) -> "DataFrame":
    named = {"startingOffsets": "earliest"} | {name.replace("__", "."): value for name, value in options.items()}
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.options(**named).load()


def run(rows: "DataFrame", checkpoint: str, each: Callable[["DataFrame", int], None] | None = None) -> None:
    """Everything that is there now, to the end; errors are raised."""
    writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query = (writer.format("noop") if each is None else writer.foreachBatch(each)).start()
    query.awaitTermination()


class Collected:
    """A sink that keeps the offsets of each batch; a batch that is done again is replaced."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}
        self.fails_before: set[int] = set()
        self.fails_after: set[int] = set()

    def __call__(self, rows: "DataFrame", number: int) -> None:
        if number in self.fails_before:
            self.fails_before.remove(number)
            raise RuntimeError("before the write")
        self.batches[number] = [(row.partition, row.offset) for row in rows.select("partition", "offset").collect()]
        if number in self.fails_after:
            self.fails_after.remove(number)
            raise RuntimeError("after the write")

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for each in self.batches.values() for row in each)


def numbers(count: int, *, start: int = 0, partition: int = 0) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, count)]


def test_a_batch_has_the_schema_and_the_rows_of_sparks_kafka_source(
    spark: "SparkSession", cluster: TestCluster
) -> None:
    topic = cluster.create("rows", 2)
    cluster.send(topic, [NewRecord(b"one", b"k", [("h", b"1")], 1_500)], 0)
    cluster.send(topic, [NewRecord(None, None, (), 2_500)], 1)

    rows = batch(spark, cluster, subscribe=topic, includeHeaders="true")

    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    one, two = (row.asDict(recursive=True) for row in rows.orderBy("partition").collect())
    assert (bytes(one["key"]), bytes(one["value"]), one["topic"], one["offset"]) == (b"k", b"one", topic, 0)
    assert one["headers"] == [{"key": "h", "value": b"1"}]
    assert (two["key"], two["value"], two["headers"], two["timestampType"]) == (None, None, None, 0)
    assert rows.selectExpr("cast(timestamp as double) t").orderBy("t").first() == (1.5,)


def test_a_schema_of_some_columns_is_honoured(spark: "SparkSession", cluster: TestCluster) -> None:
    topic = cluster.create("subset")
    cluster.send(topic, ["a", "b"])
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap)

    rows = reader.option("subscribe", topic).schema("offset bigint, value binary").load()

    assert [(row.offset, bytes(row.value)) for row in rows.collect()] == [(0, b"a"), (1, b"b")]
    with pytest.raises(PySparkException, match="the schema has value as string, but it is binary"):
        reader.option("subscribe", topic).schema("value string").load().collect()


def test_one_partition_is_split_over_tasks(spark: "SparkSession", cluster: TestCluster) -> None:
    topic = cluster.create("split")
    cluster.send_count(topic, 100)

    rows = batch(spark, cluster, subscribe=topic, minPartitions="4")

    assert rows.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in rows.select("offset").collect()) == list(range(100))


def test_a_batch_data_frame_is_a_snapshot(spark: "SparkSession", cluster: TestCluster) -> None:
    topic = cluster.create("snapshot")
    cluster.send(topic, ["before"])
    rows = batch(spark, cluster, subscribe=topic)
    assert rows.count() == 1
    cluster.send(topic, ["after"])

    assert rows.count() == 1
    assert len(rows.select("value").collect()) == 1
    assert batch(spark, cluster, subscribe=topic).count() == 2


def test_an_empty_batch_is_empty(spark: "SparkSession", cluster: TestCluster) -> None:
    assert batch(spark, cluster, subscribe=cluster.create("empty")).collect() == []


def test_a_filter_does_not_leak_into_later_uses(spark: "SparkSession", cluster: TestCluster) -> None:
    """`pushFilters` gives wrong results: it is never implemented."""
    topic = cluster.create("filtered")
    cluster.send_count(topic, 10)
    rows = batch(spark, cluster, subscribe=topic)

    assert BatchReader.pushFilters is DataSourceReader.pushFilters
    assert rows.filter("offset = 3").count() == 1
    assert rows.count() == 10


def test_a_temporary_view_keeps_its_options(spark: "SparkSession", cluster: TestCluster) -> None:
    """`CREATE TABLE … USING` loses options; temporary views work."""
    topic = cluster.create("view")
    cluster.send(topic, ["a"])

    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW events USING penstock "
        f"OPTIONS ('kafka.bootstrap.servers' '{cluster.bootstrap}', subscribe '{topic}')"
    )

    assert spark.sql("SELECT count(*) FROM events").first() == (1,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribed": "x"}, "subscribed is no option of the source: did you mean subscribe"),
        ({"startingOffsets": "latest"}, "a batch begins at earliest or offsets"),
        ({"subscribe": "no-such-topic-anywhere"}, "there is no such topic"),
    ],
)
def test_a_wrong_option_is_told_before_any_job(
    spark: "SparkSession", cluster: TestCluster, options: dict[str, str], message: str
) -> None:
    before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)

    # The sentence comes in the first line, before the traceback.
    with pytest.raises(PySparkException, match=f"^[^\n]*{message}"):
        batch(spark, cluster, **({"subscribe": "x"} | options)).collect()

    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == before


def test_the_error_of_a_stream_and_of_its_tasks_is_a_sentence_before_the_traceback(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    with pytest.raises(PySparkException, match=r"^[^\n]*there is no such topic"):
        run(stream(spark, cluster, subscribe="no-such-topic-anywhere"), checkpoint)
    rows = spark.range(3).selectExpr("cast(id as string) AS value", "'no-such-topic-anywhere' AS topic")
    with pytest.raises(PySparkException) as raised:
        rows.write.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap).mode("append").save()
    before, found, _ = str(raised.value).partition("Traceback (most recent call last)")
    assert "there is no such topic" in before
    assert found


def test_a_task_is_told_everything_in_its_partition(cluster: TestCluster) -> None:
    """State set in `latestOffset` is invisible in `read()`."""
    topic = cluster.create("told")
    cluster.send_count(topic, 5)
    schema = StructType().add("offset", "long")
    options = cluster.options("streaming", subscribe=topic)
    copy = pickle.dumps(StreamReader(options, schema))
    driver = StreamReader(options, schema)
    start = driver.initialOffset()
    partitions = driver.partitions(start, driver.latestOffset(start, driver.getDefaultReadLimit()))

    sent = pickle.dumps(partitions)
    (partition,) = pickle.loads(sent)
    rows = [row for each in pickle.loads(copy).read(partition) for row in each.column("offset").to_pylist()]

    assert rows == list(range(5))
    assert len(sent) < 500
    assert repr(partition) == f"offsets 0 to 5 of {topic}-0"


def test_the_arrow_schema_matches_exactly(cluster: TestCluster) -> None:
    """`binary`, `timestamp[us, UTC]`, list child named `element`."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, TimestampType

    topic = cluster.create("arrow")
    cluster.send(topic, [NewRecord(b"v", headers=[("h", None)])])
    schema = StructType().add("timestamp", TimestampType()).add("key", BinaryType()).add("topic", StringType())
    schema = schema.add("partition", IntegerType()).add("offset", LongType()).add("timestampType", IntegerType())
    schema = schema.add("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType())))
    reader = BatchReader(cluster.options(subscribe=topic), schema)

    (made,) = [each for partition in reader.partitions() for each in reader.read(partition)]

    assert made.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_the_partition_that_spark_makes_for_an_empty_batch_has_no_rows(cluster: TestCluster) -> None:
    from pyspark.sql.datasource import InputPartition

    reader = BatchReader(cluster.options(subscribe="x"), StructType().add("offset", "long"))

    assert list(reader.read(InputPartition(None))) == []


def test_the_limit_that_spark_is_told_is_one_of_the_options(cluster: TestCluster) -> None:
    schema = StructType().add("offset", "long")
    limits = [{"maxOffsetsPerTrigger": "5"}, {"maxBytesPerTrigger": "5"}, {"minOffsetsPerTrigger": "5"}, {}]

    readers = [StreamReader(cluster.options("streaming", subscribe="x", **each), schema) for each in limits]

    told = [type(each.getDefaultReadLimit()).__name__ for each in readers]
    assert told == ["ReadMaxRows", "ReadMaxBytes", "ReadMinRows", "ReadAllAvailable"]
    assert PenstockDataSource.name() == "penstock"
    assert RangePartition(Range("a", "", 0, 0, 1)) == RangePartition(Range("a", "", 0, 0, 1))


def test_a_stream_reads_everything_in_limited_batches(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic = cluster.create("stream", 2)
    cluster.send_count(topic, 80, 0)
    cluster.send_count(topic, 20, 1)
    sink = Collected()
    rows = stream(spark, cluster, subscribe=topic, maxOffsetsPerTrigger="50")

    run(rows, checkpoint, sink)
    cluster.send_count(topic, 10, 1)
    run(rows, checkpoint, sink)

    assert [len(each) for each in sink.batches.values()] == [50, 50, 10]
    assert sink.rows == numbers(80) + numbers(30, partition=1)


def test_progress_is_published_up_to_the_last_batch(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    """`reader.commit` misses the last batch, `reader.stop` is never called."""
    topic = cluster.create("progress")
    cluster.send_count(topic, 30)

    run(
        stream(spark, cluster, subscribe=topic, kafka__group__id=f"{topic}-query", maxOffsetsPerTrigger="20"),
        checkpoint,
    )

    assert cluster.committed(f"{topic}-query") == {TopicPartition(topic, 0): 30}


def test_a_running_query_follows_the_log_and_its_partitions(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic = cluster.create("running")
    sink = Collected()
    rows = stream(spark, cluster, subscribe=topic)
    query = rows.writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink).start()
    try:
        query.processAllAvailable()
        cluster.send_count(topic, 5)
        query.processAllAvailable()
        assert sink.rows == numbers(5)
        cluster.add_partitions(topic, 2)
        cluster.send_count(topic, 3, 1)
        query.processAllAvailable()
        progress = query.lastProgress
        assert progress is not None
        assert json.loads(progress.sources[0].latestOffset)["topics"][topic]["offsets"] == {"0": 5, "1": 3}
    finally:
        query.stop()

    assert sink.rows == numbers(5) + numbers(3, partition=1)
    assert not query.isActive


def test_a_stream_from_latest_without_a_group_is_refused(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    rows = stream(spark, cluster, subscribe=cluster.create("latest"), startingOffsets="latest")

    with pytest.raises(PySparkException, match=r"^[^\n]*needs kafka\.group\.id"):
        run(rows, checkpoint)


def test_a_stream_whose_options_are_wrong_is_refused_at_the_first_call(cluster: TestCluster) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "x"}
    reader = PenstockDataSource(options).streamReader(StructType().add("offset", "long"))
    calls: list[Callable[[], object]] = [
        reader.initialOffset,
        reader.getDefaultReadLimit,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(RangePartition(Range("x", "", 0, 0, 1))),
    ]
    for call in calls:
        with pytest.raises(OptionsError, match=r"needs kafka\.group\.id"):
            call()


def test_a_first_batch_that_fails_with_starting_offsets_latest_loses_nothing(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    """`initialOffset()` is asked again after a failed first batch and is not persisted."""
    topic = cluster.create("latest")
    cluster.send_count(topic, 10)
    sink = Collected()
    rows = stream(spark, cluster, subscribe=topic, startingOffsets="latest", kafka__group__id=f"{topic}-query")
    sink.fails_before.add(0)
    with pytest.raises(PySparkException, match="before the write"):
        run(rows, checkpoint, sink)
    cluster.send_count(topic, 10)
    # As if it had died before it wrote where the first batch ends.
    forget(checkpoint, "offsets", 0)

    run(rows, checkpoint, sink)

    assert sink.rows == numbers(20, start=10)


def test_a_first_batch_that_fails_is_done_again_though_the_starting_offsets_fit_no_longer(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic = cluster.create("outgrown")
    cluster.send_count(topic, 10)
    sink = Collected()
    rows = stream(spark, cluster, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 2}}))
    sink.fails_before.add(0)
    with pytest.raises(PySparkException, match="before the write"):
        run(rows, checkpoint, sink)
    cluster.add_partitions(topic, 2)
    cluster.send_count(topic, 3, 1)

    run(rows, checkpoint, sink)

    assert sink.rows == numbers(10, start=2) + numbers(3, partition=1)
    with pytest.raises(PySparkException, match=f"the starting offsets leave out {topic}-1"):
        run(rows, f"{checkpoint}-of-another")


def forget(checkpoint: str, kind: str, number: int) -> None:
    """As if the driver had died before it wrote this file."""
    folder = Path(checkpoint) / kind
    for name in (str(number), f".{number}.crc"):
        (folder / name).unlink(missing_ok=True)


def test_a_driver_that_died_at_any_step_goes_on_without_a_row_lost_or_doubled(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic = cluster.create("died", 2)
    for partition in (0, 1):
        cluster.send_count(topic, 40, partition)
    sink = Collected()
    rows = stream(
        spark, cluster, subscribe=topic, maxOffsetsPerTrigger="30", minPartitions="3", kafka__group__id=f"{topic}-query"
    )

    def fail(*, before: set[int] | None = None, after: set[int] | None = None) -> None:
        sink.fails_before, sink.fails_after = before or set(), after or set()
        with pytest.raises(PySparkException, match="the write"):
            run(rows, checkpoint, sink)

    fail(before={0})
    fail(after={0})
    first = sink.batches[0]
    fail(before={1})
    fail(after={2})
    assert sink.batches[0] == first
    # The sink has done everything, and that the last batch is done was never written.
    forget(checkpoint, "commits", 1)
    cluster.send_count(topic, 10)
    run(rows, checkpoint, sink)
    forget(checkpoint, "commits", 3)
    run(rows, checkpoint, sink)

    assert sink.rows == numbers(50) + numbers(40, partition=1)
    assert len(sink.batches) == 4


def test_a_batch_that_is_done_again_reads_the_same_rows(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic = cluster.create("again")
    cluster.send_count(topic, 10)
    cluster.delete_records(topic, 3)
    sink, again = Collected(), Collected()
    rows = stream(spark, cluster, subscribe=topic)
    run(rows, checkpoint, sink)
    forget(checkpoint, "commits", 0)
    cluster.send_count(topic, 5)

    run(rows, checkpoint, again)

    assert sink.batches[0] == again.batches[0] == numbers(10, start=3)
    assert again.batches[1] == numbers(15, start=10)


def test_retention_that_overtakes_a_slow_query_is_a_clear_error_or_skipped(
    spark: "SparkSession", cluster: TestCluster, checkpoint: str
) -> None:
    topic = cluster.create("slow")
    cluster.send_count(topic, 20)
    sink = Collected()
    run(stream(spark, cluster, subscribe=topic), checkpoint, sink)
    cluster.send_count(topic, 20)
    cluster.delete_records(topic, 30)

    with pytest.raises(PySparkException, match=f"offsets 20 to 30 of {topic}-0 are gone: retention"):
        run(stream(spark, cluster, subscribe=topic), checkpoint, sink)

    run(stream(spark, cluster, subscribe=topic, failOnDataLoss="false"), checkpoint, sink)
    assert sink.rows == numbers(20) + numbers(40, start=30)


def test_a_recreated_topic_is_a_clear_error(spark: "SparkSession", cluster: TestCluster, checkpoint: str) -> None:
    topic = cluster.create("recreated")
    cluster.send_count(topic, 20)
    run(stream(spark, cluster, subscribe=topic), checkpoint)
    cluster.delete_topic(topic)
    cluster.broker.create_topic(topic)
    cluster.send_count(topic, 30)

    with pytest.raises(PySparkException, match="was deleted and made again"):
        run(stream(spark, cluster, subscribe=topic), checkpoint)


def test_a_checkpoint_of_another_topic_is_refused(spark: "SparkSession", cluster: TestCluster, checkpoint: str) -> None:
    one, other = cluster.create("one"), cluster.create("other")
    run(stream(spark, cluster, subscribe=one), checkpoint)
    cluster.send_count(one, 1)
    run(stream(spark, cluster, subscribe=one), checkpoint)

    with pytest.raises(PySparkException, match="cannot be read any more: deleted, or not subscribed"):
        run(stream(spark, cluster, subscribe=other), checkpoint)


# A program of its own, for the tests' own Python has neither: what we need is to run without them.
COUNTING = """
import sys
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from penstock.spark import session
from tests.spark.conftest import CONF, MASTER

bootstrap, topic, checkpoint = sys.argv[1:]
store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = session(MASTER, **CONF, **{"spark.sql.streaming.stateStore.providerClass": store})

class Count(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0] + len(list(rows))
        self.total.update((total,))
        yield Row(partition=key[0], total=total)

    def close(self):
        pass

options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
rows = spark.readStream.format("penstock").options(**options, maxOffsetsPerTrigger=20).load()
counted = rows.groupBy("partition").transformWithState(
    statefulProcessor=Count(), outputStructType="partition int, total long", outputMode="Update", timeMode="None"
)
found = {}
writer = counted.writeStream.foreachBatch(lambda rows, _: found.update({row[0]: row[1] for row in rows.collect()}))
writer = writer.option("checkpointLocation", checkpoint).outputMode("update").trigger(availableNow=True)
writer.start().awaitTermination()
print(sorted(found.items()))
"""


@pytest.mark.timeout(1200)
def test_transform_with_state_needs_protobuf_and_pandas(cluster: TestCluster, checkpoint: str, tmp_path: Path) -> None:
    topic = cluster.create("counted", 2)
    cluster.send_count(topic, 30, 0)
    cluster.send_count(topic, 10, 1)
    command = [sys.executable, "-c", COUNTING, cluster.bootstrap, topic, checkpoint]

    refused = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert refused.returncode == 1
    assert "must be installed; however, it was not found" in refused.stderr

    packages = str(tmp_path / "packages")
    installer = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", packages]
    subprocess.run([*installer, "pandas", "protobuf"], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), packages])}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[(0, 30), (1, 10)]"
