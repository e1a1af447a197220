"""Ranges of partitions, and positions in them."""

import pytest

from penstock.cli.partition_ranges import locate, partition_ranges
from penstock.cli.positions import Kind, Position
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import UnknownPartitionError
from penstock.client.metadata import TopicPartition
from penstock.protocol.schemas.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.peer import Peer, peer
from tests.waiting import in_loop

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
# By partition and timestamp; time 5 lies in the first, and behind all of the second.
OFFSETS = {(0, -2): 10, (0, -1): 20, (0, 5): 12, (1, -2): 0, (1, -1): 3, (1, 5): -1}


def answer(broker: Peer) -> None:
    broker.answers[ListOffsetsRequest] = lambda request: ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=OFFSETS[each.partition_index, each.timestamp]
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@in_loop
async def test_a_range_goes_from_the_first_offset_to_the_one_behind_the_last() -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        answer(broker)
        assert await partition_ranges(cluster, [FIRST, SECOND]) == {FIRST: range(10, 20), SECOND: range(3)}


@in_loop
async def test_positions_are_located_in_each_partition() -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        answer(broker)
        ranges = await partition_ranges(cluster, [FIRST, SECOND])
        asked = len(broker.requests(ListOffsetsRequest))
        assert await locate(cluster, Position(Kind.FROM_END, 5), ranges) == {FIRST: 15, SECOND: 0}
        assert len(broker.requests(ListOffsetsRequest)) == asked, "only a time has to be asked for"
        assert await locate(cluster, Position(Kind.TIME, 5), ranges) == {FIRST: 12, SECOND: 3}


@in_loop
async def test_a_partition_that_does_not_exist_is_an_error() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        answer(broker)
        with pytest.raises(UnknownPartitionError):
            await partition_ranges(cluster, [FIRST, SECOND])
