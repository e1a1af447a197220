"""The sender brings batches to their brokers: a few requests in flight to each, failed batches again in order, and an
end to every wait.

It carries out what `accumulator` and `sequencing` decide; it has the connections, the requests and the timers. No task
is made for a request: it is sent where its batches become ready, and its answer is processed where it comes in.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.client.cluster import retries as retrying
from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.connection import Connection, throttle_ms
from penstock.client.cluster.leaders import read_hint
from penstock.client.errors import (
    AuthenticationError,
    BadReplyError,
    BrokerError,
    ClientError,
    TimedOutError,
    UnsendableError,
)
from penstock.client.producer.accumulator import BATCH_COST_BYTES, Batch, Memory, PartitionQueue, next_rank
from penstock.client.producer.background import Background
from penstock.client.producer.compressor import Compressor
from penstock.client.producer.linger import CLOCK_RESOLUTION, Lingering
from penstock.client.producer.producer_ids import ask_for_id
from penstock.client.producer.sequencing import Judgement, Verdict, give_up, halve, judge, judge_loss, leave_out
from penstock.client.producer.topics import TopicViews
from penstock.client.settings import ProducerSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import ZERO_UUID
from penstock.protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

CONNECTION_LANE: Final = "produce"
# What a request takes besides a batch.
REQUEST_BYTES: Final = 512


class Sender:
    """Works in the event loop that runs when it is made. `freed` is called when messages have left the memory."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings, memory: Memory) -> None:
        self.settings = settings
        self.freed: Callable[[], None] = lambda: None
        self._cluster = cluster
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._background = Background()
        self.topics = TopicViews(cluster, settings, self._background, self._told)
        self._lingering = Lingering(settings.linger_ms, self._push)
        self.compressor = Compressor(settings)
        self._active: dict[PartitionQueue, None] = {}
        """Queues that have something to send, or in flight."""
        self._brokers: dict[int, _Broker] = {}
        self._most_in_flight = settings.max_in_flight_requests_per_connection
        self._identity: tuple[int, int] | None = None
        self._is_beginning = False
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    # What the producer asks for

    def batch_for(self, queue: PartitionQueue, size: int) -> Batch:
        """The batch that takes a record of this size, where the last one is full or there is none. A full one is sent;
        if that cannot be, because its broker is busy, it goes on growing, up to the size of a request."""
        full = queue.last
        if full.limit:
            if not full.is_due:
                full.is_due = True
                self._lingering.remove(full)
                self.push(queue)
            if full.limit:
                full.limit = min(queue.largest, self.settings.max_request_size - REQUEST_BYTES)
                if full.size + size <= full.limit:
                    return full
                full.close()
                self.compressor.begin(full, partial(self._compressed, queue, full))
        batch = self.new_batch(queue)
        batch.limit = min(queue.largest, self.settings.batch_size)
        queue.last = batch
        self._enqueue(queue, batch)
        self._lingering.add(queue, batch)
        return batch

    def new_batch(self, queue: PartitionQueue, data: memoryview | None = None, count: int = 0) -> Batch:
        """A batch that its maker fills, or that is written already, and then puts in line with `enqueue`."""
        now = self._loop.time()
        batch = Batch(queue.topic, queue.partition, now)
        if data is not None:
            batch = Batch.of(queue.topic, queue.partition, data, count, now)
        self._reserve(batch)
        return batch

    def enqueue(self, queue: PartitionQueue, batch: Batch) -> None:
        """A closed batch takes its place in the line, and is sent without waiting for more."""
        # What came before it stays before it.
        if queue.last.limit:
            queue.last.close()
            self._lingering.remove(queue.last)
        batch.rank = next_rank()
        self._enqueue(queue, batch)
        self.compressor.begin(batch, partial(self._compressed, queue, batch))
        self.push(queue)

    def push(self, queue: PartitionQueue) -> None:
        """Send what can be sent now."""
        if (broker := self._mark(queue)) is not None:
            self._pump(broker)

    def push_all(self) -> list[Batch]:
        """Send all that there is without waiting for more; returns the batches."""
        batches = []
        for queue in self._active:
            for batch in queue.waiting:
                batch.is_due = True
            batches += queue.in_flight
            batches += queue.waiting
        self._push(list(self._active))
        return batches

    @property
    def waiting(self) -> int:
        """Messages in batches whose outcome is not known yet."""
        return sum(batch.count for queue in self._active for batch in (*queue.in_flight, *queue.waiting))

    async def stop(self) -> None:
        """End everything; what is not sent by now fails."""
        self._is_closed = True
        self._lingering.close()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        await self._background.end()
        self.compressor.close()
        for queue in list(self._active):
            for batch in (*queue.in_flight, *queue.waiting):
                in_doubt = batch.in_doubt or batch in queue.in_flight
                what = "may or may not be written" if in_doubt else "was not sent"
                error = ClientError(
                    f"{queue}: the producer was closed before the broker had answered: the message {what}; give "
                    "close() more time",
                    outcome_unknown=in_doubt,
                )
                if not batch.is_settled:
                    self._settle(queue, batch, error)
        self._active.clear()

    # Batches on their way

    def _enqueue(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.waiting.append(batch)
        self._active[queue] = None
        if self._expiry_timer is None:
            timeout = self.settings.delivery_timeout_ms / 1000
            self._expiry_timer = self._loop.call_at(batch.created_at + timeout, self._expire)

    def _reserve(self, batch: Batch) -> None:
        """Reserve memory for a batch. Records that are appended later are counted by the code that appends them."""
        self._memory.used += batch.size + BATCH_COST_BYTES

    def _mark(self, queue: PartitionQueue) -> "_Broker | None":
        if queue.leader < 0:
            self.topics.refresh(queue.topic)
            return None
        broker = self._brokers.get(queue.leader)
        if broker is None:
            broker = self._brokers[queue.leader] = _Broker(queue.leader)
        broker.ready[queue] = None
        return broker

    def _push(self, queues: Iterable[PartitionQueue]) -> None:
        """Together, so that one request can take what goes to one broker."""
        for broker in {self._mark(queue): None for queue in queues}:
            if broker is not None:
                self._pump(broker)

    def _pump(self, broker: "_Broker") -> None:
        """Send to a broker what can be sent, or see to it that it can be."""
        if self._is_closed or not broker.ready or broker.is_waiting or broker.in_flight >= self._most_in_flight:
            return
        if self.settings.enable_idempotence and self._identity is None:
            self._begin()
            return
        connection = broker.connection
        if connection is None or not connection.is_open:
            broker.ready = {each: None for each in broker.ready if each.leader == broker.number and each.waiting}
            if broker.ready:
                self._wait(broker, partial(self._open, broker))
            return
        while broker.ready and broker.in_flight < self._most_in_flight:
            if not connection.is_free:
                self._wait(broker, partial(self._until_free, connection))
                return
            sent = self._collect(broker)
            if not sent:
                return
            self._transmit(broker, connection, sent)

    def _collect(self, broker: "_Broker") -> "list[Sent]":
        """The next batch of each partition that is ready, as many as fit one request."""
        now = self._loop.time()
        room = self.settings.max_request_size
        collected: list[Sent] = []
        for queue in list(broker.ready):
            batch = queue.first_sendable(now) if queue.leader == broker.number else None
            if batch is None or not self._is_finished(queue, batch):
                # The code that removes the obstacle pushes the queue again.
                del broker.ready[queue]
                continue
            if collected and len(batch.data) > room:
                break
            if self._identity is not None and queue.spent_id == self._identity[0]:
                self._identity = None
                self._begin()
                break
            room -= len(batch.data)
            queue.send(batch, self._identity)
            collected.append((queue, batch))
            # To the end of the line: other partitions come first, next time.
            del broker.ready[queue]
            if queue.waiting:
                broker.ready[queue] = None
        return collected

    def _is_finished(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Close the batch; returns whether it is compressed, which may take a while."""
        if not batch.is_closed:
            batch.close()
            self._lingering.remove(batch)
        return self.compressor.is_compressed(batch, partial(self._compressed, queue, batch))

    def _compressed(self, queue: PartitionQueue, batch: Batch, error: Exception | None) -> None:
        if error is not None and batch in queue.waiting:
            queue.waiting.remove(batch)
            self._settle(queue, batch, UnsendableError(f"{queue}: the batch cannot be compressed: {error}"))
        self.push(queue)

    def _transmit(self, broker: "_Broker", connection: Connection, sent: "list[Sent]") -> None:
        # From version 13 on topics come by id; a topic may be created again, with another id, before the answer comes.
        names: dict[bytes, str] = {}
        topics: dict[str, list[PartitionProduceData]] = {}
        for queue, batch in sent:
            data = PartitionProduceData(index=queue.partition, records=batch.data)
            topics.setdefault(queue.topic, []).append(data)
            names[self.topics[queue.topic].topic_id] = queue.topic
        request = ProduceRequest(
            acks=self.settings.acks_on_wire,
            timeout_ms=self.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=name, topic_id=self.topics[name].topic_id, partition_data=data)
                for name, data in topics.items()
            ],
        )
        try:
            reply = connection.post(request, broker.version)
        except ClientError as error:
            self._take_losses(broker, sent, error)
            return
        if reply is not None:
            broker.in_flight += 1
            reply.add_done_callback(partial(self._answered, broker, sent, names))
            return
        # With acks=0 no answer comes: the batch counts as sent once it has left.
        for queue, batch in sent:
            queue.in_flight.remove(batch)
            self._settle(queue, batch)

    # Answers

    def _answered(
        self,
        broker: "_Broker",
        sent: "list[Sent]",
        names: Mapping[bytes, str],
        reply: "asyncio.Future[ProduceResponse]",
    ) -> None:
        if reply.cancelled():
            return
        error = reply.exception()
        if self._is_closed:
            return
        broker.in_flight -= 1
        if error is not None:
            assert isinstance(error, ClientError)
            self._take_losses(broker, sent, error)
            return
        response = reply.result()
        if pause_ms := throttle_ms(ProduceRequest, broker.version, response):
            # The broker asks for a pause.
            self._wait(broker, partial(asyncio.sleep, pause_ms / 1000))
        answers = {
            (topic.name or names.get(topic.topic_id, ""), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for queue, batch in sent:
            queue.in_flight.remove(batch)
            answer = answers.get((queue.topic, queue.partition))
            if answer is None:
                about = f"{queue}: the broker's answer does not mention it; its log may say why"
                judgement = judge_loss(queue, batch, BadReplyError(about, outcome_unknown=True), retries=0)
            else:
                judgement = judge(queue, batch, answer, retries=self.settings.retries)
                batch.base_offset, batch.append_time_ms = answer.base_offset, answer.log_append_time_ms
                if answer.error_code:
                    self._learn_leader(queue, names, answer, response)
            self._carry_out(queue, batch, judgement)
        self._go_on(broker, sent)

    def _learn_leader(
        self,
        queue: PartitionQueue,
        names: Mapping[bytes, str],
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """Take over the leader that a refusal names, if it does."""
        sent_as = next((topic_id for topic_id, name in names.items() if name == queue.topic), ZERO_UUID)
        hint = read_hint(sent_as, queue.partition, answer, response.node_endpoints)
        if hint is not None and (topic := self._cluster.take_hint(queue.topic, hint)) is not None:
            self.topics.learn(topic)

    def _take_losses(self, broker: "_Broker", sent: "list[Sent]", error: ClientError) -> None:
        """Handle requests that will not be answered: the connection is gone, or the request never went out."""
        for queue, batch in sent:
            queue.in_flight.remove(batch)
            own = type(error)(str(error), outcome_unknown=error.outcome_unknown)
            self._carry_out(queue, batch, judge_loss(queue, batch, own, retries=self.settings.retries))
        self._go_on(broker, sent)

    def _go_on(self, broker: "_Broker", sent: "list[Sent]") -> None:
        """Push what waited for these answers: its leader may be another broker by now."""
        self._push([queue for queue, _ in sent if queue.waiting])
        self._pump(broker)

    def _carry_out(self, queue: PartitionQueue, batch: Batch, judgement: Judgement) -> None:
        error, level = judgement.error, self.settings.compression_level
        if error is not None:
            self._cluster.note(error)
        if batch.is_settled:
            # It was given up while it was in flight, because it took too long.
            if judgement.verdict is not Verdict.DONE:
                queue.leave_gap(batch, is_refused=not batch.in_doubt)
            self._rest(queue)
            return
        match judgement.verdict:
            case Verdict.DONE:
                queue.failures = 0
                self._settle(queue, batch)
            case Verdict.FAILED:
                self._settle(queue, batch, error)
            case Verdict.AGAIN:
                assert error is not None
                self._send_again(queue, batch, error)
            case Verdict.SPLIT:
                self._replace(queue, batch, halve(queue, batch, level))
            case Verdict.PART:
                self._replace(queue, batch, leave_out(batch, judgement.refused, level))

    def _send_again(self, queue: PartitionQueue, batch: Batch, error: ClientError) -> None:
        batch.last_error = error
        queue.put_back(batch)
        is_refused = isinstance(error, BrokerError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_refused and queue.leader not in (-1, queue.sent_to):
            # The leader is known by now: there is nothing to wait for.
            return
        now = self._loop.time()
        if queue.retry_at <= now:
            # Once for all that come back together.
            queue.failures += 1
            delay = retrying.backoff_ms(queue.failures) / 1000
            queue.retry_at = now + delay
            self._background.later(delay + CLOCK_RESOLUTION, partial(self.push, queue))
            if not (isinstance(error, BrokerError) and error.code in _NO_NEWS):
                self.topics.refresh(queue.topic)

    def _replace(self, queue: PartitionQueue, batch: Batch, parts: list[Batch]) -> None:
        self._release(batch)
        for part in parts:
            self._reserve(part)
        if parts:
            queue.put_back(*parts)
        self._rest(queue)

    def _settle(self, queue: PartitionQueue, batch: Batch, error: ClientError | None = None) -> None:
        self._release(batch)
        if error is None:
            batch.settle()
        else:
            batch.fail(error)
        self._rest(queue)
        self.freed()

    def _release(self, batch: Batch) -> None:
        self._memory.used -= batch.size + BATCH_COST_BYTES
        batch.limit = 0
        batch.data, batch.records = bytearray(), []
        self._lingering.remove(batch)

    def _rest(self, queue: PartitionQueue) -> None:
        if not queue.waiting and not queue.in_flight:
            self._active.pop(queue, None)

    def _fail_queued(self, error: ClientError) -> None:
        """Fail what cannot be sent by any means."""
        for queue in list(self._active):
            while queue.waiting:
                self._settle(queue, queue.waiting.popleft(), error)

    # What a broker is waited for

    def _wait(self, broker: "_Broker", work: Callable[[], Awaitable[None]]) -> None:
        """Send nothing to the broker while `work` is awaited, and then all that waits."""

        async def wait() -> None:
            try:
                await work()
            finally:
                broker.is_waiting = False
            self._pump(broker)

        if not broker.is_waiting:
            broker.is_waiting = True
            self._background.start(wait())

    async def _open(self, broker: "_Broker") -> None:
        try:
            address = self._cluster.broker(broker.number)
            if address is None:
                raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker.number}")
            connection = await self._cluster.connect(address, lane=CONNECTION_LANE)
            broker.version = connection.version_for(ProduceRequest)
            broker.connection, broker.failures = connection, 0
        except AuthenticationError as error:
            self._fail_queued(error)
        except ClientError as error:
            broker.failures += 1
            for topic in {queue.topic for queue in broker.ready}:
                self._note(error, topic)
                self.topics.refresh(topic)
            await asyncio.sleep(retrying.backoff_ms(broker.failures) / 1000)

    async def _until_free(self, connection: Connection) -> None:
        try:
            await connection.until_free()
        except ClientError:
            # The connection is closed now, and the next one is opened.
            pass

    # The producer's id

    def _begin(self) -> None:
        if not self._is_beginning:
            self._is_beginning = True
            self._background.start(self._ask_for_identity())

    async def _ask_for_identity(self) -> None:
        try:
            self._identity = await ask_for_id(self._cluster, self._note)
        except ClientError as error:
            self._fail_queued(error)
        finally:
            self._is_beginning = False
        self._push(list(self._active))

    def _note(self, error: ClientError, topic: str | None = None) -> None:
        """Note why batches still wait; their delivery timeout ends the wait, and reports this."""
        for queue in self._active:
            if topic is None or queue.topic == topic:
                for batch in queue.waiting:
                    batch.last_error = error

    def _told(self, topics: Mapping[str, ClientError | None]) -> Collection[str]:
        """Brokers have said more about topics, or nothing; what waits for a leader still has to know."""
        for topic, error in topics.items():
            if error is not None:
                self._note(error, topic)
        waiting = [queue for queue in self._active if queue.topic in topics]
        self._push([queue for queue in waiting if queue.leader >= 0])
        return {
            queue.topic for queue in waiting if queue.waiting and (queue.leader < 0 or topics[queue.topic] is not None)
        }

    # Time

    def _expire(self) -> None:
        """End what has taken too long, and look again when the next may."""
        timeout_ms = self.settings.delivery_timeout_ms
        latest = self._loop.time() + CLOCK_RESOLUTION - timeout_ms / 1000
        remaining = []
        for queue in list(self._active):
            while queue.waiting and queue.waiting[0].created_at <= latest:
                batch = queue.waiting.popleft()
                why = f"; the last try: {batch.last_error}" if batch.last_error else ""
                error = TimedOutError(f"{queue}: no success within delivery.timeout.ms ({timeout_ms}){why}")
                self._settle(queue, batch, give_up(queue, batch, error).error)
            for batch in queue.in_flight:
                if not batch.is_settled and batch.created_at <= latest:
                    about = f"{queue}: the broker did not answer within delivery.timeout.ms ({timeout_ms})"
                    self._settle(queue, batch, TimedOutError(about, outcome_unknown=True))
            remaining += [each.created_at for each in (*queue.in_flight, *queue.waiting) if not each.is_settled]
        self._expiry_timer = None
        if remaining:
            self._expiry_timer = self._loop.call_at(min(remaining) + timeout_ms / 1000, self._expire)


Sent = tuple[PartitionQueue, Batch]


@dataclass(slots=True, eq=False)
class _Broker:
    """A broker: its connection, and the queues that are ready to be sent to it."""

    number: int
    connection: Connection | None = None
    version: int = 0
    in_flight: int = 0
    failures: int = 0
    is_waiting: bool = False
    """Whether it waits for a connection, for room in it, or because it is throttled."""
    ready: dict[PartitionQueue, None] = field(default_factory=dict)
    """Partitions that may be ready, the next one first."""


# Errors that say nothing about the leader of a partition.
_NO_NEWS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
