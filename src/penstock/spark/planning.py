"""Decides what a batch reads and how tasks share it. These are rules alone: no broker is asked."""

import heapq
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, TypeVar

from penstock.client.metadata import TopicPartition
from penstock.spark.offsets import Offsets, is_remade

K = TypeVar("K", bound=Hashable)

USUAL_BYTES: Final = 1024.0
"""The size that a record is assumed to have while no record's size is known."""


class PlanError(ValueError):
    """The start and the end of a batch do not fit together."""


@dataclass(slots=True, frozen=True)
class Range:
    """Offsets of one partition, from the start up to but not including the end."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets; of records there may be fewer."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end} of {self.key}"


def plan_ranges(start: Offsets, end: Offsets, *, may_go_back: bool = False) -> list[Range]:
    """The ranges between two offsets, by partition.

    1. A partition that the start does not have is read from 0 on, and so is a topic that was deleted and made again.
    2. A partition that was gone for a while goes on where it was.

    An end before the start is an error, unless the log was cut off and the user has agreed to go on (`may_go_back`).
    """
    # The end of the first batch is believed, as its start may have changed since.
    start = end if end.is_initial else end.begin or start
    if start.error:
        raise PlanError(start.error)
    known = start.remembered
    ranges = []
    for key, last in sorted(end.positions.items()):
        topic_id = end.topic_ids.get(key.topic, "")
        first = 0 if is_remade(known.topic_ids.get(key.topic, ""), topic_id) else known.positions.get(key, 0)
        if first > last and not may_go_back:
            raise PlanError(
                f"{key} would be read from offset {first} to {last}: an end before the start. The checkpoint is one of "
                "another topic or cluster, or the log was cut off; start with a new checkpoint"
            )
        if first < last:
            ranges.append(Range(key.topic, topic_id, key.partition, first, last))
    return ranges


def limit(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends that lie `most` offsets after the starts in sum: each partition gets a share in proportion to what waits in
    it, and at least one offset."""
    waiting = {key: last - start.get(key, 0) for key, last in latest.items() if last > start.get(key, 0)}
    shares = share(most, waiting)
    return {key: start.get(key, 0) + shares[key] if key in shares else last for key, last in latest.items()}


def limit_bytes(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    most: int,
    bytes_each: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Ends that lie about `most` bytes after the starts in sum, when a record of a partition has about `bytes_each`; a
    partition that is missing there counts as the mean of the others."""
    usual = _usual(bytes_each)
    waiting = {key: last - start.get(key, 0) for key, last in latest.items() if last > start.get(key, 0)}
    sizes = {key: max(1, round(count * bytes_each.get(key, usual))) for key, count in waiting.items()}
    shares = share(most, sizes)
    ends = dict(latest)
    for key, count in waiting.items():
        if shares[key] < sizes[key]:
            ends[key] = start.get(key, 0) + min(count, max(1, int(shares[key] / bytes_each.get(key, usual))))
    return ends


def share(most: int, wanted: Mapping[K, int]) -> dict[K, int]:
    """Parts of `most` in proportion to what is wanted. Each key gets at least 1, so that the sum is more than `most` if
    there are more keys than that."""
    total = sum(wanted.values())
    if total <= most:
        return dict(wanted)
    shares = {key: max(1, count * most // total) for key, count in wanted.items() if count > 0}
    left = most - sum(shares.values())
    if left > 0:
        # The remainder of rounding goes to the keys that lost most by it.
        rounded = [key for key in shares if wanted[key] * most >= total]
        for key in sorted(rounded, key=lambda key: wanted[key] * most % total, reverse=True)[:left]:
            shares[key] += 1
    elif left < 0:
        # What the smallest keys got beyond their share is taken from the largest.
        for key in sorted(shares, key=lambda key: shares[key], reverse=True):
            given = min(-left, shares[key] - 1)
            shares[key] -= given
            left += given
    return shares


def split(
    ranges: Sequence[Range],
    *,
    min_parts: int | None = None,
    max_records: int | None = None,
    max_bytes: int | None = None,
    bytes_each: Mapping[TopicPartition, float] | None = None,
) -> list[Range]:
    """Cut ranges into parts for the tasks: no part is larger than the maximum, and there are at least `min_parts` if
    there are enough offsets. The largest ranges are cut first."""
    sizes = bytes_each or {}
    usual = _usual(sizes)
    counts = []
    for each in ranges:
        count = 1 if max_records is None else -(-each.size // max_records)
        if max_bytes is not None:
            count = max(count, ceil(each.size * sizes.get(each.key, usual) / max_bytes))
        counts.append(min(count, each.size))
    if min_parts is not None:
        # By the size of a part as it is now.
        largest = [(-each.size / count, index) for index, (each, count) in enumerate(zip(ranges, counts, strict=True))]
        heapq.heapify(largest)
        missing = min_parts - sum(counts)
        while missing > 0 and largest:
            index = heapq.heappop(largest)[1]
            if counts[index] < ranges[index].size:
                counts[index] += 1
                missing -= 1
                heapq.heappush(largest, (-ranges[index].size / counts[index], index))
    return [part for each, count in zip(ranges, counts, strict=True) for part in _cut(each, count)]


def _usual(bytes_each: Mapping[TopicPartition, float]) -> float:
    return sum(bytes_each.values()) / len(bytes_each) if bytes_each else USUAL_BYTES


def _cut(whole: Range, count: int) -> Iterable[Range]:
    for index in range(count):
        first = whole.start + whole.size * index // count
        last = whole.start + whole.size * (index + 1) // count
        yield replace(whole, start=first, end=last)
