"""The job on Spark: added up over tasks, and failures in a sentence."""

import json
import pickle
from base64 import b64encode
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyspark.sql.types import StructType

from penstock.spark.lake.archiving import find_source, source_options
from penstock.spark.lake.lake import Source
from penstock.spark.planning import Range
from penstock.spark.statistics.job import StatsDataSource, read_items, run_job, write_items
from penstock.spark.statistics.plan import Piece, Scope
from penstock.spark.statistics.scan import Job
from penstock.spark.tasks import TaskFailedError
from tests.spark.cluster import TestCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tasks_are_added_up_and_nothing_is_read_twice(spark: "SparkSession", cluster: TestCluster) -> None:
    topic = cluster.create("summed")
    cluster.send_count(topic, 90)
    source = find_source(cluster.link, topic)
    job = Job(source_options(topic, cluster.bootstrap), source, Scope())
    ranges = [Range(topic, source.topic_id, 0, start, start + 30) for start in (0, 30, 60)]
    told: list[int] = []
    with cluster.broker.faults.delay_replies("0 s", api="Fetch") as fault:
        table = run_job(spark, [(job, Piece(each)) for each in ranges], top=5, watch=told.append)
    rows = table.to_pylist()
    assert sum(row["messages"] for row in rows if row["kind"] == "traffic") == 90
    assert sum(row["kind"] == "audit" for row in rows) == 3
    assert told[-1] == 90
    assert 3 <= fault.struck <= 4


def test_items_travel_as_text_that_runs_nothing() -> None:
    settings = {"bootstrap.servers": "one:1,two:2", "security.protocol": "SASL_SSL", "sasl.password": "päss"}
    settings |= {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "isolation.level": "read_uncommitted"}
    items = []
    for topic, scope in (("orders", Scope(1, None)), ("payments", Scope())):
        job = Job(source_options(topic, settings), Source(topic, "an-id", 3), scope)
        pieces = [
            Piece(Range(topic, "an-id", 0, 0, 2**62), archived_in="/lake", is_lead=True, is_from_beginning=True),
            Piece(Range(topic, "an-id", 2, 5, 7), lake="s3://lake"),
        ]
        items += [(job, piece) for piece in pieces]
    text = write_items(items)
    assert json.loads(text)["jobs"].keys() == {"orders", "payments"}
    assert read_items(text) == items


def test_what_a_pickle_would_run_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        StatsDataSource({"items": b64encode(pickle.dumps([(print, 1)])).decode()}).reader(StructType())


def test_nothing_to_do_needs_no_job(spark: "SparkSession") -> None:
    assert run_job(spark, [], top=5).num_rows == 0


def test_a_task_that_fails_tells_why(spark: "SparkSession", cluster: TestCluster) -> None:
    topic = cluster.create("failing")
    source = find_source(cluster.link, topic)
    job = Job(source_options(topic, cluster.bootstrap), source, Scope())
    piece = Piece(Range(topic, source.topic_id, 0, 0, 5), lake="nosuch://place")
    with pytest.raises(TaskFailedError, match="nosuch"):
        run_job(spark, [(job, piece)], top=5)
