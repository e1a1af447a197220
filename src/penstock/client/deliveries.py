"""What becomes of messages that were sent: `SendFuture` is one message's, a `Fate` that of all that travel together."""

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.client.errors import ClientError
from penstock.client.message import RecordMetadata

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Fate:
    """Open until it is settled: then it is known where the messages lie, why they do not, or who carries them on."""

    topic: str
    partition: int = -1
    is_settled: bool = False
    base_offset: int = -1
    append_time_ms: int = -1
    """The time that the broker has stamped the messages with, if it does that."""
    failure: ClientError | None = None
    heirs: Sequence["Fate"] = ()
    """Who carries on: a batch may be split, a message that waited finds a batch."""
    heir: Callable[[int], tuple["Fate", int]] | None = None
    """Whose the n-th message has become, and as which."""
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)
    is_told: bool = False
    """Whether anybody has asked for the failure."""

    def __del__(self) -> None:
        if self.failure is not None and not self.is_told:
            logger.warning("messages to topic %s were not sent, and nobody has asked: %s", self.topic, self.failure)

    def settle(self) -> None:
        """It has been decided; tell all who wait."""
        self.is_settled = True
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: ClientError) -> None:
        self.failure = failure
        self.settle()

    def pass_on(self, heirs: Sequence["Fate"], heir: Callable[[int], tuple["Fate", int]]) -> None:
        self.heirs, self.heir = heirs, heir
        self.settle()

    def waiter(self) -> asyncio.Future[None]:
        """One for each who waits: who gives up takes nobody with him."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters[future] = None
        return future

    async def wait(self) -> None:
        """Until it is settled, the fate of all heirs not included."""
        if not self.is_settled:
            future = self.waiter()
            try:
                await future
            finally:
                self.waiters.pop(future, None)


class SendFuture:
    """What `Producer.send` returns: await it to learn where the message lies, or let it be: it is sent all the same.

    It costs next to nothing while nobody waits for it. Who cancels a task that awaits it stops waiting, not the
    message.

    Example:
        from penstock.client import Producer

        async with Producer("localhost:9092") as producer:
            await producer.create_topic("orders")
            future = producer.send("orders", b"paid")
            print(future.done(), (await future).offset)
    """

    __slots__ = ("_fate", "_index", "_timestamp")

    def __init__(self, fate: Fate, index: int, timestamp: int) -> None:
        self._fate = fate
        self._index = index
        self._timestamp = timestamp

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.done():
            yield from self._fate.wait().__await__()
        return self.result()

    def done(self) -> bool:
        """Whether it is known what has become of the message."""
        fate = self._fate
        while fate.is_settled and fate.heir is not None:
            fate, self._index = fate.heir(self._index)
            self._fate = fate
        return fate.is_settled

    def result(self) -> RecordMetadata:
        """Where the message lies, if it is done; what has gone wrong is raised."""
        if (error := self.exception()) is not None:
            raise error.with_traceback(None)
        fate = self._fate
        offset = fate.base_offset + self._index if fate.base_offset >= 0 else -1
        timestamp = self._timestamp if fate.append_time_ms < 0 else fate.append_time_ms
        return RecordMetadata(fate.topic, fate.partition, offset, timestamp)

    def exception(self) -> ClientError | None:
        """What has gone wrong, if it is done."""
        if not self.done():
            raise asyncio.InvalidStateError("it is not known yet what has become of the message: await it")
        self._fate.is_told = True
        return self._fate.failure

    def add_done_callback(self, callback: Callable[["SendFuture"], object]) -> None:
        """Have a function called with this future, soon after it is done."""
        if self.done():
            asyncio.get_running_loop().call_soon(callback, self)
        else:
            # Behind a settled fate there may be an heir's, which is still open.
            self._fate.waiter().add_done_callback(lambda _: self.add_done_callback(callback))

    @property
    def fate(self) -> Fate:
        """That of the batch that has the message now."""
        self.done()
        return self._fate

    def __repr__(self) -> str:
        failure = self.fate.failure
        state = "pending" if not self.done() else repr(self.result() if failure is None else failure)
        return f"<SendFuture {self._fate.topic}: {state}>"
