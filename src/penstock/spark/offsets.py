"""`Offsets` says how far a query is: an offset for each partition and the id of each topic, as JSON that Spark keeps.

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
    gone: "Offsets | None" = None
    """How far the query was in partitions that are not there now. A partition that was only out of sight, and comes
    back with the id of its topic, goes on from there."""
    error: str = ""
    """Why the beginning of the query is not known. A first batch that is repeated does not need it."""

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> Self:
        """ValueError for what `to_json` did not write."""
        try:
            if read["version"] != VERSION:
                raise ValueError(
                    f"the checkpoint has offsets of version {read['version']}, and this penstock knows {VERSION}: "
                    "continue the query with the penstock that wrote it"
                )
            begin, gone = read.get("begin"), read.get("gone")
            return cls(
                {
                    TopicPartition(topic, int(partition)): int(offset)
                    for topic, told in read["topics"].items()
                    for partition, offset in told["offsets"].items()
                },
                {topic: str(told["id"]) for topic, told in read["topics"].items() if told["id"]},
                None if begin is None else cls.from_json(begin),
                bool(read.get("initial", False)),
                None if gone is None else cls.from_json(gone),
                str(read.get("error", "")),
            )
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{read} are no offsets of this source: is the checkpoint one of another?") from None

    def to_json(self) -> dict[str, Any]:
        topics: dict[str, Any] = {}
        for key, offset in sorted(self.positions.items()):
            told = topics.setdefault(key.topic, {"id": self.topic_ids.get(key.topic, ""), "offsets": {}})
            told["offsets"][str(key.partition)] = offset
        written: dict[str, Any] = {} if self.begin is None else {"begin": self.begin.to_json()}
        if self.gone is not None:
            written["gone"] = self.gone.to_json()
        if self.is_initial:
            written["initial"] = True
        if self.error:
            written["error"] = self.error
        return written | {"topics": topics, "version": VERSION}

    def without(self, topics: Iterable[str]) -> "Offsets":
        """These offsets without those of some topics."""
        gone = set(topics)
        return self.only(key for key in self.positions if key.topic not in gone)

    def only(self, keys: Iterable[TopicPartition]) -> "Offsets":
        """The offsets of these partitions alone."""
        kept = set(keys)
        topics = {key.topic for key in kept}
        return Offsets(
            {key: offset for key, offset in self.positions.items() if key in kept},
            {topic: told for topic, told in self.topic_ids.items() if topic in topics},
        )

    @property
    def remembered(self) -> "Offsets":
        """How far the query is, or was, in every partition it has seen."""
        if self.gone is None:
            return self
        return Offsets({**self.gone.positions, **self.positions}, {**self.gone.topic_ids, **self.topic_ids})


def is_remade(before: str, now: str) -> bool:
    """Whether two ids belong to two topics of one name. An id that a broker does not give proves nothing."""
    return bool(before and now and before != now)


def id_text(topic_id: bytes) -> str:
    """A topic's id as Kafka's tools write it; empty for zero, which brokers without topic ids send."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else ""
