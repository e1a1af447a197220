"""`Consumer` reads topics, alone or sharing them with the other members of a group."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, Unpack, overload

from penstock.client.admin.group_offsets import CommittedOffset
from penstock.client.admin.offsets import EARLIEST, LATEST
from penstock.client.cluster.outages import ConnectionListener
from penstock.client.consumer.arrow_poller import MAX_RECORDS as MAX_ARROW_RECORDS
from penstock.client.consumer.arrow_poller import ArrowPoller, partition_bytes
from penstock.client.consumer.deduplication import Deduplicator
from penstock.client.consumer.deserializers import Deserializers
from penstock.client.consumer.lookup import read_message
from penstock.client.consumer.merged import MAX_WAIT_MS, Merged
from penstock.client.consumer.ownership import Listener, Listeners
from penstock.client.consumer.parts import ConsumerParts
from penstock.client.consumer.progress import log_failure
from penstock.client.consumer.pusher import CREDITS, Ack, OrderedBy, Pusher, PushOptions
from penstock.client.consumer.subscription import PartitionCursor, Subscription
from penstock.client.corruption import PassedOver
from penstock.client.errors import ClientError, MissingMessageError
from penstock.client.group.committer import Callback
from penstock.client.group.protocol import Wanted
from penstock.client.keywords import ConsumerKeywords
from penstock.client.message import Message, MessageId
from penstock.client.metadata import TopicPartition, named
from penstock.client.opening import open_cluster, to_milliseconds
from penstock.client.serializers import ANY_BYTES, Deserializer, K, R, Reader, UntypedJson, V
from penstock.client.settings import ConsumerSettings, Delivery, Profile, SettingsError, read_settings
from penstock.client.stats import ConsumerStats
from penstock.machines.assignors import BY_NAME, Assignor

if TYPE_CHECKING:
    import pyarrow

POLL_TIMEOUT_MS: Final = 1_000
"""How long a poll waits for messages by default."""

CLOSE_TIMEOUT_MS: Final = 10_000

Committable: TypeAlias = Mapping[TopicPartition, int | CommittedOffset]


class Consumer(Reader[K, V, R]):
    """Reads messages of topics.

    With a `group_id` the topics' partitions are shared out among all consumers of that group, and how far each
    partition was read is committed to the brokers. Without one, the consumer reads all partitions by itself and commits
    nothing.

    Settings are keywords, or Kafka's dotted names in a dict that comes first (`ConsumerSettings` has them all).
    One task polls a consumer; heartbeats and fetches go on in the background while it works on what it got.

    Example:
        from penstock.client import Producer

        async with Producer("localhost:9092") as producer:
            await producer.create_topic("orders", 3)
            await producer.send("orders", b"paid", key=b"order-7")

        settings = {"bootstrap.servers": "localhost:9092", "group.id": "billing", "auto.offset.reset": "earliest"}
        async with Consumer(settings, "orders") as consumer:
            async for message in consumer:
                print(message.id, message.key, message.value)
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
        """`on_connection` is called with a ConnectionEvent when a broker was lost, and when it is back."""
        properties = topics[0] if topics and isinstance(topics[0], Mapping) else {}
        self.settings = read_settings(ConsumerSettings, properties, settings, profile=profile, delivery=delivery)
        self._commits_first = delivery == "at_most_once"
        self._assignors = _find_assignors(assignors or self.settings.partition_assignment_strategy)
        self._deserializers = Deserializers(key_deserializer, value_deserializer)
        self._cluster = open_cluster(self.settings, on_connection)
        self._subscription = Subscription()
        self._listeners = Listeners()
        self._dedup = dedup
        self._passed_over = PassedOver()
        self._arrow: ArrowPoller | None = None
        self._pusher: Pusher | None = None
        self._parts: ConsumerParts | None = None
        self._is_closed = False
        names = [each for each in topics if not isinstance(each, Mapping)]
        if names:
            self.subscribe(names)

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(is_through=error is None)

    async def close(self, *, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Commit how far the application is, leave the group, if that can be done within the time, and end all that
        goes on in the background.

        What the last poll returned counts as done with, unless an exception is just being handled: then it comes again.
        """
        await self._close(is_through=sys.exc_info()[1] is None, timeout_ms=timeout_ms)

    # What is read

    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics, in place of earlier ones; a pattern stands for all topics whose whole name matches, also
        those created later. The functions are called with partitions that come (`on_assigned`), that go to another
        member after this (`on_revoked`) and that may have gone already (`on_lost`, or else `on_revoked`). They may be
        async, and may commit and seek."""
        self._check_open()
        self._subscription.wanted = _wanted(topics)
        self._listeners.assigned = on_assigned
        self._listeners.revoked = on_revoked
        self._listeners.lost = on_lost or on_revoked
        if self._parts is not None:
            self._parts.subscribed()

    async def unsubscribe(self) -> None:
        """Stop reading; a group gets the partitions back."""
        self._check_open()
        if self._parts is not None:
            self._parts.poller.came_back()
            await self._parts.end_subscription("the consumer has unsubscribed")
        self._subscription.wanted = None
        self._subscription.remove(list(self._subscription.cursors))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, in place of earlier ones, without a group's assignment. Partitions that are
        kept go on where they are."""
        parts = self._start()
        if self._subscription.wanted is not None:
            raise ClientError("the consumer has subscribed to topics: `unsubscribe` first, or make another consumer")
        wanted = frozenset(TopicPartition(*each) for each in partitions)
        parts.poller.came_back()
        self._subscription.remove(self._subscription.cursors.keys() - wanted)
        self._subscription.add(sorted(wanted))
        parts.positions_changed()

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._subscription.cursors)

    def pause(self, *partitions: TopicPartition) -> None:
        """Fetch and return nothing of these partitions until they are resumed."""
        poller = self._start().poller
        for cursor in self._cursors(partitions):
            if poller.is_going_through(cursor):
                poller.end_run()
            cursor.is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        parts = self._start()
        for cursor in self._cursors(partitions):
            cursor.is_paused = False
            self._subscription.line_up(cursor)
        parts.poller.wake()
        parts.prefetcher.wake()

    @property
    def paused(self) -> set[TopicPartition]:
        return {key for key, cursor in self._subscription.cursors.items() if cursor.is_paused}

    # Messages

    async def poll(
        self, max_records: int | None = None, *, timeout_ms: float | None = POLL_TIMEOUT_MS
    ) -> list[Message[K | None, R]]:
        """Messages that have come, at most `max_records` (500, or what `max_poll_records` says), those of each
        partition in order; none, if there are none within the time. None as timeout waits as long as it takes.

        CorruptBatchError: a batch cannot be read, and all before it was returned. Every poll raises it, until `seek`
        goes on at the error's `next_offset`; with on_corrupt="skip" such batches are passed over.

        A poll shows the group that the application lives, and that it is through with what earlier polls have returned.
        Cancelled, it loses nothing: what it would have returned comes with the next one.
        """
        parts = self._start()
        most = self.settings.max_poll_records if max_records is None else max_records
        if most < 1:
            raise ValueError(f"max_records is {most}, but must be 1 or more")
        return await parts.poll(lambda: parts.poller.take(most), timeout_ms) or []

    async def poll_arrow(
        self, max_records: int | None = None, *, timeout_ms: float | None = POLL_TIMEOUT_MS
    ) -> "pyarrow.RecordBatch":
        """As `poll`, with whole columns and without an object per message: a batch of at most `max_records` rows (by
        default 20,000) with the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
        timestampType and headers. Without messages it has no rows.

        Keys and values are bytes: deserializers are not used. The rows of a partition are in order, and all of them
        count as those of `poll` do; an application may use both in turn. It needs `penstock-mq[arrow]`; with
        `penstock-mq[numba]` it is faster.

        Example:
            from penstock.client import Consumer, Producer

            async with Producer("localhost:9092") as producer:
                await producer.create_topic("orders")
                await producer.send("orders", b"paid")
            async with Consumer("orders", bootstrap_servers="localhost:9092", auto_offset_reset="earliest") as consumer:
                rows = await consumer.poll_arrow(timeout_ms=None)
                print(rows.num_rows, rows.column("value").to_pylist())
        """
        parts = self._start()
        most = MAX_ARROW_RECORDS if max_records is None else max_records
        if most < 1:
            raise ValueError(f"max_records is {most}, but must be 1 or more")
        if self._dedup is not None:
            raise ClientError("a consumer that drops duplicates returns no columns: use `poll`, or drop them by Arrow")
        if self._arrow is None:
            self._arrow = ArrowPoller(self._subscription, parts.poller)
            parts.prefetcher.partition_bytes = partition_bytes(self.settings)
        arrow = self._arrow
        empty = await arrow.prepare()
        taken = await parts.poll(lambda: arrow.take(most), timeout_ms, give_back=arrow.give_back)
        return empty if taken is None else await arrow.join(taken)

    @overload
    async def push(
        self,
        callback: Callable[[Message[K | None, R]], object],
        *,
        credits: int = CREDITS,
        lists: Literal[False] = False,
        concurrency: int = 1,
        ordered_by: OrderedBy = "partition",
        ack: Literal["return"] = "return",
        on_error: Callable[[Message[K | None, R], Exception], object] | None = None,
    ) -> None: ...

    @overload
    async def push(
        self,
        callback: Callable[[list[Message[K | None, R]]], object],
        *,
        credits: int = CREDITS,
        lists: Literal[True],
        concurrency: int = 1,
        ordered_by: OrderedBy = "partition",
        ack: Literal["return"] = "return",
        on_error: Callable[[list[Message[K | None, R]], Exception], object] | None = None,
    ) -> None: ...

    @overload
    async def push(
        self,
        callback: Callable[[Any, Callable[[], None]], object],
        *,
        credits: int = CREDITS,
        lists: bool = False,
        concurrency: int = 1,
        ordered_by: OrderedBy = "partition",
        ack: Literal["call"],
        on_error: Callable[[Any, Exception], object] | None = None,
    ) -> None: ...

    async def push(
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
        """Call a function with each message, and wait until `end_push`, `close`, or the function fails.

        It may be async, and gets messages one by one, or with `lists=True` lists of those that have come. A message is
        acknowledged when the function returns; with `ack="call"` when it calls its second argument, then or later. At
        most `credits` messages are out at a time, fetched ones of which some are not acknowledged: no matter how fast
        they come, a slow function is not overrun. Up to `concurrency` calls run at a time, and messages of a partition,
        or with `ordered_by="key"` of a key, one after the other.

        Offsets are committed as those of polls are, but only so far as all messages before them are acknowledged. If
        the function raises, `on_error(message, error)` is called, and the message counts as acknowledged when that
        returns. Without it the push ends with a PushError that has the message's id; that message and all others that
        are not acknowledged come again. Every acknowledgement shows the group that the application lives: one call may
        take as long as `max_poll_interval_ms`; if it takes longer, others get the partitions and the message.

        Example:
            from penstock.client import Consumer, Producer

            async with Producer("localhost:9092") as producer:
                await producer.create_topic("orders")
                await producer.send("orders", b"paid")

            async with Consumer("orders", bootstrap_servers="localhost:9092", auto_offset_reset="earliest") as consumer:

                async def handle(message):
                    print(message.value)
                    consumer.end_push()

                await consumer.push(handle, credits=100)
        """
        parts = self._start()
        if self._pusher is not None:
            raise ClientError("this consumer pushes messages already: `end_push` first, or make another consumer")
        options = PushOptions(
            credits=credits,
            lists=lists,
            concurrency=concurrency,
            ordered_by=ordered_by,
            ack=ack,
            on_error=on_error,
        )
        self._pusher = Pusher(parts, self._subscription, callback, options, commits_first=self._commits_first)
        try:
            await self._pusher.run()
        finally:
            self._pusher = None

    def end_push(self) -> None:
        """Have `push` return: no more calls are begun, and those that run are waited for. A callback may call it."""
        if self._pusher is not None:
            self._pusher.stop()

    def merged(self, *, max_wait_ms: float = MAX_WAIT_MS) -> Merged[K | None, R]:
        """Iterate over the messages of all partitions in the order of their timestamps.

        While a partition has nothing to compare, the others wait for it, but no longer than `max_wait_ms`: one that is
        at its end holds up what is younger than that, one that is slow all of them. What then comes with an older
        timestamp than the application has seen is returned at once; the iterator's `is_late` says so of the message
        that it returned last, and its `late` counts them. Messages of a partition stay in its order in any case; with
        equal timestamps they come by topic, partition and offset.

        It counts as any other iteration does. At most 500 messages of each partition wait for their turn. All
        partitions can only be compared if there is room to fetch of each (`queued_max_bytes`).

        Example:
            from penstock.client import Consumer, Producer

            async with Producer("localhost:9092") as producer:
                await producer.create_topic("orders", 2)
                await producer.send("orders", b"second", partition=0, timestamp_ms=1_700_000_000_002)
                await producer.send("orders", b"first", partition=1, timestamp_ms=1_700_000_000_001)
            async with Consumer("orders", bootstrap_servers="localhost:9092", auto_offset_reset="earliest") as consumer:
                messages = consumer.merged(max_wait_ms=200)
                async for message in messages:
                    print(message.value, messages.is_late)
                    if message.value == b"second":
                        break
        """
        self._start()
        return Merged(
            lambda: None if self._is_closed else self._start(),
            self._subscription,
            self.settings,
            max_wait_ms=max_wait_ms,
        )

    async def get(self, message_id: MessageId | str) -> Message[K | None, R] | None:
        """One message of any topic, by its id or the id's text, independent of assignments and polls. None: it is gone,
        by retention or compaction. MissingMessageError: the partition has not come so far yet. UnknownTopicError,
        UnknownPartitionError: there is none.

        Example:
            from penstock.client import Consumer, Producer

            async with Producer("localhost:9092") as producer:
                await producer.create_topic("orders")
                sent = await producer.send("orders", b"paid")
            async with Consumer(bootstrap_servers="localhost:9092") as consumer:
                message = await consumer.get(sent.message_id)
                print(message.value, await consumer.get("orders-0@0") == message)
        """
        parts = self._start()
        id = MessageId.parse(message_id) if isinstance(message_id, str) else MessageId(*message_id)
        try:
            message = await read_message(self._cluster, id, in_thread=parts.poller.in_thread, settings=self.settings)
        except MissingMessageError as error:
            if error.is_gone:
                return None
            raise
        read, failure = self._deserializers.read([message])
        if failure is not None:
            raise failure
        return read[0]

    def __aiter__(self) -> Self:
        self._start()
        return self

    async def __anext__(self) -> Message[K | None, R]:
        """The next message; to ask for it says that the application is done with the one before."""
        parts = self._parts
        if parts is None:
            raise StopAsyncIteration
        poller = parts.poller
        if not poller.polls_are_paused:
            for message in poller.left:
                return message
        most = self.settings.max_poll_records
        try:
            await parts.poll(lambda: poller.take_run(most), None)
        except ClientError:
            if self._is_closed:
                raise StopAsyncIteration from None
            raise
        return next(poller.left)

    @property
    def skipped_batches(self) -> int:
        """Batches that could not be read and were passed over (on_corrupt="skip")."""
        return self._passed_over.count

    def stats(self) -> ConsumerStats:
        """What the consumer knows about itself now: connections, what was fetched ahead, rebalances, the last error.

        Example:
            async with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
                await consumer.poll(timeout_ms=100)
                print(consumer.stats().partitions, consumer.stats().rebalances)
        """
        cluster = self._cluster.stats()
        return ConsumerStats(
            connections=cluster.connections,
            requests_in_flight=cluster.requests_in_flight,
            unreachable=cluster.unreachable,
            last_error=cluster.last_error,
            brokers_passed_over=cluster.brokers_passed_over,
            leader_hints=cluster.leader_hints,
            buffered_bytes=self._subscription.queued_bytes,
            partitions=len(self._subscription.cursors),
            rebalances=0 if self._parts is None else self._parts.rebalances,
            skipped_batches=self._passed_over.count,
        )

    # Positions

    async def seek(self, to: TopicPartition | MessageId, offset: int | None = None) -> None:
        """Go on at an offset of a partition, or at a message."""
        wanted = to.offset if isinstance(to, MessageId) else offset
        if wanted is None or wanted < 0:
            raise ValueError(f"offset is {wanted}, but must be 0 or more; there are seek_to_beginning and seek_to_end")
        self._seek({TopicPartition(to.topic, to.partition): wanted})

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first message that is left; in all assigned partitions, if none are named."""
        self._seek(await self.beginning_offsets(*partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._seek(await self.end_offsets(*partitions))

    async def seek_to_time(self, time: int | datetime, *partitions: TopicPartition) -> None:
        """Go to the first message that is not older, by its timestamp in milliseconds or as a datetime with a time
        zone; to the end, if there is none."""
        self._seek(await self._offsets(partitions, to_milliseconds(time)))

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next message that will be returned. Waits until it is known where to begin."""
        parts = self._start()
        [cursor] = self._cursors([partition])
        while cursor.lookup is not None:
            if cursor.error is not None:
                raise cursor.error
            self._cursors([partition])
            await parts.until_news()
        return parts.poller.position(cursor)

    def positions(self) -> dict[TopicPartition, int]:
        """The positions in all assigned partitions in which they are known."""
        return {key: each.offset for key, each in self._committable(None).items()}

    async def beginning_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """The first offsets that are left, of partitions of any topic, or of all that are assigned."""
        return await self._offsets(partitions, EARLIEST)

    async def end_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """The offsets that the next messages will get; with isolation_level=read_committed, where the first open
        transaction begins."""
        return await self._offsets(partitions, LATEST)

    async def offsets_for_times(self, times: Mapping[TopicPartition, int | datetime]) -> dict[TopicPartition, int]:
        """The offset of the first message that is not older, or else of the end."""
        wanted = {TopicPartition(*key): to_milliseconds(time) for key, time in times.items()}
        return await self._start().positioner.offsets(wanted)

    async def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """How many offsets lie between here and the end, of the assigned partitions that are named, or of all."""
        keys = [cursor.key for cursor in self._cursors(partitions)]
        ends = await self.end_offsets(*keys) if keys else {}
        return {key: max(0, ends[key] - await self.position(key)) for key in keys}

    # Commits

    async def commit(self, offsets: Committable | Message[Any, Any] | None = None) -> None:
        """Commit that the group is done with all that polls and iteration have returned; or with a message and those
        before it in its partition; or, by offsets of what comes next, with anything.

        CommitFailedError: the partitions belong to another member by now. Commits are carried out in the order in which
        they are called.
        """
        parts = self._start()
        chosen = self._committable(offsets)
        parts.progress.came_to(chosen)
        await parts.committer_of_group.commit(chosen)
        parts.progress.note(chosen)

    def commit_soon(
        self, offsets: Committable | Message[Any, Any] | None = None, callback: Callback | None = None
    ) -> None:
        """As `commit`, without waiting. The callback gets the outcome; without one a failure is logged, and made up for
        by the next commit."""
        parts = self._start()
        chosen = self._committable(offsets)
        committer = parts.committer_of_group
        if chosen:
            parts.progress.came_to(chosen)
            parts.progress.note(chosen)
            committer.commit_soon(chosen, parts.progress.tell(callback or log_failure))

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """What the group has committed, for partitions of any topic, or for all that are assigned; None is nothing."""
        keys = [TopicPartition(*key) for key in partitions] or list(self._subscription.cursors)
        found = await self._start().committer_of_group.fetch(keys) if keys else {}
        return {key: None if each is None else each.offset for key, each in found.items()}

    # How it works

    def _start(self) -> ConsumerParts:
        self._check_open()
        if self._parts is None:
            self._parts = ConsumerParts(
                self._cluster,
                self.settings,
                self._subscription,
                deserializers=self._deserializers,
                listeners=self._listeners,
                assignors=self._assignors,
                commits_first=self._commits_first,
                passed_over=self._passed_over,
                dedup=self._dedup,
            )
        return self._parts

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError("the consumer was closed: make a new one")

    async def _close(self, *, is_through: bool, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._pusher is not None:
            self.end_push()
            await self._pusher.until_over()
        parts, self._parts = self._parts, None
        try:
            if parts is not None:
                await parts.close(is_through=is_through, timeout_ms=timeout_ms)
        finally:
            await self._cluster.close()

    def _cursors(self, partitions: Iterable[TopicPartition]) -> list[PartitionCursor]:
        """The cursors of the partitions; all cursors, if none are named."""
        cursors = self._subscription.cursors
        keys = [TopicPartition(*key) for key in partitions]
        for key in keys:
            if key not in cursors:
                raise ClientError(f"{key} is not assigned to this consumer, which reads {named(cursors)}")
        return [cursors[key] for key in keys] if keys else list(cursors.values())

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        parts = self._start()
        for key, offset in offsets.items():
            [cursor] = self._cursors([key])
            if parts.poller.is_going_through(cursor):
                parts.poller.end_run()
            self._subscription.seek(cursor, offset)
            # What was wrong elsewhere need not be wrong here.
            cursor.not_before = 0.0
        parts.positions_changed()

    async def _offsets(self, partitions: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        keys = [TopicPartition(*key) for key in partitions] or list(self._subscription.cursors)
        return await self._start().positioner.offsets(dict.fromkeys(keys, time))

    def _committable(self, offsets: Committable | Message[Any, Any] | None) -> dict[TopicPartition, CommittedOffset]:
        if isinstance(offsets, Message):
            return {offsets.topic_partition: CommittedOffset(offsets.offset + 1, offsets.leader_epoch)}
        if offsets is not None:
            return {
                TopicPartition(*key): each if isinstance(each, CommittedOffset) else CommittedOffset(each)
                for key, each in offsets.items()
            }
        poller = self._start().poller
        return {
            key: CommittedOffset(poller.position(cursor), cursor.epoch)
            for key, cursor in self._subscription.cursors.items()
            if cursor.position >= 0
        }


def _wanted(topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]]) -> Wanted:
    listed = [topics] if isinstance(topics, str | re.Pattern) else list(topics)
    names = frozenset(each for each in listed if isinstance(each, str))
    patterns = [each for each in listed if isinstance(each, re.Pattern)]
    if not listed:
        raise ValueError("there are no topics to subscribe to: name one, or `unsubscribe`")
    for each in names:
        if ":" in each:
            # No topic has a colon in its name. A producer's first argument is an address, so users try it here.
            others = ", ".join(repr(other) for other in listed if isinstance(other, str) and ":" not in other)
            raise ValueError(
                f"{each!r} is an address and no topic: write Consumer({others or repr('TOPIC')}, "
                f"bootstrap_servers={each!r})"
            )
    if not patterns:
        return names
    if len(listed) == 1:
        return patterns[0]
    # Flags could not be kept apart in one expression.
    if any(each.flags != re.compile("").flags for each in patterns):
        raise ValueError("several topics with patterns among them must be patterns without flags")
    return re.compile("|".join([*map(re.escape, sorted(names)), *(f"(?:{each.pattern})" for each in patterns)]))


def _find_assignors(given: Sequence[str | Assignor]) -> list[Assignor]:
    found: list[Assignor] = []
    for each in given:
        if not isinstance(each, str):
            found.append(each)
        elif (assignor := BY_NAME.get(each)) is not None:
            found.append(assignor)
        else:
            raise SettingsError(f"there is no assignor {each!r}: use {', '.join(BY_NAME)}, or give an object of yours")
    return found
