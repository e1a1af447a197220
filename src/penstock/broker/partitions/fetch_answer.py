"""A fetch answer gathers what a fetch found, keeps the session's account of it, and replies: without message objects if
there are no errors."""

from typing import Any

from penstock.broker.network.call import Call
from penstock.broker.network.sender import SENDFILE_FROM_BYTES
from penstock.broker.partitions.fetch_wait import Fetch, Found
from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.broker.partitions.partition import Partition
from penstock.broker.services import Services
from penstock.machines.fetch_sessions import NO_SESSION, UNKNOWN, Key, Session, Strangers, Wanted
from penstock.protocol import quick_fetch
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from penstock.storage.errors import StorageError
from penstock.storage.log.file_range import FileRange

_STALE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# The versions of Fetch that say who leads, and where that broker is.
_LEADERS_SINCE = 12
_ENDPOINTS_SINCE = 16


def make_fetch(
    services: Services,
    call: Call,
    session: Session | None,
    named: dict[Key, Wanted],
    *,
    opens: bool = False,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    isolation_level: int,
) -> Fetch:
    wanted = list(named.items() if session is None else session.partitions.items())
    return Fetch(
        services.fetch_room,
        call,
        wanted,
        max_bytes=min(max_bytes, services.fetch_max_bytes),
        min_bytes=min_bytes,
        max_wait_ms=max_wait_ms,
        only_news=session is not None,
        answer=FetchAnswer(services, session, opens=opens, version=call.version, isolation_level=isolation_level),
    )


class FetchAnswer:
    """The reply to a fetch, in the making."""

    __slots__ = (
        "_by_id",
        "_found",
        "_has_errors",
        "_hints",
        "_isolation_level",
        "_messages",
        "_names_leaders",
        "_opening",
        "_served",
        "_services",
        "_session",
        "_size",
        "_strangers",
    )

    def __init__(
        self, services: Services, session: Session | None, *, opens: bool, version: int, isolation_level: int
    ) -> None:
        self._services = services
        self._session = session
        self._by_id = version >= 13
        self._names_leaders = version >= _LEADERS_SINCE
        self._isolation_level = isolation_level
        # What is to be said of a topic's partitions: messages only in a wide fetch, of which each turn makes a part.
        self._found: dict[bytes | str, list[tuple[int, Found]]] = {}
        self._messages: dict[bytes | str, list[PartitionData]] = {}
        self._has_errors = False
        self._hints: LeaderHints | None = None
        self._size = 0
        self._strangers = Strangers()
        # The partitions of the session that this reply opens: those without records go first the next time.
        self._opening: dict[Key, Wanted] | None = {} if opens else None
        self._served: dict[Key, Wanted] = {}

    def add(self, fetch: Fetch, place: int, found: Found) -> None:
        key, wanted = fetch.wanted[place]
        session = self._session
        has_records = found.records is not None or found.diverging is not None
        if found.error and found.error in UNKNOWN:
            self._strangers.add(key)
        if self._opening is not None:
            wanted.told(high_watermark=found.high_watermark, log_start=found.log_start, error=found.error)
            partition = fetch.partitions[place]
            if isinstance(partition, Partition):
                # All sessions share one string of the topic's name.
                key = (partition.topic_id if self._by_id else partition.topic, key[1])
            (self._served if has_records else self._opening)[key] = wanted
        elif (
            session is not None
            and key in session.partitions
            and not session.changed(
                key,
                has_records=has_records,
                high_watermark=found.high_watermark,
                log_start=found.log_start,
                error=found.error,
            )
        ):
            # The first reply of a session names every partition, those after it only what has changed.
            return
        topic, index = key
        if fetch.is_wide:
            self._messages.setdefault(topic, []).append(self._partition_data(topic, index, found))
            return
        if found.error or found.diverging is not None:
            self._has_errors = True
        elif has_records:
            self._size += found.size
        partitions = self._found.get(topic)
        if partitions is None:
            partitions = self._found[topic] = []
        partitions.append((index, found))

    def reply(self, call: Call) -> None:
        if self._has_errors or self._messages:
            call.reply(self.response(call))
            return
        chunks = quick_fetch.write_reply(
            call.version, call.correlation_id, self._isolation_level, self._session_id(), self._found
        )
        _send(call, chunks, self._size)

    def response(self, call: Call) -> FetchResponse:
        for topic, found in self._found.items():
            self._messages[topic] = [self._partition_data(topic, index, item) for index, item in found]
        responses = [
            FetchableTopicResponse(
                topic="" if isinstance(topic, bytes) else topic,
                topic_id=topic if isinstance(topic, bytes) else bytes(16),
                partitions=partitions,
            )
            for topic, partitions in self._messages.items()
        ]
        endpoints = [
            NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
            for node in (
                self._hints.addresses(call) if self._hints is not None and call.version >= _ENDPOINTS_SINCE else ()
            )
        ]
        return FetchResponse(session_id=self._session_id(), responses=responses, node_endpoints=endpoints)

    def _session_id(self) -> int:
        services, session = self._services, self._session
        if self._opening is not None:
            session = services.fetch_sessions.open(
                services.draw_session_id(),
                {**self._opening, **self._served},
                strangers=self._strangers,
                uses_topic_ids=self._by_id,
                now_ms=services.now_ms(),
            )
        elif session is not None and not services.fetch_sessions.may_stay(session, self._strangers):
            session = None
        return NO_SESSION if session is None else session.session_id

    def _partition_data(self, topic: str | bytes, index: int, item: Found) -> PartitionData:
        data = PartitionData(
            partition_index=index,
            error_code=item.error,
            high_watermark=item.high_watermark,
            last_stable_offset=item.last_stable_offset,
            log_start_offset=item.log_start,
            # No transactions are aborted, which only a reader of committed records asks about.
            aborted_transactions=() if self._isolation_level == 1 else None,
            records=item.records if item.records is not None else b"",
        )
        if item.diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=item.diverging[0], end_offset=item.diverging[1])
        if self._names_leaders and item.error in _STALE_LEADER:
            self._hints = self._hints or LeaderHints(self._services)
            if (leader := self._hints.find(topic, index)) is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        return data


def _send(call: Call, chunks: list[Any], size: int) -> None:
    """Send a reply with this many bytes of records. A small one that leaves in this turn is read now: it goes out with
    one call."""
    if size < SENDFILE_FROM_BYTES and len(chunks) > 1 and call.connection.sends_soon(call):
        ranges = [number for number, chunk in enumerate(chunks) if isinstance(chunk, FileRange)]
        try:
            read = {number: chunks[number].read() for number in ranges}
        except (OSError, StorageError):
            # The sender meets the error again, and closes the connection.
            pass
        else:
            for number in ranges:
                chunks[number].release()
                chunks[number] = read[number]
            chunks = [b"".join(chunks)]
    call.connection.reply_written(call, chunks)
