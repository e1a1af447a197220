"""Handing messages to the application, by polls and by iteration, and knowing which it has come back from."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import length_hint
from typing import Any, Protocol, TypeVar

from penstock.client.decoding import Returned, Segment
from penstock.client.deduplication import Deduplicator
from penstock.client.deserializing import DeserializationError, Deserializers
from penstock.client.errors import ClientError, CorruptBatchError
from penstock.client.groups import CommittedOffset
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition
from penstock.client.subscription import Reading, Subscription

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Run:
    """Messages of one partition that an iteration is going through."""

    reading: Reading
    version: int
    messages: list[Message[Any, Any]]
    left: Iterator[Message[Any, Any]]
    end: int
    """The position behind them."""

    @property
    def handed(self) -> int:
        return len(self.messages) - length_hint(self.left)

    @property
    def is_valid(self) -> bool:
        return self.version == self.reading.version


class Holder(Protocol):
    """Takes messages that it hands to the application later, or hears later that the application is through with."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing that was taken is still to be handed over, or to be heard of."""
        ...

    def let_go(self) -> None:
        """Give back what the application was not given."""
        ...

    def end(self) -> None:
        """The same, as the application has come by another way."""
        ...

    def position(self, reading: Reading) -> int:
        """Behind what the application was given, or is through with."""
        ...

    def signs_of_life(self) -> object: ...


