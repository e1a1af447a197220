"""The format `penstock` as a sink: what is written, what is told when it fails, and what comes twice."""

import json
import logging
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.protocol.compression import Codec
from penstock.spark.lake.files import arrow_schema
from penstock.spark.options import OptionsError
from penstock.spark.sink import sink
from penstock.spark.sink.sink import BatchWriter, SinkError, StreamWriter, Written
from penstock.spark.source.driver import Driver
from penstock.spark.source.fetch import fetch_chunk
from penstock.spark.source.reader import read_range
from penstock.spark.source.source import PenstockDataSource
from tests.spark.cluster import TestCluster
from tests.spark.source.test_source import forget, stream
from tests.spark.waiting import PADDING, wait_for_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
ARROW_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
TYPES: "dict[str, DataType]" = {
    "topic": StringType(),
    "key": StringType(),
    "value": StringType(),
    "headers": HEADERS,
    "partition": IntegerType(),
    "timestamp": TimestampType(),
    "offset": LongType(),
}


class Sink:
    """A writer as a task has it, without Spark around it."""

    def __init__(self, cluster: TestCluster) -> None:
        self.cluster = cluster

    def writer(self, *names: str, **options: str) -> BatchWriter:
        named = {name.replace("__", "."): value for name, value in options.items()}
        source = PenstockDataSource({"kafka.bootstrap.servers": self.cluster.bootstrap, **named})
        made = source.writer(StructType([StructField(name, TYPES[name]) for name in names]), False)
        # It comes to the tasks this way.
        copy: BatchWriter = pickle.loads(pickle.dumps(made))
        return copy

    def write(self, *batches: dict[str, Any], **options: str) -> Written:
        writer = self.writer(*batches[0], **options)
        told = pickle.loads(pickle.dumps(writer.write(iter([pa.RecordBatch.from_pydict(each) for each in batches]))))
        assert isinstance(told, Written)
        return told

    def messages(self, topic: str) -> list[dict[str, Any]]:
        """Everything in the topic, by partition and offset."""
        options = self.cluster.options(subscribe=topic)
        ranges = sorted(Driver(options, self.cluster.link).plan_batch(), key=lambda each: each.partition)
        return [
            row for each in ranges for part in read_range(options, each, arrow_schema()) for row in part.to_pylist()
        ]

    def values(self, topic: str) -> list[str]:
        return [row["value"].decode().strip() for row in self.messages(topic)]


