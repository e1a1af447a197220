"""What a cluster looks like to its clients: brokers, topics, and who leads which partition."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.connection import Address
from penstock.client.errors import UnknownPartitionError
from penstock.protocol.schemas.metadata import MetadataResponseBroker, MetadataResponseTopic


class TopicPartition(NamedTuple):
    """A partition of a topic.

    >>> str(TopicPartition("orders", 3))
    'orders-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True, frozen=True)
class Broker:
    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(slots=True, frozen=True)
class Partition:
    """`leader` is -1 while there is none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class Topic:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[Partition, ...]

    def partition(self, index: int) -> Partition:
        if not 0 <= index < len(self.partitions):
            raise UnknownPartitionError(self.name, index, len(self.partitions))
        return self.partitions[index]


def read_broker(told: MetadataResponseBroker) -> Broker:
    return Broker(told.node_id, told.host, told.port, told.rack)


def read_topic(told: MetadataResponseTopic) -> Topic:
    partitions = (
        Partition(
            index=each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            offline_replicas=tuple(each.offline_replicas),
        )
        for each in sorted(told.partitions, key=lambda each: each.partition_index)
    )
    return Topic(told.name or "", told.topic_id, told.is_internal, tuple(partitions))


def named(keys: Iterable[TopicPartition]) -> str:
    """Partitions for a message to people, not too many of them."""
    listed = sorted(keys)
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return ", ".join(map(str, listed[:5])) + more if listed else "nothing"


def near_names(name: str, names: Iterable[str], *, most: int = 3) -> list[str]:
    """Those of `names` that somebody who wrote `name` may have meant, the likeliest first."""
    known = {each.casefold(): each for each in names}
    return [known[match] for match in difflib.get_close_matches(name.casefold(), known, n=most, cutoff=0.7)]
