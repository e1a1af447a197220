"""Reads the Fetch requests that consumers send, and writes replies without errors, without the messages of the tables:
that is several times as fast.

What a consumer's requests for one partition begin and end with is the same each time, and is remembered along with what
it says, if there is no session. Replies are put together of parts that the tables wrote once for each version.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from struct import Struct, error
from typing import Any, Final, NamedTuple, Protocol

from penstock.protocol.errors import DecodeError
from penstock.protocol.quick_parts import (
    FRAME,
    cut_reply,
    read_length,
    read_text,
    read_topic,
    skip_no_tags,
    write_length,
    write_topic,
)
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.varint import uvarint

MAX_BYTES: Final = 32 * 1024
"""A longer request may name a thousand partitions, and is left to the tables."""
NO_SESSION: Final = (0, -1)
"""The id and the epoch of a request outside a session."""

_WITH_LOG_START: Final = 5
_WITH_SESSION: Final = 7
_WITH_EPOCH: Final = 9
_WITH_RACK: Final = 11
_FLEXIBLE: Final = 12
_BY_ID: Final = 13
_WITHOUT_REPLICA: Final = 15
_CONSUMER: Final = -1


class Position(NamedTuple):
    """Where a reader is in a partition, and what it knows: what changes from one request to the next."""

    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class Asked(NamedTuple):
    """What a request says."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session: tuple[int, int]
    """Its id and epoch."""
    partitions: list[tuple[str | bytes, int, Position]]
    """Topics by name, or by id from version 13 on."""