@pytest.fixture(params=["rows", "columns"])
def sink_stage(cluster: TestCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sink:
    """Few rows are sent one by one, and many as whole columns: that must make no difference."""
    monkeypatch.setattr(sink, "ROWS_FOR_COLUMNS", 0 if request.param == "columns" else 1 << 60)
    return Sink(cluster)


@pytest.fixture
def stage(cluster: TestCluster) -> Sink:
    return Sink(cluster)


def strings(numbers: range) -> list[str]:
    return [str(number) for number in numbers]


def test_a_message_has_all_that_the_columns_say(sink_stage: Sink) -> None:
    topic = sink_stage.cluster.create("columns", 3)
    stamps = pa.array([1_500_999, None, 2_000_000], pa.timestamp("us", "UTC"))

    told = sink_stage.write(
        {
            "key": ["k", None, ""],
            "value": pa.array(["v", None, ""]),
            "headers": pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None, []], ARROW_HEADERS),
            "partition": pa.array([2, 1, 0], pa.int32()),
            "timestamp": stamps,
            "offset": [7, 7, 7],
        },
        topic=topic,
    )

    empty, nothing, full = sink_stage.messages(topic)
    assert (full["key"], full["value"], full["partition"]) == (b"k", b"v", 2)
    assert full["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert full["timestamp"].timestamp() == 1.5
    assert (nothing["key"], nothing["value"], nothing["headers"], nothing["partition"]) == (None, None, None, 1)
    assert nothing["timestamp"].timestamp() > 1_700_000_000
    assert (empty["key"], empty["value"], empty["headers"], empty["partition"]) == (b"", b"", None, 0)
    assert told == Written(0, {topic: 3})


def test_rows_go_to_several_topics_and_stay_in_their_order(sink_stage: Sink) -> None:
    one, other = sink_stage.cluster.create("one"), sink_stage.cluster.create("other")
    batches = [
        {"topic": [one, other] * 50, "value": strings(range(start, start + 100))} for start in range(0, 1000, 100)
    ]

    told = sink_stage.write(*batches)

    assert sink_stage.values(one) == strings(range(0, 1000, 2))
    assert sink_stage.values(other) == strings(range(1, 1000, 2))
    assert told.rows == {one: 500, other: 500}


def test_the_option_topic_has_the_last_word_over_the_column(sink_stage: Sink) -> None:
    topic = sink_stage.cluster.create("option")

    sink_stage.write({"topic": ["elsewhere", None], "value": ["a", "b"]}, topic=topic)

    assert sink_stage.values(topic) == ["a", "b"]


def test_keys_decide_about_partitions_as_in_kafkas_sink(sink_stage: Sink) -> None:
    """By murmur2, so that rows with a key go where other producers have put it."""
    topic = sink_stage.cluster.create("keys", 4)

    sink_stage.write({"key": ["a", "b", "c", "d", "e"], "value": strings(range(5))}, topic=topic)

    placed = {row["key"]: row["partition"] for row in sink_stage.messages(topic)}
    assert placed == {key: (murmur2(key) & 0x7FFFFFFF) % 4 for key in (b"a", b"b", b"c", b"d", b"e")}


def test_a_row_that_fails_is_named_with_its_place_in_the_task(sink_stage: Sink) -> None:
    one, other = sink_stage.cluster.create("failing", 2), sink_stage.cluster.create("other")

    def rows(topics: Sequence[str | None], partitions: Sequence[int | None]) -> dict[str, Any]:
        column = pa.array(partitions, pa.int32())
        return {"topic": pa.array(topics, pa.string()), "partition": column, "value": ["v"] * len(topics)}

    good = rows([one] * 10, [None] * 10)
    with pytest.raises(
        SinkError, match=r"rows 11, 13 of the task for topic 'failing-\d+' were not sent, 2 of 3: parti"
    ):
        sink_stage.write(good, rows([one, one, other, one], [1, 9, None, 7]))
    with pytest.raises(SinkError, match="row 12 of the task has no topic: fill the column, or set the option 'topic'"):
        sink_stage.write(good, rows([one, one, None, other], [0, 0, 0, 0]))
    with pytest.raises(SinkError, match="row 10 of the task has a negative partition"):
        sink_stage.write(good, rows([one], [-1]))
    with pytest.raises(
        SinkError, match=r"rows 11 to 13 of the task for topic 'nowhere' were not sent: .*no such topic"
    ):
        sink_stage.write(good, rows([one, "nowhere", one, "nowhere"], [0, 0, 0, 0]))


def test_a_producer_is_kept_from_task_to_task_until_one_fails(stage: Sink) -> None:
    """Brokers remember every producer for a day: one for each task would be too many."""
    topic = stage.cluster.create("kept")
    client = {"kafka.client.id": topic}

    def producers() -> list[Any]:
        return [each for key, each in sink._process.producers.items() if ("client.id", topic) in key]

    stage.write({"value": ["a"]}, topic=topic, **client)
    first = producers()
    stage.write({"value": ["b"]}, topic=topic, **client)
    assert len(first) == 1
    assert producers() == first

    with pytest.raises(SinkError):
        stage.write({"value": ["c"], "partition": pa.array([9], pa.int32())}, topic=topic, **client)
    assert producers() == []
    stage.write({"value": ["d"]}, topic=topic, **client)
    assert stage.values(topic) == ["a", "b", "d"]


def test_settings_of_the_producer_have_their_effect(stage: Sink) -> None:
    topic = stage.cluster.create("settings")
    options = stage.cluster.options(subscribe=topic)

    stage.write({"value": ["a" * 1000]}, topic=topic, kafka__compression__type="zstd")
    stage.write({"value": ["b"]}, topic=topic, kafka__acks="1", kafka__enable__idempotence="false")

    (wanted,) = Driver(options, stage.cluster.link).plan_batch()
    chunk = stage.cluster.link.run(
        fetch_chunk(stage.cluster.cluster, wanted.key, wanted.topic_id, 0, max_bytes=1 << 20, read_committed=True)
    )
    data = bytes(chunk.data)
    # Of a batch's header, bytes 21 and 22 are the attributes, and 43 to 51 the producer's id.
    second = int.from_bytes(data[8:12]) + 12
    assert Codec(data[22] & 7) is Codec.ZSTD
    assert int.from_bytes(data[43:51], signed=True) >= 0
    assert int.from_bytes(data[second + 43 : second + 51], signed=True) == -1


def test_an_empty_task_writes_nothing(stage: Sink) -> None:
    topic = stage.cluster.create("empty")

    told = stage.writer("value", topic=topic).write(iter(()))

    assert told == Written(0, {})
    assert stage.messages(topic) == []


def test_commit_and_abort_tell_totals(stage: Sink, caplog: pytest.LogCaptureFixture) -> None:
    topic = stage.cluster.create("totals")
    batch = stage.writer("value", topic=topic)
    streaming = PenstockDataSource({"kafka.bootstrap.servers": stage.cluster.bootstrap, "topic": topic}).streamWriter(
        StructType().add("value", StringType()), True
    )
    assert isinstance(streaming, StreamWriter)
    told: list[Any] = [Written(0, {"a": 2, "b": 1}), Written(1, {"a": 5})]
    three = "3 rows by 1 of 2 tasks (2 to topic 'a', 1 to topic 'b')"
    caplog.set_level(logging.INFO, "penstock.spark.sink.sink")

    batch.commit(told)
    batch.abort([told[0], None])
    streaming.commit(told, 7)
    streaming.abort([None, None], 8)

    assert caplog.messages == [
        "wrote 8 rows by 2 of 2 tasks (7 to topic 'a', 1 to topic 'b')",
        f"a write failed after {three}: those stay, and come again when it is repeated",
        "batch 7: wrote 8 rows by 2 of 2 tasks (7 to topic 'a', 1 to topic 'b')",
        "batch 8 failed after 0 rows by 0 of 2 tasks: those stay, and come again with the batch",
    ]


def test_a_topic_cannot_be_overwritten(stage: Sink) -> None:
    source = PenstockDataSource({"kafka.bootstrap.servers": stage.cluster.bootstrap, "topic": "x"})

    with pytest.raises(OptionsError, match="a topic cannot be overwritten: write with mode append"):
        source.writer(StructType().add("value", StringType()), True)


def write(frame: "DataFrame", cluster: TestCluster, **options: str) -> None:
    named = {name.replace("__", "."): value for name, value in options.items()}
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap)
    writer.options(**named).mode("append").save()


