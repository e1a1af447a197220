"""Pacing cuts long work into slices: in each turn of the loop one slice is done, of all requests that have more to do.

A request for few things never waits: its first slice is free.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from penstock.protocol.schema import Message
from penstock.protocol.session import write_response_in_slices

if TYPE_CHECKING:
    from penstock.broker.network.call import Call

# Things done in a slice: looked up, described, refused. Each takes some microseconds.
ITEMS_AT_ONCE: Final = 200
# In the first slice of a request there are fewer: many requests may come in one turn.
FIRST_ITEMS: Final = 50
# Items counted in a slice, as counting is quick.
_COUNTED_AT_ONCE: Final = 500
# The most threads at work on requests that take long. Each may hold a decompressed batch.
THREADS: Final = 2
P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


class ClientGoneError(Exception):
    """The client has gone, so its request needs no answer: the work on it ends here."""


class ReplyTooLargeError(Exception):
    """A reply would be larger than replies may be. The message is for the log."""


@dataclass(slots=True, frozen=True)
class Written:
    """A reply and its bytes; None if another broker has made it, where its errors were counted."""

    response: Message | None
    chunks: list[Any]


class Pacing:
    """Gives out turns, one for each turn of the loop, in the order in which requests asked for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_reply_bytes: int) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self._threads = asyncio.Semaphore(THREADS)
        self.max_reply_bytes = max_reply_bytes

    def pace(self, call: "Call", *, to_the_end: bool = False) -> "Pace":
        """The pace of one request, which ends early if its client has gone. What changes the cluster goes on to the
        end."""
        return Pace(self, call, to_the_end)

    async def turn(self) -> None:
        """Wait until the requests that asked earlier have had their turns."""
        future = self._loop.create_future()
        self._waiting.append(future)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._wake_next)
        await future

    async def in_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what cannot be done in slices, such as decompressing a batch."""
        async with self._threads:
            return await self._loop.run_in_executor(None, partial(work, *args, **kwargs))

    def _wake_next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                # It runs in the next turn of the loop, and so does the look at the one after it.
                self._loop.call_soon(self._wake_next)
                return
        self._is_scheduled = False


class Pace:
    """Counts what a request does and lets others go first after each slice."""

    __slots__ = ("_call", "_left", "_pacing", "_to_the_end", "_took_turns")

    def __init__(self, pacing: Pacing, call: "Call", to_the_end: bool) -> None:
        self._pacing = pacing
        self._call = call
        self._to_the_end = to_the_end
        self._left = FIRST_ITEMS
        self._took_turns = False

    async def spend(self, items: int = 1) -> None:
        """Count things that were done. After a slice of them other requests have their turns."""
        self._left -= items
        if self._left <= 0:
            await self.turn()

    async def count(self, items: Iterable[K]) -> Counter[K]:
        """How often each item is there. They are in the order in which they first came."""
        counted: Counter[K] = Counter()
        iterator = iter(items)
        while some := list(islice(iterator, _COUNTED_AT_ONCE)):
            counted.update(some)
            await self.spend(len(some) // 10)
        return counted

    async def turn(self) -> None:
        self._left = ITEMS_AT_ONCE
        self._took_turns = True
        await self._pacing.turn()
        if not self._to_the_end and not self._call.connection.is_open:
            raise ClientGoneError

    async def reply(self, response: Message) -> Message | Written:
        """What a handler returns: the response, or if it took long to make, its bytes, which take long too."""
        if not self._took_turns:
            return response
        slices = write_response_in_slices(self._call, response)
        while True:
            try:
                size = next(slices)
            except StopIteration as end:
                return Written(response, end.value)
            if size > self._pacing.max_reply_bytes:
                raise ReplyTooLargeError(
                    f"a reply to {self._call.api.name} would have more than {self._pacing.max_reply_bytes} bytes "
                    "(penstock.reply.max.bytes): ask about fewer things at a time"
                )
            await self.turn()


class Gate:
    """Lets requests in while their bytes together stay below a limit, in the order in which they came; one alone always
    gets in."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._inside = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        """Wait to be let in. The caller has to leave again, whatever happens."""
        if self._waiting or not self._has_room(size):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((size, future))
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self.leave(size)
                raise
        else:
            self._inside += size

    def leave(self, size: int) -> None:
        self._inside -= size
        while self._waiting and self._has_room(self._waiting[0][0]):
            next_size, future = self._waiting.popleft()
            if not future.done():
                self._inside += next_size
                future.set_result(None)

    def _has_room(self, size: int) -> bool:
        return not self._inside or self._inside + size <= self._limit


class Room:
    """What is left of the bytes that a reply may have, for items of which one may be large. Their sizes are estimated:
    the bytes that they hold, and a little for what is around them."""

    __slots__ = ("_left",)

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes

    def take(self, size: int) -> bool:
        """Whether an item has room. One that has not takes none: a smaller one may still fit."""
        if size > self._left:
            return False
        self._left -= size
        return True
