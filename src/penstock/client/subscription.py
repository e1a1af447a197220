"""What a consumer reads: the partitions that it has, and how far it is in each. It decides nothing about when."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.client.decoding import Returned, Segment
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition

UNKNOWN: Final = -1
"""No offset."""

# What has to be looked up before a partition can be read: what its group has committed, or an offset by a timestamp
# (or by what stands for one, `admin.EARLIEST` and `admin.LATEST`).
COMMITTED: Final = -4


@dataclass(slots=True, eq=False)
class Reading:
    """A partition that is being read.

    `version` changes whenever the position is set: what was asked for under an earlier one is of no use any more.
    """

    key: TopicPartition
    position: int = UNKNOWN
    """Of the next message that a poll returns."""
    epoch: int = -1
    """The leader epoch of the message before that, as far as it is known."""
    done: int = UNKNOWN
    """How far the application has come back for more: so far may be committed for it."""
    done_epoch: int = -1
    committed: int = UNKNOWN
    """What was last committed, or is about to be."""
    lookup: int | None = COMMITTED
    version: int = 0
    moves: int = 0
    """How often somebody has set the position, who did not just read on."""
    fetch_offset: int = UNKNOWN
    """Where the next fetch begins: behind all that is queued."""
    fetch_epoch: int = -1
    """The leader epoch of what comes before that."""
    validates: bool = False
    """Whether the next fetch has to find out if the log was cut off before the position (KIP-320)."""
    asked_version: int = -1
    """The version of a fetch that is under way."""
    not_before: float = 0.0
    """When it may be fetched again, after an error."""
    segments: deque[Segment | Returned] = field(default_factory=deque)
    queued_bytes: int = 0
    is_paused: bool = False
    is_revoked: bool = False
    is_in_line: bool = False
    """Whether it waits for its turn to be polled."""
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    error: ClientError | None = None
    """What the next poll has to raise."""

    def seek(self, offset: int, epoch: int = -1) -> int:
        """Go on at an offset; returns how many bytes had been fetched in vain."""
        self.position = self.done = self.fetch_offset = offset
        self.epoch = self.done_epoch = self.fetch_epoch = epoch
        self.validates = epoch >= 0
        self.lookup = None
        self.moves += 1
        return self._start_anew()

    def look_up(self, what: int) -> int:
        """Find out where to go on first."""
        self.position = self.done = self.fetch_offset = UNKNOWN
        self.epoch = self.done_epoch = self.fetch_epoch = -1
        self.validates = False
        self.lookup = what
        self.moves += 1
        return self._start_anew()

    def refetch(self) -> int:
        """Fetch what is queued again, from the position on."""
        self.fetch_offset, self.fetch_epoch = self.position, self.epoch
        self.validates = False
        return self._start_anew()

    def revoke(self) -> int:
        self.is_revoked = True
        return self._start_anew()

    def came_back(self) -> None:
        """The application is through with all that it was given."""
        self.done, self.done_epoch = self.position, self.epoch

    @property
    def wants_fetch(self) -> bool:
        """Whether a fetch may be sent for it; not, whether there is room for what it brings."""
        return (
            self.fetch_offset >= 0
            and not self.is_paused
            and not self.is_revoked
            and self.error is None
            and self.asked_version != self.version
        )

    @property
    def has_turn(self) -> bool:
        """Whether there is something of it to poll."""
        return bool(self.segments) and not self.is_paused and not self.is_revoked

    def _start_anew(self) -> int:
        self.version += 1
        self.error = None
        self.segments.clear()
        dropped, self.queued_bytes = self.queued_bytes, 0
        return dropped


Wanted: TypeAlias = frozenset[str] | re.Pattern[str]


class Subscription:
    """All of it. `wanted` is what a group is asked for; without it partitions are assigned by hand."""

    def __init__(self) -> None:
        self.wanted: Wanted | None = None
        self.readings: dict[TopicPartition, Reading] = {}
        self.queued_bytes = 0
        """Of all readings together."""
        self._line: deque[Reading] = deque()

    def add(self, keys: Iterable[TopicPartition]) -> list[Reading]:
        """Those that were not there yet."""
        added = [Reading(key) for key in dict.fromkeys(keys) if key not in self.readings]
        self.readings |= {reading.key: reading for reading in added}
        return added

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            if (reading := self.readings.pop(key, None)) is not None:
                self.queued_bytes -= reading.revoke()

    def seek(self, reading: Reading, offset: int, epoch: int = -1) -> None:
        self.queued_bytes -= reading.seek(offset, epoch)

    def look_up(self, reading: Reading, what: int) -> None:
        self.queued_bytes -= reading.look_up(what)

    def refetch(self, reading: Reading) -> None:
        self.queued_bytes -= reading.refetch()

    def arrived(self, reading: Reading, segment: Segment) -> None:
        """Something was fetched: it is the next one's turn to be fetched, and this one's to be polled."""
        reading.fetch_offset, reading.fetch_epoch = segment.end_offset, segment.end_epoch
        reading.segments.append(segment)
        reading.queued_bytes += segment.size
        self.queued_bytes += segment.size
        if self.readings.get(reading.key) is reading:
            self.readings[reading.key] = self.readings.pop(reading.key)
        self.line_up(reading)

    def line_up(self, reading: Reading, *, first: bool = False) -> None:
        """If there is anything to poll."""
        if reading.segments and not reading.is_in_line:
            reading.is_in_line = True
            if first:
                self._line.appendleft(reading)
            else:
                self._line.append(reading)

    def next_in_line(self) -> Reading | None:
        """Whose turn it is to be polled; it has to line up again. Who is paused does so when it is resumed."""
        while self._line:
            reading = self._line.popleft()
            reading.is_in_line = False
            if reading.has_turn:
                return reading
        return None

    def in_line(self) -> Iterator[Reading]:
        """All whose turn it is, the first first; they stay where they are."""
        return (reading for reading in self._line if reading.has_turn)

    def used(self, reading: Reading, segment: Segment | Returned) -> None:
        """The first segment of a reading is used up."""
        assert reading.segments[0] is segment
        reading.segments.popleft()
        reading.queued_bytes -= segment.size
        self.queued_bytes -= segment.size

    def committable(self) -> Iterator[Reading]:
        """Those in which the application has come further than was committed for it."""
        return (each for each in self.readings.values() if each.done >= 0 and each.done != each.committed)
