"""`Topic`, `Partition` and `Broker` describe a cluster as its clients know it, with the leader of each partition."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from penstock.client.errors import UnknownPartitionError
from penstock.protocol.schemas.metadata import MetadataResponseBroker, MetadataResponseTopic

DEFAULT_PORT = 9092


class Address(NamedTuple):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host`, `host:port` or `[::1]:port`; without a port it is Kafka's, 9092."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or (":" in host and not host.endswith("]")) or port.endswith("]"):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(
                f"{text!r} is no broker's address: write it as host:port, such as localhost:{DEFAULT_PORT}"
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
    """A partition and its replicas; `leader` is -1 while there is none."""

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
    """The names of partitions for a message to users, shortened if there are many."""
    listed = sorted(keys)
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return ", ".join(map(str, listed[:5])) + more if listed else "nothing"


def near_names(name: str, names: Iterable[str], *, most: int = 3) -> list[str]:
    """Those of `names` that a user who wrote `name` may have meant, the likeliest first."""
    known = {each.casefold(): each for each in names}
    return [known[match] for match in difflib.get_close_matches(name.casefold(), known, n=most, cutoff=0.7)]
