"""The ledger knows what clients were told, and says what must be true of it: nothing acknowledged is lost, doubled, out
of order or changed, and no committed offset goes back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

TOPIC: Final = "events"


@dataclass(slots=True)
class Sent:
    """A message of a producer. Values are unique."""

    producer: str
    partition: int
    number: int
    value: bytes
    offset: int | None = None


@dataclass(slots=True)
class PartitionLedger:
    # What any reader has seen at each offset.
    seen: dict[int, bytes] = field(default_factory=dict)
    acknowledged: dict[int, Sent] = field(default_factory=dict)
    # No record below this need be there: its deletion was asked for.
    deleted_to: int = 0
    # No record below this may be there: its deletion was acknowledged.
    gone_to: int = 0
    committed: int = 0


class Ledger:
    def __init__(self, partitions: int, problem: Callable[[str], None], reach: Callable[[str], None]) -> None:
        self.partitions = [PartitionLedger() for _ in range(partitions)]
        self._problem = problem
        self._reach = reach
        self._sent: dict[bytes, Sent] = {}
        self._places: dict[bytes, tuple[int, int]] = {}

    @property
    def acknowledged(self) -> int:
        return sum(len(partition.acknowledged) for partition in self.partitions)

    # Producers

    def send(self, sent: Sent) -> None:
        self._sent[sent.value] = sent

    def was_acknowledged(self, sent: Sent, offset: int) -> None:
        partition = self.partitions[sent.partition]
        sent.offset = offset
        other = partition.acknowledged.setdefault(offset, sent)
        if other is not sent:
            self._problem(f"{sent.value[:20]!r} and {other.value[:20]!r} were both acknowledged at {offset}")
        self._check_place(sent.partition, offset, sent.value)

    # Readers

    def was_read(self, partition: int, offset: int, value: bytes) -> None:
        if value not in self._sent:
            self._problem(f"{partition}@{offset} has what no producer sent: {value[:40]!r}")
        elif self._sent[value].partition != partition:
            self._problem(f"{partition}@{offset} has what was sent to {self._sent[value].partition}: {value[:40]!r}")
        self.partitions[partition].seen.setdefault(offset, value)
        self._check_place(partition, offset, value)
        there = self.partitions[partition].acknowledged.get(offset)
        if there is not None and there.value != value:
            self._problem(f"{partition}@{offset} was acknowledged as {there.value[:20]!r}, and is {value[:20]!r}")

    def _check_place(self, partition: int, offset: int, value: bytes) -> None:
        seen = self.partitions[partition].seen.get(offset, value)
        if seen != value:
            self._problem(f"{partition}@{offset} has changed from {seen[:20]!r} to {value[:20]!r}")
        place = self._places.setdefault(value, (partition, offset))
        if place != (partition, offset):
            self._problem(f"{value[:20]!r} is at {place} and at {(partition, offset)}")

    def passed_over(self, reader: str, partition: int, expected: int, offset: int) -> None:
        """A reader went on at another offset than the next."""
        if offset < expected:
            self._problem(f"{reader} was sent back from {expected} to {offset} of partition {partition}")
        elif self.partitions[partition].deleted_to < offset:
            self._problem(f"{reader} saw nothing from {expected} to {offset} of partition {partition}")
        else:
            self._reach("a reader passed over what had been deleted")

    # Groups

    def was_committed(self, partition: int, offset: int) -> None:
        there = self.partitions[partition]
        there.committed = max(there.committed, offset)

    def committed_is(self, partition: int, offset: int, at_least: int) -> None:
        if offset < at_least:
            self._problem(f"the committed offset of partition {partition} went back from {at_least} to {offset}")

    # The end

    def check_whole(self, partition: int, start: int, found: dict[int, bytes]) -> None:
        """A reader has read a partition from its start to its end."""
        there = self.partitions[partition]
        if start > there.deleted_to:
            self._problem(f"partition {partition} begins at {start}, and only up to {there.deleted_to} was to go")
        if start < there.gone_to:
            self._problem(f"partition {partition} begins at {start}, and {there.gone_to} was acknowledged as its start")
        if sorted(found) != list(range(start, start + len(found))):
            self._problem(f"partition {partition} has holes: {sorted(found)[:50]}")
        for offset, sent in there.acknowledged.items():
            if offset >= start and found.get(offset) != sent.value:
                self._problem(f"{partition}@{offset}: {sent.value[:20]!r} was acknowledged, and is lost")
        for offset, value in there.seen.items():
            if offset >= start and found.get(offset) != value:
                self._problem(f"{partition}@{offset}: {value[:20]!r} was read, and is gone")
        last: dict[str, int] = {}
        for _, value in sorted(found.items()):
            sent = self._sent[value]
            if sent.number <= last.get(sent.producer, -1):
                self._problem(f"partition {partition}: {value[:20]!r} comes after a later one of its producer")
            last[sent.producer] = sent.number
