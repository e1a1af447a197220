"""From where on groups need records: groups that are coordinated here, and others by asking their coordinators."""

from typing import Any

from penstock.broker.partitions.partition import Partition
from penstock.broker.upkeep.held_offsets import EVERYTHING, HeldOffsets
from penstock.machines.groups.records import OffsetCommitted
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.broker.harness import in_loop, running


class Groups:
    """The groups "here" of this broker 0, "there" of broker 5, and "nowhere"."""

    def leader_of(self, group_id: str) -> int | None:
        return {"here": 0, "there": 5, "nowhere": -1}.get(group_id)

    def committed_offset(self, group_id: str, topic: str, partition: int) -> OffsetCommitted | None:
        return None


class Peers:
    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.asked: list[tuple[int, OffsetFetchRequest]] = []
        self.offsets = {0: 7, 1: -1}
        self.code = ErrorCode.NONE
        self.error: Exception | None = None

    async def request(self, broker_id: int, message: Any, *, timeout: float) -> OffsetFetchResponse:
        self.asked.append((broker_id, message))
        if self.error is not None:
            raise self.error
        partitions = [
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset)
            for index, offset in self.offsets.items()
        ]
        topics = [OffsetFetchResponseTopics(topic_id=self.topic_id, partitions=partitions)]
        [group] = message.groups
        answer = OffsetFetchResponseGroup(group_id=group.group_id, error_code=self.code, topics=topics)
        return OffsetFetchResponse(groups=[answer])


@in_loop
async def test_the_coordinator_of_a_group_is_asked_once_for_all_partitions() -> None:
    async with running() as node:
        created = await (await node.connect()).create_topic("orders", 3, {"penstock.retention.hold.group": "there"})
        await (await node.connect()).create_topic("free")
        peers = Peers(created.topic_id)
        held = await HeldOffsets(Groups(), 0, lambda: peers).find(node.broker.services.partitions.all())  # type: ignore[arg-type]
        assert {partition.name: offset for partition, offset in held.items()} == {
            "orders-0": 7,
            "orders-1": EVERYTHING,
            "orders-2": EVERYTHING,
        }
        [(broker, request)] = peers.asked
        [topic] = request.groups[0].topics or ()
        assert (broker, topic.topic_id, topic.partition_indexes) == (5, created.topic_id, [0, 1, 2])


@in_loop
async def test_everything_is_held_without_an_answer_that_counts() -> None:
    async with running() as node:
        created = await (await node.connect()).create_topic("orders", 1, {"penstock.retention.hold.group": "there"})
        partitions: list[Partition] = node.broker.services.partitions.all()

        async def found(peers: Peers | None) -> list[int]:
            return [*(await HeldOffsets(Groups(), 0, lambda: peers).find(partitions)).values()]  # type: ignore[arg-type]

        assert await found(Peers(created.topic_id)) == [7]
        assert await found(None) == [EVERYTHING]
        away, loading, recreated = Peers(created.topic_id), Peers(created.topic_id), Peers(b"o" * 16)
        away.error = ConnectionError("it is away")
        loading.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for peers in (away, loading, recreated):
            assert await found(peers) == [EVERYTHING]


@in_loop
async def test_a_group_without_a_coordinator_holds_everything_and_no_broker_is_asked() -> None:
    async with running() as node:
        created = await (await node.connect()).create_topic("orders", 1, {"penstock.retention.hold.group": "nowhere"})
        peers = Peers(created.topic_id)
        held = await HeldOffsets(Groups(), 0, lambda: peers).find(node.broker.services.partitions.all())  # type: ignore[arg-type]
        assert ([*held.values()], peers.asked) == ([EVERYTHING], [])
