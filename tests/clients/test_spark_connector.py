"""Spark's own Kafka connector, unmodified, against the broker. `make test-spark-connector` alone runs this: it needs
another Spark than the rest."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.sync import Producer
from penstock.testing import Broker
from tools.spark_connector import install

pytestmark = [
    pytest.mark.skipif("PENSTOCK_TEST_SPARK_CONNECTOR" not in os.environ, reason="make test-spark-connector runs it"),
    pytest.mark.timeout(1200),
]

# All in one session, because its start is most of the time. It prints what it has found, by the name of the test.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

bootstrap, jars, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
told = {}

def options(**more):
    return {"kafka.bootstrap.servers": bootstrap, **more}

def read(**more):
    return spark.read.format("kafka").options(**options(includeHeaders="true", **more)).load()

def rows(frame):
    columns = "topic, partition, offset, cast(key as string), cast(value as string), cast(timestamp as double), headers"
    found = frame.selectExpr(*columns.split(", ")).orderBy("topic", "partition", "offset").collect()
    return [[*row[:6], headers(row[6])] for row in found]

def headers(given):
    return None if given is None else [[each[0], bytes(each[1]).decode()] for each in given]

told["read"] = rows(read(subscribe="sent"))
told["bounded"] = rows(read(
    subscribe="sent", startingOffsets=json.dumps({"sent": {"0": 1, "1": -2}}),
    endingOffsets=json.dumps({"sent": {"0": 3, "1": 0}}),
))
told["timed"] = rows(read(subscribePattern="se.t", startingTimestamp="3000"))
split = read(subscribe="sent", minPartitions="6")
told["split"] = [split.rdd.getNumPartitions(), split.count()]

written = spark.range(100).selectExpr(
    "if(id % 2 = 0, 'even', 'odd') topic", "cast(id as string) key", "cast(id * id as string) value",
    "cast(if(id < 50, 1, 0) as int) partition",
    "array(named_struct('key', 'number', 'value', cast(cast(id as string) as binary))) headers",
)
written.write.format("kafka").options(**options(**{"kafka.compression.type": "zstd"})).save()
told["written"] = rows(read(subscribe="even,odd"))

def copy():
    stream = spark.readStream.format("kafka").options(
        **options(subscribe="stream", startingOffsets="earliest", maxOffsetsPerTrigger="40")
    )
    writer = stream.load().select("key", "value").writeStream.format("kafka").options(**options(topic="copy"))
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination()
    return len([each for each in query.recentProgress if each["numInputRows"]])

def send(first, last):
    numbers = spark.range(first, last).selectExpr("cast(id as string) key", "cast(id as string) value")
    numbers.write.format("kafka").options(**options(topic="stream")).save()

send(0, 100)
batches = copy()
send(100, 120)
told["streamed"] = [batches, copy(), [row[4] for row in rows(read(subscribe="copy"))]]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    connector = install()
    folder: Path = tmp_path_factory.mktemp("connector")
    with Broker() as broker:
        for name, partitions in {"sent": 2, "even": 2, "odd": 2, "stream": 2, "copy": 1}.items():
            broker.create_topic(name, partitions)
        with Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send(
                    "sent",
                    b"value-%d" % number,
                    b"key-%d" % number if number % 3 else None,
                    partition=number % 2,
                    timestamp_ms=number * 1000,
                    headers=[("number", b"%d" % number)] if number % 2 else [],
                )
            producer.flush()
        checkpoint = str(folder / "checkpoint")
        command = [str(connector.python), "-c", PROGRAM, broker.bootstrap, connector.jars, checkpoint]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
        assert ended.returncode == 0, ended.stderr
        yield json.loads(ended.stdout.splitlines()[-1])


def sent(number: int) -> list[Any]:
    """A row as the connector shows it."""
    key = f"key-{number}" if number % 3 else None
    headers = [["number", str(number)]] if number % 2 else None
    return ["sent", number % 2, number // 2, key, f"value-{number}", float(number), headers]


def by_place(rows: list[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=lambda row: row[:3])


def test_the_connector_reads_what_our_producer_sends(told: dict[str, Any]) -> None:
    assert told["read"] == by_place([sent(number) for number in range(10)])


def test_the_connector_reads_between_offsets(told: dict[str, Any]) -> None:
    assert told["bounded"] == [sent(2), sent(4)]


def test_the_connector_finds_offsets_by_time_and_topics_by_pattern(told: dict[str, Any]) -> None:
    assert told["timed"] == by_place([sent(number) for number in range(3, 10)])


def test_the_connector_splits_a_partition_over_tasks(told: dict[str, Any]) -> None:
    parts, count = told["split"]
    assert parts >= 6
    assert count == 10


def test_the_connector_writes_to_several_topics(told: dict[str, Any]) -> None:
    found = {int(row[3]): row for row in told["written"]}
    assert len(told["written"]) == 100
    for number in range(100):
        topic, partition, _, _, value, _, headers = found[number]
        assert (topic, partition) == ("odd" if number % 2 else "even", 1 if number < 50 else 0)
        assert (value, headers) == (str(number * number), [["number", str(number)]])


def test_the_connector_streams_and_goes_on_from_its_checkpoint(told: dict[str, Any]) -> None:
    first, second, values = told["streamed"]
    assert (first, second) == (3, 1)
    assert sorted(map(int, values)) == list(range(120))
