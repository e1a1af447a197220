"""Reads and answers the Produce requests that clients send (no transaction, some records for each partition) without
the messages of the tables: that is several times as fast.

A producer's requests for one partition begin alike, byte by byte, up to the length of the records: that beginning is
the key under which it is remembered what they say, and how replies to them look. Replies are put together of parts that
the tables wrote once for each version.
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct, error
from typing import Any, Final, NamedTuple

from penstock.protocol.quick_parts import (
    FRAME,
    ReplyParts,
    cut_reply,
    read_length,
    read_topic,
    skip_no_tags,
    write_topic,
)
from penstock.protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

MAX_PARTITIONS: Final = 1000
"""A request for more partitions is left to the tables."""

_FLEXIBLE: Final = 9
_BY_ID: Final = 13
_WITH_LOG_START: Final = 5


class Topic(NamedTuple):
    """What a request says about a topic."""

    name: str | bytes
    """Its name, or its id from version 13 on."""
    indexes: list[int]
    """Its partitions, in the order of the request."""
    wire: bytes
    """Name and number of partitions, which a reply writes as the request does."""


class Asked(NamedTuple):
    """What a request says, but for its records: it may outlive the request's bytes."""

    acks: int
    topics: list[Topic]
    topic_count: bytes
    """The number of topics, which a reply writes as the request does."""
    timeout_ms: int = 0


class Target(NamedTuple):
    """Where requests with one beginning want to go, and the form of the replies to them."""

    acks: int
    topic: str | bytes
    partition: int
    reply: "ReplyForm"
    timeout_ms: int = 0


def read_single(body: memoryview, version: int) -> tuple[Target, memoryview] | None:
    """What a request for one partition says, and its records; None if the request has another shape."""
    # The beginning ends with the partition's index, and holds the length of the topic's name, in one byte, unless it
    # has an id.
    try:
        if version >= _FLEXIBLE:
            end = _ID_END if version >= _BY_ID else _FLEXIBLE_END + body[_FLEXIBLE_NAME]
            beginning = bytes(body[:end])
            target = _targets[version].get(beginning) or _learn(body, version, beginning)
            if target is None:
                return None
            size, shift = 0, 0
            while (byte := body[end]) >= 0x80:
                size |= (byte & 0x7F) << shift
                shift += 7
                end += 1
                if shift > 28:
                    return None
            begin = end + 1
            end += size | byte << shift
            # Nothing else may follow but three empty sections of tagged fields.
            if end <= begin or len(body) - end != 3 or body[end] or body[end + 1] or body[end + 2]:
                return None
        else:
            end = _PLAIN_END + body[_PLAIN_NAME]
            beginning = bytes(body[:end])
            target = _targets[version].get(beginning) or _learn(body, version, beginning)
            if target is None:
                return None
            begin = end + 4
            [size] = _unpack_int(body, end)
            end = begin + size
            if size <= 0 or len(body) != end:
                return None
        return target, body[begin:end]
    except (IndexError, error):
        return None


def read_request(body: memoryview, version: int) -> tuple[Asked, list[memoryview]] | None:
    """What a request says, and the records for its partitions in their order; None if there is anything unusual about
    it, such as a transaction or a partition without records: then the tables have to read it, and to find what is
    wrong."""
    is_flexible, by_id = version >= _FLEXIBLE, version >= _BY_ID
    try:
        layout, null = (_FLEXIBLE_START, 0) if is_flexible else (_PLAIN_START, -1)
        start = layout.size
        transactional_id, acks, timeout_ms = layout.unpack_from(body)
        topics, position = read_length(body, start, is_flexible=is_flexible)
        if transactional_id != null or topics < 1:
            return None
        asked = Asked(acks, [], bytes(body[start:position]), timeout_ms)
        records: list[memoryview] = []
        for _ in range(topics):
            begin = position
            name, position = read_topic(body, position, is_flexible=is_flexible, by_id=by_id)
            partitions, position = read_length(body, position, is_flexible=is_flexible)
            if not 1 <= partitions <= MAX_PARTITIONS - len(records):
                return None
            topic = Topic(name, [], bytes(body[begin:position]))
            asked.topics.append(topic)
            for _ in range(partitions):
                topic.indexes.append(_INT.unpack_from(body, position)[0])
                size, begin = read_length(body, position + _INT.size, is_flexible=is_flexible)
                if size < 1:
                    return None
                position = begin + size
                records.append(body[begin:position])
                if is_flexible:
                    position = skip_no_tags(body, position)
            if is_flexible:
                position = skip_no_tags(body, position)
        if is_flexible:
            position = skip_no_tags(body, position)
        return (asked, records) if position == len(body) else None
    except (IndexError, ValueError, error):
        return None


