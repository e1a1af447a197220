"""`replay`: the rows of a lake as messages again; and the whole round from topic to lake to topic."""

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from penstock.client.errors import UnknownTopicError
from penstock.client.producer.producer import Producer
from penstock.protocol.records import NewRecord
from penstock.spark.lake import replaying
from penstock.spark.lake.archiving import archive
from penstock.spark.lake.lake import Lake, LakeError, LakeFile
from penstock.spark.lake.replay_notes import FOLDER
from penstock.spark.lake.replaying import (
    ReplayError,
    ReplayProgress,
    ReplayResult,
    Selection,
    _Call,
    replay,
    with_origin,
)
from penstock.spark.lake.unified import read
from penstock.spark.tasks import TaskFailedError
from tests.spark.cluster import TestCluster
from tests.spark.lakes import add, contents, rows, span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MESSAGES: Final = int(os.environ.get("SOAK_MESSAGES", "20000"))
NOW_MS: Final = time.time_ns() // 1_000_000


class Stage:
    def __init__(self, spark: "SparkSession", cluster: TestCluster, lake: str) -> None:
        self.spark = spark
        self.cluster = cluster
        self.lake = lake
        self.topic = cluster.create("orders", 2)
        self.target = cluster.create("again", 2)

    def fill(self, count: int = 100) -> None:
        """So many in each partition, a second between two."""
        for partition in (0, 1):
            records = [
                NewRecord(b"%d" % number, key=b"key-%d" % number, timestamp=NOW_MS - (count - number) * 1000)
                for number in range(count)
            ]
            self.cluster.send(self.topic, records, partition)
        archive(self.spark, self.topic, self.lake, bootstrap=self.cluster.bootstrap)

    def replay(self, **options: Any) -> ReplayResult:
        return replay(self.spark, self.lake, self.target, bootstrap=self.cluster.bootstrap, **options)

    def sent(self) -> "DataFrame":
        return read(self.spark, self.target, bootstrap=self.cluster.bootstrap)

    def values(self, partition: int = 0) -> list[int]:
        return [int(row[3]) for row in contents(self.sent()) if row[0] == partition]


@pytest.fixture
def stage(spark: "SparkSession", cluster: TestCluster, tmp_path: Path) -> Stage:
    return Stage(spark, cluster, str(tmp_path / "lake"))


def test_every_row_comes_back_in_order_and_tells_where_it_comes_from(stage: Stage) -> None:
    stage.fill()
    result = stage.replay()
    assert (dict(result.rows), result.resumed_rows, result.topic) == ({0: 100, 1: 100}, 0, stage.target)
    original = contents(read(stage.spark, stage.topic, bootstrap=stage.cluster.bootstrap))
    again = contents(stage.sent())
    assert [row[:6] for row in again] == [row[:6] for row in original]
    for partition, offset, _, _, timestamp, _, headers in again:
        milliseconds = round(timestamp.timestamp() * 1000)
        assert headers == [
            ("penstock-original-topic", stage.topic.encode()),
            ("penstock-original-partition", b"%d" % partition),
            ("penstock-original-offset", b"%d" % offset),
            ("penstock-original-timestamp", b"%d" % milliseconds),
        ]
    # Nothing is left of how far it was.
    assert list((Path(stage.lake) / FOLDER).iterdir()) == []


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"partitions": [1]}, [], [*range(100)]),
        ({"from_offset": 90}, [*range(90, 100)], [*range(90, 100)]),
        ({"partitions": [0], "from_offset": 10, "to_offset": 13}, [10, 11, 12], []),
        ({"since": NOW_MS - 3000}, [97, 98, 99], [97, 98, 99]),
        ({"since": NOW_MS - 10_000, "until": NOW_MS - 8000, "partitions": [0]}, [90, 91], []),
        ({"until": NOW_MS - 99_000}, [0], [0]),
        ({"until": NOW_MS - 200_000}, [], []),
    ],
)
def test_only_what_is_asked_for_is_sent(
    stage: Stage, options: dict[str, Any], first: list[int], second: list[int]
) -> None:
    stage.fill()
    result = stage.replay(**options)
    assert sum(result.rows.values()) == len(first) + len(second)
    assert stage.values() == first
    assert stage.values(1) == second


def test_messages_may_get_the_present_time(stage: Stage) -> None:
    stage.fill(10)
    stage.replay(timestamps="now")
    assert all(row[4].timestamp() * 1000 >= NOW_MS for row in contents(stage.sent()))


