"""Asks brokers where partitions begin and end, and which offset a position means in each of them."""

from collections.abc import Iterable, Mapping

from penstock.cli.positions import Kind, Position
from penstock.client.admin.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition


async def partition_ranges(cluster: Cluster, keys: Iterable[TopicPartition]) -> dict[TopicPartition, range]:
    """The offsets of each partition that may be read: from the first that is left up to the high watermark."""
    keys = list(keys)
    earliest, latest = await _offsets(cluster, keys, EARLIEST), await _offsets(cluster, keys, LATEST)
    return {key: range(earliest[key], latest[key]) for key in keys}


async def locate(
    cluster: Cluster, position: Position, ranges: Mapping[TopicPartition, range]
) -> dict[TopicPartition, int]:
    """The offset of the position in each partition, clipped to the partition."""
    at_time = await _offsets(cluster, ranges, position.value) if position.kind is Kind.TIME else {}
    return {key: position.offset(each.start, each.stop, at_time.get(key)) for key, each in ranges.items()}


async def _offsets(cluster: Cluster, keys: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    listed = unwrap(await list_offsets(cluster, dict.fromkeys(keys, timestamp)))
    return {key: each.offset for key, each in listed.items()}