def write_reply(version: int, correlation_id: int, asked: Asked, numbers: Sequence[tuple[int, int]]) -> bytes:
    """The framed reply to a request whose batches have all been taken: `numbers` are their base offsets and the starts
    of their logs."""
    start, after_row, after_topic, end = _reply_parts(version)
    row_bytes = _row_bytes(version)
    written = [b"", start, asked.topic_count]
    number = iter(numbers)
    for topic in asked.topics:
        written.append(topic.wire)
        for index in topic.indexes:
            base_offset, log_start = next(number)
            written.append(_ROW.pack(index, 0, base_offset, _NO_TIME, log_start)[:row_bytes])
            written.append(after_row)
        written.append(after_topic)
    written.append(end)
    written[0] = FRAME.pack(4 + sum(map(len, written)), correlation_id)
    return b"".join(written)


class ReplyForm:
    """A reply that says yes for one partition, but for its numbers."""

    __slots__ = ("_before", "_behind", "_numbers_bytes", "_size")

    def __init__(self, version: int, asked: Asked) -> None:
        start, after_row, after_topic, end = _reply_parts(version)
        [topic] = asked.topics
        [index] = topic.indexes
        self._before = start + asked.topic_count + topic.wire + _INDEX_AND_ERROR.pack(index, 0)
        self._behind = after_row + after_topic + end
        self._numbers_bytes = _row_bytes(version) - _INDEX_AND_ERROR.size
        self._size = 4 + len(self._before) + self._numbers_bytes + len(self._behind)

    def write(self, correlation_id: int, base_offset: int, log_start: int) -> bytes:
        """Framed, ready to be sent."""
        numbers = _NUMBERS.pack(base_offset, _NO_TIME, log_start)[: self._numbers_bytes]
        return FRAME.pack(self._size, correlation_id) + self._before + numbers + self._behind


# The quick ways give no batch the broker's time.
_NO_TIME: Final = -1
_INDEX_AND_ERROR: Final = Struct(">ih")
# Base offset, the time of the append, and the log's start, which old versions do not have.
_NUMBERS: Final = Struct(">qqq")
_ROW: Final = Struct(">ihqqq")
# Transactional id, which is null, acks and timeout.
_FLEXIBLE_START: Final = Struct(">bhi")
_PLAIN_START: Final = Struct(">hhi")
_INT: Final = Struct(">i")
_unpack_int: Final = _INT.unpack_from
# Where the length of the name of the only topic is, if it takes one byte, and where the partition's index ends if that
# length is 0. A topic's id has 16 bytes.
_FLEXIBLE_NAME: Final = 8
_FLEXIBLE_END: Final = 13
_ID_END: Final = 29
_PLAIN_NAME: Final = 13
_PLAIN_END: Final = 22
_REMEMBERED: Final = 10_000
# By version.
_targets: list[dict[bytes, Target]] = [{} for _ in range(ProduceRequest.schema.versions.last + 1)]


def _learn(body: memoryview, version: int, beginning: bytes) -> Target | None:
    """Remember what requests with this beginning say, if they are for one partition."""
    layout, one = (_FLEXIBLE_START, b"\2") if version >= _FLEXIBLE else (_PLAIN_START, b"\0\0\0\1")
    # Ends with the number of partitions, and the partition's index.
    if beginning[layout.size : layout.size + len(one)] != one or beginning[-4 - len(one) : -4] != one:
        return None
    found = read_request(body, version)
    if found is None:
        return None
    asked = found[0]
    [topic] = asked.topics
    [index] = topic.indexes
    if len(beginning) != layout.size + len(one) + len(topic.wire) + 4:
        # The name is so long that its length takes two bytes.
        return None
    if sum(map(len, _targets)) >= _REMEMBERED:
        for known in _targets:
            known.clear()
    target = Target(asked.acks, topic.name, index, ReplyForm(version, asked), asked.timeout_ms)
    _targets[version][beginning] = target
    return target


def _row_bytes(version: int) -> int:
    return _ROW.size if version >= _WITH_LOG_START else _ROW.size - 8


@cache
def _reply_parts(version: int) -> ReplyParts:
    is_flexible = version >= _FLEXIBLE
    name: str | bytes = b"<< a topic id >>" if version >= _BY_ID else "<< a topic >>"
    names: dict[str, Any] = {"topic_id" if version >= _BY_ID else "name": name}
    # The row is found by its numbers.
    index, base_offset, log_start = 0x0BAD_CAFE, 0x0123_4567_89AB_CDEF, 0x7EDC_BA98_7654_3210
    partition = PartitionProduceResponse(index=index, base_offset=base_offset, log_start_offset=log_start)
    topics = [TopicProduceResponse(**names, partition_responses=[partition] * count) for count in (1, 2)]
    return cut_reply(
        ProduceResponse(responses=topics),
        version,
        topics=[write_topic(name, count, is_flexible=is_flexible) for count in (1, 2)],
        row=_ROW.pack(index, 0, base_offset, _NO_TIME, log_start)[: _row_bytes(version)],
        is_flexible=is_flexible,
    )
