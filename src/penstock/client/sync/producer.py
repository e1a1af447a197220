"""`Producer` for callers that block hands messages to the thread of an event loop, many at a time."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Unpack

from penstock.client.cluster.outages import ConnectionListener
from penstock.client.errors import BufferFullError, ClientError
from penstock.client.keywords import ProducerKeywords
from penstock.client.loop_thread import LoopThread
from penstock.client.message import Headers, RecordMetadata
from penstock.client.producer import producer as asynchronous
from penstock.client.producer.bulk_result import BatchResult, NewMessage
from penstock.client.producer.deliveries import SendFuture
from penstock.client.producer.topics import Partitioner
from penstock.client.serializers import ANY_BYTES, K, Serializer, V
from penstock.client.settings import Delivery, ProducerSettings, Profile
from penstock.client.stats import ProducerStats
from penstock.client.sync.blocking import Blocking

if TYPE_CHECKING:
    import pyarrow as pa


# Messages that were handed to the loop's thread and not taken there yet; a caller that sends faster waits.
HANDED_OVER: Final = 2_000
# Messages that are taken at a time before the event loop gets its turn.
ROWS_AT_A_TIME: Final = 200


class Sending:
    """What `Producer.send` returns: its `result` waits for the outcome. A message is also sent if its result is not
    asked for.

    Example:
        import penstock.client.sync

        with penstock.client.sync.Producer("localhost:9092") as producer:
            producer.create_topic("orders")
            sending = producer.send("orders", b"paid")
            print(sending.result().offset)
    """

    __slots__ = ("_arguments", "_failure", "_future", "_owner")

    def __init__(self, owner: "Producer[Any, Any]", arguments: tuple[Any, ...]) -> None:
        self._owner = owner
        self._arguments = arguments
        self._future: SendFuture | None = None
        self._failure: BaseException | None = None

    def result(self) -> RecordMetadata:
        """Where the message lies, waited for; a failure is raised."""
        return self._owner._wait(self)

    def done(self) -> bool:
        """Whether it is known what has become of the message."""
        return self._failure is not None or (self._future is not None and self._future.done())


class Producer(Blocking, Generic[K, V]):
    """Sends messages; see `penstock.client.Producer`, whose settings it has.

    Example:
        import penstock.client.sync

        with penstock.client.sync.Producer("localhost:9092") as producer:
            producer.create_topic("orders", 3)
            for number in range(1000):
                producer.send("orders", b"%d" % number, key=b"order-%d" % number)
            producer.flush()
    """

    def __init__(
        self,
        bootstrap: str | Mapping[str, Any] | None = None,
        /,
        *,
        key_serializer: Serializer[K] = ANY_BYTES,
        value_serializer: Serializer[V] = ANY_BYTES,
        partitioner: str | Partitioner | None = None,
        profile: Profile | None = None,
        delivery: Delivery | None = None,
        on_connection: ConnectionListener | None = None,
        **settings: Unpack[ProducerKeywords],
    ) -> None:
        """`on_connection` is called in the producer's own thread."""
        self._thread = LoopThread("penstock-producer")
        self._handed_over: deque[Sending] = deque()
        self._is_taking = False
        try:
            self._inner: asynchronous.Producer[K, V] = self._thread.call(
                lambda: asynchronous.Producer(
                    bootstrap,
                    key_serializer=key_serializer,
                    value_serializer=value_serializer,
                    partitioner=partitioner,
                    profile=profile,
                    delivery=delivery,
                    on_connection=on_connection,
                    **settings,
                )
            )
        except BaseException:
            self._thread.close()
            raise

    @property
    def settings(self) -> ProducerSettings:
        return self._inner.settings

    def stats(self) -> ProducerStats:
        """What the producer knows about itself now; messages that its thread has not taken yet are counted, too."""
        stats = self._thread.call(self._inner.stats)
        return replace(stats, buffered_messages=stats.buffered_messages + len(self._handed_over))

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Sending:
        """Hand over a message, to be sent in the background; waits while the memory is full. What cannot be sent at
        all, such as a message that is too large, is raised by `result` and by `flush`."""
        if not self._thread.is_open:
            raise ClientError("the producer is closed: make a new one")
        sending = Sending(self, (topic, value, key, partition, headers, timestamp_ms))
        self._handed_over.append(sending)
        if not self._is_taking:
            self._is_taking = True
            self._thread.call_soon(self._take)
        if len(self._handed_over) >= HANDED_OVER:
            self._thread.run(self._take_all())
        return sending

    def send_batch(
        self,
        topic: str,
        messages: "Sequence[V | tuple[K, V] | NewMessage] | pa.Table | pa.RecordBatch",
        *,
        partition: int | None = None,
    ) -> BatchResult:
        """Send many messages, or whole columns of Arrow, and wait for them all; the result reports what failed."""

        async def send() -> BatchResult:
            await self._take_all()
            return await self._inner.send_batch(topic, messages, partition=partition)

        return self._thread.run(send())

    def flush(self) -> None:
        """Wait until the outcome of all messages sent so far is known; each `Sending` reports its own."""

        async def flush() -> None:
            await self._take_all()
            await self._inner.flush()

        self._thread.run(flush())

    def close(self, *, timeout_ms: int | None = None) -> None:
        """Send what is buffered, for as long as `timeout_ms` allows, and end the thread. Closing again does nothing."""
        if not self._thread.is_open:
            return

        async def close() -> None:
            await self._take_all()
            await self._inner.close(timeout_ms=timeout_ms)

        try:
            self._thread.run(close())
        finally:
            self._thread.close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic; with `exist_ok` an existing one is accepted."""
        made = self._inner.create_topic(
            name, partitions, replication_factor=replication_factor, configs=configs, exist_ok=exist_ok
        )
        self._thread.run(made)

    def partitions_for(self, topic: str) -> list[int]:
        return self._thread.run(self._inner.partitions_for(topic))

    # In the loop's thread

    def _take(self) -> None:
        """Send what was handed over, as far as there is room; a task waits for more of it."""
        self._is_taking = False
        if not self._send_some():
            self._thread.keep(self._take_all())

    async def _take_all(self) -> None:
        while not self._send_some():
            try:
                await self._inner.ready()
            except ClientError as error:
                # No room has become free for as long as a message may wait.
                if self._handed_over:
                    self._handed_over.popleft()._failure = error

    def _send_some(self) -> bool:
        """False if there is more to send, but no room, or the loop must have its turn."""
        for _ in range(ROWS_AT_A_TIME):
            if not self._handed_over:
                return True
            sending = self._handed_over[0]
            topic, value, key, partition, headers, timestamp_ms = sending._arguments
            try:
                sending._future = self._inner.send(
                    topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
                )
            except BufferFullError:
                return False
            except Exception as error:
                sending._failure = error
            sending._arguments = ()
            self._handed_over.popleft()
        return not self._handed_over

    def _wait(self, sending: Sending) -> RecordMetadata:
        if self._thread.is_open:

            async def wait() -> RecordMetadata:
                if sending._future is None and sending._failure is None:
                    await self._take_all()
                if sending._failure is not None:
                    raise sending._failure
                assert sending._future is not None
                return await sending._future

            return self._thread.run(wait())
        if sending._failure is not None:
            raise sending._failure
        assert sending._future is not None, "a producer takes all messages before it is closed"
        return sending._future.result()
