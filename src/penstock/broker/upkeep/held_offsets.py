"""Held offsets say from where on groups still need the records of partitions whose retention waits for them. About a
group that another broker coordinates that broker is asked, once a sweep."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from penstock.broker.coordinators.groups import GroupCoordinators
from penstock.broker.log_rates import RatedLog
from penstock.broker.partitions.partition import Partition
from penstock.protocol.schema import ZERO_UUID, Message
from penstock.protocol.schemas.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

log = RatedLog(logging.getLogger(__name__))

TIMEOUT_SECONDS: Final = 10.0
# Partitions that one request asks about.
ASKED_AT_ONCE: Final = 1000
# Nothing may be deleted.
EVERYTHING: Final = 0


class Peers(Protocol):
    """The connections to other brokers, as far as they are needed here."""

    async def request(self, broker_id: int, message: Message, *, timeout: float) -> Any: ...


class HeldOffsets:
    """`peers` returns None on a broker that is alone."""

    def __init__(self, groups: GroupCoordinators, node_id: int, peers: Callable[[], Peers | None]) -> None:
        self._groups = groups
        self._node_id = node_id
        self._peers = peers

    async def find(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset from which on records are still needed, for each partition that waits for a group. Without a
        commit, or an answer, that is everything."""
        held: dict[Partition, int] = {}
        elsewhere: dict[tuple[int, str], list[Partition]] = {}
        for partition in partitions:
            group = partition.settings.hold_group
            if not group:
                continue
            held[partition] = EVERYTHING
            coordinator = self._groups.leader_of(group)
            if coordinator == self._node_id:
                held[partition] = self._find_here(group, partition)
            elif coordinator is not None and coordinator >= 0:
                elsewhere.setdefault((coordinator, group), []).append(partition)
        for (coordinator, group), asked in elsewhere.items():
            for begin in range(0, len(asked), ASKED_AT_ONCE):
                held |= await self._ask(coordinator, group, asked[begin : begin + ASKED_AT_ONCE])
        return held

    def _find_here(self, group: str, partition: Partition) -> int:
        committed = self._groups.committed_offset(group, partition.topic, partition.index)
        # A commit for a deleted topic of the same name does not count.
        if committed is None or committed.topic_id not in (ZERO_UUID, partition.topic_id):
            return EVERYTHING
        return committed.offset

    async def _ask(self, coordinator: int, group: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
        peers = self._peers()
        if peers is None:
            return {}
        try:
            response = await peers.request(coordinator, _request(group, partitions), timeout=TIMEOUT_SECONDS)
        except Exception as error:
            # Whatever the reason is, records are kept, and the next sweep asks again.
            facts = {"group": group, "coordinator": coordinator, "error": str(error)}
            log.warning("retention waits for a group whose coordinator does not answer", owner=self, extra=facts)
            return {}
        # Only a topic's id tells its commits from those of a deleted one with the same name.
        offsets = {
            (topic.topic_id, found.partition_index): found.committed_offset
            for answer in response.groups
            if answer.group_id == group and not answer.error_code
            for topic in answer.topics
            for found in topic.partitions
            if not found.error_code and found.committed_offset >= 0
        }
        return {each: offsets.get((each.topic_id, each.index), EVERYTHING) for each in partitions}


def _request(group: str, partitions: Iterable[Partition]) -> OffsetFetchRequest:
    by_topic: dict[tuple[str, bytes], list[int]] = {}
    for partition in partitions:
        by_topic.setdefault((partition.topic, partition.topic_id), []).append(partition.index)
    topics = [
        OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
        for (name, topic_id), indexes in by_topic.items()
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
