"""`Poller` hands messages to the application, by polls and by iteration, and knows which of them the application is
done with."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import length_hint
from typing import Any, Protocol, TypeVar

from penstock.client.admin.group_offsets import CommittedOffset
from penstock.client.cluster.retries import backoff_ms
from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.consumer.deserializers import DeserializationError, Deserializers
from penstock.client.consumer.fetched import FetchedBatches, Returned
from penstock.client.consumer.subscription import PartitionCursor, Subscription
from penstock.client.errors import ClientError, CorruptBatchError
from penstock.client.message import Message
from penstock.client.metadata import TopicPartition

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Run:
    """Messages of one partition that an iteration is going through."""

    cursor: PartitionCursor
    version: int
    messages: list[Message[Any, Any]]
    left: Iterator[Message[Any, Any]]
    end: int
    """The position after them."""

    @property
    def handed(self) -> int:
        return len(self.messages) - length_hint(self.left)

    @property
    def is_valid(self) -> bool:
        return self.version == self.cursor.version


class Holder(Protocol):
    """Takes messages and hands them to the application later, or learns later that the application is done with
    them."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing that was taken is still to be handed over, or to be heard of."""
        ...

    def let_go(self) -> None:
        """Give back what the application was not given."""
        ...

    def end(self) -> None:
        """Give back what the application was not given: it has come back by another way than through this holder."""
        ...

    def position(self, cursor: PartitionCursor) -> int:
        """The offset after what the application was given, or is done with."""
        ...

    def signs_of_life(self) -> object: ...


