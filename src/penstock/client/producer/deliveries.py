"""What became of messages: a `SendFuture` reports it for one message, an `Outcome` for those that travel together."""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client.errors import ClientError
from penstock.client.message import RecordMetadata

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Outcome:
    """The outcome of messages that travel together. It is open until it is settled: then they are written, have failed,
    or are passed on to successors."""

    topic: str
    partition: int = -1
    is_settled: bool = False
    base_offset: int = -1
    append_time_ms: int = -1
    """The time that the broker has stamped the messages with, if it does that."""
    failure: ClientError | None = None
    successors: Sequence["Outcome"] = ()
    """What the messages were passed on to: a batch may be split, a message that waited finds a batch."""
    successor: Callable[[int], tuple["Outcome", int]] | None = None
    """The successor that has the n-th message, and the message's place in it."""
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)
    is_told: bool = False
    """Whether the failure was asked for."""

    def __del__(self) -> None:
        if self.failure is not None and not self.is_told:
            logger.warning(
                "messages to topic %s were not sent, and their outcome was not awaited: %s", self.topic, self.failure
            )

    def settle(self) -> None:
        """Mark it as settled, and wake all waiting tasks."""
        self.is_settled = True
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: ClientError) -> None:
        self.failure = failure
        self.settle()

    def pass_on(self, successors: Sequence["Outcome"], successor: Callable[[int], tuple["Outcome", int]]) -> None:
        self.successors, self.successor = successors, successor
        self.settle()

    def waiter(self) -> asyncio.Future[None]:
        """A future for each waiting task: one that is cancelled cancels no other."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters[future] = None
        return future

    async def wait(self) -> None:
        """Wait until it is settled; its successors may still be open then."""
        if not self.is_settled:
            future = self.waiter()
            try:
                await future
            finally:
                self.waiters.pop(future, None)


class SendFuture:
    """What `Producer.send` returns: await it to learn where the message lies. A message is also sent if its future is
    not awaited.

    It costs next to nothing while no task waits for it. Cancelling a task that awaits it ends the wait and leaves the
    message alone.

    Example:
        from penstock.client import Producer

        async with Producer("localhost:9092") as producer:
            await producer.create_topic("orders")
            future = producer.send("orders", b"paid")
            print(future.done(), (await future).offset)
    """

    __slots__ = ("_outcome", "_index", "_timestamp")

    def __init__(self, outcome: Outcome, index: int, timestamp: int) -> None:
        self._outcome = outcome
        self._index = index
        self._timestamp = timestamp

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.done():
            yield from self._outcome.wait().__await__()
        return self.result()

    def done(self) -> bool:
        """Whether it is known what has become of the message."""
        outcome = self._outcome
        while outcome.is_settled and outcome.successor is not None:
            outcome, self._index = outcome.successor(self._index)
            self._outcome = outcome
        return outcome.is_settled

    def result(self) -> RecordMetadata:
        """Where the message lies, if it is done; a failure is raised."""
        if (error := self.exception()) is not None:
            raise error.with_traceback(None)
        outcome = self._outcome
        offset = outcome.base_offset + self._index if outcome.base_offset >= 0 else -1
        timestamp = self._timestamp if outcome.append_time_ms < 0 else outcome.append_time_ms
        return RecordMetadata(outcome.topic, outcome.partition, offset, timestamp)

    def exception(self) -> ClientError | None:
        """The failure, or None; raises InvalidStateError if it is not done."""
        if not self.done():
            raise asyncio.InvalidStateError("it is not known yet what has become of the message: await it")
        self._outcome.is_told = True
        return self._outcome.failure

    def add_done_callback(self, callback: Callable[["SendFuture"], object]) -> None:
        """Have a function called with this future, soon after it is done."""
        if self.done():
            asyncio.get_running_loop().call_soon(callback, self)
        else:
            # The outcome may be settled while its successor is still open.
            self._outcome.waiter().add_done_callback(lambda _: self.add_done_callback(callback))

    @property
    def outcome(self) -> Outcome:
        """The outcome of the batch that has the message now."""
        self.done()
        return self._outcome

    def __repr__(self) -> str:
        failure = self.outcome.failure
        state = "pending" if not self.done() else repr(self.result() if failure is None else failure)
        return f"<SendFuture {self._outcome.topic}: {state}>"