def test_messages_may_go_where_their_keys_belong(stage: Stage) -> None:
    stage.fill()
    stage.target = stage.cluster.create("wide", 5)
    assert sum(stage.replay(partition_by="key").rows.values()) == 200
    found = contents(stage.sent())
    assert len({row[0] for row in found}) == 5
    places = {row[2]: row[0] for row in found}
    assert all(places[row[2]] == row[0] for row in found)
    for partition in range(5):
        origins = [dict(row[6]) for row in found if row[0] == partition]
        for number in (b"0", b"1"):
            offsets = [
                int(each["penstock-original-offset"])
                for each in origins
                if each["penstock-original-partition"] == number
            ]
            assert offsets == sorted(offsets)


def test_a_topic_with_too_few_partitions_is_refused(stage: Stage) -> None:
    stage.fill(10)
    stage.target = stage.cluster.create("narrow", 1)
    with pytest.raises(ReplayError, match=r"the lake has partition 1, and topic 'narrow-\d+' has 1: give it 2"):
        stage.replay()
    assert sum(stage.replay(partitions=[0]).rows.values()) == 10


def test_a_topic_that_would_delete_the_messages_at_once_is_refused(stage: Stage) -> None:
    stage.fill(10)
    stage.target = stage.cluster.create("forgetful", 2, retention_ms=5000)
    with pytest.raises(ReplayError, match=r"older than retention\.ms=5000"):
        stage.replay()
    assert sum(stage.replay(timestamps="now").rows.values()) == 20


def test_only_the_messages_that_are_asked_for_may_be_too_old(stage: Stage) -> None:
    hour_ms = 3_600_000
    stage.cluster.send(stage.topic, [NewRecord(b"%d" % each, timestamp=NOW_MS - 2 * hour_ms) for each in range(9)])
    stage.cluster.send(stage.topic, [NewRecord(b"9", timestamp=NOW_MS)])
    stage.cluster.send(stage.topic, [NewRecord(b"0", timestamp=NOW_MS)], 1)
    archive(stage.spark, stage.topic, stage.lake, bootstrap=stage.cluster.bootstrap)
    stage.cluster.send(stage.topic, [NewRecord(b"10", timestamp=NOW_MS)])
    archive(stage.spark, stage.topic, stage.lake, bootstrap=stage.cluster.bootstrap)
    stage.target = stage.cluster.create("forgetful", 2, retention_ms=hour_ms)
    with pytest.raises(ReplayError, match=r"older than retention\.ms=3600000"):
        stage.replay()
    assert stage.replay(partitions=[1]).rows == {1: 1}
    assert stage.replay(from_offset=10).rows == {0: 1}
    assert stage.replay(since=NOW_MS - 1000).rows == {0: 2, 1: 1}


def test_a_table_that_was_optimized_need_not_have_each_partition(stage: Stage) -> None:
    stage.topic, stage.target = stage.cluster.create("orders", 3), stage.cluster.create("again", 3)
    for partition in (0, 2):
        stage.cluster.send(stage.topic, [NewRecord(b"0"), NewRecord(b"1")], partition)
    archive(stage.spark, stage.topic, stage.lake, bootstrap=stage.cluster.bootstrap)
    DeltaTable(stage.lake).optimize.compact()
    assert stage.replay().rows == {0: 2, 1: 0, 2: 2}
    assert stage.values(2) == [0, 1]


def test_a_lake_or_a_topic_that_is_not_there_is_an_error(stage: Stage) -> None:
    with pytest.raises(LakeError, match="there is no table in"):
        stage.replay()
    stage.fill(1)
    stage.target = "nowhere"
    with pytest.raises(UnknownTopicError):
        stage.replay()


def test_progress_is_told(stage: Stage) -> None:
    stage.fill()
    told: list[ReplayProgress] = []
    stage.replay(watch=told.append)
    assert told[-1] == ReplayProgress(200, 200)
    assert [each.rows for each in told] == sorted(each.rows for each in told)


