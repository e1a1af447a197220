"""Fetching ahead of the application: long polls to the brokers that lead its partitions, as far as there is room.

What to fetch is decided anew whenever something has changed, in one place and at once; a task only carries it out.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.client.admin import EARLIEST, LATEST
from penstock.client.cluster import Cluster
from penstock.client.decoding import Segment
from penstock.client.errors import ClientError, CorruptBatchError, NoPositionError, UnknownTopicError, broker_error
from penstock.client.metadata import Broker
from penstock.client.retrying import TRIES_FOR_UNKNOWN, backoff_ms, may_pass
from penstock.client.settings import ConsumerSettings
from penstock.client.subscription import Reading, Subscription
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import DEFAULT_LIMIT
from penstock.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

LANES: Final = 2
"""Fetches under way to one broker, each on a connection of its own: while one waits for news of quiet partitions,
another one brings what is there of those that have been read meanwhile."""
RETRY_MS: Final = 1_000
"""How long something that nobody can help waits to be tried again: a topic that does not exist, a missing leader."""
DIVERGENCE_FROM: Final = 12
"""The version of Fetch from which on a broker tells where logs part."""

RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}

_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which somebody else may have to be asked."""


class Route(NamedTuple):
    """Who has a partition, and under which names it is asked for."""

    broker: Broker
    topic_id: bytes
    leader_epoch: int
    is_leader: bool = True


class Asked(NamedTuple):
    reading: Reading
    version: int
    offset: int
    route: Route


