"""Fetch, versions 4 to 18: sessions from 7 on (KIP-227), divergence from 12 on, topics by id from 13 on."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.broker.call import Call
from penstock.broker.fetching import Fetch, Found
from penstock.broker.router import LATER, Router
from penstock.broker.sending import SENDFILE_FROM_BYTES
from penstock.machines.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Key, Session, Wanted
from penstock.protocol import single_fetch
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from penstock.storage.errors import StorageError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

router = Router()
_STALE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def fetch_quickly(broker: "Broker", call: Call) -> bool:
    """Takes the call if it asks for one partition, outside a session, and there are records to be had at once."""
    version = call.version
    if version < single_fetch.FIRST_VERSION or (found := single_fetch.read_single(call.body, version)) is None:
        return False
    target, position = found
    topic, partitions = target.topic, broker.partitions
    partition = (
        partitions.get(topic, target.partition)
        if isinstance(topic, str)
        else partitions.find_by_id(topic, target.partition)
    )
    if isinstance(partition, ErrorCode) or not partition.is_open or position.last_fetched_epoch >= 0:
        return False
    leader = partition.leader
    if position.current_leader_epoch not in (-1, leader.leader_epoch):
        return False
    limit = min(target.max_bytes, position.max_bytes, broker.fetch_max_bytes)
    try:
        records = partition.locate(position.fetch_offset, limit, at_least_one=True)
    except (OSError, StorageError):
        return False
    if records is None:
        return False
    size = len(records)
    if size < target.min_bytes or not records.is_ready:
        records.release()
        return False
    reply = target.reply.write(
        call.correlation_id,
        leader.high_watermark,
        leader.last_stable_offset,
        partition.log.start_offset,
        records,
    )
    if size < SENDFILE_FROM_BYTES and call.connection.sends_soon(call):
        try:
            with records:
                reply[1] = records.read()
        except (OSError, StorageError):
            return False
        reply = [b"".join(reply)]
    partition.fetched_bytes += size
    call.connection.reply_written(call, reply)
    return True


@router.handles(FetchRequest, versions=(4, 18), quick=fetch_quickly)
def fetch(broker: "Broker", call: Call, request: FetchRequest) -> Message | object:
    by_id = call.version >= 13
    session = _session_of(broker, request, by_id=by_id)
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    wanted = list(session.partitions.items() if session is not None else _wanted(request, by_id=by_id))
    # The first reply of a session names every partition, those after it only what has changed.
    is_full = session is None or request.session_epoch == INITIAL_EPOCH

    def finish(found: list[Found]) -> None:
        if operation.waited_seconds:
            call.waited(operation.waited_seconds)
        call.reply(_response(broker, wanted, found, session, is_full=is_full, by_id=by_id, request=request))

    partitions = [
        broker.partitions.find_by_id(topic, index) if isinstance(topic, bytes) else broker.partitions.get(topic, index)
        for (topic, index), _ in wanted
    ]
    operation = Fetch(
        broker,
        wanted,
        partitions,
        max_bytes=min(request.max_bytes, broker.fetch_max_bytes),
        min_bytes=request.min_bytes,
        max_wait_ms=request.max_wait_ms,
        finish=finish,
        is_open=lambda: call.connection.is_open,
    )
    operation.start()
    return LATER


def _session_of(broker: "Broker", request: FetchRequest, *, by_id: bool) -> Session | ErrorCode | None:
    """The session that a request opens or goes on with; None for one that stands alone."""
    sessions = broker.fetch_sessions
    now_ms = broker.now_ms()
    if request.session_epoch == FINAL_EPOCH:
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        return None
    if request.session_epoch == INITIAL_EPOCH:
        sessions.close(request.session_id)
        wanted = OrderedDict(_wanted(request, by_id=by_id))
        return sessions.open(broker.draw_session_id(), wanted, uses_topic_ids=by_id, now_ms=now_ms)
    forgotten = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return sessions.resume(
        request.session_id,
        request.session_epoch,
        changes=_wanted(request, by_id=by_id),
        forgotten=forgotten,
        uses_topic_ids=by_id,
        now_ms=now_ms,
    )


def _wanted(request: FetchRequest, *, by_id: bool) -> Iterator[tuple[Key, Wanted]]:
    for topic in request.topics:
        name: bytes | str = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield (
                (name, partition.partition),
                Wanted(
                    fetch_offset=partition.fetch_offset,
                    max_bytes=partition.partition_max_bytes,
                    current_leader_epoch=partition.current_leader_epoch,
                    log_start_offset=partition.log_start_offset,
                    last_fetched_epoch=partition.last_fetched_epoch,
                ),
            )


def _response(
    broker: "Broker",
    wanted: list[tuple[Key, Wanted]],
    found: list[Found],
    session: Session | None,
    *,
    is_full: bool,
    by_id: bool,
    request: FetchRequest,
) -> FetchResponse:
    topics: dict[bytes | str, list[PartitionData]] = {}
    for (key, _), item in zip(wanted, found, strict=True):
        if session is not None and key in session.partitions:
            news = session.changed(
                key,
                has_records=item.records is not None or item.diverging is not None,
                high_watermark=item.high_watermark,
                log_start=item.log_start,
                error=item.error,
            )
            if not news and not is_full:
                continue
        topics.setdefault(key[0], []).append(_partition_data(broker, key[1], item, request))
    responses = [
        FetchableTopicResponse(
            topic="" if isinstance(topic, bytes) else topic,
            topic_id=topic if isinstance(topic, bytes) else bytes(16),
            partitions=partitions,
        )
        for topic, partitions in topics.items()
    ]
    return FetchResponse(session_id=session.session_id if session else NO_SESSION, responses=responses)


def _partition_data(broker: "Broker", index: int, item: Found, request: FetchRequest) -> PartitionData:
    data = PartitionData(
        partition_index=index,
        error_code=item.error,
        high_watermark=item.high_watermark,
        last_stable_offset=item.last_stable_offset,
        log_start_offset=item.log_start,
        # None are aborted, which only a reader of committed records wants to be told.
        aborted_transactions=() if request.isolation_level == 1 else None,
        records=item.records if item.records is not None else b"",
    )
    if item.diverging is not None:
        data.diverging_epoch = EpochEndOffset(epoch=item.diverging[0], end_offset=item.diverging[1])
    if item.error in _STALE_LEADER:
        data.current_leader = LeaderIdAndEpoch(leader_id=broker.node_id, leader_epoch=item.leader_epoch)
    return data
