"""Deletes archived records from the log, after the table's files are read back, checked and synced to the disk."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.client.admin.configs import Resource, ResourceType, describe_configs
from penstock.client.admin.offsets import EARLIEST, delete_records, list_offsets
from penstock.client.errors import ClientError, unwrap
from penstock.client.metadata import TopicPartition
from penstock.spark.lake.files import check_file, sync
from penstock.spark.lake.lake import Lake, LakeError, LakeFile, Source, list_names, open_filesystem
from penstock.spark.link import SparkLink
from penstock.spark.offsets import id_text
from penstock.spark.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD: Final = "penstock.retention.hold.group"


def truncate_archived(
    spark: "SparkSession",
    link: SparkLink,
    lake: Lake,
    source: Source,
    watch: Callable[[int, int], None],
    *,
    skip_lost: bool = False,
) -> dict[int, int]:
    """Delete from the log what the table has, after every file that has any of it was checked. Returns where the
    truncated partitions begin now. A table that has lost rows since they were archived is refused, unless
    `skip_lost`."""
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
    # The offsets belong to this topic, and to no other topic of its name.
    now = unwrap(link.run(link.cluster.topics([source.topic], fresh=True)))[source.topic]
    if id_text(now.topic_id) != source.topic_id:
        raise LakeError(f"{source} was deleted and made again while it was archived: nothing was truncated")
    deleted = unwrap(link.run(delete_records(link.cluster, due)))
    return {key.partition: start for key, start in deleted.items()}


def prepare_retention(link: SparkLink, lake: Lake, source: Source, group: str) -> None:
    """If retention waits for this group, sync the table's files to the disk before the group lets retention delete what
    they have."""
    topic = Resource(ResourceType.TOPIC, source.topic)
    told = link.run(describe_configs(link.cluster, [topic], names=[HOLD]))[topic]
    # Without the permission to see the configs it has to be assumed.
    if not isinstance(told, ClientError) and (HOLD not in told or told[HOLD].value != group):
        return
    _, files = _still_in_log(link, lake, source)
    filesystem, base = open_filesystem(lake.path)
    for each in files:
        sync(filesystem, f"{base}/{each.path}")
    _sync_log(lake)


def _still_in_log(link: SparkLink, lake: Lake, source: Source) -> tuple[dict[TopicPartition, int], list[LakeFile]]:
    """The partitions whose logs still have archived records, with the offsets these are archived up to, and the files
    that have any of them."""
    ends = {TopicPartition(source.topic, number): end for number, end in lake.ends(source).items()}
    listed = unwrap(link.run(list_offsets(link.cluster, dict.fromkeys(ends, EARLIEST))))
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
    """Sync the table's log: a commit counts only when the disk has it."""
    filesystem, base = open_filesystem(lake.path)
    log = os.path.join(base, "_delta_log")
    for name in list_names(filesystem, log):
        sync(filesystem, os.path.join(log, name))
    sync(filesystem, log)
    sync(filesystem, base)
