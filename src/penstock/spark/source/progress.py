"""A consumer group keeps a query's progress here: where it began, and which offsets its batches have finished.

Lag tools see the query by it, and a first batch that fails begins again where it began.
"""

import logging
from collections.abc import Iterable, Mapping, Set
from typing import Final

from penstock.client.admin.group_offsets import CommittedOffset, commit_offsets, group_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError, unwrap
from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets
from penstock.spark.options import Bound

log: Final = logging.getLogger(__name__)

_PROGRESS: Final = "spark"
"""Begins the metadata of a committed offset of a partition of which batches are done; the name of the source that has
committed it follows, if it has one."""
_START: Final = "spark start"
"""Begins the metadata of a committed offset at which a query began."""


async def recall_start(
    cluster: Cluster, group: str, bound: Bound, topic_ids: Mapping[str, str], partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    """Where the group says that a query with these starting offsets begins, of which no batch is done yet. A group that
    has the progress of another query is warned of."""
    committed = unwrap(await group_offsets(cluster, [group]))[group]
    if used := [key for key in partitions if key in committed and _is_progress(committed[key].metadata)]:
        log.warning(
            "group %r already has the progress of a query: %s is at offset %d. A group keeps that of one query; if the "
            "other one still runs, or will run again, set kafka.group.id of this one to another name",
            group,
            used[0],
            committed[used[0]].offset,
        )
    return {
        key: committed[key].offset
        for key in partitions
        if key in committed and committed[key].metadata == _start(bound, key, topic_ids)
    }


async def keep_start(
    cluster: Cluster, group: str, bound: Bound, topic_ids: Mapping[str, str], starts: Mapping[TopicPartition, int]
) -> None:
    offsets = {key: CommittedOffset(offset, metadata=_start(bound, key, topic_ids)) for key, offset in starts.items()}
    if offsets:
        unwrap(await commit_offsets(cluster, group, offsets))


async def publish(cluster: Cluster, group: str, done: Offsets, *, name: str = "") -> bool:
    """Commit what batches have finished, in the name of a source. A failure is logged and does not fail the query."""
    metadata = f"{_PROGRESS} {name}".strip()
    offsets = {key: CommittedOffset(offset, metadata=metadata) for key, offset in done.positions.items()}
    if not offsets:
        return True
    try:
        outcomes = await commit_offsets(cluster, group, offsets)
    except ClientError as error:
        outcomes = dict.fromkeys(offsets, error)
    errors = [outcome for outcome in outcomes.values() if outcome is not None]
    if errors:
        log.warning("the progress of the query could not be committed to group %r: %s", group, errors[0])
    return not errors


async def find_other(cluster: Cluster, group: str, keys: Iterable[TopicPartition], name: str) -> TopicPartition | None:
    """A partition of those that the source of this name has committed, for which a source of another name has since
    committed to the group; None if there is none, or the group cannot be read now."""
    try:
        committed = unwrap(await group_offsets(cluster, [group]))[group]
    except ClientError:
        # A commit reports what is wrong with the group.
        return None
    # A listener of `publish_progress` commits for the query itself, and has no name.
    known = {_PROGRESS, f"{_PROGRESS} {name}"}
    return next((key for key in keys if key in committed and _is_foreign(committed[key].metadata, known)), None)


def _is_foreign(metadata: str | None, known: Set[str]) -> bool:
    return (metadata or "").startswith(_PROGRESS) and metadata not in known


def _is_progress(metadata: str | None) -> bool:
    return (metadata or "").startswith(_PROGRESS) and not (metadata or "").startswith(_START)


def _start(bound: Bound, key: TopicPartition, topic_ids: Mapping[str, str]) -> str:
    return f"{_START} {bound.describe(key)} {topic_ids.get(key.topic, '')}"