def test_a_replay_that_was_interrupted_goes_on_where_it_was(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.fill()
    # Pieces of some rows, so that there is a middle.
    monkeypatch.setattr(replaying, "_replay_partition", _Failing(500, tmp_path / "counted", after=4))
    with pytest.raises(TaskFailedError, match="interrupted"):
        stage.replay(partitions=[0])
    sent = stage.values()
    assert 0 < len(sent) < 100
    monkeypatch.undo()
    result = stage.replay(partitions=[0])
    assert result.resumed_rows > 0
    assert result.resumed_rows + result.rows[0] == 100
    # What was sent and not noted came twice, and nothing is missing or out of order within a run.
    found = stage.values()
    assert sorted(set(found)) == list(range(100))
    assert found[: len(sent)] == sent
    assert found[len(sent) :] == list(range(result.resumed_rows, 100))
    # It is done: the same call begins anew.
    assert stage.replay(partitions=[0]).rows == {0: 100}


def test_so_long_ago_is_counted_from_the_first_run_of_a_replay_that_was_interrupted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.fill()
    asked = {"partitions": [0], "since": timedelta(hours=1), "until": timedelta()}
    monkeypatch.setattr(replaying, "_replay_partition", _Failing(500, tmp_path / "counted", after=4))
    with pytest.raises(TaskFailedError, match="interrupted"):
        stage.replay(**asked)
    monkeypatch.undo()
    # By now this is until now, but it was not when the replay began.
    stage.cluster.send(stage.topic, [NewRecord(b"100", timestamp=time.time_ns() // 1_000_000)])
    archive(stage.spark, stage.topic, stage.lake, bootstrap=stage.cluster.bootstrap)
    result = stage.replay(**asked)
    assert result.resumed_ms is not None
    assert result.resumed_rows > 0
    assert result.resumed_rows + result.rows[0] == 100
    assert sorted(set(stage.values())) == list(range(100))
    # It is done: the same call means another time.
    result = stage.replay(**asked)
    assert (result.rows, result.resumed_ms) == ({0: 101}, None)


def test_what_a_task_had_sent_before_spark_tried_it_again_is_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage.fill()
    monkeypatch.setattr(replaying, "_replay_partition", _Failing(500, tmp_path / "counted", after=4, recovers=True))
    result = stage.replay(partitions=[0])
    assert (tmp_path / "counted").exists()
    assert (dict(result.rows), result.resumed_rows, result.resumed_ms) == ({0: 100}, 0, None)
    assert sorted(set(stage.values())) == list(range(100))


class _Failing:
    """A task whose pieces are small, and which fails after some that were acknowledged, before the last is noted: each
    time that it is tried, or once."""

    def __init__(self, piece_bytes: int, counter: Path, after: int, *, recovers: bool = False) -> None:
        self.piece_bytes = piece_bytes
        self.counter = counter
        self.after = after
        self.recovers = recovers

    def __call__(self, job: Any, partition: int) -> int:
        module: Any = replaying
        module.PIECE_BYTES = self.piece_bytes
        write, counted = module.Notes.write, 0

        def write_or_fail(*args: Any) -> None:
            nonlocal counted
            counted += 1
            if not self.recovers if self.counter.exists() else counted > self.after:
                self.counter.touch()
                raise OSError("interrupted")
            write(*args)

        module.Notes.write = write_or_fail
        try:
            return replaying._replay_partition(job, partition)
        finally:
            module.Notes.write, module.PIECE_BYTES = write, 4 * 1024 * 1024


def test_calls_that_differ_do_not_share_how_far_they_are() -> None:
    call = _Call(topic="topic")
    others = [
        replace(call, topic="other"),
        replace(call, partitions=(0,)),
        replace(call, from_offset=1),
        replace(call, to_offset=1),
        replace(call, since=replaying._time(1)),
        replace(call, since=replaying._time(timedelta(milliseconds=1))),
        replace(call, until=replaying._time(1)),
        replace(call, partition_by="key"),
        replace(call, timestamps="now"),
    ]
    names = {each.name("table", "id") for each in (call, *others)}
    assert len(names | {call.name("another", "id"), call.name("table", "another")}) == len(others) + 3
    assert replace(call).name("table", "id") in names


def test_the_same_call_has_the_same_name_whenever_it_is_made() -> None:
    times: tuple[int | datetime | timedelta, ...] = (5, datetime(2026, 7, 1, tzinfo=UTC), timedelta(days=1))
    for each in times:
        first, second = (_Call(topic="topic", since=replaying._time(each)) for _ in range(2))
        assert first.name("table", "id") == second.name("table", "id")
    call = _Call(topic="topic", since=replaying._time(timedelta(seconds=10)), until=replaying._time(5000))
    assert call.selection(30_000) == Selection(since_ms=20_000, until_ms=5000)
    assert call.selection(31_000) == Selection(since_ms=21_000, until_ms=5000)
    assert call.selection(1000).since_ms == 0


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), 1000),
        (Selection(partitions=(1,)), 3000),
        (Selection(partitions=(2,)), None),
        (Selection(from_offset=10), 2000),
        (Selection(to_offset=10, since_ms=1500), 1500),
        (Selection(since_ms=2500), 2500),
        (Selection(since_ms=9000), None),
        (Selection(until_ms=1000), None),
    ],
)
def test_a_selection_is_as_old_as_the_files_that_may_have_it(selection: Selection, expected: int | None) -> None:
    files = [
        LakeFile("a", 10, 1, (0, 0), (0, 9), (1000, 1999)),
        LakeFile("b", 10, 1, (0, 0), (10, 19), (2000, 2999)),
        LakeFile("c", 10, 1, (1, 1), (0, 9), (3000, 3999)),
        LakeFile("d", 10, 1, None, None, None),
    ]
    chosen = [each for each in files if selection.may_have(each)]
    assert files[3] in chosen
    assert replaying._oldest_ms(chosen, selection) == expected


