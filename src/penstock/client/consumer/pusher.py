"""`Pusher` calls the application's function with messages as they come, and never with more than it has credits for."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from penstock.client.consumer.credits import Delivery, Entry, Window
from penstock.client.consumer.deserializers import DeserializationError
from penstock.client.consumer.parts import ConsumerParts
from penstock.client.consumer.subscription import PartitionCursor, Subscription
from penstock.client.errors import ClientError, CorruptBatchError, PushError
from penstock.client.message import Message

CREDITS: Final = 500
CALLS_AT_A_TIME: Final = 100
"""Calls of functions that never wait after which other tasks get their turn."""

OnError: TypeAlias = Callable[[Any, Exception], object]
OrderedBy: TypeAlias = Literal["partition", "key"]
Ack: TypeAlias = Literal["return", "call"]


@dataclass(slots=True, frozen=True, kw_only=True)
class PushOptions:
    """See `Consumer.push`."""

    credits: int = CREDITS
    lists: bool = False
    concurrency: int = 1
    ordered_by: OrderedBy = "partition"
    ack: Ack = "return"
    on_error: OnError | None = None

    def __post_init__(self) -> None:
        if self.credits < 1 or self.concurrency < 1:
            raise ValueError(f"credits are {self.credits} and concurrency {self.concurrency}: both must be 1 or more")
        if self.ordered_by not in ("partition", "key"):
            raise ValueError(f'ordered_by is "partition" or "key", not {self.ordered_by!r}')
        if self.ack not in ("return", "call"):
            raise ValueError(f'ack is "return" or "call", not {self.ack!r}')


class Source(NamedTuple):
    """A partition, until the user seeks in it."""

    cursor: PartitionCursor
    moves: int

    @property
    def is_valid(self) -> bool:
        return self.cursor.moves == self.moves and not self.cursor.is_revoked


class _EndError(Exception):
    """The push is to end."""


class Pusher:
    """One push, from its beginning to its end."""

    def __init__(
        self,
        parts: ConsumerParts,
        subscription: Subscription,
        callback: Callable[..., object],
        options: PushOptions,
        *,
        commits_first: bool,
    ) -> None:
        self._parts = parts
        self._poller = parts.poller
        self._subscription = subscription
        self._callback = callback
        self._options = options
        self._commits_first = commits_first
        self._window = Window(options.credits, lists=options.lists)
        self._is_ending = False
        self._failure: Exception | None = None
        self._acks = 0
        self._work = asyncio.Event()
        """Set when there may be something to hand over, or nothing any more."""
        self._workers: list[asyncio.Task[None]] = []
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Push until the push is ended or cancelled, or a call fails."""
        loop = asyncio.get_running_loop()
        self._workers = [loop.create_task(self._call_for_ever()) for _ in range(self._options.concurrency)]
        damage: CorruptBatchError | None = None
        try:
            try:
                await self._feed_for_ever()
            except _EndError:
                pass
            except CorruptBatchError as error:
                # Calls that run are waited for: what the application was given is not repeated.
                damage = error
                self.stop()
            except ClientError:
                # The function may be what closes the consumer.
                if not self._is_ending:
                    raise
            self.let_go()
            if self._failure is None:
                await asyncio.gather(*self._workers)
            if self._failure is not None:
                raise self._failure
            if damage is not None:
                raise damage
        finally:
            self._is_ending = True
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
            self._give_up()
            self._over.set_result(None)

    def stop(self) -> None:
        """Hand nothing over any more."""
        self._is_ending = True
        self._work.set()
        self._poller.wake()

    async def until_over(self) -> None:
        """Wait until the push is over, unless one of its own calls asks."""
        if asyncio.current_task() not in self._workers:
            await asyncio.wait([self._over])

    # What the poller asks of a holder of messages

    @property
    def is_empty(self) -> bool:
        return not self._window.outstanding or self._is_ending or self._failure is not None

    def let_go(self) -> None:
        for source, messages in self._window.take_back().items():
            assert isinstance(source, Source)
            if source.is_valid:
                self._poller.give_back(source.cursor, messages, source.cursor.position)
        self._window.forget_settled()

    def end(self) -> None:
        self.let_go()

    def position(self, cursor: PartitionCursor) -> int:
        frontier = self._window.frontier(Source(cursor, cursor.moves))
        return cursor.position if frontier is None else min(frontier, cursor.position)

    def signs_of_life(self) -> object:
        return self._acks

    # Getting messages

    async def _feed_for_ever(self) -> None:
        while True:
            try:
                messages = await self._parts.poll(self._take, None, holder=self)
            except DeserializationError as error:
                if self._options.on_error is None:
                    raise
                await _call(self._options.on_error, error.message, error)
                continue
            sources: dict[Any, Source] = {}
            for message in messages:
                key = message.topic_partition
                if (source := sources.get(key)) is None:
                    cursor = self._subscription.cursors[key]
                    source = sources[key] = Source(cursor, cursor.moves)
                self._window.deliver(self._lane(message), Entry(source, message))
            self._work.set()

    def _take(self) -> list[Message[Any, Any]] | None:
        if self._is_ending or self._failure is not None:
            raise _EndError
        # What was let go of waits for its turn again.
        self._work.set()
        taken = self._poller.take(self._window.free, self._is_through_with) if self._window.wants_more else None
        if not taken and not self._window.outstanding:
            # Nothing was in what came last but, say, duplicates.
            for cursor in self._subscription.cursors.values():
                cursor.came_back()
        return taken

    def _is_through_with(self, cursor: PartitionCursor) -> bool:
        """Whether all that was taken of a partition is acknowledged."""
        return self._window.frontier(Source(cursor, cursor.moves)) is None

    def _lane(self, message: Message[Any, Any]) -> Hashable:
        if self._options.concurrency == 1:
            return None
        if self._options.ordered_by == "partition" or message.key is None:
            return message[:2]
        try:
            hash(message.key)
        except TypeError:
            return *message[:2], repr(message.key)
        return *message[:2], message.key

    # Handing them over

    async def _call_for_ever(self) -> None:
        calls = 0
        while not self._is_ending and self._failure is None:
            delivery = None if self._poller.polls_are_paused else self._window.hand_over()
            if delivery is None:
                self._work.clear()
                await self._work.wait()
                continue
            try:
                await self._hand_over(delivery)
            except Exception as error:
                self._failed(error)
            calls += 1
            if calls % CALLS_AT_A_TIME == 0:
                await asyncio.sleep(0)

    async def _hand_over(self, delivery: Delivery) -> None:
        options = self._options
        given: Any = delivery.messages if options.lists else delivery.entries[0].message
        is_acknowledged = options.ack == "return"
        try:
            if is_acknowledged:
                answer = self._callback(given)
            else:
                answer = self._callback(given, lambda: self._acknowledge(delivery))
            if answer is not None and isawaitable(answer):
                await answer
        except Exception as error:
            if options.on_error is None:
                raise PushError(delivery.entries[0].message.id, error) from error
            await _call(options.on_error, given, error)
            is_acknowledged = True
        self._window.returned(delivery)
        if is_acknowledged:
            self._acknowledge(delivery)
        elif self._window.wants_more:
            self._poller.wake()

    def _failed(self, error: Exception) -> None:
        """Other calls that run are cancelled: their messages come again, too."""
        if self._failure is None:
            self._failure = error
        self.stop()

    def _acknowledge(self, delivery: Delivery) -> None:
        if self._over.done():
            return
        self._acks += 1
        for source in self._window.acknowledge(delivery):
            assert isinstance(source, Source)
            if source.is_valid:
                self._note(source.cursor, delivery.entries[-1].message.leader_epoch)
        if self._window.wants_more or self._poller.polls_are_paused:
            self._poller.wake()

    def _note(self, cursor: PartitionCursor, epoch: int) -> None:
        """How far everything is acknowledged: so far may be committed."""
        cursor.done, cursor.done_epoch = self.position(cursor), epoch

    # The end

    def _give_up(self) -> None:
        """What was handed over and not acknowledged comes again; committed before, it must not."""
        self.let_go()
        if not self._commits_first:
            for source in self._window.unsettled():
                assert isinstance(source, Source)
                if source.is_valid and (frontier := self._window.frontier(source)) is not None:
                    self._subscription.seek(source.cursor, min(frontier, source.cursor.position))
        self._poller.let_go_of(self)
        self._parts.positions_changed()


async def _call(function: Callable[..., object], *arguments: Any) -> None:
    answer = function(*arguments)
    if isawaitable(answer):
        await answer
