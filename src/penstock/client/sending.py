"""Batches to their brokers: a few requests in flight to each, what fails sent again in order, and every wait ends.

Deciding is done elsewhere (`accumulator`, `sequencing`); here are the connections, the requests and the timers. No task
is made for a request: it is sent where its batches become ready, and its answer dealt with where it comes in.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from penstock.client import retrying
from penstock.client.accumulator import BATCH_COST_BYTES, Batch, Memory, Outbox, next_rank
from penstock.client.background import Background
from penstock.client.cluster import Cluster
from penstock.client.compressing import Compressor
from penstock.client.connection import Connection
from penstock.client.errors import (
    AuthenticationError,
    BadReplyError,
    BrokerError,
    ClientError,
    TimedOutError,
    UnsendableError,
)
from penstock.client.lingering import CLOCK_RESOLUTION, Lingering
from penstock.client.producer_ids import ask_for_id
from penstock.client.sequencing import Judgement, Verdict, give_up, halve, judge, judge_loss, leave_out
from penstock.client.settings import ProducerSettings
from penstock.client.topic_views import TopicViews
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

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
        self._active: dict[Outbox, None] = {}
        """Those with something to send, or in flight."""
        self._brokers: dict[int, _Broker] = {}
        self._most_in_flight = settings.max_in_flight_requests_per_connection
        self._identity: tuple[int, int] | None = None
        self._is_beginning = False
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    # What the producer asks for

    def batch_for(self, outbox: Outbox, size: int) -> Batch:
        """The batch that takes a record of this size, where the last one is full or there is none. A full one is sent;
        if that cannot be, because its broker is busy, it goes on growing, up to the size of a request."""
        full = outbox.last
        if full.limit:
            if not full.is_due:
                full.is_due = True
                self._lingering.remove(full)
                self.push(outbox)
            if full.limit:
                full.limit = min(outbox.largest, self.settings.max_request_size - REQUEST_BYTES)
                if full.size + size <= full.limit:
                    return full
                full.close()
                self.compressor.begin(full, partial(self._compressed, outbox, full))
        batch = self.new_batch(outbox)
        batch.limit = min(outbox.largest, self.settings.batch_size)
        outbox.last = batch
        self._enqueue(outbox, batch)
        self._lingering.add(outbox, batch)
        return batch

    def new_batch(self, outbox: Outbox, data: memoryview | None = None, count: int = 0) -> Batch:
        """One that its maker fills, or that is written already, until he puts it in line with `enqueue`."""
        now = self._loop.time()
        batch = Batch(outbox.topic, outbox.partition, now)
        if data is not None:
            batch = Batch.of(outbox.topic, outbox.partition, data, count, now)
        self._reserve(batch)
        return batch

    def enqueue(self, outbox: Outbox, batch: Batch) -> None:
        """A closed batch takes its place in the line, and is sent without waiting for more."""
        # What came before it stays before it.
        if outbox.last.limit:
            outbox.last.close()
            self._lingering.remove(outbox.last)
        batch.rank = next_rank()
        self._enqueue(outbox, batch)
        self.compressor.begin(batch, partial(self._compressed, outbox, batch))
        self.push(outbox)

    def push(self, outbox: Outbox) -> None:
        """Send what can be sent now."""
        if (broker := self._mark(outbox)) is not None:
            self._pump(broker)

    def push_all(self) -> list[Batch]:
        """Send all that there is without waiting for more, and say what that is."""
        batches = []
        for outbox in self._active:
            for batch in outbox.queue:
                batch.is_due = True
            batches += outbox.in_flight
            batches += outbox.queue
        self._push(list(self._active))
        return batches

    async def stop(self) -> None:
        """End everything; what is not sent by now fails."""
        self._is_closed = True
        self._lingering.close()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        await self._background.end()
        self.compressor.close()
        for outbox in list(self._active):
            for batch in (*outbox.in_flight, *outbox.queue):
                in_doubt = batch.in_doubt or batch in outbox.in_flight
                what = "may or may not be written" if in_doubt else "was not sent"
                error = ClientError(
                    f"{outbox}: the producer was closed before the broker had answered: the message {what}; give "
                    "close() more time",
                    outcome_unknown=in_doubt,
                )
                if not batch.is_settled:
                    self._settle(outbox, batch, error)
        self._active.clear()

    # Batches on their way

    def _enqueue(self, outbox: Outbox, batch: Batch) -> None:
        outbox.queue.append(batch)
        self._active[outbox] = None
        if self._expiry_timer is None:
            timeout = self.settings.delivery_timeout_ms / 1000
            self._expiry_timer = self._loop.call_at(batch.created_at + timeout, self._expire)

    def _reserve(self, batch: Batch) -> None:
        """What is appended later counts with it, and is counted by who appends."""
        self._memory.used += batch.size + BATCH_COST_BYTES

    def _mark(self, outbox: Outbox) -> "_Broker | None":
        if outbox.leader < 0:
            self.topics.refresh(outbox.topic)
            return None
        broker = self._brokers.get(outbox.leader)
        if broker is None:
            broker = self._brokers[outbox.leader] = _Broker(outbox.leader)
        broker.ready[outbox] = None
        return broker

    def _push(self, outboxes: Iterable[Outbox]) -> None:
        """Together, so that one request can take what goes to one broker."""
        for broker in {self._mark(outbox): None for outbox in outboxes}:
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
            broker.ready = {each: None for each in broker.ready if each.leader == broker.number and each.queue}
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
        """The next batch of each partition whose turn it is, as many as one request takes."""
        now = self._loop.time()
        room = self.settings.max_request_size
        collected: list[Sent] = []
        for outbox in list(broker.ready):
            batch = outbox.first_sendable(now) if outbox.leader == broker.number else None
            if batch is None or not self._is_finished(outbox, batch):
                # Whatever is in the way, whoever takes it away pushes again.
                del broker.ready[outbox]
                continue
            if collected and len(batch.data) > room:
                break
            if self._identity is not None and outbox.spent_id == self._identity[0]:
                self._identity = None
                self._begin()
                break
            room -= len(batch.data)
            outbox.send(batch, self._identity)
            collected.append((outbox, batch))
            # To the end of the line: others come first, next time.
            del broker.ready[outbox]
            if outbox.queue:
                broker.ready[outbox] = None
        return collected

    def _is_finished(self, outbox: Outbox, batch: Batch) -> bool:
        """Nothing more comes in, and it is compressed; that may take a while."""
        if not batch.is_closed:
            batch.close()
            self._lingering.remove(batch)
        return self.compressor.is_compressed(batch, partial(self._compressed, outbox, batch))

    def _compressed(self, outbox: Outbox, batch: Batch, error: Exception | None) -> None:
        if error is not None and batch in outbox.queue:
            outbox.queue.remove(batch)
            self._settle(outbox, batch, UnsendableError(f"{outbox}: the batch cannot be compressed: {error}"))
        self.push(outbox)

    def _transmit(self, broker: "_Broker", connection: Connection, sent: "list[Sent]") -> None:
        # From version 13 on topics come by id; a topic may be created anew, with another, before the answer comes.
        names: dict[bytes, str] = {}
        topics: dict[str, list[PartitionProduceData]] = {}
        for outbox, batch in sent:
            data = PartitionProduceData(index=outbox.partition, records=batch.data)
            topics.setdefault(outbox.topic, []).append(data)
            names[self.topics[outbox.topic].topic_id] = outbox.topic
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
        # Nobody will say whether it has come: it has left.
        for outbox, batch in sent:
            outbox.in_flight.remove(batch)
            self._settle(outbox, batch)

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
        if response.throttle_time_ms > 0:
            # It wants less.
            self._wait(broker, partial(asyncio.sleep, response.throttle_time_ms / 1000))
        answers = {
            (topic.name or names.get(topic.topic_id, ""), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for outbox, batch in sent:
            outbox.in_flight.remove(batch)
            answer = answers.get((outbox.topic, outbox.partition))
            if answer is None:
                about = f"{outbox}: the broker's answer does not mention it; its log may say why"
                judgement = judge_loss(outbox, batch, BadReplyError(about, outcome_unknown=True), retries=0)
            else:
                judgement = judge(outbox, batch, answer, retries=self.settings.retries)
                batch.base_offset, batch.append_time_ms = answer.base_offset, answer.log_append_time_ms
            self._carry_out(outbox, batch, judgement)
        self._go_on(broker, sent)

    def _take_losses(self, broker: "_Broker", sent: "list[Sent]", error: ClientError) -> None:
        """No answer will come: the connection is gone, or the request never went out."""
        for outbox, batch in sent:
            outbox.in_flight.remove(batch)
            own = type(error)(str(error), outcome_unknown=error.outcome_unknown)
            self._carry_out(outbox, batch, judge_loss(outbox, batch, own, retries=self.settings.retries))
        self._go_on(broker, sent)

    def _go_on(self, broker: "_Broker", sent: "list[Sent]") -> None:
        """With what waited for these answers: its leader may be another by now."""
        self._push([outbox for outbox, _ in sent if outbox.queue])
        self._pump(broker)

    def _carry_out(self, outbox: Outbox, batch: Batch, judgement: Judgement) -> None:
        error, level = judgement.error, self.settings.compression_level
        if batch.is_settled:
            # It took too long, and was given up while it was in flight.
            if judgement.verdict is not Verdict.DONE:
                outbox.leave_gap(batch, is_refused=not batch.in_doubt)
            self._rest(outbox)
            return
        match judgement.verdict:
            case Verdict.DONE:
                outbox.failures = 0
                self._settle(outbox, batch)
            case Verdict.FAILED:
                self._settle(outbox, batch, error)
            case Verdict.AGAIN:
                assert error is not None
                self._send_again(outbox, batch, error)
            case Verdict.SPLIT:
                self._replace(outbox, batch, halve(outbox, batch, level))
            case Verdict.PART:
                self._replace(outbox, batch, leave_out(batch, judgement.refused, level))

    def _send_again(self, outbox: Outbox, batch: Batch, error: ClientError) -> None:
        batch.last_error = error
        outbox.put_back(batch)
        now = self._loop.time()
        if outbox.retry_at <= now:
            # Once for all that come back together.
            outbox.failures += 1
            delay = retrying.backoff_ms(outbox.failures) / 1000
            outbox.retry_at = now + delay
            self._background.later(delay + CLOCK_RESOLUTION, partial(self.push, outbox))
            if not (isinstance(error, BrokerError) and error.code in _NO_NEWS):
                self.topics.refresh(outbox.topic)

    def _replace(self, outbox: Outbox, batch: Batch, parts: list[Batch]) -> None:
        self._release(batch)
        for part in parts:
            self._reserve(part)
        if parts:
            outbox.put_back(*parts)
        self._rest(outbox)

    def _settle(self, outbox: Outbox, batch: Batch, error: ClientError | None = None) -> None:
        self._release(batch)
        if error is None:
            batch.settle()
        else:
            batch.fail(error)
        self._rest(outbox)
        self.freed()

    def _release(self, batch: Batch) -> None:
        self._memory.used -= batch.size + BATCH_COST_BYTES
        batch.limit = 0
        batch.data, batch.records = bytearray(), []
        self._lingering.remove(batch)

    def _rest(self, outbox: Outbox) -> None:
        if not outbox.queue and not outbox.in_flight:
            self._active.pop(outbox, None)

    def _fail_queued(self, error: ClientError) -> None:
        """What cannot be sent, whatever we try."""
        for outbox in list(self._active):
            while outbox.queue:
                self._settle(outbox, outbox.queue.popleft(), error)

    # What a broker is waited for

    def _wait(self, broker: "_Broker", work: Callable[[], Awaitable[None]]) -> None:
        """Nothing is sent to it meanwhile, and then all that waits."""

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
            for topic in {outbox.topic for outbox in broker.ready}:
                self._note(error, topic)
                self.topics.refresh(topic)
            await asyncio.sleep(retrying.backoff_ms(broker.failures) / 1000)

    async def _until_free(self, connection: Connection) -> None:
        try:
            await connection.until_free()
        except ClientError:
            # It is closed now, and the next one is opened.
            pass

    # Who we are

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
        """Why what waits still does; its delivery timeout ends that, and tells."""
        for outbox in self._active:
            if topic is None or outbox.topic == topic:
                for batch in outbox.queue:
                    batch.last_error = error

    def _told(self, topics: Mapping[str, ClientError | None]) -> Collection[str]:
        """Brokers have said more about topics, or nothing; what waits for a leader still has to know."""
        for topic, error in topics.items():
            if error is not None:
                self._note(error, topic)
        waiting = [outbox for outbox in self._active if outbox.topic in topics]
        self._push([outbox for outbox in waiting if outbox.leader >= 0])
        return {
            outbox.topic
            for outbox in waiting
            if outbox.queue and (outbox.leader < 0 or topics[outbox.topic] is not None)
        }

    # Time

    def _expire(self) -> None:
        """End what has taken too long, and look again when the next may."""
        timeout_ms = self.settings.delivery_timeout_ms
        latest = self._loop.time() + CLOCK_RESOLUTION - timeout_ms / 1000
        remaining = []
        for outbox in list(self._active):
            while outbox.queue and outbox.queue[0].created_at <= latest:
                batch = outbox.queue.popleft()
                why = f"; the last try: {batch.last_error}" if batch.last_error else ""
                error = TimedOutError(f"{outbox}: no success within delivery.timeout.ms ({timeout_ms}){why}")
                self._settle(outbox, batch, give_up(outbox, batch, error).error)
            for batch in outbox.in_flight:
                if not batch.is_settled and batch.created_at <= latest:
                    about = f"{outbox}: the broker did not answer within delivery.timeout.ms ({timeout_ms})"
                    self._settle(outbox, batch, TimedOutError(about, outcome_unknown=True))
            remaining += [each.created_at for each in (*outbox.in_flight, *outbox.queue) if not each.is_settled]
        self._expiry_timer = None
        if remaining:
            self._expiry_timer = self._loop.call_at(min(remaining) + timeout_ms / 1000, self._expire)


Sent = tuple[Outbox, Batch]


@dataclass(slots=True, eq=False)
class _Broker:
    """The way to one broker."""

    number: int
    connection: Connection | None = None
    version: int = 0
    in_flight: int = 0
    failures: int = 0
    is_waiting: bool = False
    """For a connection, for it to take in more, or because it is throttled."""
    ready: dict[Outbox, None] = field(default_factory=dict)
    """Partitions whose turn it may be, the next one first."""


# Errors that say nothing about who leads a partition.
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
