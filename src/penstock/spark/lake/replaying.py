"""`replay` sends rows of the lake to a topic, with their origin in the headers.

One task sends each partition, in order, and notes beside the table each piece that the brokers have acknowledged, with
what was asked for and when. A replay that was interrupted goes on there; a piece that was sent and not noted yet is
sent again.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.client.admin.configs import Resource, ResourceType, describe_configs
from penstock.client.errors import unwrap
from penstock.client.metadata import Topic
from penstock.client.opening import given_settings, to_milliseconds
from penstock.spark.lake.lake import Lake, LakeError, LakeFile, open_filesystem
from penstock.spark.lake.reader import read_rows
from penstock.spark.lake.replay_notes import Notes, State
from penstock.spark.link import SparkLink, connect
from penstock.spark.offsets import id_text
from penstock.spark.tasks import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PIECE_BYTES: Final = 4 * 1024 * 1024
"""About how many bytes are sent before they are noted; as much of each partition may come twice."""
HEADERS: Final = ("topic", "partition", "offset", "timestamp")
"""The headers that say where a message comes from: `penstock-original-topic` and so on. The timestamp is in
milliseconds."""
PREFIX: Final = "penstock-original-"


class ReplayError(Exception):
    """The rows cannot be sent to this topic."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Selection:
    """Which rows are sent: of these partitions or all, with offsets and times from the first on and before the
    second."""

    partitions: tuple[int, ...] | None = None
    from_offset: int = 0
    to_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def may_have(self, file: LakeFile) -> bool:
        # Without chosen partitions any partition of the file will do: its offsets decide.
        numbers = (file.partitions or (0,)) if self.partitions is None else self.partitions
        if not any(file.may_have(number, start=self.from_offset, end=self.to_offset) for number in numbers):
            return False
        if file.times_ms is None:
            return True
        return (self.since_ms is None or file.times_ms[1] >= self.since_ms) and (
            self.until_ms is None or file.times_ms[0] < self.until_ms
        )


@dataclass(slots=True, frozen=True)
class ReplayProgress:
    rows: int
    total: int
    """An upper bound: some rows of the selected files may be left out."""


@dataclass(slots=True, frozen=True)
class ReplayResult:
    path: str
    topic: str
    rows: Mapping[int, int]
    """The rows of each partition that this run has sent, each counted once, however often Spark has tried its task."""
    resumed_rows: int
    """The rows that an earlier, interrupted run had sent."""
    resumed_ms: int | None
    """When the first run began, from which relative times are counted; None if this is the first."""


@dataclass(slots=True, frozen=True)
class _Time:
    """A point in time, or a duration before the first run."""

    ms: int
    is_ago: bool

    def resolve(self, now_ms: int) -> int:
        return max(0, now_ms - self.ms) if self.is_ago else self.ms


