"""`replay`: rows of the lake become messages of a topic again, with where they came from in their headers.

Each partition is sent by one task, in order, and each piece that the brokers have acknowledged is noted beside the
table. A replay that was interrupted goes on there; a piece that was sent and not noted yet is sent again.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from penstock.client.configs import Resource, ResourceType, describe_configs
from penstock.client.errors import unwrap
from penstock.client.opening import given_settings, to_milliseconds
from penstock.spark.connecting import Link, connect
from penstock.spark.lake import Lake, LakeError, LakeFile, list_names, open_filesystem
from penstock.spark.lake_reading import read_rows
from penstock.spark.offsets import id_text
from penstock.spark.tasks import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

PIECE_BYTES: Final = 4 * 1024 * 1024
"""About as much is sent before it is noted: what may come twice of each partition."""
FOLDER: Final = "_replays"
"""In the folder of the table; Delta and Spark do not look into folders that begin with an underscore."""
HEADERS: Final = ("topic", "partition", "offset", "timestamp")
"""What each message's headers say of where it comes from: `penstock-original-topic` and so on. The timestamp is in
milliseconds."""
PREFIX: Final = "penstock-original-"


class ReplayError(Exception):
    """The rows cannot be sent to this topic."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Selection:
    """Which rows: of these partitions or all, of offsets and times from the first on and before the second."""

    partitions: tuple[int, ...] | None = None
    from_offset: int = 0
    to_offset: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def may_have(self, file: LakeFile) -> bool:
        if file.times_ms is None:
            return True
        return (self.since_ms is None or file.times_ms[1] >= self.since_ms) and (
            self.until_ms is None or file.times_ms[0] < self.until_ms
        )


@dataclass(slots=True, frozen=True)
class ReplayProgress:
    rows: int
    total: int
    """At most: of files that were selected by time, some rows may be left out."""


@dataclass(slots=True, frozen=True)
class ReplayResult:
    path: str
    topic: str
    rows: Mapping[int, int]
    """What was sent of each partition by this run."""
    resumed_rows: int
    """What an earlier run had sent that was interrupted."""


@dataclass(slots=True, frozen=True)
class _Job:
    """What every task is told."""

    path: str
    state: str
    files: tuple[LakeFile, ...]
    selection: Selection
    topic: str
    settings: Mapping[str, Any]
    keeps_partitions: bool
    keeps_timestamps: bool


@dataclass(slots=True, frozen=True)
class _State:
    """How far a partition is: the next offset of the lake, and the rows before it."""

    next_offset: int
    rows: int


def replay(
    spark: "SparkSession",
    lake: str,
    to: str,
    *,
    bootstrap: str | Mapping[str, Any],
    partitions: Sequence[int] | None = None,
    from_offset: int = 0,
    to_offset: int | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    partition_by: Literal["original", "key"] = "original",
    timestamps: Literal["original", "now"] = "original",
    watch: Callable[[ReplayProgress], None] = lambda _: None,
) -> ReplayResult:
    """Send rows of the table in the folder `lake` to the topic `to`: all of them, or those of some partitions, offsets
    and times (milliseconds, or datetimes; the ends are not included).

    Each message goes to the partition that it came from, or with `partition_by="key"` to where the producer sends its
    key. It keeps its timestamp, or gets the present one. Delivery is at least once: interrupted and called again with
    the same arguments it goes on where it was, and sends about `PIECE_BYTES` of each partition again at most. When it
    is done, that is forgotten, and the next call begins anew.

    Example:
        replay(session(), "/lake/orders", "orders-again", bootstrap="localhost:9092", partitions=[0, 1])
    """
    selection = Selection(
        partitions=None if partitions is None else tuple(sorted(set(partitions))),
        from_offset=from_offset,
        to_offset=to_offset,
        since_ms=None if since is None else to_milliseconds(since),
        until_ms=None if until is None else to_milliseconds(until),
    )
    table = Lake.load(lake)
    if not table.exists:
        raise LakeError(f"there is no table in {table.path}: `penstock pipeline archive` makes one")
    settings = {name: str(value) for name, value in given_settings(bootstrap).items()}
    link = connect(settings)
    files = tuple(each for each in table.files() if selection.may_have(each))
    numbers = _partitions(table, files) if selection.partitions is None else list(selection.partitions)
    topic_id = _check_target(link, to, numbers, files, by_key=partition_by == "key", keeps=timestamps == "original")
    name = _name(table.id, to, topic_id, selection, partition_by)
    job = _Job(
        path=table.path,
        state=f"{FOLDER}/{name}",
        files=files,
        selection=selection,
        topic=to,
        settings=settings,
        keeps_partitions=partition_by == "original",
        keeps_timestamps=timestamps == "original",
    )
    total = sum(
        each.rows
        for each in files
        if any(each.may_have(number, start=from_offset, end=to_offset) for number in numbers)
    )
    filesystem, base = open_filesystem(table.path)
    resumed = sum(each.rows for each in _states(filesystem, f"{base}/{job.state}"))

    def look(_: int) -> None:
        watch(ReplayProgress(sum(each.rows for each in _states(filesystem, f"{base}/{job.state}")), total))

    sent = run_tasks(spark, f"replay {table.path}", numbers, partial(_replay_partition, job), watch=look)
    if list_names(filesystem, f"{base}/{job.state}"):
        filesystem.delete_dir(f"{base}/{job.state}")
    return ReplayResult(table.path, to, dict(zip(numbers, sent, strict=True)), resumed)