def test_a_data_frame_is_written(spark: "SparkSession", stage: Sink) -> None:
    topic = stage.cluster.create("frame", 3)
    rows = spark.range(1000, numPartitions=2).selectExpr(
        "cast(id as string) key",
        "cast(cast(id as string) as binary) value",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers",
        "cast(if(id < 500, 1, null) as int) partition",
        "cast(id as double) timestamp",
        "array(1) other",
    )

    write(rows, stage.cluster, topic=topic)

    found = stage.messages(topic)
    assert sorted(int(row["value"]) for row in found) == list(range(1000))
    assert all(row["key"] == row["value"] and row["timestamp"].timestamp() == int(row["value"]) for row in found)
    assert all(row["headers"] == [{"key": "h", "value": b"x"}] for row in found)
    assert {row["partition"] for row in found if int(row["value"]) < 500} == {1}
    assert len({row["partition"] for row in found if int(row["value"]) >= 500}) == 3


def test_what_the_source_reads_can_be_written_as_it_is(spark: "SparkSession", stage: Sink) -> None:
    topic, copy = stage.cluster.create("original", 2), stage.cluster.create("copy", 2)
    stage.cluster.send_count(topic, 20, 0)
    stage.cluster.send_count(topic, 10, 1)
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", stage.cluster.bootstrap)

    write(reader.option("subscribe", topic).option("includeHeaders", "true").load(), stage.cluster, topic=copy)

    def told(name: str) -> list[tuple[Any, ...]]:
        return [(row["partition"], row["offset"], row["value"], row["timestamp"]) for row in stage.messages(name)]

    assert told(copy) == told(topic)


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ("id value", {"topic": "x"}, "the column 'value' is bigint, but must be string or binary"),
        ("'a' value", {}, "there is neither an option 'topic' nor a column 'topic'"),
        ("'a' value", {"topic": "no-such-topic-anywhere"}, "there is no such topic"),
        ("'a' value", {"topic": "x", "kafka__linger": "1"}, "linger is no setting of a producer"),
    ],
)
def test_what_is_wrong_is_told_before_any_job(
    spark: "SparkSession", cluster: TestCluster, column: str, options: dict[str, str], message: str
) -> None:
    before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)

    with pytest.raises(PySparkException, match=message):
        write(spark.range(3).selectExpr(column), cluster, **options)

    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == before


