"""The merger decides which message of several partitions is next by timestamp, and how long to wait for a partition
that has none. It is given the time, and never waits."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from penstock.client.message import Message
from penstock.client.metadata import TopicPartition


@dataclass(slots=True, eq=False)
class _Lane:
    """Messages of one partition, in the order of its log."""

    empty_since: float
    messages: deque[Message[Any, Any]] = field(default_factory=deque)
    arrivals: deque[list[float]] = field(default_factory=deque)
    """When messages came, and how many at that time."""


class Merger:
    """A message is next when no partition can have an older one, as far as is known. While a partition has none, the
    others wait. If it is at its end, what it gets from now on will be about as old as now: so messages that are older
    than `max_wait_ms` need not wait for it, and the others no longer than that from when they came. If more is to come
    of it, it is waited for, but no longer than `max_wait_ms` from when it ran dry."""

    def __init__(self, max_wait_ms: float, *, is_at_end: Callable[[TopicPartition], bool]) -> None:
        """`is_at_end` is asked of partitions that have no messages here: whether there is nothing more of them."""
        self.max_wait_ms = max_wait_ms
        self.late = 0
        """How many messages came after others with later timestamps."""
        self.queued = 0
        self._is_at_end = is_at_end
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._heap: list[tuple[int, TopicPartition]] = []
        self._empty: dict[TopicPartition, _Lane] = {}
        self._latest = -(1 << 63)

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        return self._lanes.keys()

    def track(self, partitions: Iterable[TopicPartition], now_ms: float) -> None:
        """Merge these partitions from now on; messages of other ones are dropped."""
        wanted = frozenset(partitions)
        for key in [key for key in self._lanes if key not in wanted]:
            self.queued -= len(self._lanes.pop(key).messages)
            self._empty.pop(key, None)
        for key in sorted(wanted - self._lanes.keys()):
            self._lanes[key] = self._empty[key] = _Lane(now_ms)
        self._heap = [each for each in self._heap if each[1] in wanted]
        heapify(self._heap)

    def count(self, partition: TopicPartition) -> int:
        """How many messages wait here."""
        return len(self._lanes[partition].messages)

    def add(self, partition: TopicPartition, messages: list[Message[Any, Any]], now_ms: float) -> None:
        """Add the next messages of a partition."""
        if not messages:
            return
        lane = self._lanes[partition]
        if not lane.messages:
            del self._empty[partition]
            heappush(self._heap, (messages[0].timestamp, partition))
        lane.messages += messages
        lane.arrivals.append([now_ms, len(messages)])
        self.queued += len(messages)

    def release(self, most: int, now_ms: float) -> list[Message[Any, Any]]:
        """Messages whose turn has come, with equal timestamps by partition and offset."""
        released: list[Message[Any, Any]] = []
        until, waits_for_ends = self._holds()
        while self._heap and len(released) < most:
            timestamp, key = self._heap[0]
            lane = self._lanes[key]
            if now_ms < until or (waits_for_ends and now_ms < self._due(timestamp, lane)):
                break
            released.append(lane.messages.popleft())
            lane.arrivals[0][1] -= 1
            if not lane.arrivals[0][1]:
                lane.arrivals.popleft()
            if lane.messages:
                heapreplace(self._heap, (lane.messages[0].timestamp, key))
            else:
                heappop(self._heap)
                lane.empty_since = now_ms
                self._empty[key] = lane
                until, waits_for_ends = self._holds()
        self.queued -= len(released)
        return released

    def wait_ms(self, now_ms: float) -> float | None:
        """How long it takes until the next message is due if nothing else comes; None: there is no message."""
        if not self._heap:
            return None
        timestamp, key = self._heap[0]
        until, waits_for_ends = self._holds()
        if waits_for_ends:
            until = max(until, self._due(timestamp, self._lanes[key]))
        return max(0.0, until - now_ms)

    def is_late(self, message: Message[Any, Any]) -> bool:
        """Whether the application was given a later message before; to be called for each message that it is given, in
        order."""
        if message.timestamp >= self._latest:
            self._latest = message.timestamp
            return False
        self.late += 1
        return True

    def take_back(self, now_ms: float) -> dict[TopicPartition, list[Message[Any, Any]]]:
        """Give up all messages that wait here, as if they had not come."""
        taken = {key: list(lane.messages) for key, lane in self._lanes.items() if lane.messages}
        for key in taken:
            self._lanes[key] = self._empty[key] = _Lane(now_ms)
        self._heap.clear()
        self.queued = 0
        return taken

    def _holds(self) -> tuple[float, bool]:
        """Until when partitions of which more is to come hold everything up; and whether some partitions are at their
        ends."""
        until = -1.0
        has_ends = False
        for key, lane in self._empty.items():
            if self._is_at_end(key):
                has_ends = True
            else:
                until = max(until, lane.empty_since + self.max_wait_ms)
        return until, has_ends

    def _due(self, timestamp: int, lane: _Lane) -> float:
        return min(timestamp, lane.arrivals[0][0]) + self.max_wait_ms
