"""Serves the followers of partitions that are led here: each has a session on its connection, and one fetch that waits.

A follower reads to the end of the log, committed or not. From where it fetches the leader learns what it has. A wait
ends when there is more, when its time is up, or when the follower sends the next fetch: it has something to say then.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.broker.engine.turn import Turn
from penstock.broker.log_rates import RatedLog
from penstock.broker.network.call import Call
from penstock.broker.partitions.deadlines import Deadlines
from penstock.broker.partitions.fetch_wait import Found, read_failed
from penstock.broker.partitions.partition import Partition
from penstock.broker.partitions.registry import Partitions
from penstock.machines.parting import parting
from penstock.machines.replica_sessions import FIRST_EPOCH, Key, Position, ReplicaPositions
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.storage.errors import OffsetOutOfRangeError, StorageError

log = RatedLog(logging.getLogger(__name__))

# Partitions that one reply has records of, at the most: the others come with the next one.
MOST_PARTITIONS: Final = 1000


class ReplicaReads:
    """The sessions of all followers, one for each broker."""

    def __init__(self, partitions: Partitions, deadlines: Deadlines, turn: Turn) -> None:
        self.partitions = partitions
        self.deadlines = deadlines
        self.turn = turn
        self.loop = asyncio.get_running_loop()
        self._sessions: dict[int, ReplicaSession] = {}
        self._number = 0

    def serve(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        """A fetch of a broker that has proved to be one. Returns an error, or None: the reply leaves later."""
        broker = call.connection.broker
        assert broker is not None, "only a broker's fetches are served here"
        session = self._sessions.get(broker.node_id)
        if request.session_epoch == FIRST_EPOCH:
            if session is not None:
                session.close()
            self._number += 1
            session = ReplicaSession(self, broker.node_id, broker.broker_epoch, self._number)
            self._sessions[broker.node_id] = session
        elif session is None or session.connection is not call.connection:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.connection = call.connection
        if not session.resume(request):
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.serve(call, max_bytes=request.max_bytes, max_wait_ms=request.max_wait_ms)
        return None


class ReplicaSession:
    """What one follower reads here."""

    def __init__(self, reads: ReplicaReads, broker_id: int, broker_epoch: int, number: int) -> None:
        self.connection: object = None
        self._reads = reads
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._number = number
        self._state = ReplicaPositions(number)
        # What leaders have forgotten of this follower since its last request.
        self._forgotten: dict[Key, None] = {}
        self._max_bytes = 0
        self._waiting: Call | None = None
        self._waits_since = 0.0
        self._bucket: int | None = None
        self._is_woken = False
        # Replies leave in the order of the calls, one after the other.
        self._last: asyncio.Task[None] | None = None

    # What the follower says

    def resume(self, request: FetchRequest) -> bool:
        changes = list(_positions(request))
        forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
        if not self._state.resume(request.session_epoch, changes, forgotten):
            return False
        for topic_id, index in forgotten:
            partition = self._reads.partitions.find_by_id(topic_id, index)
            if isinstance(partition, Partition):
                partition.replica_readers.pop(self, None)
        # A follower with nothing to fetch names a partition once. While it goes on asking, it has what it named.
        forgotten_here, self._forgotten = self._forgotten, {}
        self._heard_of([*(key for key, _ in changes), *forgotten_here])
        return True

    def _heard_of(self, keys: Iterable[Key]) -> None:
        """Tell leaders from where the follower fetches."""
        now_ms = int(self._reads.loop.time() * 1000)
        for key in keys:
            position, partition = self._state.positions.get(key), self._reads.partitions.find_by_id(*key)
            if position is None or not isinstance(partition, Partition):
                continue
            if _agrees(partition, position, self._broker_id) is None:
                partition.follower_fetched(
                    self,
                    self._broker_id,
                    broker_epoch=self._broker_epoch,
                    session=self._number,
                    offset=position.offset,
                    log_start=position.log_start,
                    now_ms=now_ms,
                )

    def serve(self, call: Call, *, max_bytes: int, max_wait_ms: int) -> None:
        self._end_wait()
        self._max_bytes = max_bytes
        found = self._look()
        if found or max_wait_ms <= 0 or self._state.has_urgent_news:
            self._reply(call, found)
            return
        self._waiting = call
        self._waits_since = self._reads.loop.time()
        self._bucket = self._reads.deadlines.add(self, max_wait_ms / 1000)
        call.when_gone(self._left)

    def close(self) -> None:
        """The follower has another session, or is gone."""
        self._end_wait()
        for key in self._state.positions:
            partition = self._reads.partitions.find_by_id(*key)
            if isinstance(partition, Partition):
                partition.replica_readers.pop(self, None)
        self._state = ReplicaPositions(self._number)

    # What partitions say

    def grew(self, partition: Partition) -> None:
        if self._state.grew((partition.topic_id, partition.index)):
            self._look_later()

    def has_news(self, partition: Partition) -> None:
        self._state.has_news((partition.topic_id, partition.index))

    def is_waited_for(self, partition: Partition) -> None:
        self._state.is_waited_for((partition.topic_id, partition.index))
        self._look_later()

    def was_forgotten(self, partition: Partition) -> None:
        self._forgotten[partition.topic_id, partition.index] = None

    def _look_later(self) -> None:
        if self._waiting is not None and not self._is_woken:
            self._is_woken = True
            self._reads.turn.look_later(self._look_again)

    # Waiting

    def timed_out(self) -> None:
        self._bucket = None
        self._end_wait()

    def _left(self, call: Call) -> None:
        if call is self._waiting:
            self._stop_waiting()
            self.close()

    def _look_again(self) -> None:
        self._is_woken = False
        if self._waiting is not None and ((found := self._look()) or self._state.has_urgent_news):
            self._reply(self._stop_waiting(), found)

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._reply(self._stop_waiting(), [])

    def _stop_waiting(self) -> Call:
        call, self._waiting = self._waiting, None
        assert call is not None
        call.waited(self._reads.loop.time() - self._waits_since)
        if self._bucket is not None:
            self._reads.deadlines.cancel(self, self._bucket)
            self._bucket = None
        return call

    # Looking

    def _look(self) -> list[tuple[Key, Found]]:
        state, room = self._state, self._max_bytes
        found: list[tuple[Key, Found]] = []
        for key in state.ready():
            position = state.positions[key]
            partition = self._reads.partitions.find_by_id(*key)
            if isinstance(partition, ErrorCode):
                item = Found(error=partition)
            else:
                has_records = any(item.records is not None for _, item in found)
                item = look(partition, position, self._broker_id, max_bytes=max(room, 0), at_least_one=not has_records)
                if item.records is None and not item.error and item.diverging is None:
                    # What did not fit comes with the next reply.
                    if position.offset >= partition.log.end_offset:
                        state.passed(key)
                    continue
            state.sent(key)
            room -= item.size
            found.append((key, item))
            if room <= 0 or len(found) >= MOST_PARTITIONS:
                break
        return found

    # Answering

    def _reply(self, call: Call, found: list[tuple[Key, Found]]) -> None:
        if not call.connection.is_open:
            _release(found)
            return
        self._add_news(found)
        if self._last is not None or any(item.records is not None and not item.records.is_ready for _, item in found):
            # Bytes that are not in memory, or not checked yet, are read in a thread: the loop waits for no disk.
            self._last = asyncio.ensure_future(self._reply_later(self._last, call, found))
            self._last.add_done_callback(self._replied)
        else:
            call.reply(self._response(found))

    def _replied(self, task: "asyncio.Task[None]") -> None:
        if self._last is task:
            self._last = None
        if not task.cancelled() and (error := task.exception()) is not None:
            facts = {"follower": self._broker_id}
            log.error("a follower could not be answered", owner=self._reads, extra=facts, exc_info=error)

    async def _reply_later(
        self, before: "asyncio.Task[None] | None", call: Call, found: list[tuple[Key, Found]]
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        for key, item in found:
            if item.records is not None and not item.records.is_ready:
                try:
                    await self._reads.loop.run_in_executor(None, item.records.warm)
                except (OSError, StorageError) as error:
                    partition = self._reads.partitions.find_by_id(*key)
                    if isinstance(partition, Partition):
                        read_failed(partition, error)
                    item.records.release()
                    item.records, item.error = None, ErrorCode.KAFKA_STORAGE_ERROR
        if call.connection.is_open:
            call.reply(self._response(found))
        else:
            _release(found)

    def _add_news(self, found: list[tuple[Key, Found]]) -> None:
        """Add what has moved of partitions that have no records to send, and note what is told."""
        named = {key for key, _ in found}
        for key in self._state.take_news():
            partition = self._reads.partitions.find_by_id(*key)
            if key not in named and isinstance(partition, Partition):
                position = self._state.positions[key]
                told = partition.high_watermark, partition.log.start_offset
                if told != position.told:
                    found.append((key, Found(ErrorCode.NONE, told[0], told[0], told[1])))
        for key, item in found:
            if not item.error and key in self._state.positions:
                self._state.positions[key].told = item.high_watermark, item.log_start

    def _response(self, found: list[tuple[Key, Found]]) -> FetchResponse:
        topics: dict[bytes, list[PartitionData]] = {}
        for (topic_id, index), item in found:
            data = PartitionData(
                partition_index=index,
                error_code=item.error,
                high_watermark=item.high_watermark,
                last_stable_offset=item.last_stable_offset,
                log_start_offset=item.log_start,
                aborted_transactions=None,
                records=item.records if item.records is not None else b"",
            )
            if item.diverging is not None:
                data.diverging_epoch = EpochEndOffset(epoch=item.diverging[0], end_offset=item.diverging[1])
            topics.setdefault(topic_id, []).append(data)
        return FetchResponse(
            session_id=self._number,
            responses=[
                FetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )


def look(partition: Partition, position: Position, broker_id: int, *, max_bytes: int, at_least_one: bool) -> Found:
    """What a partition has for a follower."""
    if not partition.is_led:
        return Found(error=partition.absence)
    problem = _agrees(partition, position, broker_id)
    log_start = partition.log.start_offset
    found = Found(ErrorCode.NONE, partition.high_watermark, partition.last_stable_offset, log_start)
    if isinstance(problem, ErrorCode):
        found.error = problem
    elif problem is not None:
        found.diverging = problem
    elif position.offset < partition.log.end_offset or position.offset > partition.log.end_offset:
        try:
            limit = min(max_bytes, position.max_bytes)
            if limit > 0 or at_least_one:
                found.records = partition.locate_for_replica(position.offset, limit, at_least_one=at_least_one)
        except OffsetOutOfRangeError:
            found.error = ErrorCode.OFFSET_OUT_OF_RANGE
        except (OSError, StorageError) as error:
            read_failed(partition, error)
            found.error = ErrorCode.KAFKA_STORAGE_ERROR
    return found


def _agrees(partition: Partition, position: Position, broker_id: int) -> ErrorCode | tuple[int, int] | None:
    """None if the follower's log is a beginning of this one; otherwise the error, or where they part."""
    if not partition.is_led:
        return partition.absence
    return parting(
        partition.leader,
        partition.log,
        broker_id,
        leader_epoch=position.leader_epoch,
        offset=position.offset,
        last_fetched_epoch=position.last_fetched_epoch,
    )


def _positions(request: FetchRequest) -> Iterator[tuple[Key, Position]]:
    for topic in request.topics:
        for asked in topic.partitions:
            position = Position(
                asked.fetch_offset,
                asked.current_leader_epoch,
                asked.last_fetched_epoch,
                asked.log_start_offset,
                asked.partition_max_bytes,
            )
            yield (topic.topic_id, asked.partition), position


def _release(found: list[tuple[Key, Found]]) -> None:
    for _, item in found:
        if item.records is not None:
            item.records.release()
