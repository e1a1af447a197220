"""The shape that nearly every Produce request has: one topic, one partition, no transaction. Read and answered without
the messages of the tables, several times as fast.

A producer's requests begin alike, byte by byte, up to the length of the records: that beginning is the key under which
it is remembered what they say, and how replies to them look. The tables make the replies once, with marks in the places
of the numbers.
"""

from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.protocol.apis import api
from penstock.protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.protocol.session import Request, write_response

FIRST_VERSION: Final = 9
"""The first flexible version; older ones are left to the tables."""
_BY_ID: Final = 13


class Target(NamedTuple):
    """Where requests with one beginning want to go."""

    acks: int
    topic: str | bytes
    """Its name, or its id from version 13 on."""
    partition: int
    reply: "ReplyForm"


def read_single(body: memoryview, version: int) -> tuple[Target, memoryview] | None:
    """What the request says and its records, or None: then the tables have to read it, and to tell what is wrong."""
    try:
        # Behind transactional id, acks, timeout and the number of topics come the topic, the number of partitions,
        # and the partition's index.
        end = 29 if version >= _BY_ID else 13 + body[8]
        beginning = bytes(body[:end])
        target = _targets.get((version, beginning))
        if target is None and (len(beginning) < end or (target := _learn(version, beginning)) is None):
            return None
        size, shift = 0, 0
        while (byte := body[end]) >= 0x80:
            size |= (byte & 0x7F) << shift
            shift += 7
            end += 1
            if shift > 28:
                return None
        begin = end + 1
        end = begin + (size | byte << shift) - 1
        # Nothing else may follow but three empty sections of tagged fields.
        if body[end:] != _NO_TAGS or end <= begin:
            return None
        return target, body[begin:end]
    except IndexError:
        return None


class ReplyForm:
    """A reply that says yes, but for its numbers."""

    __slots__ = ("_before", "_behind", "_size")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self._before = before
        self._behind = behind
        self._size = 4 + len(before) + _NUMBERS.size + len(behind)

    def write(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start: int) -> bytes:
        """Framed, ready to be sent."""
        numbers = _NUMBERS.pack(base_offset, log_append_time_ms, log_start)
        return _FRAME.pack(self._size, correlation_id) + self._before + numbers + self._behind


_NO_TAGS: Final = bytes(3)
_FRAME: Final = Struct(">ii")
_NUMBERS: Final = Struct(">qqq")
# Acks and timeout behind a transactional id that is null; one topic. The names of topics are not empty, and short
# enough that one byte holds their length.
_START: Final = Struct(">bhib")
_INDEX: Final = Struct(">bi")
_ONE: Final = 2
_REMEMBERED: Final = 10_000
_targets: dict[tuple[int, bytes], Target] = {}


def _learn(version: int, beginning: bytes) -> Target | None:
    if version < FIRST_VERSION:
        return None
    transactional_id, acks, _, topics = _START.unpack_from(beginning)
    partitions, index = _INDEX.unpack_from(beginning, len(beginning) - _INDEX.size)
    topic: str | bytes = beginning[_START.size : -_INDEX.size]
    if transactional_id != 0 or topics != _ONE or partitions != _ONE:
        return None
    if version < _BY_ID:
        if not 2 <= beginning[_START.size] < 0x80:
            return None
        try:
            topic = str(beginning[_START.size + 1 : -_INDEX.size], "utf-8")
        except UnicodeDecodeError:
            return None
    if len(_targets) >= _REMEMBERED:
        _targets.clear()
    target = Target(acks, topic, index, _reply_form(version, topic, index))
    _targets[version, beginning] = target
    return target


def _reply_form(version: int, topic: str | bytes, index: int) -> ReplyForm:
    marks = (0x0123_4567_89AB_CDEF, 0x1122_3344_5566_7788, 0x7EDC_BA98_7654_3210)
    partition = PartitionProduceResponse(
        index=index, base_offset=marks[0], log_append_time_ms=marks[1], log_start_offset=marks[2]
    )
    names: dict[str, Any] = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
    response = ProduceResponse(responses=[TopicProduceResponse(**names, partition_responses=[partition])])
    key = ProduceRequest.schema.key
    assert key is not None
    written = b"".join(write_response(Request(api(key), version, 0, None, memoryview(b"")), response, version))
    before, _, behind = written[_FRAME.size :].partition(_NUMBERS.pack(*marks))
    return ReplyForm(before, behind)
