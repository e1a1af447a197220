"""The prefetcher fetches ahead of the application: it sends long polls to the leaders of its partitions while there is
room.

What to fetch is decided again whenever something has changed, in one place; a task only carries the decision out.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.client.admin.offsets import EARLIEST, LATEST
from penstock.client.cluster.cluster import Cluster, Target
from penstock.client.cluster.leaders import read_hint
from penstock.client.cluster.retries import TRIES_FOR_UNKNOWN, backoff_ms, may_pass
from penstock.client.consumer.fetched import FetchedBatches, Rules
from penstock.client.consumer.subscription import PartitionCursor, Subscription
from penstock.client.errors import ClientError, NoPositionError, UnknownTopicError, broker_error
from penstock.client.metadata import Broker, Topic
from penstock.client.plain.fetch import WantedPartition, fetch_request
from penstock.client.settings import ConsumerSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import DEFAULT_LIMIT
from penstock.protocol.schemas.fetch import FetchRequest, FetchResponse, NodeEndpoint, PartitionData

LANES: Final = 2
"""Fetches under way to one broker, each on a connection of its own: while one waits for news of quiet partitions,
another one brings what is there of those that have been read meanwhile."""
RETRY_MS: Final = 1_000
"""How long to wait before the next try where no other broker can help: a topic that does not exist, a missing
leader."""
DIVERGENCE_FROM: Final = 12
"""The version of Fetch from which on a broker reports where logs diverge (KIP-595)."""

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
"""Errors after which another broker may have to be asked."""


class Route(NamedTuple):
    """The broker that has a partition, and the names under which it is asked for."""

    broker: Broker
    topic_id: bytes
    leader_epoch: int
    is_leader: bool = True


class Asked(NamedTuple):
    cursor: PartitionCursor
    version: int
    offset: int
    route: Route


class Prefetcher:
    """`news` is called when a poll has something to return or to raise; `lost` when a position has to be looked up
    again; `crashed` with an unexpected error."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        subscription: Subscription,
        *,
        rules: Rules,
        news: Callable[[], None],
        lost: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self.partition_bytes = settings.max_partition_fetch_bytes
        """Bytes that one fetch takes of a partition."""
        self._cluster = cluster
        self._settings = settings
        self._subscription = subscription
        self._rules = rules
        self._news = news
        self._lost = lost
        self._crashed = crashed
        self._loop = asyncio.get_running_loop()
        self._routes: dict[PartitionCursor, Route] = {}
        self._epochs: dict[PartitionCursor, int] = {}
        self._lanes: dict[int, set[int]] = {}
        self._throttled: dict[int, float] = {}
        """Until when nothing is fetched of a broker, because the broker has asked for a pause."""
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
        """Decide again what to fetch: partitions, positions or the free room have changed."""
        if self._is_closed:
            return
        now = self._loop.time()
        wanted: dict[Broker, list[Asked]] = {}
        has_unrouted = False
        earliest = 0.0
        for cursor in self._subscription.cursors.values():
            if not cursor.wants_fetch or cursor.queued_bytes >= self.partition_bytes:
                continue
            if cursor.not_before > now:
                earliest = min(earliest or cursor.not_before, cursor.not_before)
            elif (route := self._routes.get(cursor)) is None:
                has_unrouted = True
            else:
                asked = Asked(cursor, cursor.version, cursor.fetch_offset, route)
                wanted.setdefault(route.broker, []).append(asked)
        for broker in [each for each in wanted if self._throttled.get(each.id, 0.0) > now]:
            until = self._throttled[broker.id]
            earliest = min(earliest or until, until)
            del wanted[broker]
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

    # Routes: which broker has which partition

    async def _find_routes(self) -> None:
        """Find the brokers of all partitions that have no route."""
        try:
            missing = [each for each in self._subscription.cursors.values() if each not in self._routes]
            found = await self._cluster.topics({cursor.key.topic for cursor in missing})
            for cursor in missing:
                topic = found[cursor.key.topic]
                if cursor.is_revoked:
                    continue
                try:
                    if isinstance(topic, ClientError):
                        raise topic
                    partition = topic.partition(cursor.key.partition)
                except ClientError as error:
                    self._postpone(cursor, RETRY_MS)
                    # A group finds out by itself that a topic is gone, and an outage may be over soon.
                    is_for_group = isinstance(error, UnknownTopicError) and self._subscription.wanted is not None
                    if not is_for_group and not may_pass(error, TRIES_FOR_UNKNOWN, repeatable=True):
                        cursor.error = error
                    continue
                broker = self._cluster.broker(partition.leader)
                if broker is None:
                    self._postpone(cursor, backoff_ms(1))
                    await self._cluster.topics([cursor.key.topic], fresh=True)
                    continue
                self._set_route(cursor, topic, broker)
        finally:
            self._routing = None
        self._forget_revoked()
        if any(cursor.error is not None for cursor in missing):
            self._news()
        self.wake()

    def _set_route(self, cursor: PartitionCursor, topic: Topic, leader: Broker) -> None:
        epoch = topic.partition(cursor.key.partition).leader_epoch
        if self._epochs.get(cursor, epoch) != epoch:
            cursor.validates = cursor.fetch_epoch >= 0
        self._epochs[cursor] = epoch
        self._routes[cursor] = Route(leader, topic.topic_id, epoch)

    def _follow(self, asked: Asked, refusal: PartitionData, endpoints: Sequence[NodeEndpoint]) -> bool:
        """Fetch from the leader that a refusal names (KIP-951). False if metadata has to be asked for."""
        key = asked.cursor.key
        hint = read_hint(asked.route.topic_id, key.partition, refusal, endpoints)
        topic = None if hint is None else self._cluster.take_hint(key.topic, hint)
        leader = None if hint is None else self._cluster.broker(hint.leader)
        if topic is None or leader is None:
            return False
        self._set_route(asked.cursor, topic, leader)
        return True

    def _forget_revoked(self) -> None:
        for known in (self._routes, self._epochs):
            for cursor in [each for each in known if each.is_revoked]:
                del known[cursor]

    def _postpone(self, cursor: PartitionCursor, milliseconds: float) -> None:
        cursor.not_before = self._loop.time() + milliseconds / 1000

    async def _lost_the_way(self, asked: Sequence[Asked]) -> None:
        """Drop routes that led to the wrong broker, and ask for new metadata."""
        for each in asked:
            if self._routes.get(each.cursor) is each.route:
                del self._routes[each.cursor]
        await self._cluster.topics({each.cursor.key.topic for each in asked}, fresh=True)

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
            each.cursor.asked_version = each.version
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
            # On all lanes: the quota is the client's, not the connection's (KIP-219).
            self._throttled[broker.id] = max(self._throttled.get(broker.id, 0.0), connection.throttled_until)
            lost = self._read(response, asked)
            self._failures = 0
            if lost:
                await self._lost_the_way(lost)
        except ClientError:
            self._failures += 1
            for each in asked:
                self._postpone(each.cursor, backoff_ms(self._failures))
            await self._lost_the_way(asked)
        finally:
            self._lanes[broker.id].discard(lane)
            self._reserved_bytes -= most
            for each in asked:
                if each.cursor.asked_version == each.version:
                    each.cursor.asked_version = -1
        self._news()
        self.wake()

    def _request(self, asked: Sequence[Asked], most: int, *, tells_divergence: bool) -> FetchRequest:
        settings = self._settings
        return fetch_request(
            [
                WantedPartition(
                    Target(cursor.key.topic, route.topic_id, cursor.key.partition, route.leader_epoch),
                    offset,
                    cursor.fetch_epoch if cursor.validates and tells_divergence else -1,
                )
                for cursor, _, offset, route in asked
            ],
            max_bytes=most,
            partition_max_bytes=self.partition_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            read_committed=settings.isolation_level == "read_committed",
            rack_id=settings.client_rack,
        )

    def _read(self, response: FetchResponse, asked: Sequence[Asked]) -> list[Asked]:
        """Queue what came; returns the partitions for which another broker has to be asked."""
        if response.error_code:
            raise broker_error(response.error_code, "a fetch")
        # The reply names its topics as the request did: by id from version 13 on, by name before.
        by_name = {(each.cursor.key.topic, each.cursor.key.partition): each for each in asked}
        by_id = {(each.route.topic_id, each.cursor.key.partition): each for each in asked}
        lost = []
        for topic in response.responses:
            for data in topic.partitions:
                index = data.partition_index
                each = by_name.get((topic.topic, index)) if topic.topic else by_id.get((topic.topic_id, index))
                if each is None or each.cursor.version != each.version:
                    continue
                if data.error_code and self._follow(each, data, response.node_endpoints):
                    continue
                if not self._read_partition(each, data):
                    lost.append(each)
        return lost

    def _read_partition(self, asked: Asked, data: PartitionData) -> bool:
        cursor = asked.cursor
        code = data.error_code
        if code == ErrorCode.NONE:
            cursor.high_watermark = data.high_watermark
            cursor.last_stable_offset = data.last_stable_offset
            cursor.log_start_offset = data.log_start_offset
            if data.diverging_epoch.end_offset >= 0:
                self._log_was_cut_off(cursor, data.diverging_epoch.end_offset)
            elif data.preferred_read_replica >= 0 and asked.route.is_leader:
                return self._read_nearby(asked, data.preferred_read_replica)
            else:
                cursor.validates = False
                cursor.resets = 0
                self._queue(asked, data)
            return True
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and asked.route.is_leader:
            self._out_of_range(cursor, asked.offset)
            return True
        error = broker_error(code, str(cursor.key))
        passes = error.code in _PASSING or error.code.retriable or code == ErrorCode.OFFSET_OUT_OF_RANGE
        self._postpone(cursor, backoff_ms(1) if passes else RETRY_MS)
        if not passes:
            cursor.error = error
        return not passes

    def _queue(self, asked: Asked, data: PartitionData) -> None:
        # A broker may leave records out, but never sends null for them.
        records = memoryview(data.records or b"")  # type: ignore[arg-type]
        if not records:
            return
        cursor = asked.cursor
        is_committed_only = self._settings.isolation_level == "read_committed"
        fetched = FetchedBatches(
            cursor.key,
            asked.offset,
            records,
            self._rules,
            aborted=data.aborted_transactions if is_committed_only else None,
            log_end=data.high_watermark,
        )
        self._subscription.arrived(cursor, fetched)

    def _read_nearby(self, asked: Asked, replica: int) -> bool:
        """The leader knows a replica in the consumer's rack (KIP-392). An error there leads back to the leader."""
        broker = self._cluster.broker(replica)
        if broker is not None:
            self._routes[asked.cursor] = asked.route._replace(broker=broker, is_leader=False)
        return broker is not None

    def _out_of_range(self, cursor: PartitionCursor, offset: int) -> None:
        if offset != cursor.position:
            # Messages before it are still to be polled.
            self._postpone(cursor, RETRY_MS)
        elif (reset := RESETS[self._settings.auto_offset_reset]) is not None:
            self._pause_between_resets(cursor)
            self._subscription.look_up(cursor, reset)
            self._lost()
        else:
            cursor.error = NoPositionError(
                f"{cursor.key}: the log does not hold offset {offset} any more, or not yet; `seek` to another one, or "
                "say by auto.offset.reset=earliest or latest where to go on",
                cursor.key,
            )

    def _log_was_cut_off(self, cursor: PartitionCursor, end_offset: int) -> None:
        """The records read last were lost with their leader before they were replicated: others stand at their offsets
        now."""
        self._pause_between_resets(cursor)
        if end_offset >= cursor.position:
            self._subscription.refetch(cursor)
        elif RESETS[self._settings.auto_offset_reset] is not None:
            self._subscription.seek(cursor, end_offset)
        else:
            cursor.error = NoPositionError(
                f"{cursor.key}: the log was cut off at offset {end_offset} and we were at {cursor.position}; "
                "messages in between were lost, or replaced by others: `seek` to where to go on",
                cursor.key,
            )

    def _pause_between_resets(self, cursor: PartitionCursor) -> None:
        """A log that does not hold what its own broker says it holds is not asked again and again without a pause."""
        if cursor.resets:
            self._postpone(cursor, backoff_ms(cursor.resets))
        cursor.resets += 1
