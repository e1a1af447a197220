"""How far a query is: an offset for each partition and the id of each topic, as the JSON that Spark keeps.

Spark compares offsets as text, so equal ones are always written alike.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from penstock.client.metadata import TopicPartition

VERSION: Final = 1


@dataclass(slots=True, frozen=True)
class Offsets:
    """The next offset to read of each partition.

    The end of a query's first batch says in `begin` where that batch began: Spark keeps only the end of a batch, and
    asks for the beginning of the first one again after a failure.
    """

    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Empty from brokers that know no ids."""
    begin: "Offsets | None" = None
    is_initial: bool = False
    """Whether no batch has ended here yet."""

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """ValueError for what `to_json` did not write."""
        try:
            if read["version"] != VERSION:
                raise ValueError(
                    f"the checkpoint has offsets of version {read['version']}, and this penstock knows {VERSION}: "
                    "continue the query with the penstock that wrote it"
                )
            begin = read.get("begin")
            return cls(
                {
                    TopicPartition(topic, int(partition)): int(offset)
                    for topic, told in read["topics"].items()
                    for partition, offset in told["offsets"].items()
                },
                {topic: str(told["id"]) for topic, told in read["topics"].items() if told["id"]},
                None if begin is None else cls.from_json(begin),
                bool(read.get("initial", False)),
            )
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{read} are no offsets of this source: is the checkpoint one of another?") from None

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        for key, offset in sorted(self.positions.items()):
            told = topics.setdefault(key.topic, {"id": self.topic_ids.get(key.topic, ""), "offsets": {}})
            told["offsets"][str(key.partition)] = offset
        written: dict[str, Any] = {} if self.begin is None else {"begin": self.begin.to_json()}
        if self.is_initial:
            written["initial"] = True
        return written | {"topics": topics, "version": VERSION}

    def without(self, topics: Iterable[str]) -> "Offsets":
        """The same, as if some topics had never been there."""
        gone = set(topics)
        return Offsets(
            {key: offset for key, offset in self.positions.items() if key.topic not in gone},
            {topic: told for topic, told in self.topic_ids.items() if topic not in gone},
        )


def id_text(topic_id: bytes) -> str:
    """A topic's id as Kafka's tools write it; nothing for zero, as from brokers that know no ids."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else ""