@dataclass(slots=True, frozen=True, kw_only=True)
class _Call:
    """What was asked for, in the form that identifies the replay: a relative time stays relative, and only the first
    run makes a point in time of it."""

    topic: str
    partitions: tuple[int, ...] | None = None
    from_offset: int = 0
    to_offset: int | None = None
    since: _Time | None = None
    until: _Time | None = None
    partition_by: Literal["original", "key"] = "original"
    timestamps: Literal["original", "now"] = "original"

    def name(self, table_id: str, topic_id: str) -> str:
        """The name of the replay: equal calls have one name, and different calls different names."""
        told = [table_id, topic_id, asdict(self)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    def selection(self, now_ms: int) -> Selection:
        return Selection(
            partitions=self.partitions,
            from_offset=self.from_offset,
            to_offset=self.to_offset,
            since_ms=None if self.since is None else self.since.resolve(now_ms),
            until_ms=None if self.until is None else self.until.resolve(now_ms),
        )


@dataclass(slots=True, frozen=True)
class _Job:
    """What every task gets."""

    path: str
    name: str
    call: _Call
    selection: Selection
    files: tuple[LakeFile, ...]
    settings: Mapping[str, str] = field(repr=False)


def replay(
    spark: "SparkSession",
    lake: str,
    to: str,
    *,
    bootstrap: str | Mapping[str, Any],
    partitions: Sequence[int] | None = None,
    from_offset: int = 0,
    to_offset: int | None = None,
    since: int | datetime | timedelta | None = None,
    until: int | datetime | timedelta | None = None,
    partition_by: Literal["original", "key"] = "original",
    timestamps: Literal["original", "now"] = "original",
    watch: Callable[[ReplayProgress], None] = lambda _: None,
) -> ReplayResult:
    """Send rows of the table in the folder `lake` to the topic `to`: all of them, or those of some partitions, offsets
    and times (milliseconds, datetimes, or timedeltas before now; the ends are not included).

    Each message goes to the partition that it came from, or with `partition_by="key"` to where the producer sends its
    key. It keeps its timestamp, or gets the present one. Delivery is at least once: a replay that was interrupted and
    is called again with equal arguments goes on where it was, and sends at most about `PIECE_BYTES` of each partition
    again. A timedelta is then counted from the first call, so that it means the same rows; a time that the caller
    computes differs in each call, and so makes another replay. When a replay is done, its notes are deleted, and the
    next call begins anew.

    Example:
        replay(session(), "/lake/orders", "orders-again", bootstrap="localhost:9092", partitions=[0, 1])
    """
    call = _Call(
        topic=to,
        partitions=None if partitions is None else tuple(sorted(set(partitions))),
        from_offset=from_offset,
        to_offset=to_offset,
        since=_time(since),
        until=_time(until),
        partition_by=partition_by,
        timestamps=timestamps,
    )
    table = open_table(lake)
    settings = {name: str(value) for name, value in given_settings(bootstrap).items()}
    link = connect(settings)
    target = unwrap(link.run(link.cluster.topics([to], fresh=True)))[to]
    name = call.name(table.id, id_text(target.topic_id))
    notes = Notes.open(table.path, name)
    now_ms = time.time_ns() // 1_000_000
    resumed_ms = notes.began_ms()
    selection = call.selection(now_ms if resumed_ms is None else resumed_ms)
    files = tuple(each for each in table.files() if selection.may_have(each))
    numbers = _partitions(table, files) if selection.partitions is None else list(selection.partitions)
    if partition_by == "original":
        _check_partitions(target, numbers)
    if timestamps == "original":
        _check_retention(link, to, _oldest_ms(files, selection), now_ms)
    if resumed_ms is None:
        notes.begin(asdict(call), now_ms)
    before = {number: state.rows for number, state in notes.states().items()}
    after = _run(spark, _Job(table.path, name, call, selection, files, settings), numbers, notes, watch)
    notes.forget()
    sent = {number: rows - before.get(number, 0) for number, rows in after.items()}
    return ReplayResult(table.path, to, sent, sum(before.values()), resumed_ms)


def open_table(path: str) -> Lake:
    """The table to replay; LakeError if there is none."""
    table = Lake.load(path)
    if not table.exists:
        raise LakeError(f"there is no table in {table.path}: `penstock pipeline archive` makes one")
    return table


def with_origin(rows: "pa.Table") -> "pa.Array":
    """The headers of the rows, followed by those that say where each row comes from."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = rows.combine_chunks()
    count = rows.num_rows
    headers = rows["headers"].chunk(0)
    own = headers.flatten()
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    milliseconds = pc.fill_null(rows["timestamp"].cast(pa.int64()), -1000)
    told = {
        "topic": rows["topic"],
        "partition": rows["partition"],
        "offset": rows["offset"],
        "timestamp": pc.divide(milliseconds, 1000),
    }
    # First the rows' own headers, then four for each row, column after column; an index puts them in order.
    keys = pa.concat_arrays(
        [own.field("key"), *(pa.repeat(pa.scalar(PREFIX + name, pa.string()), count) for name in HEADERS)]
    )
    values = pa.concat_arrays(
        [own.field("value"), *(told[name].cast(pa.string()).cast(pa.binary()).combine_chunks() for name in HEADERS)]
    )
    ends = np.cumsum(lengths + len(HEADERS))
    offsets = np.concatenate([[0], ends])
    index = np.empty(int(offsets[-1]), np.int64)
    is_new = np.zeros(len(index), bool)
    for place in range(len(HEADERS)):
        at = ends - len(HEADERS) + place
        is_new[at] = True
        index[at] = len(own) + place * count + np.arange(count)
    index[~is_new] = np.arange(len(own))
    structs = pa.StructArray.from_arrays([keys.take(pa.array(index)), values.take(pa.array(index))], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)


def _time(given: int | datetime | timedelta | None) -> _Time | None:
    if given is None:
        return None
    if isinstance(given, timedelta):
        return _Time(given // timedelta(milliseconds=1), is_ago=True)
    return _Time(to_milliseconds(given), is_ago=False)


def _run(
    spark: "SparkSession", job: _Job, numbers: Sequence[int], notes: Notes, watch: Callable[[ReplayProgress], None]
) -> dict[int, int]:
    """Run the tasks, and return how many rows of each partition this run and those before it have sent."""
    total = sum(each.rows for each in job.files)

    def look(_: int) -> None:
        watch(ReplayProgress(sum(each.rows for each in notes.states().values()), total))

    noted = run_tasks(spark, f"replay {job.path}", numbers, partial(_replay_partition, job), watch=look)
    return dict(zip(numbers, noted, strict=True))


def _replay_partition(job: _Job, partition: int) -> int:
    """The work of a task; returns all rows that are noted of the partition, and not only its own: an earlier attempt of
    Spark may have sent some, and this one goes on after them."""
    return asyncio.run(_send(job, partition))


async def _send(job: _Job, partition: int) -> int:
    from penstock.client.producer.producer import Producer

    notes = Notes.open(job.path, job.name)
    state = notes.read(partition) or State(job.selection.from_offset, 0)
    async with Producer(dict(job.settings)) as producer:
        for rows, next_offset in _pieces(job, partition, state.next_offset):
            if rows.num_rows:
                target = partition if job.call.partition_by == "original" else None
                (await producer.send_batch(job.call.topic, _messages(rows, job), partition=target)).raise_for_errors()
            state = State(next_offset, state.rows + rows.num_rows)
            notes.write(partition, state)
    return state.rows


def _pieces(job: _Job, partition: int, start: int) -> "Iterator[tuple[pa.Table, int]]":
    """The rows in order, a piece at a time, each with the offset after it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    selection = job.selection
    for table in read_rows(job.path, job.files, partition, start=start, end=selection.to_offset):
        count = max(1, int(PIECE_BYTES * table.num_rows / max(1, table.nbytes)))
        for first in range(0, table.num_rows, count):
            piece = table.slice(first, count)
            next_offset = piece["offset"][-1].as_py() + 1
            milliseconds = piece["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            if selection.since_ms is not None:
                piece = piece.filter(pc.greater_equal(milliseconds, selection.since_ms))
                milliseconds = milliseconds.filter(pc.greater_equal(milliseconds, selection.since_ms))
            if selection.until_ms is not None:
                piece = piece.filter(pc.less(milliseconds, selection.until_ms))
            yield piece, next_offset


def _messages(rows: "pa.Table", job: _Job) -> "pa.Table":
    """The rows as the producer takes them; it gives the present time to rows without a timestamp."""
    import pyarrow as pa

    columns = {"key": rows["key"], "value": rows["value"], "headers": with_origin(rows)}
    if job.call.timestamps == "original":
        columns["timestamp"] = rows["timestamp"]
    return pa.table(columns)


def _partitions(lake: Lake, files: Sequence[LakeFile]) -> list[int]:
    """All partitions that may have rows."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    filesystem, base = open_filesystem(lake.path)
    found: set[int] = set()
    for each in files:
        if each.partitions is not None:
            found.update(range(each.partitions[0], each.partitions[1] + 1))
        else:
            column = pq.read_table(f"{base}/{each.path}", columns=["partition"], filesystem=filesystem)["partition"]
            found.update(pc.unique(column).to_pylist())
    return sorted(found)


def _check_partitions(target: Topic, numbers: Sequence[int]) -> None:
    count = len(target.partitions)
    if numbers and numbers[-1] >= count:
        raise ReplayError(
            f"the lake has partition {numbers[-1]}, and topic {target.name!r} has {count}: give it {numbers[-1] + 1} "
            '(penstock topic add-partitions), or send by key (partition_by="key", --by-key)'
        )


def _oldest_ms(files: Sequence[LakeFile], selection: Selection) -> int | None:
    """The earliest time that a row to be sent may have, as far as the files say. Rows of a selected file that are older
    than the selection are not sent."""
    firsts = (each.times_ms[0] for each in files if each.times_ms is not None)
    return min((max(first, selection.since_ms or 0) for first in firsts), default=None)


def _check_retention(link: SparkLink, topic: str, oldest_ms: int | None, now_ms: int) -> None:
    resource = Resource(ResourceType.TOPIC, topic)
    configs = unwrap(link.run(describe_configs(link.cluster, [resource])))[resource]
    retention_ms = int(configs["retention.ms"].value or -1)
    deletes = "delete" in (configs["cleanup.policy"].value or "") and retention_ms >= 0
    if deletes and oldest_ms is not None and oldest_ms < now_ms - retention_ms:
        raise ReplayError(
            f"the lake has messages that are older than retention.ms={retention_ms} of topic {topic!r}: it would "
            'delete them again. Set it to -1, or give them the present time (timestamps="now", --timestamps now)'
        )
