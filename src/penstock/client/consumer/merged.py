"""`Merged` iterates over the messages of several partitions in the order of their timestamps."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from penstock.client.consumer.merger import Merger
from penstock.client.consumer.parts import ConsumerParts
from penstock.client.consumer.subscription import PartitionCursor, Subscription
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.client.settings import ConsumerSettings

K = TypeVar("K")
V = TypeVar("V")

MAX_WAIT_MS: Final = 500
QUEUED_PER_PARTITION: Final = 500
"""Messages of one partition that wait for their turn, at most."""


@dataclass(slots=True, eq=False)
class _Source:
    """A partition that messages were taken from. `given` is the offset after those that the application was given, as
    long as `left` messages of it are here."""

    cursor: PartitionCursor
    moves: int
    given: int
    left: int = 0

    @property
    def is_valid(self) -> bool:
        return self.cursor.moves == self.moves and not self.cursor.is_revoked


class Merged(Generic[K, V]):
    """What `Consumer.merged` returns. Of the message that it returned last, `is_late` says whether it is older than one
    before; `late` counts these."""

    def __init__(
        self,
        start: Callable[[], ConsumerParts | None],
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
        self._parts: ConsumerParts | None = None
        self._in_hand: Message[Any, Any] | None = None
        self._count = 0
        # A clock that cannot be set, on the scale of timestamps.
        self._ahead_ms = time.time() * 1000 - time.monotonic() * 1000

    @property
    def late(self) -> int:
        return self._merger.late

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[K, V]:
        self._parts = parts = self._start()
        if parts is None:
            raise StopAsyncIteration
        self._came_back()
        while True:
            if not parts.poller.polls_are_paused:
                while self._ready:
                    message = self._ready.popleft()
                    if self._give(message):
                        return message
            wait_ms = self._merger.wait_ms(self._now_ms())
            try:
                taken = await parts.poll(self._take, wait_ms, holder=self, give_back=self._not_committed)
            except BaseException as error:
                if self._start() is None and isinstance(error, Exception):
                    raise StopAsyncIteration from None
                raise
            self._ready += taken or ()

    # What the poller asks of a holder of messages

    @property
    def is_empty(self) -> bool:
        return not self._ready and not self._merger.queued

    def let_go(self) -> None:
        assert self._parts is not None
        poller = self._parts.poller
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
                poller.give_back(source.cursor, messages, source.cursor.position)

    def end(self) -> None:
        self.let_go()
        self._in_hand = None
        for source in self._sources.values():
            if source.is_valid:
                source.cursor.came_back()
        self._sources.clear()

    def position(self, cursor: PartitionCursor) -> int:
        source = self._sources.get(cursor.key)
        return source.given if source is not None and source.is_valid and source.left else cursor.position

    def signs_of_life(self) -> object:
        return self._count

    # How it works

    def _take(self) -> list[Message[Any, Any]]:
        """Fill up, and find out which message is next."""
        assert self._parts is not None
        poller, merger, now_ms = self._parts.poller, self._merger, self._now_ms()
        cursors = self._subscription.cursors
        wanted = {key for key, cursor in cursors.items() if not cursor.is_paused}
        if wanted != set(merger.partitions):
            merger.track(wanted, now_ms)
        for key in wanted:
            if (count := merger.count(key)) > QUEUED_PER_PARTITION // 2:
                continue
            source = self._source(cursors[key])
            # What came before a batch that cannot be read is given before its error.
            messages = poller.take_of(source.cursor, QUEUED_PER_PARTITION - count, may_fail=not count)
            source.left += len(messages)
            merger.add(key, messages, now_ms)
            if poller.heavy_work is not None:
                break
        released = merger.release(self._most, now_ms)
        if not released and self.is_empty:
            # Nothing was in what came last but, say, duplicates.
            for source in self._sources.values():
                if source.is_valid:
                    source.cursor.came_back()
        return released

    def _source(self, cursor: PartitionCursor) -> _Source:
        source = self._sources.get(cursor.key)
        if source is None or source.cursor is not cursor or source.moves != cursor.moves:
            source = self._sources[cursor.key] = _Source(cursor, cursor.moves, cursor.position)
        elif not source.left:
            source.given = cursor.position
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
            source.cursor.done, source.cursor.done_epoch = self.position(source.cursor), message.leader_epoch

    def _not_committed(self, released: list[Message[Any, Any]]) -> None:
        self._ready.extendleft(reversed(released))
        self.let_go()

    def _is_at_end(self, key: TopicPartition) -> bool:
        cursor = self._subscription.cursors.get(key)
        if cursor is None or cursor.queued or cursor.position < 0:
            return False
        end = cursor.last_stable_offset if self._reads_committed else cursor.high_watermark
        return 0 <= end <= cursor.position

    def _now_ms(self) -> float:
        return time.monotonic() * 1000 + self._ahead_ms