class Target(NamedTuple):
    """What requests for one partition with one beginning and end ask for, and the form of the replies to them."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    topic: str | bytes
    partition: int
    reply: "ReplyForm"

    def asks(self, position: Position) -> Asked:
        """What a request says that begins and ends so, and has this position."""
        return Asked(*self[:4], NO_SESSION, [(self.topic, self.partition, position)])


class Found(Protocol):
    """What a reply says about a partition."""

    high_watermark: int
    last_stable_offset: int
    log_start: int
    records: Any
    """Anything with a length, or None."""


def read_single(body: memoryview, version: int) -> tuple[Target, Position] | None:
    """What a request for one partition outside a session says; None if it has another shape."""
    # The beginning ends with the partition's index. It holds the length of the topic's name, in one byte, or an id.
    start, name, begin, layout, known = _SINGLE[version]
    try:
        if version < _BY_ID:
            begin += body[name]
        # Most requests of another shape show by the last byte of the number of partitions, or of the session's epoch.
        if body[begin - 5] != (2 if version >= _FLEXIBLE else 1) or (
            version >= _WITH_SESSION and body[start - 1] != _NO_EPOCH
        ):
            return None
        values = layout.unpack_from(body, begin)
        key = bytes(body[:begin]), bytes(body[begin + layout.size :])
        target = known.get(key) or _learn(body, version, key)
        if target is None:
            return None
        return target, _new(Position, values if version >= _FLEXIBLE else _complete(values, version))
    except (IndexError, error):
        return None


def read_request(body: memoryview, version: int) -> Asked | None:
    """What a request of a consumer says; None if there is anything unusual about it, such as topics to be forgotten:
    then the tables have to read it, and to find what is wrong."""
    if len(body) > MAX_BYTES:
        return None
    is_flexible = version >= _FLEXIBLE
    try:
        limits, session, position = _read_start(body, version)
        topics, position = read_length(body, position, is_flexible=is_flexible)
        wanted: list[tuple[str | bytes, int, Position]] = []
        layout = _PARTITION[version]
        for _ in range(topics):
            topic, position = read_topic(body, position, is_flexible=is_flexible, by_id=version >= _BY_ID)
            partitions, position = read_length(body, position, is_flexible=is_flexible)
            if partitions < 0:
                return None
            end = position + partitions * layout.size
            for index, *values in layout.iter_unpack(body[position:end]):
                if is_flexible and values.pop():
                    return None
                wanted.append((topic, index, _new(Position, values if is_flexible else _complete(values, version))))
            position = skip_no_tags(body, end) if is_flexible else end
        if topics < 0 or not _is_end(body, position, version):
            return None
        return Asked(*limits, session, wanted)
    except (IndexError, ValueError, error):
        return None


def write_reply(
    version: int,
    correlation_id: int,
    isolation_level: int,
    session_id: int,
    topics: Mapping[str | bytes, Sequence[tuple[int, Found]]],
) -> list[Any]:
    """A framed reply without errors, in chunks, the records as they are. Topics have their partitions by index."""
    is_flexible = version >= _FLEXIBLE
    start, before_records, after_partition, after_topic, end = _reply_parts(version, isolation_level == _COMMITTED)
    row_bytes, pack_row = _row_bytes(version), _ROW.pack
    no_records = before_records + write_length(0, is_flexible=is_flexible) + after_partition
    chunks: list[Any] = []
    written = [start, _INT.pack(session_id) if version >= _WITH_SESSION else b""]
    written.append(write_length(len(topics), is_flexible=is_flexible))
    for topic, partitions in topics.items():
        written.append(write_topic(topic, len(partitions), is_flexible=is_flexible))
        for index, found in partitions:
            row = pack_row(index, 0, found.high_watermark, found.last_stable_offset, found.log_start)
            written.append(row[:row_bytes])
            records = found.records
            if records is None:
                written.append(no_records)
            else:
                written += before_records, write_length(len(records), is_flexible=is_flexible)
                chunks += b"".join(written), records
                written = [after_partition]
        written.append(after_topic)
    written.append(end)
    chunks.append(b"".join(written))
    chunks[0] = FRAME.pack(4 + sum(map(len, chunks)), correlation_id) + chunks[0]
    return chunks


class ReplyForm:
    """A reply with records for one partition and no error, but for its numbers and the records themselves."""

    __slots__ = ("_before", "_behind", "_between", "_is_flexible", "_numbers_bytes", "_size")

    def __init__(self, version: int, isolation_level: int, topic: str | bytes, index: int) -> None:
        self._is_flexible = is_flexible = version >= _FLEXIBLE
        start, self._between, *behind = _reply_parts(version, isolation_level == _COMMITTED)
        session = _INT.pack(NO_SESSION[0]) if version >= _WITH_SESSION else b""
        topics = write_length(1, is_flexible=is_flexible) + write_topic(topic, 1, is_flexible=is_flexible)
        self._before = start + session + topics + _INDEX_AND_ERROR.pack(index, 0)
        self._behind = b"".join(behind)
        self._numbers_bytes = _row_bytes(version) - _INDEX_AND_ERROR.size
        self._size = 4 + len(self._before) + self._numbers_bytes + len(self._between) + len(self._behind)

    def write(
        self, correlation_id: int, high_watermark: int, last_stable_offset: int, log_start: int, records: Any
    ) -> list[Any]:
        """Framed, in chunks, the records as they are in the middle."""
        size = len(records)
        length = uvarint(size + 1) if self._is_flexible else _INT.pack(size)
        head = FRAME.pack(self._size + len(length) + size, correlation_id)
        numbers = _NUMBERS.pack(high_watermark, last_stable_offset, log_start)[: self._numbers_bytes]
        return [head + self._before + numbers + self._between + length, records, self._behind]


_new = tuple.__new__
_COMMITTED: Final = 1
_INT: Final = Struct(">i")
_SESSION: Final = Struct(">ii")
_NO_EPOCH: Final = 0xFF
_INDEX_AND_ERROR: Final = Struct(">ih")
# The high watermark, the last stable offset, and the log's start, which version 4 does not have.
_NUMBERS: Final = Struct(">qqq")
_ROW: Final = Struct(">ihqqq")
_VERSIONS: Final = range(FetchRequest.schema.versions.last + 1)


def _start_of(version: int) -> Struct:
    """Replica, wait, least and most bytes, isolation level, session and its epoch."""
    return Struct(">" + "i" * (version < _WITHOUT_REPLICA) + "iiib" + "ii" * (version >= _WITH_SESSION))


def _position_of(version: int) -> str:
    """The leader's epoch, the offset, the epoch before it, the log's start, and the most bytes."""
    epoch, last_epoch = "i" * (version >= _WITH_EPOCH), "i" * (version >= _FLEXIBLE)
    return epoch + "q" + last_epoch + "q" * (version >= _WITH_LOG_START) + "i"


_START: Final = [_start_of(version) for version in _VERSIONS]
# A partition's index and the position, and the section of tagged fields, which is empty.
_PARTITION: Final = [Struct(">i" + _position_of(version) + "b" * (version >= _FLEXIBLE)) for version in _VERSIONS]


def _read_start(body: memoryview, version: int) -> tuple[tuple[int, int, int, int], tuple[int, int], int]:
    """Wait, least and most bytes and isolation level; the session; and the position after them."""
    layout = _START[version]
    values: tuple[Any, ...] = layout.unpack_from(body)
    if version < _WITHOUT_REPLICA:
        if values[0] != _CONSUMER:
            raise DecodeError("the reader is a replica")
        values = values[1:]
    max_wait_ms, min_bytes, max_bytes, isolation_level, *session = values
    session_id, epoch = session or NO_SESSION
    return (max_wait_ms, min_bytes, max_bytes, isolation_level), (session_id, epoch), layout.size


def _complete(values: Sequence[int], version: int) -> Sequence[int]:
    """A position of an old version, with what it leaves out."""
    if version >= _FLEXIBLE:
        return values
    if version >= _WITH_EPOCH:
        epoch, offset, log_start, max_bytes = values
        return epoch, offset, -1, log_start, max_bytes
    if version >= _WITH_LOG_START:
        offset, log_start, max_bytes = values
        return -1, offset, -1, log_start, max_bytes
    offset, max_bytes = values
    return -1, offset, -1, -1, max_bytes


def _is_end(body: memoryview, position: int, version: int) -> bool:
    """Whether nothing follows but no topics that a session would forget, and a rack."""
    is_flexible = version >= _FLEXIBLE
    if version >= _WITH_SESSION:
        forgotten, position = read_length(body, position, is_flexible=is_flexible)
        if forgotten != 0:
            return False
    if version >= _WITH_RACK:
        _, position = read_text(body, position, is_flexible=is_flexible)
    if is_flexible:
        position = skip_no_tags(body, position)
    return position == len(body)


_Known = dict[tuple[bytes, bytes], Target]


def _single_of(version: int) -> tuple[int, int, int, Struct, _Known]:
    """Where the topics begin, where the length of the first name is, the size of a beginning but for the name, the
    layout of positions, and what is remembered."""
    start, position = _START[version].size, Struct(">" + _position_of(version))
    if version >= _BY_ID:
        return start, 0, start + 1 + 16 + 1 + 4, position, {}
    if version >= _FLEXIBLE:
        # The length counts itself.
        return start, start + 1, start + 1 + 1 + 4, position, {}
    return start, start + 5, start + 4 + 2 + 4 + 4, position, {}


_SINGLE: Final = [_single_of(version) for version in _VERSIONS]
_REMEMBERED: Final = 10_000


def _learn(body: memoryview, version: int, key: tuple[bytes, bytes]) -> Target | None:
    """Remember what requests with this beginning and end say, if they are for one partition outside a session."""
    beginning, start, is_flexible = key[0], _START[version].size, version >= _FLEXIBLE
    one = write_length(1, is_flexible=is_flexible)
    # Before the topics comes the session, if the version has any; partitions come after their number, and index first.
    if (
        beginning[start : start + len(one)] != one
        or beginning[-4 - len(one) : -4] != one
        or (version >= _WITH_SESSION and beginning[start - 8 : start] != _SESSION.pack(*NO_SESSION))
        or (asked := read_request(body, version)) is None
    ):
        return None
    [(topic, index, _)] = asked.partitions
    if len(beginning) != start + len(one) + len(write_topic(topic, 1, is_flexible=is_flexible)) + 4:
        # The name is so long that its length takes two bytes.
        return None
    if sum(len(known) for *_, known in _SINGLE) >= _REMEMBERED:
        for *_, known in _SINGLE:
            known.clear()
    max_wait_ms, min_bytes, max_bytes, isolation_level, _, _ = asked
    form = ReplyForm(version, isolation_level, topic, index)
    target = Target(max_wait_ms, min_bytes, max_bytes, isolation_level, topic, index, form)
    _SINGLE[version][-1][key] = target
    return target


def _row_bytes(version: int) -> int:
    return _ROW.size if version >= _WITH_LOG_START else _ROW.size - 8


@cache
def _reply_parts(version: int, is_committed: bool) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """What lies before the session's id, between the numbers of a partition and the length of its records, after the
    records, after a topic, and at the end."""
    is_flexible = version >= _FLEXIBLE
    name: str | bytes = b"<< a topic id >>" if version >= _BY_ID else "<< a topic >>"
    names: dict[str, Any] = {"topic_id" if version >= _BY_ID else "topic": name}
    # The row is found by its numbers.
    numbers = (0x0123_4567_89AB_CDEF, 0x1122_3344_5566_7788, 0x7EDC_BA98_7654_3210)
    records = b"<< records >>"
    partition = PartitionData(
        partition_index=0x0BAD_CAFE,
        high_watermark=numbers[0],
        last_stable_offset=numbers[1],
        log_start_offset=numbers[2],
        # No transactions are aborted, which only a reader of committed records asks about.
        aborted_transactions=() if is_committed else None,
        records=records,
    )
    topics = [FetchableTopicResponse(**names, partitions=[partition] * count) for count in (1, 2)]
    parts = cut_reply(
        FetchResponse(responses=topics),
        version,
        topics=[write_topic(name, count, is_flexible=is_flexible) for count in (1, 2)],
        row=_ROW.pack(partition.partition_index, 0, *numbers)[: _row_bytes(version)],
        is_flexible=is_flexible,
    )
    length = write_length(len(records), is_flexible=is_flexible)
    before_records, _, after_partition = parts.after_row.partition(length + records)
    start = parts.start[: -_INT.size] if version >= _WITH_SESSION else parts.start
    return start, before_records, after_partition, parts.after_topic, parts.end
