"""How far a query is, kept in a consumer group: where it began, and what its batches have finished.

Lag tools see a query by it, and a first batch that fails begins again where it began.
"""

import logging
from collections.abc import Mapping
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, unwrap
from penstock.client.groups import CommittedOffset, commit_offsets, group_offsets
from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets
from penstock.spark.options import Bound

log: Final = logging.getLogger(__name__)

_PROGRESS: Final = "spark"
"""What is written beside the offset of a partition of which batches are done."""


async def recall_start(
    cluster: Cluster, group: str, bound: Bound, topic_ids: Mapping[str, str], partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    """Where the group says that a query with these starting offsets begins, of which no batch is done yet."""
    committed = unwrap(await group_offsets(cluster, [group]))[group]
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


async def publish(cluster: Cluster, group: str, done: Offsets) -> bool:
    """Commit what batches have finished; that it fails is no reason for the query to fail."""
    offsets = {key: CommittedOffset(offset, metadata=_PROGRESS) for key, offset in done.positions.items()}
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


def _start(bound: Bound, key: TopicPartition, topic_ids: Mapping[str, str]) -> str:
    return f"spark start {bound.describe(key)} {topic_ids.get(key.topic, '')}"
