"""The handler of Fetch 4 to 18 reads records, or waits for them.

Version 5 adds the log's start, 7 fetch sessions (KIP-227), 9 the leader's epoch (KIP-320), 11 the rack (KIP-392), 12
diverging epochs (KIP-595), 13 topics by id (KIP-516), 15 the replica's state (KIP-903), 16 the addresses of new leaders
(KIP-951), 17 a directory id (KIP-853), and 18 the follower's high watermark (KIP-1166).
"""

from collections.abc import Iterator
from typing import Final

from penstock.broker.network.call import Call
from penstock.broker.partitions.fetch_answer import make_fetch
from penstock.broker.partitions.fetch_wait import Fetch
from penstock.broker.quick.fetch import fetch_quickly
from penstock.broker.router import LATER, Router
from penstock.broker.services import Services
from penstock.machines.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    Key,
    Session,
    Wanted,
)
from penstock.protocol import quick_fetch
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import (
    FetchRequest,
    FetchResponse,
)

router = Router()
# A request above this size may name a thousand partitions or more; it was decoded in a thread.
_WIDE_BYTES: Final = quick_fetch.MAX_BYTES


@router.handles(FetchRequest, versions=(4, 18), quick=fetch_quickly)
def fetch(services: Services, call: Call, request: FetchRequest) -> Message | object:
    broker = call.connection.broker
    if broker is not None and request.replica_state.replica_id == broker.node_id:
        return services.replica_reads.serve(call, request) or LATER
    if len(call.body) > _WIDE_BYTES:
        return _fetch_wide(services, call, request)
    by_id = call.version >= 13
    operation = _operation(services, call, request, dict(_wanted(request, by_id=by_id)), by_id=by_id)
    if isinstance(operation, ErrorCode):
        return FetchResponse(error_code=operation)
    if operation.is_wide:
        return _start_in_turns(operation)
    operation.start()
    return LATER


async def _fetch_wide(services: Services, call: Call, request: FetchRequest) -> object:
    """A fetch that may name many partitions."""
    by_id = call.version >= 13
    async with services.fetch_room.wide:
        named = await services.loop.run_in_executor(None, lambda: dict(_wanted(request, by_id=by_id)))
        if not call.connection.is_open:
            return LATER
        operation = _operation(services, call, request, named, by_id=by_id)
        if isinstance(operation, ErrorCode):
            return FetchResponse(error_code=operation)
        await operation.start_in_turns()
    call.connection.release(call)
    return LATER


async def _start_in_turns(operation: Fetch) -> object:
    async with operation.room.wide:
        await operation.start_in_turns()
    operation.call.connection.release(operation.call)
    return LATER


def _operation(
    services: Services, call: Call, request: FetchRequest, named: dict[Key, Wanted], *, by_id: bool
) -> Fetch | ErrorCode:
    """`named` is what the request says about partitions; of one that it names twice, what it says last."""
    session = _session_of(services, request, named, by_id=by_id)
    if isinstance(session, ErrorCode):
        return session
    return make_fetch(
        services,
        call,
        session,
        named,
        opens=request.session_epoch == INITIAL_EPOCH,
        max_bytes=request.max_bytes,
        min_bytes=request.min_bytes,
        max_wait_ms=request.max_wait_ms,
        isolation_level=request.isolation_level,
    )


def _session_of(
    services: Services, request: FetchRequest, named: dict[Key, Wanted], *, by_id: bool
) -> Session | ErrorCode | None:
    """The session that a request goes on with; None for one that stands alone, or opens a session by its reply."""
    sessions = services.fetch_sessions
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        return None
    forgotten = (
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    )
    return sessions.resume(
        request.session_id,
        request.session_epoch,
        changes=named.items(),
        forgotten=forgotten,
        uses_topic_ids=by_id,
        now_ms=services.now_ms(),
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
