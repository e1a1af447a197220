"""The replicator copies the logs of partitions that other brokers lead: one loop of fetches for each leader.

A loop fetches, appends what came, has it flushed, and fetches on: the offset that it asks for next says what this
broker has for good. Requests name only partitions whose offset has moved. While one waits at the leader, the next may
follow it, if other partitions have something to say; the leader ends the wait then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.broker.engine.turn import Turn
from penstock.broker.log_rates import RatedLog
from penstock.broker.network.peer import PeerError
from penstock.broker.network.peers import Peers
from penstock.broker.partitions.partition import Partition
from penstock.machines.flush_urgency import Urgency
from penstock.machines.partition_follower import Append, FetchFrom, PartitionFollower, StartAt, Truncate, Wait
from penstock.machines.replica_sessions import FIRST_EPOCH, Key
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from penstock.storage.errors import StorageError

log = RatedLog(logging.getLogger(__name__))

# How long a fetch waits at the leader while there is nothing to fetch.
WAIT_MS: Final = 500
# A leader that does not answer for so much longer is cut off.
PATIENCE_SECONDS: Final = 5.0
# After an error of a partition, or of the leader.
PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 1.0
# More would not fit the buffers that connections use again.
MAX_BYTES: Final = 4 * 1024 * 1024
PARTITION_BYTES: Final = 1024 * 1024
# Bytes that are appended in one turn of the loop, and answers that are looked at: each is of a partition.
BYTES_AT_ONCE: Final = 1024 * 1024
ANSWERS_AT_ONCE: Final = 100
# Partitions that one request names: thousands may have changed, and the next request has the others.
MOST_NAMED: Final = 1000
# Requests under way to one leader.
MOST_UNDER_WAY: Final = 2
NO_SESSION: Final = 0


class Replicator:
    """`follow` and `forget` partitions; `close` ends all loops."""

    def __init__(
        self,
        node_id: int,
        peers: Callable[[], Peers],
        turn: Turn,
        now_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.node_id = node_id
        self.peers = peers
        self.turn = turn
        self.now_ms = now_ms
        self.broker_epoch = broker_epoch
        self.loop = asyncio.get_running_loop()
        self._loops: dict[int, _LeaderLoop] = {}
        self._leaders: dict[Partition, int] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def follow(self, partition: Partition) -> None:
        """Copy a partition from the leader that its follower's state names."""
        assert partition.follower is not None
        self.forget(partition)
        if self._is_closed:
            return
        leader_id = partition.follower.leader_id
        self._leaders[partition] = leader_id
        partition.when_flushed = self._flushed
        if leader_id not in self._loops:
            self._loops[leader_id] = _LeaderLoop(self, leader_id)
        self._loops[leader_id].add(partition)

    def forget(self, partition: Partition) -> None:
        leader_id = self._leaders.pop(partition, None)
        if leader_id is None:
            return
        partition.when_flushed = None
        loop = self._loops[leader_id]
        loop.remove(partition)
        if loop.is_idle:
            del self._loops[leader_id]
            self._ending.add(loop.task)
            loop.task.add_done_callback(self._ending.discard)
            loop.task.cancel()

    async def close(self) -> None:
        self._is_closed = True
        tasks = [loop.task for loop in self._loops.values()] + list(self._ending)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._loops.clear()
        self._leaders.clear()

    def _flushed(self, partition: Partition) -> None:
        leader_id = self._leaders.get(partition)
        if leader_id is not None:
            self._loops[leader_id].flushed(partition)


@dataclass(slots=True, eq=False)
class _Followed:
    partition: Partition
    follower: PartitionFollower
    fetch: FetchFrom | None = None
    # The number of the request that asks for it: replies to earlier ones say nothing about it.
    asked_in: int = 0
    pause: float = 0.0