def test_a_failed_task_gets_no_abort_and_what_it_has_sent_comes_twice(
    spark: "SparkSession", stage: Sink, tmp_path: Path
) -> None:
    """Nothing is lost: the next attempt sends all rows of the task."""
    topic, marker, bootstrap = stage.cluster.create("retried"), tmp_path / "failed", stage.cluster.bootstrap

    def fail_once(value: str) -> str:
        if value == "500" and not marker.exists():
            # Not before some rows of this attempt are in the topic.
            wait_for_messages(bootstrap, topic)
            marker.touch()
            raise RuntimeError("once")
        return value + PADDING

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        rows = spark.range(1000, numPartitions=1).select(
            udf(fail_once, useArrow=False)(col("id").cast("string")).alias("value")
        )
        write(rows, stage.cluster, topic=topic)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    counts = Counter(int(value) for value in stage.values(topic))
    assert marker.exists()
    assert sorted(counts) == list(range(1000))
    twice = [number for number, count in counts.items() if count == 2]
    assert counts[0] == 2
    assert twice == list(range(len(twice)))


def stream_to(
    rows: "DataFrame", cluster: TestCluster, checkpoint: str, *, format: str = "penstock", **options: str
) -> None:
    """Everything that is there now."""
    writer = rows.writeStream.format(format).option("kafka.bootstrap.servers", cluster.bootstrap)
    writer = writer.options(**options).option("checkpointLocation", checkpoint).queryName("a-stream")
    writer.trigger(availableNow=True).start().awaitTermination()


def test_a_stream_is_written_and_goes_on_from_its_checkpoint(
    spark: "SparkSession", stage: Sink, checkpoint: str
) -> None:
    topic, target = stage.cluster.create("from", 2), stage.cluster.create("to")
    rows = stream(spark, stage.cluster, subscribe=topic, maxOffsetsPerTrigger="30").select("key", "value")
    stage.cluster.send_count(topic, 50, 0)

    stream_to(rows, stage.cluster, checkpoint, topic=target)
    stage.cluster.send(topic, strings(range(50, 60)), 1)
    stream_to(rows, stage.cluster, checkpoint, topic=target)

    assert stage.values(target) == strings(range(60))


def test_a_micro_batch_that_is_done_again_comes_twice_and_nothing_is_lost(
    spark: "SparkSession", stage: Sink, checkpoint: str
) -> None:
    topic, target = stage.cluster.create("from"), stage.cluster.create("to")
    rows = stream(spark, stage.cluster, subscribe=topic, maxOffsetsPerTrigger="10").select("value")
    stage.cluster.send_count(topic, 20)
    stream_to(rows, stage.cluster, checkpoint, topic=target)
    # As if the driver had died before it wrote that the batch is done.
    forget(checkpoint, "commits", 1)
    stage.cluster.send(topic, strings(range(20, 30)))

    stream_to(rows, stage.cluster, checkpoint, topic=target)

    assert stage.values(target) == [*strings(range(20)), *strings(range(10, 20)), *strings(range(20, 30))]


