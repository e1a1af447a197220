"""`Consumer` is for callers that block: its methods wait for those of `penstock.client.Consumer`."""

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from penstock.client.cluster.outages import ConnectionListener
from penstock.client.consumer import consumer as asynchronous
from penstock.client.consumer.consumer import POLL_TIMEOUT_MS, Committable
from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.consumer.merged import MAX_WAIT_MS
from penstock.client.consumer.ownership import Listener
from penstock.client.consumer.pusher import CREDITS, Ack, OrderedBy, PushOptions
from penstock.client.group.committer import Callback
from penstock.client.keywords import ConsumerKeywords
from penstock.client.loop_thread import LoopThread
from penstock.client.message import Message, MessageId
from penstock.client.metadata import TopicPartition
from penstock.client.serializers import ANY_BYTES, Deserializer, K, R, Reader, UntypedJson, V
from penstock.client.settings import ConsumerSettings, Delivery, Profile
from penstock.client.stats import ConsumerStats
from penstock.client.sync.blocking import Blocking
from penstock.client.sync.merged import Merged
from penstock.client.sync.pusher import Callbacks
from penstock.machines.assignors import Assignor

if TYPE_CHECKING:
    import pyarrow


class Consumer(Blocking, Reader[K, V, R]):
    """Reads messages; see `penstock.client.Consumer`, whose settings it has. One thread at a time uses it; functions
    given to `subscribe` are called in the consumer's own thread, and may not use it.

    Example:
        import penstock.client.sync

        with penstock.client.sync.Producer("localhost:9092") as producer:
            producer.create_topic("orders")
            producer.send("orders", b"paid").result()
        settings = {"bootstrap.servers": "localhost:9092", "group.id": "billing", "auto.offset.reset": "earliest"}
        with penstock.client.sync.Consumer(settings, "orders") as consumer:
            for message in consumer:
                print(message.id, message.value)
                break
    """

    @overload
    def __init__(
        self: "Consumer[K, Any, Any]",
        *topics: str | re.Pattern[str] | Mapping[str, Any],
        key_deserializer: Deserializer[K] = ANY_BYTES,
        value_deserializer: UntypedJson,
        assignors: Sequence[str | Assignor] = (),
        profile: Profile | None = None,
        delivery: Delivery | None = None,
        dedup: Deduplicator | None = None,
        on_connection: ConnectionListener | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: "Consumer[K, V, V | None]",
        *topics: str | re.Pattern[str] | Mapping[str, Any],
        key_deserializer: Deserializer[K] = ANY_BYTES,
        value_deserializer: Deserializer[V] = ANY_BYTES,
        assignors: Sequence[str | Assignor] = (),
        profile: Profile | None = None,
        delivery: Delivery | None = None,
        dedup: Deduplicator | None = None,
        on_connection: ConnectionListener | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        *topics: str | re.Pattern[str] | Mapping[str, Any],
        key_deserializer: Deserializer[Any] = ANY_BYTES,
        value_deserializer: Deserializer[Any] = ANY_BYTES,
        assignors: Sequence[str | Assignor] = (),
        profile: Profile | None = None,
        delivery: Delivery | None = None,
        dedup: Deduplicator | None = None,
        on_connection: ConnectionListener | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        """`on_connection` is called in the consumer's own thread."""
        self._thread = LoopThread("penstock-consumer")
        self._callbacks = Callbacks(self._thread)
        # What iteration has got from the last poll and not returned yet; and the message that it returned last.
        self._ahead: deque[Message[K | None, R]] = deque()
        self._last: Message[K | None, R] | None = None
        try:
            self._inner: asynchronous.Consumer[Any, Any, Any] = self._thread.call(
                lambda: asynchronous.Consumer(
                    *topics,
                    key_deserializer=key_deserializer,
                    value_deserializer=value_deserializer,
                    assignors=assignors,
                    profile=profile,
                    delivery=delivery,
                    dedup=dedup,
                    on_connection=on_connection,
                    **settings,
                )
            )
        except BaseException:
            self._thread.close()
            raise

    @property
    def settings(self) -> ConsumerSettings:
        return self._inner.settings

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(kind, error, traceback)

    def close(self) -> None:
        """Commit how far the application is, leave the group, and end the thread. Closing again does nothing. While an
        exception is being handled, what was returned last does not count as done: it comes again."""
        self._end(*sys.exc_info())

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics, in place of earlier ones."""
        self._thread.call(
            lambda: self._inner.subscribe(topics, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        )

    def unsubscribe(self) -> None:
        """Stop reading; a group gets the partitions back."""
        self._give_back()
        self._thread.run(self._inner.unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's assignment."""
        self._give_back()
        self._thread.run(self._inner.assign(partitions))

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return self._thread.call(lambda: self._inner.assignment)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions until they are resumed."""
        self._give_back()
        self._thread.call(lambda: self._inner.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._thread.call(lambda: self._inner.resume(*partitions))

    @property
    def paused(self) -> set[TopicPartition]:
        return self._thread.call(lambda: self._inner.paused)

    @property
    def skipped_batches(self) -> int:
        """Batches that could not be read and were passed over (on_corrupt="skip")."""
        return self._thread.call(lambda: self._inner.skipped_batches)

    def stats(self) -> ConsumerStats:
        """What the consumer knows about itself now."""
        return self._thread.call(self._inner.stats)

    def poll(
        self, max_records: int | None = None, *, timeout_ms: float | None = POLL_TIMEOUT_MS
    ) -> list[Message[K | None, R]]:
        """Messages that have come, at most `max_records`; none, if there are none within the time."""
        self._give_back()
        self._last = None
        return self._thread.run(self._inner.poll(max_records, timeout_ms=timeout_ms))

    def poll_arrow(
        self, max_records: int | None = None, *, timeout_ms: float | None = POLL_TIMEOUT_MS
    ) -> "pyarrow.RecordBatch":
        """As `poll`, with whole columns: at most 20,000 rows by default; see `penstock.client.Consumer.poll_arrow`."""
        self._give_back()
        self._last = None
        return self._thread.run(self._inner.poll_arrow(max_records, timeout_ms=timeout_ms))

    def push(
        self,
        callback: Callable[..., object],
        *,
        credits: int = CREDITS,
        lists: bool = False,
        concurrency: int = 1,
        ordered_by: OrderedBy = "partition",
        ack: Ack = "return",
        on_error: Callable[[Any, Exception], object] | None = None,
    ) -> None:
        """Call a function with each message, and wait until `end_push` or the function fails; see
        `penstock.client.Consumer.push`. It is called in threads of the push, as many as `concurrency` says, and may
        block; it may use this consumer, except to close it."""
        options = PushOptions(
            credits=credits,
            lists=lists,
            concurrency=concurrency,
            ordered_by=ordered_by,
            ack=ack,
            on_error=on_error,
        )
        self._give_back()
        self._last = None
        self._callbacks.push(self._inner, callback, options)

    def end_push(self) -> None:
        """Have `push` return when the calls that run are over. Any thread may call it, and so may a callback."""
        if self._thread.is_open:
            self._thread.call_soon(self._inner.end_push)

    def merged(self, *, max_wait_ms: float = MAX_WAIT_MS) -> Merged[K | None, R]:
        """Iterate over the messages of all partitions in the order of their timestamps; see
        `penstock.client.Consumer.merged`."""
        self._give_back()
        self._last = None
        return Merged(self._thread, self._thread.call(lambda: self._inner.merged(max_wait_ms=max_wait_ms)))

    def get(self, message_id: MessageId | str) -> Message[K | None, R] | None:
        """One message by its id, of any topic; None: it is gone."""
        return self._thread.run(self._inner.get(message_id))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[K | None, R]:
        """Asks for the next message when it is through with the one before; ends when the consumer is closed."""
        while not self._ahead:
            if not self._thread.is_open:
                raise StopIteration
            self._ahead.extend(self._thread.run(self._inner.poll(timeout_ms=None)))
        self._last = self._ahead.popleft()
        return self._last

    def seek(self, to: TopicPartition | MessageId, offset: int | None = None) -> None:
        """Go on at an offset of a partition, or at a message."""
        self._give_back()
        self._thread.run(self._inner.seek(to, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._give_back()
        self._thread.run(self._inner.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._give_back()
        self._thread.run(self._inner.seek_to_end(*partitions))

    def seek_to_time(self, time: int | datetime, *partitions: TopicPartition) -> None:
        """Go to the first message that is not older."""
        self._give_back()
        self._thread.run(self._inner.seek_to_time(time, *partitions))

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next message that will be returned."""
        for message in self._ahead:
            if message.topic_partition == partition:
                return message.offset
        return self._thread.run(self._inner.position(partition))

    def beginning_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        return self._thread.run(self._inner.beginning_offsets(*partitions))

    def end_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        return self._thread.run(self._inner.end_offsets(*partitions))

    def offsets_for_times(self, times: Mapping[TopicPartition, int | datetime]) -> dict[TopicPartition, int]:
        return self._thread.run(self._inner.offsets_for_times(times))

    def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """How many offsets lie between here and the end."""
        self._give_back()
        return self._thread.run(self._inner.lag(*partitions))

    def commit(self, offsets: Committable | Message[Any, Any] | None = None) -> None:
        """Commit that the group is done with all that polls and iteration have returned; or with a message and those
        before it in its partition; or, by offsets of what comes next, with anything."""

        async def commit() -> None:
            await self._inner.commit(self._returned() if offsets is None else offsets)

        self._thread.run(commit())

    def commit_soon(
        self, offsets: Committable | Message[Any, Any] | None = None, callback: Callback | None = None
    ) -> None:
        """As `commit`, without waiting. The callback is called in the consumer's own thread."""
        self._thread.call(lambda: self._inner.commit_soon(self._returned() if offsets is None else offsets, callback))

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """What the group has committed; None is nothing."""
        return self._thread.run(self._inner.committed(*partitions))

    def _firsts(self) -> dict[TopicPartition, int]:
        """Where iteration is, in the partitions in which it is ahead of the application."""
        firsts: dict[TopicPartition, int] = {}
        for message in self._ahead:
            firsts.setdefault(message.topic_partition, message.offset)
        return firsts

    def _returned(self) -> Committable | None:
        """What comes next, as far as the application knows; None if that is what the inner consumer says."""
        if not self._ahead:
            return None
        return {**self._inner.positions(), **self._firsts()}

    def _give_back(self) -> None:
        """Have what iteration got ahead come again."""
        firsts = self._firsts()
        self._ahead.clear()
        if firsts:

            async def seek() -> None:
                for partition in firsts.keys() & self._inner.assignment:
                    await self._inner.seek(partition, firsts[partition])

            self._thread.run(seek())

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._thread.is_open:
            return
        if self._callbacks.are_calling:
            raise RuntimeError("a callback cannot close its consumer, which would wait for it: call end_push")
        try:
            if error is not None and self._last is not None:
                # The application is not through with it.
                self._ahead.appendleft(self._last)
            self._give_back()
            self._thread.run(self._inner.__aexit__(kind, error, traceback))
        finally:
            self._thread.close()
