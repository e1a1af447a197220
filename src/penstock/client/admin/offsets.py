"""Administration of a partition's offsets: `list_offsets` finds them by time, `delete_records` moves the first one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.client.admin.topics import wait_ms_for
from penstock.client.cluster.cluster import Cluster, Target, Terms
from penstock.client.errors import ClientError, outcome
from penstock.client.metadata import TopicPartition
from penstock.protocol.schema import Versions
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.schemas.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

# Instead of a timestamp, in `list_offsets`.
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

# Instead of an offset, in `delete_records`.
HIGH_WATERMARK = -1


class ListedOffset(NamedTuple):
    """`offset` is -1 if no record is as young as the timestamp asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    """Find an offset in each partition: of the first record that is not older than a timestamp in milliseconds; for
    `EARLIEST` the first offset, for `LATEST` the one after the last, for `MAX_TIMESTAMP` that of the youngest record.
    With `read_committed` a log ends where its first open transaction begins."""

    def request(targets: Sequence[Target]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=each.partition,
                        current_leader_epoch=each.leader_epoch,
                        timestamp=timestamps[each.key],
                    )
                    for each in group
                ],
            )
            for name, group in _by_topic(targets).items()
        ]
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=int(read_committed), topics=topics, timeout_ms=cluster.request_timeout_ms
        )

    def read(response: ListOffsetsResponse, _: Sequence[Target]) -> dict[TopicPartition, ListedOffset | ClientError]:
        return {
            (key := TopicPartition(topic.name, told.partition_index)): outcome(
                told.error_code, str(key), None, ListedOffset(told.offset, told.timestamp, told.leader_epoch)
            )
            for topic in response.topics
            for told in topic.partitions
        }

    # A broker that does not know what -3 stands for would take it for a timestamp.
    versions = Versions(7, 11) if MAX_TIMESTAMP in timestamps.values() else None
    return await cluster.request_to_leaders(
        timestamps, request, read, terms=Terms(versions=versions, timeout_ms=timeout_ms)
    )


async def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int | ClientError]:
    """Delete the records before an offset (`HIGH_WATERMARK`: all of them); returns the first offset that is left."""
    wait_ms = wait_ms_for(cluster, timeout_ms)

    def request(targets: Sequence[Target]) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=each.partition, offset=offsets[each.key]) for each in group
                ],
            )
            for name, group in _by_topic(targets).items()
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=wait_ms)

    def read(response: DeleteRecordsResponse, _: Sequence[Target]) -> dict[TopicPartition, int | ClientError]:
        return {
            (key := TopicPartition(topic.name, told.partition_index)): outcome(
                told.error_code, str(key), None, told.low_watermark
            )
            for topic in response.topics
            for told in topic.partitions
        }

    terms = Terms(repeatable=False, hold_ms=wait_ms, timeout_ms=timeout_ms)
    return await cluster.request_to_leaders(offsets, request, read, terms=terms)


def _by_topic(targets: Iterable[Target]) -> dict[str, list[Target]]:
    groups: dict[str, list[Target]] = {}
    for target in targets:
        groups.setdefault(target.topic, []).append(target)
    return groups