def with_origin(rows: "pa.Table") -> "pa.Array":
    """The headers of the rows, and behind them where each row comes from."""
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
    # First the rows' own headers, then four of each row, column after column; an index brings them together.
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


def _replay_partition(job: _Job, partition: int) -> int:
    """A task."""
    return asyncio.run(_send(job, partition))


async def _send(job: _Job, partition: int) -> int:
    from penstock.client.producer import Producer

    filesystem, base = open_filesystem(job.path)
    path = f"{base}/{job.state}/{partition}.json"
    state = _read_state(filesystem, path) or _State(job.selection.from_offset, 0)
    sent = 0
    async with Producer(dict(job.settings)) as producer:
        for rows, next_offset in _pieces(job, partition, state.next_offset):
            if rows.num_rows:
                target = partition if job.keeps_partitions else None
                (await producer.send_batch(job.topic, _messages(rows, job), partition=target)).raise_for_errors()
            sent += rows.num_rows
            state = _State(next_offset, state.rows + rows.num_rows)
            _write_state(filesystem, path, state)
    return sent


def _pieces(job: _Job, partition: int, start: int) -> "Iterator[tuple[pa.Table, int]]":
    """The rows in order, a piece at a time, each with the offset behind it."""
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
    """What the producer takes; without a timestamp it gives the present one."""
    import pyarrow as pa

    columns = {"key": rows["key"], "value": rows["value"], "headers": with_origin(rows)}
    if job.keeps_timestamps:
        columns["timestamp"] = rows["timestamp"]
    return pa.table(columns)


def _partitions(lake: Lake, files: Sequence[LakeFile]) -> list[int]:
    """All that have rows."""
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


def _check_target(
    link: Link, topic: str, numbers: Sequence[int], files: Sequence[LakeFile], *, by_key: bool, keeps: bool
) -> str:
    """That the topic can take the rows; returns its id."""
    told = unwrap(link.run(link.cluster.topics([topic], fresh=True)))[topic]
    count = len(told.partitions)
    if not by_key and numbers and numbers[-1] >= count:
        raise ReplayError(
            f"the lake has partition {numbers[-1]}, and topic {topic!r} has {count}: give it {numbers[-1] + 1} "
            '(penstock topic add-partitions), or send by key (partition_by="key", --by-key)'
        )
    if keeps:
        resource = Resource(ResourceType.TOPIC, topic)
        configs = unwrap(link.run(describe_configs(link.cluster, [resource])))[resource]
        retention_ms = int(configs["retention.ms"].value or -1)
        oldest_ms = min((each.times_ms[0] for each in files if each.times_ms is not None), default=None)
        deletes = "delete" in (configs["cleanup.policy"].value or "") and retention_ms >= 0
        if deletes and oldest_ms is not None and oldest_ms < time.time_ns() // 1_000_000 - retention_ms:
            raise ReplayError(
                f"the lake has messages that are older than retention.ms={retention_ms} of topic {topic!r}: it would "
                'delete them again. Set it to -1, or give them the present time (timestamps="now", --timestamps now)'
            )
    return id_text(told.topic_id)


def _name(table_id: str, topic: str, topic_id: str, selection: Selection, partition_by: str) -> str:
    """The same for the same call, and another for any other."""
    told = [table_id, topic, topic_id, asdict(selection), partition_by]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _states(filesystem: "FileSystem", folder: str) -> list[_State]:
    found = (_read_state(filesystem, f"{folder}/{name}") for name in list_names(filesystem, folder) if name[0] != ".")
    return [each for each in found if each is not None]


def _read_state(filesystem: "FileSystem", path: str) -> _State | None:
    try:
        with filesystem.open_input_stream(path) as stream:
            told = json.loads(stream.read())
    except FileNotFoundError:
        return None
    return _State(told["next"], told["rows"])


def _write_state(filesystem: "FileSystem", path: str, state: _State) -> None:
    folder, _, name = path.rpartition("/")
    filesystem.create_dir(folder, recursive=True)
    # Whoever reads it at this moment gets the old one or the new one.
    with filesystem.open_output_stream(f"{folder}/.{name}") as stream:
        stream.write(json.dumps({"next": state.next_offset, "rows": state.rows}).encode())
    filesystem.move(f"{folder}/.{name}", path)