def test_the_stream_writer_is_made_on_the_driver_before_every_micro_batch(
    spark: "SparkSession", stage: Sink, checkpoint: str, tmp_path: Path
) -> None:
    """And another one for its commit: nothing that one of them keeps is seen by the next."""
    topic, target = stage.cluster.create("from"), stage.cluster.create("to")
    stage.cluster.send_count(topic, 30)
    spark.dataSource.register(watched(os.fspath(tmp_path / "calls")))
    rows = stream(spark, stage.cluster, subscribe=topic, maxOffsetsPerTrigger="10").select("value")

    stream_to(rows, stage.cluster, checkpoint, format="penstock-watched", topic=target)

    calls = (tmp_path / "calls").read_text().split()
    assert [each for each in calls if each != "made"] == ["write", "commit"] * 3
    for number, each in enumerate(calls):
        assert each == "made" or calls[number - 1] == "made", "a writer was used twice"
    assert stage.values(target) == strings(range(30))


def watched(path: str) -> type[PenstockDataSource]:
    """The format with a list of what Spark has done to its writers."""

    def note(what: str) -> None:
        with open(path, "a") as file:
            file.write(f"{what}\n")

    class Watched(StreamWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            note("write")
            return super().write(iterator)

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            note("commit")
            super().commit(messages, batchId)

    class WatchedDataSource(PenstockDataSource):
        @classmethod
        def name(cls) -> str:
            return "penstock-watched"

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
            note("made")
            made = super().streamWriter(schema, overwrite)
            return Watched(made._options, schema)

    return WatchedDataSource


def test_tasks_know_their_batch_and_their_query(spark: "SparkSession", stage: Sink, checkpoint: str) -> None:
    """`streaming.sql.batchId` and `sql.streaming.queryId` are properties of the tasks of a stream."""
    topic = stage.cluster.create("known")
    stage.cluster.send_count(topic, 2)

    def tell(_: str) -> str:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        return ",".join(
            str(task.getLocalProperty(f"{name}Id")) for name in ("streaming.sql.batch", "sql.streaming.query")
        )

    rows = stream(spark, stage.cluster, subscribe=topic, maxOffsetsPerTrigger="1")
    rows = rows.select(udf(tell, useArrow=False)(col("value").cast("string")).alias("value"))
    target = stage.cluster.create("target")
    stream_to(rows, stage.cluster, checkpoint, topic=target)

    query = json.loads((Path(checkpoint) / "metadata").read_text())["id"]
    assert stage.values(target) == [f"0,{query}", f"1,{query}"]


# A query of its own process, of which the JVM is killed from one of its tasks, when some rows of the batch are sent.
PROGRAM = """
import os, signal, sys
from pyspark.sql.functions import col, udf
from penstock.spark import session
from tests.spark.conftest import CONF, MASTER
from tests.spark.waiting import PADDING, wait_for_messages

bootstrap, topic, target, checkpoint = sys.argv[1:]
few = {f"spark.sql.execution.{kind}.maxRecordsPerBatch": "10" for kind in ("arrow", "python.udf")}
spark = session(MASTER, **CONF, **few)
jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()

def kill(value):
    if int(value) == 70:
        wait_for_messages(bootstrap, target, 41)
        os.kill(jvm, signal.SIGKILL)
    return value + PADDING

rows = spark.readStream.format("penstock").options(**{
    "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "40",
}).load().select(udf(kill, useArrow=False)(col("value").cast("string")).alias("value"))
writer = rows.writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
writer.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


@pytest.mark.timeout(900)
def test_a_query_that_is_killed_goes_on_from_its_checkpoint_and_nothing_is_lost(
    spark: "SparkSession", stage: Sink, checkpoint: str
) -> None:
    topic, target = stage.cluster.create("killed"), stage.cluster.create("target")
    stage.cluster.send_count(topic, 100)

    command = [sys.executable, "-c", PROGRAM, stage.cluster.bootstrap, topic, target, checkpoint]
    killed = subprocess.run(command, capture_output=True, timeout=500, check=False)

    assert killed.returncode != 0
    sent = len(stage.values(target))
    assert 40 < sent < 80, killed.stderr.decode()
    assert not (Path(checkpoint) / "commits" / "1").exists()
    rows = stream(spark, stage.cluster, subscribe=topic, maxOffsetsPerTrigger="40").select("value")
    stream_to(rows, stage.cluster, checkpoint, topic=target)
    assert stage.values(target)[sent:] == strings(range(40, 100))