class Poller:
    """Serves one polling task at a time. `room` is called when something that was queued is used up."""

    def __init__(
        self,
        subscription: Subscription,
        deserializers: Deserializers,
        *,
        room: Callable[[], None],
        dedup: Deduplicator | None = None,
    ) -> None:
        self.polls_are_paused = False
        """Whether nothing may be returned, because partitions are being reassigned."""
        self.left: Iterator[Message[Any, Any]] = iter(())
        """The rest of the run that an iteration goes through."""
        self._subscription = subscription
        self._deserializers = None if deserializers.do_nothing else deserializers
        self._room = room
        self._dedup = dedup
        self._loop = asyncio.get_running_loop()
        self._in_poll = False
        self._holder: Holder | None = None
        self._run: Run | None = None
        self._touched: dict[PartitionCursor, None] = {}
        """Partitions of which messages were returned since the application came back last."""
        self._waiter: asyncio.Future[bool] | None = None
        self._errors: list[BaseException] = []
        self._final_error: ClientError | None = None
        self._has_news = False
        self.heavy_work: Callable[[], object] | None = None
        """Work that needs a thread, and has to be done before more can be taken."""
        self._has_passed_over = False
        self._executor: ThreadPoolExecutor | None = None
        self._polls = 0

    # Calls from other parts

    @property
    def is_polling(self) -> bool:
        """Whether the application waits in a poll, and is done with all messages that it was given."""
        return self._in_poll and (self._holder is None or self._holder.is_empty)

    def signs_of_life(self) -> object:
        return self._polls, length_hint(self.left), self._holder and self._holder.signs_of_life()

    def pause_polls(self, *, wanted: bool) -> None:
        self.polls_are_paused = wanted
        self.wake()

    def wake(self) -> None:
        """Let a waiting poll look again: there may be something to return, or to raise."""
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def failed(self, error: BaseException) -> None:
        """The next poll raises the error; an error with an equal text is raised once."""
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
        while_paused: Callable[[], Any],
        holder: Holder | None = None,
    ) -> T | None:
        """What `take` finds, as soon as it finds something; None when the time is up. A cancelled poll has taken
        nothing. `while_paused` is awaited while partitions are being reassigned and the application holds no
        messages."""
        if self._in_poll:
            raise ClientError("another task polls this consumer already: let one task poll, and share out what it gets")
        if holder is None or holder is not self._holder:
            self.came_back()
            self._holder = holder
        self._polls += 1
        self._in_poll = True
        deadline = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000
        try:
            # An application that polls without a pause lets fetches and heartbeats go on here.
            await asyncio.sleep(0)
            while True:
                if self.polls_are_paused:
                    if self._holder is not None:
                        self._holder.let_go()
                    if self.is_polling:
                        await while_paused()
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
            self._in_poll = False
            self.heavy_work = None
            self._has_passed_over = False

    def take(self, most: int, may_fail: Callable[[PartitionCursor], bool] = lambda _: True) -> list[Message[Any, Any]]:
        """Messages that are there, in turn of all partitions. At a batch that cannot be read CorruptBatchError is
        raised, unless something was taken already or `may_fail` says that the application has not had all before it:
        then a later call raises it."""
        taken: list[Message[Any, Any]] = []
        damaged: list[PartitionCursor] = []
        try:
            while len(taken) < most and (cursor := self._subscription.next_in_line()) is not None:
                try:
                    is_last = not taken and may_fail(cursor)
                    taken += self._take_from(cursor, most - len(taken), may_fail=is_last)
                except DeserializationError as error:
                    if not taken:
                        raise
                    self.failed(error)
                    break
                finally:
                    if cursor.is_damaged:
                        damaged.append(cursor)
                    else:
                        self._subscription.line_up(cursor)
                if self.heavy_work is not None or self._has_passed_over:
                    break
        finally:
            # Not before: they would have their turn again and again.
            for cursor in damaged:
                self._subscription.line_up(cursor)
        return taken

    def take_of(self, cursor: PartitionCursor, most: int, *, may_fail: bool) -> list[Message[Any, Any]]:
        """Messages of one partition that are there."""
        return self._take_from(cursor, most, may_fail=may_fail) if cursor.has_turn else []

    def take_run(self, most: int) -> list[Message[Any, Any]]:
        """Take messages of one partition, for an iteration, which then goes through `left`."""
        cursor = None
        taken: list[Message[Any, Any]] = []
        while not taken and (cursor := self._subscription.next_in_line()) is not None:
            try:
                taken = self._take_from(cursor, most, may_fail=True)
            finally:
                self._subscription.line_up(cursor)
            if self.heavy_work is not None or self._has_passed_over:
                break
        if cursor is not None and taken:
            self.left = iter(taken)
            self._run = Run(cursor, cursor.version, taken, self.left, cursor.position)
        return taken

    def _take_from(self, cursor: PartitionCursor, most: int, *, may_fail: bool) -> list[Message[Any, Any]]:
        fetched = cursor.queued[0]
        if (batch := fetched.heavy_batch) is not None:
            self.heavy_work = batch.try_to_open
            return []
        try:
            messages = fetched.take(most)
        except CorruptBatchError:
            if not may_fail:
                return []
            self.refetch_later(cursor)
            raise
        self.went_on(cursor, fetched)
        if self._dedup is not None and messages:
            messages = self._dedup.without_duplicates(messages)
            self._has_passed_over = not messages
        if self._deserializers is None or fetched.is_read or not messages:
            return messages
        read, error = self._deserializers.read(messages)
        if error is not None:
            # It is raised when it is the first; then, the messages after it are left.
            left = messages[len(read) :] if read else messages[1:]
            self.give_back(cursor, left, cursor.position, is_read=False)
            if not read:
                raise error
        return read

    def went_on(self, cursor: PartitionCursor, fetched: FetchedBatches | Returned) -> None:
        """Bookkeeping after something was taken from the first batches of a partition."""
        self._touched[cursor] = None
        cursor.position = fetched.next_offset
        cursor.epoch = fetched.leader_epoch
        if fetched.is_exhausted:
            self._subscription.used(cursor, fetched)
            self._room()

    def refetch(self, cursor: PartitionCursor) -> None:
        """Drop what is queued of the partition, and fetch it again."""
        self._subscription.refetch(cursor)
        self._room()

    def refetch_later(self, cursor: PartitionCursor) -> None:
        """As `refetch`, after a pause: what comes is likely to be damaged again, and an application that polls on at
        once should not keep the broker busy."""
        cursor.not_before = self._loop.time() + backoff_ms(1) / 1000
        self.refetch(cursor)

    def give_back(
        self, cursor: PartitionCursor, messages: list[Message[Any, Any]], end: int, *, is_read: bool = True
    ) -> None:
        """Queue messages again that were taken last, and not returned."""
        if messages:
            cursor.queued.appendleft(Returned(cursor.key, messages, end, is_read=is_read))
            cursor.position, cursor.epoch = messages[0].offset, messages[0].leader_epoch
            self._subscription.line_up(cursor, first=True)

    def give_all_back(self, messages: list[Message[Any, Any]]) -> None:
        """As `give_back`, for what one poll has taken of several partitions."""
        self.left, self._run = iter(()), None
        parts: dict[PartitionCursor, list[Message[Any, Any]]] = {}
        for message in messages:
            cursor = self._subscription.cursors.get(message.topic_partition)
            if cursor is not None and cursor in self._touched:
                parts.setdefault(cursor, []).append(message)
        for cursor, part in parts.items():
            self.give_back(cursor, part, cursor.position)

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
        for cursor in self._subscription.cursors.values():
            if cursor.error is not None:
                self._errors.append(cursor.error)
                cursor.error = None
        if self._errors:
            # There may be more of them.
            self._has_news = True
            raise self._errors.pop(0)

    # What the application has come back from

    def came_back(self) -> None:
        """The application is done with all that it was given; what an iteration has not given it yet comes later."""
        if self._run is not None:
            self.end_run()
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.end()
        else:
            for cursor in self._touched:
                cursor.came_back()
        self._touched.clear()

    def let_go_of(self, holder: Holder) -> None:
        """A holder has ended, and given everything back."""
        if self._holder is holder:
            self._holder = None
            self._touched.clear()

    def end_run(self) -> None:
        """Give back what the application was not given yet: it comes later."""
        if self._holder is not None:
            self._holder.let_go()
        run, self._run, self.left = self._run, None, iter(())
        if run is not None and run.is_valid:
            self.give_back(run.cursor, run.messages[run.handed :], run.end)

    def note_progress(self) -> None:
        """In the middle of a run, note that all messages but the last are done with."""
        run = self._run
        if run is not None and run.is_valid and run.handed:
            last = run.messages[run.handed - 1]
            if last.offset > run.cursor.done:
                run.cursor.done, run.cursor.done_epoch = last.offset, last.leader_epoch

    def position(self, cursor: PartitionCursor) -> int:
        """The offset after what the application was given last."""
        if self._holder is not None:
            return self._holder.position(cursor)
        run = self._run
        if run is not None and run.cursor is cursor and run.is_valid and run.handed < len(run.messages):
            return run.messages[run.handed].offset
        return cursor.position

    def ends(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets after all that was returned since the application came back."""
        return {each.key: CommittedOffset(each.position, each.epoch) for each in self._touched if not each.is_revoked}

    def is_going_through(self, cursor: PartitionCursor) -> bool:
        return self._holder is not None or (self._run is not None and self._run.cursor is cursor)


def _expire(waiter: "asyncio.Future[bool]") -> None:
    if not waiter.done():
        waiter.set_result(False)
