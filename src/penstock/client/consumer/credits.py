"""A window of messages that were delivered and not acknowledged yet: it decides how many more may come, which is handed
over next, and up to which offset everything is acknowledged. It never waits."""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

from penstock.client.message import Message


class Entry(NamedTuple):
    """A message and where it was taken from."""

    source: Hashable
    message: Message[Any, Any]


@dataclass(slots=True, eq=False)
class Delivery:
    """The messages that are handed over at once."""

    lane: Hashable
    entries: list[Entry]
    is_acknowledged: bool = False

    @property
    def messages(self) -> list[Message[Any, Any]]:
        return [entry.message for entry in self.entries]


@dataclass(slots=True, eq=False)
class _Unacknowledged:
    """Offsets of one source; the heap may still have those of other sources."""

    messages: dict[int, Message[Any, Any]] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)


class Window:
    """Messages in a lane are handed over one after the other, or with `lists` all that wait at once; a lane does not
    wait for another one."""

    def __init__(self, credits: int, *, lists: bool = False) -> None:
        self.credits = credits
        self.outstanding = 0
        """Messages that were delivered and not acknowledged, whether they were handed over or not."""
        self._lists = lists
        self._waiting = 0
        self._lanes: dict[Hashable, deque[Entry]] = {}
        self._turns: deque[Hashable] = deque()
        """Lanes with messages that are not handed over yet."""
        self._busy: set[Hashable] = set()
        self._sources: dict[Hashable, _Unacknowledged] = {}

    @property
    def free(self) -> int:
        return self.credits - self.outstanding

    @property
    def wants_more(self) -> bool:
        """Whether it is worth while to get more: half of the window is free, or nothing is left to be handed over."""
        return self.free > 0 and (not self._waiting or self.free * 2 >= self.credits)

    def deliver(self, lane: Hashable, entry: Entry) -> None:
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = deque()
        if not queue and lane not in self._busy:
            self._turns.append(lane)
        queue.append(entry)
        source = self._sources.setdefault(entry.source, _Unacknowledged())
        source.messages[entry.message.offset] = entry.message
        heappush(source.offsets, entry.message.offset)
        self.outstanding += 1
        self._waiting += 1

    def hand_over(self) -> Delivery | None:
        """The next delivery, of a lane that is busy with it until it `returned`."""
        if not self._turns:
            return None
        lane = self._turns.popleft()
        queue = self._lanes[lane]
        entries = [queue.popleft() for _ in range(len(queue) if self._lists else 1)]
        self._waiting -= len(entries)
        self._busy.add(lane)
        return Delivery(lane, entries)

    def returned(self, delivery: Delivery) -> None:
        """The call with this delivery is over."""
        self._busy.discard(delivery.lane)
        if self._lanes[delivery.lane]:
            self._turns.append(delivery.lane)
        else:
            del self._lanes[delivery.lane]

    def acknowledge(self, delivery: Delivery) -> set[Hashable]:
        """Acknowledge a delivery; returns the sources whose frontier has moved. A second call does nothing."""
        if delivery.is_acknowledged:
            return set()
        delivery.is_acknowledged = True
        for source, message in delivery.entries:
            if self._sources[source].messages.pop(message.offset, None) is not None:
                self.outstanding -= 1
        return {entry.source for entry in delivery.entries}

    def frontier(self, source: Hashable) -> int | None:
        """The first offset that is not acknowledged; None: all are acknowledged."""
        unacknowledged = self._sources.get(source)
        if unacknowledged is None:
            return None
        offsets = unacknowledged.offsets
        while offsets and offsets[0] not in unacknowledged.messages:
            heappop(offsets)
        if not offsets:
            return None
        return offsets[0]

    def take_back(self) -> dict[Hashable, list[Message[Any, Any]]]:
        """Take back messages that were not handed over, by source and in order, as if they had not been delivered."""
        taken: dict[Hashable, list[Message[Any, Any]]] = {}
        for lane, queue in list(self._lanes.items()):
            for source, message in queue:
                taken.setdefault(source, []).append(message)
                del self._sources[source].messages[message.offset]
            queue.clear()
            if lane not in self._busy:
                del self._lanes[lane]
        self._turns.clear()
        self.outstanding -= self._waiting
        self._waiting = 0
        for messages in taken.values():
            messages.sort(key=lambda message: message.offset)
        return taken

    def forget_settled(self) -> None:
        """Forget sources of which all messages are acknowledged."""
        for source in [source for source, each in self._sources.items() if not each.messages]:
            del self._sources[source]

    def unsettled(self) -> list[Hashable]:
        """Sources that have messages which are not acknowledged."""
        return [source for source, each in self._sources.items() if each.messages]