class Poller:
    """One application at a time is here. `room` is called when something that was queued is used up."""

    def __init__(
        self,
        subscription: Subscription,
        deserializers: Deserializers,
        *,
        room: Callable[[], None],
        check_crcs: bool,
        dedup: Deduplicator | None = None,
    ) -> None:
        self.needs_attention = False
        """Whether nothing may be returned: partitions are changing hands."""
        self.left: Iterator[Message[Any, Any]] = iter(())
        """What is left of the run that an iteration goes through."""
        self._subscription = subscription
        self._deserializers = None if deserializers.do_nothing else deserializers
        self._room = room
        self._check_crcs = check_crcs
        self._dedup = dedup
        self._loop = asyncio.get_running_loop()
        self._is_polling = False
        self._holder: Holder | None = None
        self._run: Run | None = None
        self._touched: dict[Reading, None] = {}
        """What messages were returned of that the application has not come back from."""
        self._waiter: asyncio.Future[bool] | None = None
        self._errors: list[BaseException] = []
        self._final_error: ClientError | None = None
        self._has_news = False
        self.heavy_work: Callable[[], object] | None = None
        """What is worth a thread, and has to be done before more can be taken."""
        self._has_passed_over = False
        self._executor: ThreadPoolExecutor | None = None
        self._polls = 0

    # For the others

    @property
    def is_here(self) -> bool:
        """Whether the application waits in a poll, and has nothing in its hands."""
        return self._is_polling and (self._holder is None or self._holder.is_empty)

    def signs_of_life(self) -> object:
        return self._polls, length_hint(self.left), self._holder and self._holder.signs_of_life()

    def attend(self, *, wanted: bool) -> None:
        self.needs_attention = wanted
        self.wake()

    def wake(self) -> None:
        """There may be something to return, or to raise."""
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def failed(self, error: BaseException) -> None:
        """The next poll raises it; the same one not twice."""
        if all(str(error) != str(each) for each in self._errors):
            self._errors.append(error)
        self.wake()

    def failed_for_good(self, error: ClientError) -> None:
        self._final_error = error
        self.wake()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True)

    # Polling

    async def poll(
        self,
        take: Callable[[], T | None],
        timeout_ms: float | None,
        attended: Callable[[], Any],
        holder: Holder | None = None,
    ) -> T | None:
        """What `take` finds as soon as it finds something; None when the time is up. Cancelled, it has taken nothing.
        `attended` is awaited when partitions are changing hands, and nothing is in anybody's."""
        if self._is_polling:
            raise ClientError("another task polls this consumer already: let one task poll, and share out what it gets")
        if holder is None or holder is not self._holder:
            self.came_back()
            self._holder = holder
        self._polls += 1
        self._is_polling = True
        deadline = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000
        try:
            # Whoever polls without a pause lets fetches and heartbeats go on here.
            await asyncio.sleep(0)
            while True:
                if self.needs_attention:
                    if self._holder is not None:
                        self._holder.let_go()
                    if self.is_here:
                        await attended()
                    else:
                        await self._news(None)
                    continue
                self._raise()
                if taken := take():
                    return taken
                if self.heavy_work is not None:
                    work, self.heavy_work = self.heavy_work, None
                    await self.in_thread(work)
                elif self._has_passed_over:
                    self._has_passed_over = False
                    await asyncio.sleep(0)
                elif not await self._news(deadline):
                    return None
        finally:
            self._is_polling = False
            self.heavy_work = None
            self._has_passed_over = False

    def take(self, most: int) -> list[Message[Any, Any]]:
        """Messages that are there, in turn of all partitions."""
        taken: list[Message[Any, Any]] = []
        while len(taken) < most and (reading := self._subscription.next_in_line()) is not None:
            try:
                taken += self._take_from(reading, most - len(taken))
            except (CorruptBatchError, DeserializationError) as error:
                if not taken:
                    raise
                self.failed(error)
                break
            finally:
                self._subscription.line_up(reading)
            if self.heavy_work is not None or self._has_passed_over:
                break
        return taken

    def take_of(self, reading: Reading, most: int) -> list[Message[Any, Any]]:
        """Messages of one partition that are there."""
        return self._take_from(reading, most) if reading.has_turn else []

    def take_run(self, most: int) -> list[Message[Any, Any]]:
        """The same from one partition, for an iteration, which then goes through `left`."""
        reading = None
        taken: list[Message[Any, Any]] = []
        while not taken and (reading := self._subscription.next_in_line()) is not None:
            try:
                taken = self._take_from(reading, most)
            finally:
                self._subscription.line_up(reading)
            if self.heavy_work is not None or self._has_passed_over:
                break
        if reading is not None and taken:
            self.left = iter(taken)
            self._run = Run(reading, reading.version, taken, self.left, reading.position)
        return taken

    def _take_from(self, reading: Reading, most: int) -> list[Message[Any, Any]]:
        segment = reading.segments[0]
        if (batch := segment.heavy_batch) is not None:
            self.heavy_work = lambda: batch.try_to_open(check_crc=self._check_crcs)
            return []
        try:
            messages = segment.take(most)
        except CorruptBatchError:
            self.refetch(reading)
            raise
        self.went_on(reading, segment)
        if self._dedup is not None and messages:
            messages = self._dedup.without_duplicates(messages)
            self._has_passed_over = not messages
        if self._deserializers is None or segment.is_read or not messages:
            return messages
        read, error = self._deserializers.read(messages)
        if error is not None:
            # It is raised when it is the first; then, those behind it are left.
            left = messages[len(read) :] if read else messages[1:]
            self.give_back(reading, left, reading.position, is_read=False)
            if not read:
                raise error
        return read

    def went_on(self, reading: Reading, segment: Segment | Returned) -> None:
        """Something was taken from its first segment."""
        self._touched[reading] = None
        reading.position = segment.next_offset
        reading.epoch = segment.leader_epoch
        if segment.is_exhausted:
            self._subscription.used(reading, segment)
            self._room()

    def refetch(self, reading: Reading) -> None:
        """What is queued of it is of no use."""
        self._subscription.refetch(reading)
        self._room()

    def give_back(self, reading: Reading, messages: list[Message[Any, Any]], end: int, *, is_read: bool = True) -> None:
        """Messages that were taken last, and not returned."""
        if messages:
            reading.segments.appendleft(Returned(reading.key, messages, end, is_read=is_read))
            reading.position, reading.epoch = messages[0].offset, messages[0].leader_epoch
            self._subscription.line_up(reading, first=True)

    def give_all_back(self, messages: list[Message[Any, Any]]) -> None:
        """The same for what one poll has taken, of several partitions."""
        self.left, self._run = iter(()), None
        parts: dict[Reading, list[Message[Any, Any]]] = {}
        for message in messages:
            reading = self._subscription.readings.get(message.topic_partition)
            if reading is not None and reading in self._touched:
                parts.setdefault(reading, []).append(message)
        for reading, part in parts.items():
            self.give_back(reading, part, reading.position)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Have something done in the consumer's thread."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "penstock-consumer")
        return await self._loop.run_in_executor(self._executor, work)

    async def _news(self, deadline: float | None) -> bool:
        """Wait for some; whether they came in time."""
        self._waiter = self._loop.create_future()
        timer = None if deadline is None else self._loop.call_at(deadline, _expire, self._waiter)
        try:
            return await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _raise(self) -> None:
        if self._final_error is not None:
            raise self._final_error
        if not self._has_news:
            return
        self._has_news = False
        for reading in self._subscription.readings.values():
            if reading.error is not None:
                self._errors.append(reading.error)
                reading.error = None
        if self._errors:
            # There may be more of them.
            self._has_news = True
            raise self._errors.pop(0)

    # What the application has come back from

    def came_back(self) -> None:
        """It is through with all that it was given; what an iteration has not given it yet comes later."""
        if self._run is not None:
            self.end_run()
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.end()
        else:
            for reading in self._touched:
                reading.came_back()
        self._touched.clear()

    def let_go_of(self, holder: Holder) -> None:
        """It has come to its end, and let go of everything."""
        if self._holder is holder:
            self._holder = None
            self._touched.clear()

    def end_run(self) -> None:
        """Have come later what the application was not given yet."""
        if self._holder is not None:
            self._holder.let_go()
        run, self._run, self.left = self._run, None, iter(())
        if run is not None and run.is_valid:
            self.give_back(run.reading, run.messages[run.handed :], run.end)

    def note_progress(self) -> None:
        """In the middle of a run all messages but the last are done with."""
        run = self._run
        if run is not None and run.is_valid and run.handed:
            last = run.messages[run.handed - 1]
            if last.offset > run.reading.done:
                run.reading.done, run.reading.done_epoch = last.offset, last.leader_epoch

    def position(self, reading: Reading) -> int:
        """Behind what the application was given last."""
        if self._holder is not None:
            return self._holder.position(reading)
        run = self._run
        if run is not None and run.reading is reading and run.is_valid and run.handed < len(run.messages):
            return run.messages[run.handed].offset
        return reading.position

    def ends(self) -> dict[TopicPartition, CommittedOffset]:
        """Behind all that was returned since the application came."""
        return {each.key: CommittedOffset(each.position, each.epoch) for each in self._touched if not each.is_revoked}

    def is_going_through(self, reading: Reading) -> bool:
        return self._holder is not None or (self._run is not None and self._run.reading is reading)


def _expire(waiter: "asyncio.Future[bool]") -> None:
    if not waiter.done():
        waiter.set_result(False)