class _LeaderLoop:
    """Fetches from one leader."""

    def __init__(self, replicator: Replicator, leader_id: int) -> None:
        self._replicator = replicator
        self._leader_id = leader_id
        self._followed: dict[Key, _Followed] = {}
        # Those that are to be named in the next request, and those that the leader may forget.
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._wake = asyncio.Event()
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        # The number of the request whose reply is next.
        self._next_reply = FIRST_EPOCH
        self.task = replicator.loop.create_task(self._run(), name=f"penstock-replicating-from-{leader_id}")
        self.task.add_done_callback(self._ended)

    @property
    def is_idle(self) -> bool:
        return not self._followed

    def add(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        assert partition.follower is not None
        self._followed[key] = _Followed(partition, partition.follower)
        self._forgotten.pop(key, None)
        self._name(key)
        if not partition.is_copied_durably:
            self._replicator.turn.wake_flusher(Urgency.PRODUCER)

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        if self._followed.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def flushed(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        if key in self._changed:
            self._wake.set()

    def _name(self, key: Key) -> None:
        """The partition is to be fetched from an offset that the leader does not know yet."""
        if key in self._followed:
            self._changed[key] = None
            self._wake.set()

    def _name_later(self, key: Key, followed: _Followed) -> None:
        followed.pause = min(max(2 * followed.pause, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        self._replicator.loop.call_later(followed.pause, self._name, key)

    # The loop

    async def _run(self) -> None:
        pause = 0.0
        while True:
            try:
                await self._fetch_on()
            except PeerError as error:
                pause = min(max(2 * pause, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
                facts = {"leader": self._leader_id, "error": str(error)}
                log.warning("a leader cannot be followed", owner=self._replicator, extra=facts)
            except Exception as error:
                # A fault of ours must not end the copying of all that this leader leads.
                pause = LONGEST_PAUSE_SECONDS
                facts = {"leader": self._leader_id}
                log.error("replication has failed", owner=self._replicator, extra=facts, exc_info=error)
            else:
                pause = 0.0
            self._start_over()
            await asyncio.sleep(pause)

    def _start_over(self) -> None:
        """The leader knows nothing of this broker any more: every partition is named again."""
        self._session_id, self._epoch, self._next_reply = NO_SESSION, FIRST_EPOCH, FIRST_EPOCH
        self._forgotten.clear()
        for key, followed in self._followed.items():
            if followed.fetch is not None:
                followed.follower.lost(followed.fetch)
                followed.fetch = None
            self._changed[key] = None
        self._wake.set()

    async def _fetch_on(self) -> None:
        """Fetch until the session ends. PeerError if the leader is gone."""
        under_way: deque[asyncio.Task[FetchResponse]] = deque()
        waking: asyncio.Task[bool] | None = None
        try:
            while True:
                has_more = self._has_changed()
                if len(under_way) < MOST_UNDER_WAY and (has_more or not under_way):
                    if not has_more and not self._followed:
                        await self._wake.wait()
                        self._wake.clear()
                        continue
                    under_way.append(asyncio.ensure_future(self._request()))
                    # The next one is not sent before this one.
                    await asyncio.sleep(0)
                    continue
                self._wake.clear()
                if len(under_way) < MOST_UNDER_WAY:
                    waking = asyncio.ensure_future(self._wake.wait())
                    await asyncio.wait([under_way[0], waking], return_when=asyncio.FIRST_COMPLETED)
                    waking.cancel()
                    if not under_way[0].done():
                        continue
                response = await under_way.popleft()
                if response.error_code:
                    return
                self._session_id = response.session_id
                await self._take(response)
                self._next_reply += 1
        finally:
            if waking is not None:
                waking.cancel()
            for task in under_way:
                task.cancel()
            if under_way:
                await asyncio.gather(*under_way, return_exceptions=True)

    def _has_changed(self) -> bool:
        return bool(self._forgotten) or any(self._followed[key].partition.is_copied_durably for key in self._changed)

    async def _request(self) -> FetchResponse:
        replicator = self._replicator
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=replicator.node_id, replica_epoch=replicator.broker_epoch()),
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=self._named(),
            forgotten_topics_data=self._no_longer_named(),
        )
        self._epoch += 1
        response: FetchResponse = await replicator.peers().request(
            self._leader_id, request, timeout=WAIT_MS / 1000 + PATIENCE_SECONDS, purpose="replication"
        )
        return response

    def _named(self) -> list[FetchTopic]:
        topics: dict[bytes, list[FetchPartition]] = {}
        named = 0
        for key in list(self._changed):
            if named >= MOST_NAMED:
                break
            followed = self._followed[key]
            partition = followed.partition
            if not partition.is_copied_durably:
                # Its flush is under way.
                continue
            del self._changed[key]
            if followed.fetch is not None and followed.fetch.log_start < partition.log.start_offset:
                # It is made again, to say where the log begins now, and only the answer to the second one counts.
                followed.follower.lost(followed.fetch)
            fetch = followed.follower.fetch(
                durable_end=partition.log.end_offset,
                last_record_epoch=partition.log.last_record_epoch,
                log_start=partition.log.start_offset,
            )
            if fetch is None or partition.log.failure is not None:
                continue
            followed.fetch, followed.asked_in = fetch, self._epoch
            named += 1
            topics.setdefault(key[0], []).append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=fetch.last_fetched_epoch,
                    log_start_offset=fetch.log_start,
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        return [FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]

    def _no_longer_named(self) -> list[ForgottenTopic]:
        topics: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            topics.setdefault(topic_id, []).append(index)
        self._forgotten.clear()
        return [ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]

    # Replies

    async def _take(self, response: FetchResponse) -> None:
        """Do what the answers ask for, a few in a turn of the loop."""
        appended = answers = 0
        for topic in response.responses:
            for data in topic.partitions:
                answers += 1
                key = (topic.topic_id, data.partition_index)
                followed = self._followed.get(key)
                if followed is None or followed.fetch is None:
                    continue
                try:
                    appended += self._take_part(key, followed, data)
                except (OSError, StorageError, DecodeError) as error:
                    facts = {"partition": followed.partition.name, "leader": self._leader_id, "error": str(error)}
                    log.error("a copy could not be written", owner=followed.partition, extra=facts)
                    self._name_later(key, followed)
                if appended >= BYTES_AT_ONCE or answers >= ANSWERS_AT_ONCE:
                    if appended:
                        self._replicator.turn.wake_flusher(Urgency.PRODUCER)
                    appended = answers = 0
                    await asyncio.sleep(0)
        if appended:
            self._replicator.turn.wake_flusher(Urgency.PRODUCER)

    def _take_part(self, key: Key, followed: _Followed, data: PartitionData) -> int:
        """Returns how many bytes were appended."""
        partition, follower, fetch = followed.partition, followed.follower, followed.fetch
        assert fetch is not None
        now_ms, partition_log = self._replicator.now_ms(), partition.log
        records = data.records
        diverging = (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        has_parted = data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0
        if not data.error_code and not has_parted and not records:
            # What is told beside, while the fetch goes on waiting.
            partition.leader_told(data.high_watermark, data.log_start_offset)
            if partition_log.start_offset > fetch.log_start:
                self._name(key)
            return 0
        if followed.asked_in > self._next_reply:
            # It answers a fetch of an earlier epoch of the leader.
            return 0
        followed.fetch = None
        step = follower.answered(
            fetch,
            error=ErrorCode(data.error_code),
            diverging=diverging if has_parted else None,
            leader_log_start=data.log_start_offset,
            epochs=partition_log.epochs,
            log_start=partition_log.start_offset,
            log_end=partition_log.end_offset,
        )
        size = 0
        match step:
            case Append():
                assert isinstance(records, memoryview)
                partition.append_copied(records, now_ms)
                size = len(records)
                partition.leader_told(data.high_watermark, data.log_start_offset)
                followed.pause = 0.0
            case Truncate():
                self._note_cut(partition, step.offset)
                partition.cut(step.offset, now_ms)
            case StartAt():
                self._note_cut(partition, step.offset)
                partition.begin_anew(step.offset)
            case Wait():
                self._name_later(key, followed)
                return 0
        self._name(key)
        return size

    def _note_cut(self, partition: Partition, offset: int) -> None:
        facts = {"partition": partition.name, "leader": self._leader_id, "end": partition.log.end_offset, "to": offset}
        logging.getLogger(__name__).info("a copy is cut to what its leader has", extra=facts)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            facts = {"leader": self._leader_id}
            log.error("replication has failed", owner=self._replicator, extra=facts, exc_info=error)
