"""A view is what one broker says of the cluster, asked by a connection of its own: brokers may differ while a fault
lasts."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.groups import FindCoordinatorRequest
from penstock.protocol.schemas.metadata import MetadataRequest
from tools.chaos.history import Place
from tools.clients.processes import OutsideError
from tools.fixtures.connection import Connection

ASK_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Replicas:
    leader: int
    isr: frozenset[int]
    all: frozenset[int]


@dataclass(frozen=True, slots=True)
class View:
    controller: int
    brokers: frozenset[int]
    partitions: dict[Place, Replicas]
    coordinator: int | None
    """Of the group that was asked for, if there is one."""
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def is_whole(self, brokers: frozenset[int]) -> bool:
        """These brokers are there, one controls, and every partition is led, with all of its replicas in sync."""
        return (
            self.brokers == brokers
            and self.controller in brokers
            and all(each.leader in brokers and each.isr == each.all for each in self.partitions.values())
        )

    def lacks(self, brokers: frozenset[int]) -> str:
        """What keeps it from being whole, in words."""
        if self.brokers != brokers:
            return f"brokers {sorted(self.brokers)} alone"
        if self.controller not in brokers:
            return "no controller"
        behind = [name for name, each in self.partitions.items() if each.leader not in brokers or each.isr != each.all]
        shown = ", ".join(f"{topic}-{number} {self.partitions[topic, number]}" for topic, number in behind[:3])
        return f"{len(behind)} partitions without a leader or a replica in sync: {shown}" if behind else "nothing"


def look(address: str, group: str | None = None) -> View | None:
    """What the broker at this address says; None if it does not answer."""

    async def ask() -> View:
        async with asyncio.timeout(ASK_SECONDS), Connection(address) as connection:
            told = await connection.ask(MetadataRequest(topics=None))
            coordinator = None
            if group is not None:
                found = await connection.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
                [one] = found.coordinators
                coordinator = one.node_id if one.error_code == ErrorCode.NONE else None
        partitions = {
            (topic.name, one.partition_index): Replicas(
                one.leader_id, frozenset(one.isr_nodes), frozenset(one.replica_nodes)
            )
            for topic in told.topics
            for one in topic.partitions
        }
        brokers = frozenset(one.node_id for one in told.brokers)
        ids = {topic.name: bytes(topic.topic_id) for topic in told.topics}
        return View(told.controller_id, brokers, partitions, coordinator, ids)

    try:
        return asyncio.run(ask())
    except (OSError, OutsideError, TimeoutError, DecodeError):
        return None
