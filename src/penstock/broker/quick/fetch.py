"""The quick way of Fetch takes calls of consumers for a few partitions, outside a session or in one that is open;
`handlers/fetch` takes the others.

When it declines a call it has changed nothing. What it takes is answered at once or after a wait, as by the ordinary
way.
"""

from typing import Final

from penstock.broker.network.call import Call
from penstock.broker.network.sender import SENDFILE_FROM_BYTES
from penstock.broker.partitions.fetch_answer import make_fetch
from penstock.broker.partitions.fetch_wait import AT_ONCE
from penstock.broker.partitions.partition import Partition
from penstock.broker.services import Services
from penstock.machines.fetch_sessions import INITIAL_EPOCH, Key, Wanted
from penstock.protocol import quick_fetch
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.errors import StorageError
from penstock.storage.files import Buffer
from penstock.storage.log.file_range import FileRange

# The largest request: it names about 40,000 partitions, and more in old versions.
MAX_FETCH_BYTES: Final = 2 * 1024 * 1024


def fetch_quickly(services: Services, call: Call) -> bool:
    """Takes the call if it asks for a few partitions, outside a session or in one that is open, as nearly all do."""
    found = quick_fetch.read_single(call.body, call.version)
    if found is None:
        asked = quick_fetch.read_request(call.body, call.version)
        return _refuse_if_too_large(call) if asked is None else _fetch_several(services, call, asked)
    target, position = found
    return _fetch_at_once(services, call, target, position) or _fetch_several(services, call, target.asks(position))


def _fetch_at_once(services: Services, call: Call, target: quick_fetch.Target, position: quick_fetch.Position) -> bool:
    """Takes a call for one partition if there are records to be had at once."""
    _, min_bytes, max_bytes, _, topic, index, form = target
    leader_epoch, offset, last_fetched_epoch, _, partition_max_bytes = position
    partitions = services.partitions
    partition = partitions.get(topic, index) if isinstance(topic, str) else partitions.find_by_id(topic, index)
    if not isinstance(partition, Partition) or not partition.is_led or last_fetched_epoch >= 0:
        return False
    leader = partition.leader
    if leader_epoch >= 0 and leader_epoch != leader.leader_epoch:
        return False
    try:
        limit = min(max_bytes, partition_max_bytes, services.fetch_max_bytes)
        records = partition.locate(offset, limit, at_least_one=True)
    except (OSError, StorageError):
        return False
    if records is None:
        return False
    size = len(records)
    found: FileRange | Buffer | None = records
    is_enough = size >= min_bytes
    if is_enough and size < SENDFILE_FROM_BYTES and call.connection.sends_soon(call):
        try:
            with records:
                found = records.read_if_ready()
        except (OSError, StorageError):
            return False
        if found is None:
            return False
    elif not is_enough or not records.is_ready:
        records.release()
        return False
    log_start = partition.log.start_offset
    reply = form.write(call.correlation_id, partition.high_watermark, partition.last_stable_offset, log_start, found)
    if found is not records:
        reply = [b"".join(reply)]
    partition.fetched_bytes += size
    call.connection.reply_written(call, reply)
    return True


def _fetch_several(services: Services, call: Call, asked: quick_fetch.Asked) -> bool:
    """Takes a call that is answered now or after a wait, if what it asks for is not wide."""
    named = _named(asked)
    session = None
    if asked.session == quick_fetch.NO_SESSION:
        if len(named) > AT_ONCE:
            return False
    else:
        session_id, epoch = asked.session
        sessions = services.fetch_sessions
        # `fetch` opens and closes sessions, refuses one that is not known or out of step, and serves wide ones.
        if epoch <= INITIAL_EPOCH or sessions.size(session_id) + len(named) > AT_ONCE:
            return False
        resumed = sessions.resume(
            session_id,
            epoch,
            changes=named.items(),
            forgotten=(),
            uses_topic_ids=call.version >= 13,
            now_ms=services.now_ms(),
        )
        if isinstance(resumed, ErrorCode):
            return False
        session = resumed
    fetch = make_fetch(
        services,
        call,
        session,
        named,
        max_bytes=asked.max_bytes,
        min_bytes=asked.min_bytes,
        max_wait_ms=asked.max_wait_ms,
        isolation_level=asked.isolation_level,
    )
    fetch.start()
    return True


def _named(asked: quick_fetch.Asked) -> dict[Key, Wanted]:
    named: dict[Key, Wanted] = {}
    for topic, index, (leader_epoch, offset, last_fetched_epoch, log_start, max_bytes) in asked.partitions:
        named[topic, index] = Wanted(offset, max_bytes, leader_epoch, log_start, last_fetched_epoch)
    return named


def _refuse_if_too_large(call: Call) -> bool:
    if len(call.body) <= MAX_FETCH_BYTES:
        return False
    call.give_up(
        f"a fetch of {len(call.body)} bytes is over the limit of {MAX_FETCH_BYTES}: name fewer partitions, or name "
        "them bit by bit in a fetch session"
    )
    return True