def test_a_row_keeps_its_headers_and_gets_four_more() -> None:
    table = pa.Table.from_batches([rows([0, 1]), rows([2], 3)])
    origin = [
        [
            ("penstock-original-topic", b"orders"),
            ("penstock-original-partition", partition),
            ("penstock-original-offset", b"%d" % number),
            ("penstock-original-timestamp", b"%d" % (1_700_000_000_000 + number)),
        ]
        for number, partition in ((0, b"0"), (1, b"0"), (2, b"3"))
    ]
    own = [[("a", b"0"), ("a", b"0")], [], [("a", b"2"), ("a", b"2")]]
    found = [[(each["key"], each["value"]) for each in row] for row in with_origin(table).to_pylist()]
    assert found == [mine + where for mine, where in zip(own, origin, strict=True)]
    assert with_origin(table.slice(2)).to_pylist()[0][0] == {"key": "a", "value": b"2"}


def test_a_row_without_a_time_says_so() -> None:
    field = rows([0]).schema.field("timestamp")
    table = pa.Table.from_batches([rows([0])]).set_column(5, field, pa.nulls(1, field.type))
    assert with_origin(table).to_pylist()[0][-1] == {"key": "penstock-original-timestamp", "value": b"-1"}


def test_partitions_of_files_that_do_not_tell_are_looked_up(tmp_path: Path) -> None:
    lake = add(tmp_path, span(0, 10), span(0, 5, 1))
    files = [LakeFile(each.path, each.rows, each.size, None, None, None) for each in lake.files()]
    assert replaying._partitions(Lake.load(tmp_path), files) == [0, 1]


def digest(frame: "DataFrame", *, skips: int = 0) -> dict[int, tuple[int, str]]:
    """The number of messages of each partition, and a checksum of all that they have, in their order. The last so many
    headers of each are left out."""
    from pyspark.sql.functions import expr

    # A row without headers has none, whether that is null or an empty list.
    headers = f"slice(coalesce(headers, array()), 1, size(coalesce(headers, array())) - {skips})"
    parts = ["key is null", "key", "value is null", "value", "timestamp", f"size({headers})", headers]
    hashed = frame.select("partition", "offset", expr(f"xxhash64({', '.join(parts)})").alias("hash"))
    table = hashed.toArrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
    found = {}
    for number in pc.unique(table["partition"]).to_pylist():
        hashes = table.filter(pc.equal(table["partition"], number))["hash"].to_numpy()
        found[number] = len(hashes), hashlib.sha256(hashes.tobytes()).hexdigest()
    return found


async def _fill(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    listed = list(numbers)
    async with Producer(bootstrap, compression_type="lz4") as producer:
        for start in range(0, len(listed), 10_000):
            some = listed[start : start + 10_000]
            table = pa.table(
                {
                    "key": [None if number % 7 == 0 else b"key-%d" % (number % 100) for number in some],
                    "value": [None if number % 11 == 0 else b"value-%d " % number * (number % 9) for number in some],
                    "timestamp": [NOW_MS - MESSAGES + number for number in some],
                    "headers": [[{"key": "number", "value": b"%d" % number}] * (number % 3) for number in some],
                }
            )
            (await producer.send_batch(topic, table)).raise_for_errors()


def test_from_topic_to_lake_to_topic_counts_order_and_checksums_are_the_same(stage: Stage) -> None:
    cluster, spark = stage.cluster, stage.spark
    half = MESSAGES // 2
    cluster.link.run(_fill(cluster.bootstrap, stage.topic, range(half)))
    archive(spark, stage.topic, stage.lake, bootstrap=cluster.bootstrap, truncate=True)
    cluster.link.run(_fill(cluster.bootstrap, stage.topic, range(half, MESSAGES)))
    log = read(spark, stage.topic, bootstrap=cluster.bootstrap)
    assert log.count() == MESSAGES - half
    both = digest(read(spark, stage.topic, bootstrap=cluster.bootstrap, lake=stage.lake))
    assert sum(count for count, _ in both.values()) == MESSAGES
    archive(spark, stage.topic, stage.lake, bootstrap=cluster.bootstrap, truncate=True)
    assert [cluster.first_offset(stage.topic, number) for number in (0, 1)] == [both[0][0], both[1][0]]
    assert digest(read(spark, stage.topic, bootstrap=cluster.bootstrap, lake=stage.lake)) == both
    assert sum(stage.replay().rows.values()) == MESSAGES
    assert digest(stage.sent(), skips=4) == both
