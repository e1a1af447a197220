"""Before a log loses what is archived: files of the table are read back and checked, and are on the disk to stay."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.client import admin
from penstock.client.admin import EARLIEST
from penstock.client.configs import Resource, ResourceType, describe_configs
from penstock.client.errors import ClientError, unwrap
from penstock.client.metadata import TopicPartition
from penstock.spark.connecting import Link
from penstock.spark.lake import Lake, LakeError, LakeFile, Source, list_names, open_filesystem
from penstock.spark.lake_files import check_file, sync
from penstock.spark.offsets import id_text
from penstock.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD: Final = "penstock.retention.hold.group"


def truncate_archived(
    spark: "SparkSession",
    link: Link,
    lake: Lake,
    source: Source,
    watch: Callable[[int, int], None],
    *,
    skip_lost: bool = False,
) -> dict[int, int]:
    """Delete from the log what the table has, once every file that has any of it was checked. Returns where the
    partitions begin now, of those that were truncated. A table that has lost rows since they were archived is refused,
    unless `skip_lost`."""
    due, files = _still_in_log(link, lake, source)
    if not due:
        return {}
    if not skip_lost:
        lake.check_whole(source)
    total = sum(each.rows for each in files)
    run_tasks(
        spark,
        f"check {lake.path}",
        files,
        partial(_check, lake.path),
        counted=int,
        watch=lambda done: watch(done, total),
    )
    _sync_log(lake)
    # The offsets mean this topic, and no other of its name.
    now = unwrap(link.run(link.cluster.topics([source.topic], fresh=True)))[source.topic]
    if id_text(now.topic_id) != source.topic_id:
        raise LakeError(f"{source} was deleted and made again while it was archived: nothing was truncated")
    deleted = unwrap(link.run(admin.delete_records(link.cluster, due)))
    return {key.partition: start for key, start in deleted.items()}


def prepare_retention(link: Link, lake: Lake, source: Source, group: str) -> None:
    """Before the group lets retention delete what is archived, if it is the one that retention waits for: have the disk
    keep the table's part of it."""
    topic = Resource(ResourceType.TOPIC, source.topic)
    told = link.run(describe_configs(link.cluster, [topic], names=[HOLD]))[topic]
    # Who may not see the configs has to expect it.
    if not isinstance(told, ClientError) and (HOLD not in told or told[HOLD].value != group):
        return
    _, files = _still_in_log(link, lake, source)
    filesystem, base = open_filesystem(lake.path)
    for each in files:
        sync(filesystem, f"{base}/{each.path}")
    _sync_log(lake)


def _still_in_log(link: Link, lake: Lake, source: Source) -> tuple[dict[TopicPartition, int], list[LakeFile]]:
    """Up to where partitions are archived that begin before, and the files that have any of that."""
    ends = {TopicPartition(source.topic, number): end for number, end in lake.ends(source).items()}
    listed = unwrap(link.run(admin.list_offsets(link.cluster, dict.fromkeys(ends, EARLIEST))))
    due = {key: end for key, end in ends.items() if listed[key].offset < end}
    files = [
        each
        for each in lake.files()
        if any(each.may_have(key.partition, start=listed[key].offset, end=end) for key, end in due.items())
    ]
    return due, files


def _check(path: str, file: LakeFile) -> int:
    filesystem, base = open_filesystem(path)
    check_file(filesystem, f"{base}/{file.path}", rows=file.rows)
    sync(filesystem, f"{base}/{file.path}")
    return file.rows


def _sync_log(lake: Lake) -> None:
    """A commit counts only when the disk has it."""
    filesystem, base = open_filesystem(lake.path)
    log = os.path.join(base, "_delta_log")
    for name in list_names(filesystem, log):
        sync(filesystem, os.path.join(log, name))
    sync(filesystem, log)
    sync(filesystem, base)
