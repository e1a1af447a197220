"""Iteration over the messages of many partitions in the order of their timestamps."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from penstock.client.consuming import Works
from penstock.client.merging import Merger
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.client.settings import ConsumerSettings
from penstock.client.subscription import Reading, Subscription

K = TypeVar("K")
V = TypeVar("V")

MAX_WAIT_MS: Final = 500
QUEUED_PER_PARTITION: Final = 500
"""Messages that wait for their turn."""


@dataclass(slots=True, eq=False)
class _Source:
    """A partition that messages were taken of. `given` is the offset behind what the application was given, as long as
    there are messages `left` of it here."""

    reading: Reading
    moves: int
    given: int
    left: int = 0

    @property
    def is_valid(self) -> bool:
        return self.reading.moves == self.moves and not self.reading.is_revoked


class Merged(Generic[K, V]):
    """What `Consumer.merged` returns. Of the message that it returned last, `is_late` says whether it is older than one
    before; `late` counts these."""

    def __init__(
        self,
        start: Callable[[], Works | None],
        subscription: Subscription,
        settings: ConsumerSettings,
        *,
        max_wait_ms: float,
    ) -> None:
        """`start` gives None when the consumer is closed."""
        if max_wait_ms < 0:
            raise ValueError(f"max_wait_ms is {max_wait_ms}, but must be 0 or more")
        self.is_late = False
        self._start = start
        self._subscription = subscription
        self._most = settings.max_poll_records
        self._reads_committed = settings.isolation_level == "read_committed"
        self._merger = Merger(max_wait_ms, is_at_end=self._is_at_end)
        self._ready: deque[Message[Any, Any]] = deque()
        self._sources: dict[TopicPartition, _Source] = {}
        self._works: Works | None = None
        self._in_hand: Message[Any, Any] | None = None
        self._count = 0
        # A clock that nobody sets, on the scale of timestamps.
        self._ahead_ms = time.time() * 1000 - time.monotonic() * 1000

    @property
    def late(self) -> int:
        return self._merger.late

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[K, V]:
        self._works = works = self._start()
        if works is None:
            raise StopAsyncIteration
        self._came_back()
        while True:
            if not works.poller.needs_attention:
                while self._ready:
                    message = self._ready.popleft()
                    if self._give(message):
                        return message
            wait_ms = self._merger.wait_ms(self._now_ms())
            try:
                taken = await works.poll(self._take, wait_ms, holder=self, give_back=self._not_committed)
            except BaseException as error:
                if self._start() is None and isinstance(error, Exception):
                    raise StopAsyncIteration from None
                raise
            self._ready += taken or ()

    # What a poller asks of whoever holds messages

    @property
    def is_empty(self) -> bool:
        return not self._ready and not self._merger.queued

    def let_go(self) -> None:
        assert self._works is not None
        poller = self._works.poller
        parts: dict[TopicPartition, list[Message[Any, Any]]] = {}
        for message in self._ready:
            parts.setdefault(message.topic_partition, []).append(message)
        self._ready.clear()
        for key, messages in self._merger.take_back(self._now_ms()).items():
            parts.setdefault(key, []).extend(messages)
        for key, messages in parts.items():
            source = self._sources[key]
            source.left = 0
            if source.is_valid:
                poller.give_back(source.reading, messages, source.reading.position)

    def end(self) -> None:
        self.let_go()
        self._in_hand = None
        for source in self._sources.values():
            if source.is_valid:
                source.reading.came_back()
        self._sources.clear()

    def position(self, reading: Reading) -> int:
        source = self._sources.get(reading.key)
        return source.given if source is not None and source.is_valid and source.left else reading.position

    def signs_of_life(self) -> object:
        return self._count

    # How it works

    def _take(self) -> list[Message[Any, Any]]:
        """Fill up, and see whose turn it is."""
        assert self._works is not None
        poller, merger, now_ms = self._works.poller, self._merger, self._now_ms()
        readings = self._subscription.readings
        wanted = {key for key, reading in readings.items() if not reading.is_paused}
        if wanted != set(merger.partitions):
            merger.track(wanted, now_ms)
        for key in wanted:
            if (count := merger.count(key)) > QUEUED_PER_PARTITION // 2:
                continue
            source = self._source(readings[key])
            messages = poller.take_of(source.reading, QUEUED_PER_PARTITION - count)
            source.left += len(messages)
            merger.add(key, messages, now_ms)
            if poller.heavy_work is not None:
                break
        released = merger.release(self._most, now_ms)
        if not released and self.is_empty:
            # Nothing was in what came last but, say, duplicates.
            for source in self._sources.values():
                if source.is_valid:
                    source.reading.came_back()
        return released

    def _source(self, reading: Reading) -> _Source:
        source = self._sources.get(reading.key)
        if source is None or source.reading is not reading or source.moves != reading.moves:
            source = self._sources[reading.key] = _Source(reading, reading.moves, reading.position)
        elif not source.left:
            source.given = reading.position
        return source

    def _give(self, message: Message[Any, Any]) -> bool:
        """Whether it may still be given."""
        source = self._sources[message.topic_partition]
        source.left -= 1
        if not source.is_valid:
            return False
        source.given = message.offset + 1
        self._in_hand = message
        self._count += 1
        self.is_late = self._merger.is_late(message)
        return True

    def _came_back(self) -> None:
        """The application is through with the message that it was given last."""
        message, self._in_hand = self._in_hand, None
        if message is None:
            return
        source = self._sources.get(message.topic_partition)
        if source is not None and source.is_valid:
            source.reading.done, source.reading.done_epoch = self.position(source.reading), message.leader_epoch

    def _not_committed(self, released: list[Message[Any, Any]]) -> None:
        self._ready.extendleft(reversed(released))
        self.let_go()

    def _is_at_end(self, key: TopicPartition) -> bool:
        reading = self._subscription.readings.get(key)
        if reading is None or reading.segments or reading.position < 0:
            return False
        end = reading.last_stable_offset if self._reads_committed else reading.high_watermark
        return 0 <= end <= reading.position

    def _now_ms(self) -> float:
        return time.monotonic() * 1000 + self._ahead_ms
