"""The subscription is the state of what a consumer reads: its partitions, and a cursor in each. It decides nothing
about when."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.client.consumer.fetched import UNKNOWN, FetchedBatches, Returned
from penstock.client.errors import ClientError
from penstock.client.group.protocol import Wanted
from penstock.client.metadata import TopicPartition

# What has to be looked up before a partition can be read: what its group has committed, or an offset by a timestamp
# (or by what stands for one, `EARLIEST` and `LATEST` of client.admin.offsets).
COMMITTED: Final = -4


@dataclass(slots=True, eq=False)
class PartitionCursor:
    """A partition that is being read. `version` changes whenever the position is set: answers to fetches of an earlier
    version are dropped."""

    key: TopicPartition
    position: int = UNKNOWN
    """The offset of the next message that a poll returns."""
    epoch: int = -1
    """The leader epoch of the message before that, as far as it is known."""
    done: int = UNKNOWN
    """The offset up to which the application has come back for more: up to there offsets may be committed for it."""
    done_epoch: int = -1
    committed: int = UNKNOWN
    """What was last committed, or is about to be."""
    lookup: int | None = COMMITTED
    version: int = 0
    moves: int = 0
    """How often the position was set, other than by reading on."""
    fetch_offset: int = UNKNOWN
    """Where the next fetch begins: after all that is queued. UNKNOWN: nothing is fetched before a poll or a seek has
    said where to go on."""
    fetch_epoch: int = -1
    """The leader epoch of what comes before that."""
    validates: bool = False
    """Whether the next fetch has to find out if the log was cut off before the position (KIP-320)."""
    asked_version: int = -1
    """The version of a fetch that is under way."""
    not_before: float = 0.0
    """When it may be fetched again, after an error."""
    resets: int = 0
    """How often the position was reset since a fetch has last succeeded."""
    queued: deque[FetchedBatches | Returned] = field(default_factory=deque)
    queued_bytes: int = 0
    is_paused: bool = False
    is_revoked: bool = False
    is_in_line: bool = False
    """Whether it waits for its turn to be polled."""
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    error: ClientError | None = None
    """The error that the next poll has to raise."""

    def seek(self, offset: int, epoch: int = -1) -> int:
        """Go on at an offset; returns how many fetched bytes are dropped."""
        self.position = self.done = self.fetch_offset = offset
        self.epoch = self.done_epoch = self.fetch_epoch = epoch
        self.validates = epoch >= 0
        self.lookup = None
        self.moves += 1
        return self._start_anew()

    def look_up(self, what: int) -> int:
        """Find out where to go on before anything is fetched."""
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
        return bool(self.queued) and not self.is_paused and not self.is_revoked

    @property
    def is_damaged(self) -> bool:
        """Whether what comes next is known to be a batch that cannot be read."""
        return bool(self.queued) and self.queued[0].is_damaged

    def _start_anew(self) -> int:
        self.version += 1
        self.error = None
        self.queued.clear()
        dropped, self.queued_bytes = self.queued_bytes, 0
        return dropped


class Subscription:
    """All that a consumer reads. `wanted` is what a group is asked for; without it partitions are assigned by hand."""

    def __init__(self) -> None:
        self.wanted: Wanted | None = None
        self.cursors: dict[TopicPartition, PartitionCursor] = {}
        self.queued_bytes = 0
        """Bytes that are queued in all partitions together."""
        self._line: deque[PartitionCursor] = deque()

    def add(self, keys: Iterable[TopicPartition]) -> list[PartitionCursor]:
        """Add partitions; returns the cursors of those that are new."""
        added = [PartitionCursor(key) for key in dict.fromkeys(keys) if key not in self.cursors]
        self.cursors |= {cursor.key: cursor for cursor in added}
        return added

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            if (cursor := self.cursors.pop(key, None)) is not None:
                self.queued_bytes -= cursor.revoke()

    def seek(self, cursor: PartitionCursor, offset: int, epoch: int = -1) -> None:
        self.queued_bytes -= cursor.seek(offset, epoch)

    def look_up(self, cursor: PartitionCursor, what: int) -> None:
        self.queued_bytes -= cursor.look_up(what)

    def refetch(self, cursor: PartitionCursor) -> None:
        self.queued_bytes -= cursor.refetch()

    def arrived(self, cursor: PartitionCursor, fetched: FetchedBatches) -> None:
        """Queue what was fetched: this partition lines up to be polled, and goes to the end of those to be fetched."""
        cursor.fetch_offset, cursor.fetch_epoch = fetched.end_offset, fetched.end_epoch
        cursor.queued.append(fetched)
        cursor.queued_bytes += fetched.size
        self.queued_bytes += fetched.size
        if self.cursors.get(cursor.key) is cursor:
            self.cursors[cursor.key] = self.cursors.pop(cursor.key)
        self.line_up(cursor)

    def line_up(self, cursor: PartitionCursor, *, first: bool = False) -> None:
        """Let a partition line up to be polled, if it has something queued."""
        if cursor.queued and not cursor.is_in_line:
            cursor.is_in_line = True
            if first:
                self._line.appendleft(cursor)
            else:
                self._line.append(cursor)

    def next_in_line(self) -> PartitionCursor | None:
        """The partition whose turn it is to be polled; it has to line up again. A paused one does so when it is
        resumed."""
        while self._line:
            cursor = self._line.popleft()
            cursor.is_in_line = False
            if cursor.has_turn:
                return cursor
        return None

    def in_line(self) -> Iterator[PartitionCursor]:
        """All partitions that are in line to be polled, in order; they stay in it."""
        return (cursor for cursor in self._line if cursor.has_turn)

    def used(self, cursor: PartitionCursor, fetched: FetchedBatches | Returned) -> None:
        """The first batches of a cursor are used up."""
        assert cursor.queued[0] is fetched
        cursor.queued.popleft()
        cursor.queued_bytes -= fetched.size
        self.queued_bytes -= fetched.size

    def committable(self) -> Iterator[PartitionCursor]:
        """The cursors in which the application has come further than was committed for it."""
        return (each for each in self.cursors.values() if each.done >= 0 and each.done != each.committed)
