"""Log ends are what brokers report of their logs after the metadata was imported: by them it is found which replica has
everything."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NO_EPOCH = -1


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """Of two logs of a partition the one with the larger `(epoch, offset)` has all that is committed and the other has.

    `epoch` is that of the last record; of a log without records, the newest that it knows. `newest_epoch` is the
    newest that the log knows, with or without records. All of it is durable.
    """

    epoch: int
    offset: int
    newest_epoch: int

    def equals(self, other: "LogEnd") -> bool:
        """Whether both logs are known to have the same records, but for those that were deleted or compacted."""
        is_known = self.epoch != NO_EPOCH or self.offset == 0
        return is_known and (self.epoch, self.offset) == (other.epoch, other.offset)


LogEnds = Mapping[tuple[bytes, int], LogEnd]
"""By the id of the topic and the number of the partition."""

PackedEnds = list[tuple[bytes, list[tuple[int, int, int, int]]]]
"""As they travel: of each topic its id and, of each partition, number, epoch, offset and newest epoch."""


def pack(ends: LogEnds) -> PackedEnds:
    by_topic: dict[bytes, list[tuple[int, int, int, int]]] = {}
    for (topic_id, index), end in ends.items():
        by_topic.setdefault(topic_id, []).append((index, end.epoch, end.offset, end.newest_epoch))
    return list(by_topic.items())


def unpack(packed: Iterable[tuple[bytes, Iterable[tuple[int, int, int, int]]]]) -> LogEnds:
    return {(topic_id, index): LogEnd(*end) for topic_id, ends in packed for index, *end in ends}
