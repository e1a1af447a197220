"""`Producer` takes messages, chooses their partitions, gathers them into batches, and reports where each of them
lies."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack

from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.outages import ConnectionListener
from penstock.client.errors import BrokerError, ClientError, unwrap
from penstock.client.keywords import ProducerKeywords
from penstock.client.message import Headers
from penstock.client.opening import given_settings, open_cluster
from penstock.client.producer.accumulator import BATCH_COST_BYTES, Memory
from penstock.client.producer.admission import Admission, Written
from penstock.client.producer.bulk import Shipment, ship_columns, ship_rows
from penstock.client.producer.bulk_result import BatchResult, NewMessage
from penstock.client.producer.deliveries import Outcome, SendFuture
from penstock.client.producer.record_writer import HEADER_BYTES, RECORD_OVERHEAD, write_headers
from penstock.client.producer.sender import REQUEST_BYTES, Sender
from penstock.client.producer.topics import STICKY, Partitioner
from penstock.client.producer.topics import partitioner as choice_of
from penstock.client.serializers import ANY_BYTES, K, Serializer, V
from penstock.client.settings import Delivery, ProducerSettings, Profile, SettingsError, read_settings
from penstock.client.stats import ProducerStats
from penstock.protocol.compression import compress
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import EncodeError

if TYPE_CHECKING:
    import pyarrow as pa

NEW_BATCH_BYTES: Final = BATCH_COST_BYTES + HEADER_BYTES


class Producer(Generic[K, V]):
    """Sends messages. It is idempotent: what it sends again, because an answer was lost, brokers do not write twice.

    Example:
        async with Producer("localhost:9092") as producer:
            await producer.create_topic("orders", 3)
            where = await producer.send("orders", b"paid", key=b"order-7")
            print(where.partition, where.offset)
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
        """Settings come as an address, as a dict with Kafka's dotted names, as keywords, or all of these.
        `on_connection` is called with a ConnectionEvent when a broker was lost, and when it is back."""
        given = given_settings(bootstrap)
        keywords: dict[str, Any] = {**settings}
        if isinstance(partitioner, str):
            keywords["partitioner"] = partitioner
        self.settings = read_settings(ProducerSettings, given, keywords, profile=profile, delivery=delivery)
        chosen = self.settings.partitioner if partitioner is None or isinstance(partitioner, str) else partitioner
        self._choose = choice_of(chosen, self.settings.batch_size)
        try:
            compress(self.settings.codec, b"", self.settings.compression_level)
        except EncodeError as error:
            raise SettingsError(f"compression.level is {self.settings.compression_level!r}: {error}") from None
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        # Bytes, which most applications send, need no call.
        self._is_key_raw, self._is_value_raw = key_serializer is ANY_BYTES, value_serializer is ANY_BYTES
        self._is_named = isinstance(chosen, str)
        self._is_sticky = chosen in STICKY
        self._quick_size = self.settings.max_request_size - REQUEST_BYTES - HEADER_BYTES
        self._memory = Memory(self.settings.buffer_memory)
        self._cluster = open_cluster(self.settings, on_connection)
        self._sender: Sender
        self._admission: Admission | None = None
        self._must_yield = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the messages that wait here or are on their way; at most `buffer_memory`."""
        return self._memory.used

    def stats(self) -> ProducerStats:
        """What the producer knows about itself now: connections, what is on its way, the last error.

        Example:
            async with Producer("localhost:9092") as producer:
                await producer.create_topic("orders")
                producer.send("orders", b"paid")
                print(producer.stats().buffered_messages)
        """
        cluster = self._cluster.stats()
        waiting = 0 if self._admission is None else self._admission.waiting + self._sender.waiting
        return ProducerStats(
            connections=cluster.connections,
            requests_in_flight=cluster.requests_in_flight,
            unreachable=cluster.unreachable,
            last_error=cluster.last_error,
            brokers_passed_over=cluster.brokers_passed_over,
            leader_hints=cluster.leader_hints,
            buffered_bytes=self._memory.used,
            buffered_messages=waiting,
        )

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> SendFuture:
        """Hand over a message. Await what is returned to learn where the message lies, or go on: it is sent in the
        background. Without `value` it is a tombstone: compaction deletes the key.

        When the memory is full, the message waits in line while its future is awaited. A caller that sends on without
        awaiting gets a BufferFullError: `await producer.ready()` between sends waits for room.

        Example:
            async with Producer("localhost:9092", delivery="at_least_once") as producer:
                await producer.create_topic("orders")
                futures = [producer.send("orders", b"%d" % number) for number in range(100)]
                await producer.flush()
                print(futures[-1].result().offset)
        """
        raw_value: bytes | None
        raw_key: bytes | None = None
        if type(value) is bytes and self._is_value_raw:
            raw_value = value
            size = len(raw_value) + RECORD_OVERHEAD
        else:
            raw_value = None if value is None else self._value_serializer.serialize(topic, value)
            size = RECORD_OVERHEAD if raw_value is None else len(raw_value) + RECORD_OVERHEAD
        if key is not None:
            raw_key = key if isinstance(key, bytes) and self._is_key_raw else self._key_serializer.serialize(topic, key)
            size += len(raw_key)
        written = None
        if headers:
            written = write_headers(headers)
            size += len(written)
        stamp = time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        admission = self._admission
        if admission is None:
            admission = self._start()
        memory = self._memory
        if (
            (view := admission.views.get(topic)) is None
            or admission.line
            or memory.used + size + NEW_BATCH_BYTES > memory.limit
            or size > self._quick_size
            or stamp < 0
            or (partition is not None and not 0 <= partition < len(view.partitions))
        ):
            self._must_yield = True
            return admission.send(topic, Written(raw_key, raw_value, stamp, written, size, partition))
        # The rest is what `Admission` does, in fewer steps.
        if partition is not None:
            queue = view.queues[partition]
        elif raw_key is None and self._is_sticky and view.sticky is not None and view.sticky_bytes >= size:
            view.sticky_bytes -= size
            queue = view.sticky
        else:
            queue = self._choose(view, raw_key, size)
        batch = queue.last
        if batch.size + size > batch.limit:
            self._must_yield = True
            batch = self._sender.batch_for(queue, size)
        memory.used += size
        return SendFuture(batch, batch.append(raw_key, raw_value, stamp, written, size), stamp)

    async def ready(self) -> None:
        """Wait until there is room for more. Await this between sends in a loop that does not await every message: it
        costs little, and gives the event loop its turn.

        Example:
            async with Producer("localhost:9092") as producer:
                await producer.create_topic("orders")
                for number in range(10_000):
                    await producer.ready()
                    producer.send("orders", b"%d" % number)
        """
        memory = self._memory
        if self._must_yield or memory.used + NEW_BATCH_BYTES > memory.limit:
            self._must_yield = False
            await asyncio.sleep(0)
            if self._admission is not None:
                await self._admission.wait_for_room()

    async def send_batch(
        self,
        topic: str,
        messages: "Sequence[V | tuple[K, V] | NewMessage] | pa.Table | pa.RecordBatch",
        *,
        partition: int | None = None,
    ) -> BatchResult:
        """Send many messages and wait for them all: values, pairs of key and value, or `NewMessage`s; or a table of
        Arrow with a column `value` and perhaps `key`, `partition`, `timestamp` and `headers`, of which whole columns
        are encoded at once, without serializers.

        Failures are not raised but reported, row by row, in the result.

        Example:
            async with Producer("localhost:9092") as producer:
                await producer.create_topic("orders")
                result = await producer.send_batch("orders", [b"one", b"two", (b"key", b"three")])
                result.raise_for_errors()
                print(result.sent)
        """
        admission = self._admission or self._start()
        view = await admission.view(topic)
        shipment = Shipment(self._sender, self._memory, admission, view)
        if isinstance(messages, Sequence):
            await ship_rows(shipment, messages, partial(self._write, topic, partition))
            return await shipment.result(len(messages))
        named = self.settings.partitioner if self._is_named else None
        await ship_columns(shipment, messages, partition=partition, choose=self._choose, named=named)
        return await shipment.result(messages.num_rows)

    async def flush(self) -> None:
        """Send what is buffered without waiting for more, until the outcome of all messages sent so far is known. Their
        futures report it; nothing is raised here.

        Example:
            async with Producer("localhost:9092", linger_ms=1000) as producer:
                await producer.create_topic("orders")
                future = producer.send("orders", b"paid")
                await producer.flush()
                print(future.result())
        """
        if self._admission is None:
            return
        await self._admission.settle()
        outcomes: deque[Outcome] = deque(self._sender.push_all())
        while outcomes:
            outcome = outcomes.popleft()
            await outcome.wait()
            outcomes.extend(outcome.successors)

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """Send what is buffered, for as long as `timeout_ms` allows, or else `delivery_timeout_ms`, and end. What is
        not sent by then fails. Closing again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._admission is not None:
                self._admission.close()
                timeout_ms = self.settings.delivery_timeout_ms if timeout_ms is None else timeout_ms
                async with asyncio.timeout(timeout_ms / 1000):
                    await self.flush()
        except TimeoutError:
            pass
        finally:
            if self._admission is not None:
                await self._admission.end()
                await self._sender.stop()
            await self._cluster.close()

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic; with `exist_ok` an existing one is accepted, with the partitions that it has."""
        topic = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, configs=configs or {})
        try:
            unwrap(await create_topics(self._cluster, [topic]))
        except BrokerError as error:
            if not exist_ok or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions, as metadata no older than `metadata_max_age_ms` has them."""
        return list((await (self._admission or self._start()).view(topic)).partitions)

    def _start(self) -> Admission:
        """Start the sender, with the first message, when the event loop runs."""
        if self._is_closed:
            raise ClientError("the producer is closed: make a new one")
        self._sender = Sender(self._cluster, self.settings, self._memory)
        self._admission = Admission(self._sender, self._memory, self._choose, self.settings)
        return self._admission

    def _write(self, topic: str, partition: int | None, message: Any, now_ms: int) -> Written:
        """A row of `send_batch`."""
        headers: Headers = ()
        stamp, written = None, None
        if type(message) is NewMessage:
            value, key, wanted, headers, stamp = message
            partition = partition if wanted is None else wanted
        elif isinstance(message, tuple):
            key, value = message
        else:
            key, value = None, message
        raw_value = None if value is None else self._value_serializer.serialize(topic, value)
        raw_key = None if key is None else self._key_serializer.serialize(topic, key)
        size = RECORD_OVERHEAD + len(raw_value or b"") + len(raw_key or b"")
        if headers:
            written = write_headers(headers)
            size += len(written)
        return Written(raw_key, raw_value, now_ms if stamp is None else stamp, written, size, partition)
