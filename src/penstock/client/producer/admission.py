"""Admission lets messages into a producer's buffer: a message waits while its topic is not known, or while there is no
room for it."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.client.errors import BufferFullError, ClientError, UnknownPartitionError, UnsendableError
from penstock.client.producer.accumulator import BATCH_COST_BYTES, Memory, PartitionQueue
from penstock.client.producer.deliveries import Outcome, SendFuture
from penstock.client.producer.record_writer import HEADER_BYTES
from penstock.client.producer.sender import REQUEST_BYTES, Sender
from penstock.client.producer.topics import Choice, TopicView
from penstock.client.settings import ProducerSettings

# What a message costs that waits for its topic, besides its bytes.
PARKED_COST_BYTES: Final = 512
# Messages that are processed at a time before the event loop gets its turn.
MESSAGES_AT_A_TIME: Final = 200
_CLOSED: Final = "the producer is closed: make a new one"


class Written(NamedTuple):
    """A message as bytes; `partition` is None where it is to be chosen."""

    key: bytes | None
    value: bytes | None
    stamp: int
    headers: bytes | None
    size: int
    partition: int | None


class Admission:
    """Lets messages in, and gives them to the sender."""

    def __init__(self, sender: Sender, memory: Memory, choose: Choice, settings: ProducerSettings) -> None:
        self.views: dict[str, TopicView] = {}
        """Topics for which nothing waits: their messages can be placed at once, if there is room and no line."""
        self.line: deque[_Parked] = deque()
        """Messages for which there is no room."""
        self.largest = settings.max_request_size - REQUEST_BYTES
        """Bytes of the largest batch that fits a request."""
        self._sender = sender
        self._memory = memory
        self._choose = choose
        self._settings = settings
        self._parked: dict[str, deque[_Parked]] = {}
        self._line_timer: asyncio.TimerHandle | None = None
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._lookups: set[asyncio.Task[None]] = set()
        self._is_closed = False
        sender.freed = self._freed

    @property
    def waiting(self) -> int:
        """Messages that wait for their place in a batch."""
        return len(self.line) + sum(map(len, self._parked.values()))

    def send(self, topic: str, message: Written) -> SendFuture:
        """Take a message whose topic is not known, for which there is no room, or with which something is wrong."""
        self.check(topic, message)
        parked = _Parked(topic, message=message)
        if not self.line and self._has_room(message.size + PARKED_COST_BYTES):
            self._let_in(parked)
        else:
            # A caller that awaits holds its message itself. Beyond those, one message may wait of which that is not
            # known yet.
            if self.line and not self.line[-1].waiters:
                raise self._full()
            parked.deadline = asyncio.get_running_loop().time() + self._settings.max_block_ms / 1000
            self.line.append(parked)
            self._set_line_timer()
        return SendFuture(parked, 0, message.stamp)

    def check(self, topic: str, message: Written) -> None:
        """Raise an error if the message can never be sent."""
        if self._is_closed:
            raise ClientError(_CLOSED)
        if message.stamp < 0:
            raise ValueError(f"timestamp_ms is {message.stamp}: give milliseconds since 1970, or leave it out")
        if message.partition is not None and message.partition < 0:
            raise ValueError(f"there is no partition {message.partition}: they are numbered from 0")
        if HEADER_BYTES + message.size > self.largest:
            raise UnsendableError(
                f"a message of {message.size} bytes for topic {topic!r} is over max.request.size "
                f"({self._settings.max_request_size}): send less at once, or raise it and the topic's max.message.bytes"
            )
        if message.size + PARKED_COST_BYTES + BATCH_COST_BYTES + HEADER_BYTES > self._memory.limit:
            raise UnsendableError(
                f"a message of {message.size} bytes is more than buffer.memory ({self._memory.limit}) holds: raise it"
            )

    def queue_for(self, view: TopicView, message: Written) -> PartitionQueue:
        """The queue of the partition that a message goes to."""
        if message.partition is None:
            return self._choose(view, message.key, message.size)
        if message.partition < len(view.queues):
            return view.queues[message.partition]
        raise UnknownPartitionError(view.name, message.partition, len(view.partitions))

    async def view(self, topic: str) -> TopicView:
        """The view of a topic; brokers are asked for it if it is not known."""
        if self._is_closed:
            raise ClientError(_CLOSED)
        view = await self._sender.topics.find(topic)
        if topic not in self._parked:
            self.views[topic] = view
        return view

    async def wait_for_room(self, size: int = 0) -> None:
        """Wait for room for `size` bytes, after the messages that are in line."""
        if not self.line and self._has_room(size):
            return
        try:
            async with asyncio.timeout(self._settings.max_block_ms / 1000):
                while self.line or not self._has_room(size):
                    if self._is_closed:
                        raise ClientError(_CLOSED)
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters[waiter] = None
                    try:
                        await waiter
                    finally:
                        self._waiters.pop(waiter, None)
        except TimeoutError:
            raise self._full() from None

    async def settle(self) -> None:
        """Wait until all messages that wait now have a place, or have failed."""
        for parked in self._all():
            # The messages before it get their place when batches leave, which may linger otherwise.
            self._sender.push_all()
            await parked.wait()

    def close(self) -> None:
        """Let no more messages in, except those that wait already."""
        self._is_closed = True
        self.views = {}

    async def end(self) -> None:
        """Fail the messages that still wait."""
        if self._line_timer is not None:
            self._line_timer.cancel()
        for task in self._lookups:
            task.cancel()
        await asyncio.gather(*self._lookups, return_exceptions=True)
        for parked in self._all():
            parked.fail(ClientError("the producer was closed before this message was sent: give close() more time"))
            self._memory.used -= parked.reserved
        self.line.clear()
        self._parked.clear()
        self._wake()

    def _has_room(self, size: int) -> bool:
        return self._memory.used + size + BATCH_COST_BYTES + HEADER_BYTES <= self._memory.limit

    def _all(self) -> "list[_Parked]":
        return [*(each for line in self._parked.values() for each in line), *self.line]

    def _let_in(self, parked: "_Parked") -> None:
        """Take in a message for which there is room."""
        topic, wanted = parked.topic, parked.message.partition
        view = self.views.get(topic)
        if view is not None and (wanted is None or wanted < len(view.partitions)):
            self._place(parked, view)
            return
        parked.reserved = parked.message.size + PARKED_COST_BYTES
        self._memory.used += parked.reserved
        # From now on all messages for the topic wait after it.
        self.views.pop(topic, None)
        if (waiting := self._parked.get(topic)) is not None:
            # It may be empty: the last message is just being placed, which has made room for this one.
            waiting.append(parked)
            return
        waiting = self._parked[topic] = deque([parked])
        # A topic that is known may have grown meanwhile.
        task = asyncio.get_running_loop().create_task(self._look_up(topic, waiting, is_fresh=view is not None))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, topic: str, waiting: "deque[_Parked]", *, is_fresh: bool) -> None:
        """Place what waits for a topic to be known; or all of it fails."""
        try:
            view = await self._sender.topics.find(topic, is_fresh=is_fresh)
        except ClientError as error:
            del self._parked[topic]
            for parked in waiting:
                self._memory.used -= parked.reserved
                parked.fail(error)
            self._freed()
            return
        while waiting:
            for _ in range(min(MESSAGES_AT_A_TIME, len(waiting))):
                parked = waiting.popleft()
                self._memory.used -= parked.reserved
                self._place(parked, view)
            if waiting:
                await asyncio.sleep(0)
        # Nothing may come between the last message and this: it would begin another look-up.
        del self._parked[topic]
        if not self._is_closed:
            self.views[topic] = view

    def _place(self, parked: "_Parked", view: TopicView) -> None:
        """Put a message into a batch, for which there is room."""
        message = parked.message
        try:
            queue = self.queue_for(view, message)
        except ClientError as error:
            parked.fail(error)
            return
        except Exception as error:
            failure = ClientError(f"the partitioner failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            parked.fail(failure)
            return
        batch = queue.last
        if batch.size + message.size > batch.limit:
            batch = self._sender.batch_for(queue, message.size)
        self._memory.used += message.size
        index = batch.append(message.key, message.value, message.stamp, message.headers, message.size)
        parked.pass_on([batch], lambda _: (batch, index))

    def _freed(self) -> None:
        """Messages have left: let waiting ones in."""
        while self.line and self._has_room(self.line[0].message.size + PARKED_COST_BYTES):
            self._let_in(self.line.popleft())
        if not self.line:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _full(self) -> BufferFullError:
        return BufferFullError(
            f"{self._memory.used} bytes of messages wait for their brokers, and buffer.memory is "
            f"{self._memory.limit}: await producer.ready() between sends, or await what they return"
        )

    def _set_line_timer(self) -> None:
        if self._line_timer is None and self.line:
            self._line_timer = asyncio.get_running_loop().call_at(self.line[0].deadline, self._end_line)

    def _end_line(self) -> None:
        self._line_timer = None
        now = asyncio.get_running_loop().time() + 1e-6
        while self.line and self.line[0].deadline <= now:
            error = self._full()
            error.add_note(f"nothing has become free within max.block.ms ({self._settings.max_block_ms})")
            self.line.popleft().fail(error)
        self._set_line_timer()


_NOTHING: Final = Written(None, None, -1, None, 0, None)


@dataclass(slots=True, eq=False)
class _Parked(Outcome):
    """A message that waits for its place in a batch."""

    message: Written = _NOTHING
    deadline: float = 0.0
    reserved: int = 0