class Prefetcher:
    """`news` is called when something has arrived, or gone wrong, that a poll has to tell; `lost` when a position has
    to be looked up anew; `crashed` with what nobody expected."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        *,
        news: Callable[[], None],
        lost: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self.partition_bytes = settings.max_partition_fetch_bytes
        """What is fetched of a partition at a time."""
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._news = news
        self._lost = lost
        self._crashed = crashed
        self._loop = asyncio.get_running_loop()
        self._routes: dict[Reading, Route] = {}
        self._epochs: dict[Reading, int] = {}
        self._lanes: dict[int, set[int]] = {}
        self._reserved_bytes = 0
        self._failures = 0
        self._fetches: set[asyncio.Task[None]] = set()
        self._routing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._fetches, *([self._routing] if self._routing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Something has changed that may call for a fetch: partitions, positions, or the room that there is."""
        if self._is_closed:
            return
        now = self._loop.time()
        wanted: dict[Broker, list[Asked]] = {}
        has_unrouted = False
        earliest = 0.0
        for reading in self._subscription.readings.values():
            if not reading.wants_fetch or reading.queued_bytes >= self.partition_bytes:
                continue
            if reading.not_before > now:
                earliest = min(earliest or reading.not_before, reading.not_before)
            elif (route := self._routes.get(reading)) is None:
                has_unrouted = True
            else:
                asked = Asked(reading, reading.version, reading.fetch_offset, route)
                wanted.setdefault(route.broker, []).append(asked)
        if has_unrouted and self._routing is None:
            self._routing = self._loop.create_task(self._find_routes())
            self._routing.add_done_callback(self._ended)
        if earliest:
            self._wake_at(earliest)
        for broker, partitions in wanted.items():
            self._begin(broker, partitions)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self.wake)

    # Who has what

    async def _find_routes(self) -> None:
        """For all partitions that have none."""
        try:
            missing = [each for each in self._subscription.readings.values() if each not in self._routes]
            found = await self._cluster.topics({reading.key.topic for reading in missing})
            for reading in missing:
                topic = found[reading.key.topic]
                if reading.is_revoked:
                    continue
                try:
                    if isinstance(topic, ClientError):
                        raise topic
                    partition = topic.partition(reading.key.partition)
                except ClientError as error:
                    self._postpone(reading, RETRY_MS)
                    # A group finds out by itself that a topic is gone, and an outage may be over soon.
                    is_for_group = isinstance(error, UnknownTopicError) and self._subscription.wanted is not None
                    if not is_for_group and not may_pass(error, TRIES_FOR_UNKNOWN, repeatable=True):
                        reading.error = error
                    continue
                broker = self._cluster.broker(partition.leader)
                if broker is None:
                    self._postpone(reading, backoff_ms(1))
                    await self._cluster.topics([reading.key.topic], fresh=True)
                    continue
                if self._epochs.get(reading, partition.leader_epoch) != partition.leader_epoch:
                    reading.validates = reading.fetch_epoch >= 0
                self._epochs[reading] = partition.leader_epoch
                self._routes[reading] = Route(broker, topic.topic_id, partition.leader_epoch)
        finally:
            self._routing = None
        self._forget_revoked()
        if any(reading.error is not None for reading in missing):
            self._news()
        self.wake()

    def _forget_revoked(self) -> None:
        for known in (self._routes, self._epochs):
            for reading in [each for each in known if each.is_revoked]:
                del known[reading]

    def _postpone(self, reading: Reading, milliseconds: float) -> None:
        reading.not_before = self._loop.time() + milliseconds / 1000

    async def _lost_the_way(self, asked: Sequence[Asked]) -> None:
        """Nobody is where they were thought to be."""
        for each in asked:
            if self._routes.get(each.reading) is each.route:
                del self._routes[each.reading]
        await self._cluster.topics({each.reading.key.topic for each in asked}, fresh=True)

    # Fetches

    def _begin(self, broker: Broker, asked: list[Asked]) -> None:
        busy = self._lanes.setdefault(broker.id, set())
        lane = next((number for number in range(LANES) if number not in busy), None)
        settings = self._settings
        room = settings.queued_max_bytes - self._subscription.queued_bytes - self._reserved_bytes
        if lane is None or room <= 0:
            return
        # A reply over the frame limit would close the connection.
        most = min(settings.fetch_max_bytes, self.partition_bytes * len(asked), DEFAULT_LIMIT // 2, room)
        busy.add(lane)
        self._reserved_bytes += most
        for each in asked:
            each.reading.asked_version = each.version
        task = self._loop.create_task(self._fetch(broker, lane, asked, most))
        self._fetches.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._fetches.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crashed(error)

    async def _fetch(self, broker: Broker, lane: int, asked: list[Asked], most: int) -> None:
        wait_ms = self._settings.fetch_max_wait_ms
        try:
            connection = await self._cluster.connect(broker, lane=f"fetch-{lane}")
            request = self._request(
                asked, most, tells_divergence=connection.version_for(FetchRequest) >= DIVERGENCE_FROM
            )
            response = await connection.request(request, timeout_ms=self._cluster.request_timeout_ms + wait_ms)
            lost = self._read(response, asked)
            self._failures = 0
            if lost:
                await self._lost_the_way(lost)
        except ClientError:
            self._failures += 1
            for each in asked:
                self._postpone(each.reading, backoff_ms(self._failures))
            await self._lost_the_way(asked)
        finally:
            self._lanes[broker.id].discard(lane)
            self._reserved_bytes -= most
            for each in asked:
                if each.reading.asked_version == each.version:
                    each.reading.asked_version = -1
        self._news()
        self.wake()

    def _request(self, asked: Sequence[Asked], most: int, *, tells_divergence: bool) -> FetchRequest:
        settings = self._settings
        topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
        for reading, _, offset, route in asked:
            topics.setdefault((reading.key.topic, route.topic_id), []).append(
                FetchPartition(
                    partition=reading.key.partition,
                    current_leader_epoch=route.leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=reading.fetch_epoch if reading.validates and tells_divergence else -1,
                    partition_max_bytes=min(self.partition_bytes, most),
                )
            )
        return FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=most,
            isolation_level=int(settings.isolation_level == "read_committed"),
            topics=[FetchTopic(topic=name, topic_id=id, partitions=each) for (name, id), each in topics.items()],
            rack_id=settings.client_rack,
        )

    def _read(self, response: FetchResponse, asked: Sequence[Asked]) -> list[Asked]:
        """Queue what came; returns those for which somebody else has to be asked."""
        if response.error_code:
            raise broker_error(response.error_code, "a fetch")
        # The reply names its topics as the request did: by id from version 13 on, by name before.
        by_name = {(each.reading.key.topic, each.reading.key.partition): each for each in asked}
        by_id = {(each.route.topic_id, each.reading.key.partition): each for each in asked}
        lost = []
        for topic in response.responses:
            for data in topic.partitions:
                index = data.partition_index
                each = by_name.get((topic.topic, index)) if topic.topic else by_id.get((topic.topic_id, index))
                if each is None or each.reading.version != each.version:
                    continue
                if not self._read_partition(each, data):
                    lost.append(each)
        return lost

    def _read_partition(self, asked: Asked, data: PartitionData) -> bool:
        reading = asked.reading
        code = data.error_code
        if code == ErrorCode.NONE:
            reading.high_watermark = data.high_watermark
            reading.last_stable_offset = data.last_stable_offset
            reading.log_start_offset = data.log_start_offset
            if data.diverging_epoch.end_offset >= 0:
                self._log_was_cut_off(reading, data.diverging_epoch.end_offset)
            elif data.preferred_read_replica >= 0 and asked.route.is_leader:
                return self._read_nearby(asked, data.preferred_read_replica)
            else:
                reading.validates = False
                self._queue(asked, data)
            return True
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and asked.route.is_leader:
            self._out_of_range(reading, asked.offset)
            return True
        error = broker_error(code, str(reading.key))
        passes = error.code in _PASSING or error.code.retriable or code == ErrorCode.OFFSET_OUT_OF_RANGE
        self._postpone(reading, backoff_ms(1) if passes else RETRY_MS)
        if not passes:
            reading.error = error
        return not passes

    def _queue(self, asked: Asked, data: PartitionData) -> None:
        # A broker may leave records out, but never sends null for them.
        records = memoryview(data.records or b"")  # type: ignore[arg-type]
        if not records:
            return
        reading = asked.reading
        is_committed_only = self._settings.isolation_level == "read_committed"
        try:
            segment = Segment(
                reading.key,
                asked.offset,
                records,
                check_crcs=self._settings.check_crcs,
                aborted=data.aborted_transactions if is_committed_only else None,
            )
        except CorruptBatchError as error:
            reading.error = error
            self._postpone(reading, RETRY_MS)
            return
        self._subscription.arrived(reading, segment)

    def _read_nearby(self, asked: Asked, replica: int) -> bool:
        """The leader knows a replica in our rack (KIP-392). An error there leads back to the leader."""
        broker = self._cluster.broker(replica)
        if broker is not None:
            self._routes[asked.reading] = asked.route._replace(broker=broker, is_leader=False)
        return broker is not None

    def _out_of_range(self, reading: Reading, offset: int) -> None:
        if offset != reading.position:
            # Messages before it are still to be polled.
            self._postpone(reading, RETRY_MS)
        elif (reset := RESETS[self._settings.auto_offset_reset]) is not None:
            self._subscription.look_up(reading, reset)
            self._lost()
        else:
            reading.error = NoPositionError(
                f"{reading.key}: the log does not hold offset {offset} any more, or not yet; `seek` to another one, or "
                "say by auto.offset.reset=earliest or latest where to go on",
                reading.key,
            )

    def _log_was_cut_off(self, reading: Reading, end_offset: int) -> None:
        """What we have read last was lost with its leader before others had it: something else stands there now."""
        if end_offset >= reading.position:
            self._subscription.refetch(reading)
        elif RESETS[self._settings.auto_offset_reset] is not None:
            self._subscription.seek(reading, end_offset)
        else:
            reading.error = NoPositionError(
                f"{reading.key}: the log was cut off at offset {end_offset} and we were at {reading.position}; "
                "messages in between were lost, or replaced by others: `seek` to where to go on",
                reading.key,
            )
