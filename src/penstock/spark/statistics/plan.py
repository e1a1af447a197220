"""Plans what statistics read: the log of each partition, which has most facts, and from the lake what is older."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.admin.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition
from penstock.spark import planning, positions
from penstock.spark.lake.lake import Lake, LakeError, Source
from penstock.spark.options import SourceOptions
from penstock.spark.planning import Range

TASK_BYTES: Final = 32 * 1024 * 1024
"""About how many bytes a task reads: small enough for progress to show."""


@dataclass(slots=True, frozen=True)
class Piece:
    """A task's share of a partition."""

    range: Range
    lake: str | None = None
    """The table to read it from; None for the log."""
    archived_in: str | None = None
    """The table that may have what is deleted from the log while the job runs."""
    is_lead: bool = False
    """Whether this is the first piece of the partition's log."""
    is_from_beginning: bool = False
    """Whether the log begins at offset 0."""


@dataclass(slots=True, frozen=True)
class Scope:
    """Selects records by time in milliseconds, from the first on and before the second."""

    since_ms: int | None = None
    until_ms: int | None = None


def load_lake(path: str) -> Lake:
    lake = Lake.load(path)
    if not lake.exists:
        raise LakeError(f"there is no table in {lake.path}: archive the topic first, or leave the lake out")
    return lake


async def plan(
    cluster: Cluster, options: SourceOptions, source: Source, lake_path: str | None, scope: Scope, *, min_parts: int
) -> list[Piece]:
    """The pieces of a topic, those of its lake first if there is one. Records that neither the log nor the lake has are
    left out."""
    keys = [TopicPartition(source.topic, number) for number in range(source.partitions)]
    # The ends come first, then the beginnings, and the lake last: an archive run commits before it truncates, so that
    # the table has all records that have left the log when its beginning is listed.
    last = await positions.list_ends(cluster, dict.fromkeys(keys, LATEST), options)
    young = await _list_young(cluster, last, scope)
    first = await positions.list_ends(cluster, dict.fromkeys(keys, EARLIEST), options)
    lake = None if lake_path is None else await asyncio.to_thread(load_lake, lake_path)
    starts = {key: max(first[key], young[key]) for key in keys}
    live = [
        Range(source.topic, source.topic_id, key.partition, starts[key], last[key])
        for key in keys
        if starts[key] < last[key]
    ]
    sizes = await positions.probe_sizes(cluster, {each.key: each.start for each in live})
    parts = planning.split(live, min_parts=min_parts, max_bytes=TASK_BYTES, bytes_each=sizes)
    begins = {each.key: each.start for each in live}
    from_log = [
        Piece(
            each,
            archived_in=None if lake is None else lake.path,
            is_lead=each.start == begins[each.key],
            is_from_beginning=each.start == 0,
        )
        for each in parts
    ]
    return from_log if lake is None else [*_plan_lake(lake, source, first, scope), *from_log]


async def _list_young(cluster: Cluster, last: Mapping[TopicPartition, int], scope: Scope) -> dict[TopicPartition, int]:
    """The offsets before which no record is recent enough."""
    if scope.since_ms is None:
        return dict.fromkeys(last, 0)
    listed = unwrap(await list_offsets(cluster, dict.fromkeys(last, scope.since_ms)))
    return {key: listed[key].offset if listed[key].offset >= 0 else last[key] for key in last}


def _plan_lake(lake: Lake, source: Source, first: Mapping[TopicPartition, int], scope: Scope) -> list[Piece]:
    files = [each for each in lake.files() if _may_have(each.times_ms, scope)]
    pieces = []
    for number, archived in lake.ends(source).items():
        end = min(archived, first[TopicPartition(source.topic, number)])
        mine = [each for each in files if each.may_have(number, end=end)]
        if not mine:
            continue
        start = min(0 if each.offsets is None else each.offsets[0] for each in mine)
        whole = Range(source.topic, source.topic_id, number, start, end)
        size = sum(each.size for each in mine)
        parts = planning.split([whole], max_bytes=TASK_BYTES, bytes_each={whole.key: size / max(1, whole.size)})
        pieces += [Piece(each, lake=lake.path) for each in parts]
    return pieces


def _may_have(times_ms: tuple[int, int] | None, scope: Scope) -> bool:
    if times_ms is None:
        return True
    return (scope.since_ms is None or times_ms[1] >= scope.since_ms) and (
        scope.until_ms is None or times_ms[0] < scope.until_ms
    )
