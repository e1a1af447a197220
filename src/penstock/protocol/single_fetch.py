"""A Fetch request for one partition without a session: read, and answered with records, without the messages of the
tables, several times as fast.

As with `single_produce`, what a consumer's requests begin and end with is the same each time, and is remembered along
with how replies look; the tables made those once, with marks in the places of the numbers and of the records.
"""

from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.protocol.apis import api
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from penstock.protocol.session import Request, write_response
from penstock.protocol.varint import uvarint

FIRST_VERSION: Final = 12
"""The first flexible version; older ones are left to the tables."""
_BY_ID: Final = 13
_WITHOUT_REPLICA: Final = 15


class Target(NamedTuple):
    """What requests with one beginning and end ask for."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topic: str | bytes
    """Its name, or its id from version 13 on."""
    partition: int
    reply: "ReplyForm"


class Position(NamedTuple):
    """What changes from one request to the next."""

    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


def read_single(body: memoryview, version: int) -> tuple[Target, Position] | None:
    """What the request says, or None: then the tables have to read it."""
    start = _START_WITHOUT_REPLICA if version >= _WITHOUT_REPLICA else _START_SIZE
    try:
        behind_topic = start + (16 if version >= _BY_ID else body[start])
        beginning = bytes(body[: behind_topic + _INDEX.size])
        end = bytes(body[len(beginning) + _POSITION.size :])
        target = _targets.get((version, beginning, end)) or _learn(version, beginning, end)
        if target is None:
            return None
        return target, _new(Position, _POSITION.unpack_from(body, len(beginning)))
    except (IndexError, ValueError):
        return None


class ReplyForm:
    """A reply with records and no error, but for its numbers and the records themselves."""

    __slots__ = ("_before", "_behind", "_between", "_size")

    def __init__(self, before: bytes, between: bytes, behind: bytes) -> None:
        self._before = before
        self._between = between
        self._behind = behind
        self._size = 4 + len(before) + _NUMBERS.size + len(between) + len(behind)

    def write(
        self, correlation_id: int, high_watermark: int, last_stable_offset: int, log_start: int, records: Any
    ) -> list[Any]:
        """Framed, in chunks, the records as they are in the middle."""
        size = len(records)
        length = uvarint(size + 1)
        head = _FRAME.pack(self._size + len(length) + size, correlation_id)
        numbers = _NUMBERS.pack(high_watermark, last_stable_offset, log_start)
        return [head + self._before + numbers + self._between + length, records, self._behind]


_new = tuple.__new__
_FRAME: Final = Struct(">ii")
_NUMBERS: Final = Struct(">qqq")
# Replica, wait, least and most bytes, isolation level, session and its epoch, and the number of topics.
_START: Final = Struct(">iiiibiib")
_START_SIZE: Final = _START.size
_START_WITHOUT_REPLICA: Final = _START.size - 4
_INDEX: Final = Struct(">bi")
_POSITION: Final = Struct(">iqiqi")
_ONE: Final = 2
_NO_SESSION: Final = (0, -1)
# Empty tagged fields of partition and topic, and no topics that a session would forget.
_END_STARTS: Final = b"\0\0\1"
_REMEMBERED: Final = 10_000
_targets: dict[tuple[int, bytes, bytes], Target] = {}


def _learn(version: int, beginning: bytes, end: bytes) -> Target | None:
    has_replica = version < _WITHOUT_REPLICA
    # A consumer is no replica, and from version 15 on does not say so.
    whole = beginning if has_replica else b"\xff" * 4 + beginning
    if version < FIRST_VERSION or len(whole) < _START.size + _INDEX.size:
        return None
    replica, max_wait_ms, min_bytes, max_bytes, isolation, session, epoch, topics = _START.unpack_from(whole)
    partitions, index = _INDEX.unpack_from(whole, len(whole) - _INDEX.size)
    topic: str | bytes = whole[_START.size : -_INDEX.size]
    if (replica, session, epoch, topics, partitions) != (-1, *_NO_SESSION, _ONE, _ONE):
        return None
    if version < _BY_ID:
        if not 2 <= whole[_START.size] < 0x80:
            return None
        topic = str(whole[_START.size + 1 : -_INDEX.size], "utf-8")
    # A rack, whose length is in one byte, and no tagged fields.
    if not end.startswith(_END_STARTS) or not 1 <= end[3] < 0x80 or len(end) != 4 + end[3] or end[-1] != 0:
        return None
    if len(_targets) >= _REMEMBERED:
        _targets.clear()
    form = _reply_form(version, topic, index, isolation)
    target = Target(max_wait_ms, min_bytes, max_bytes, topic, index, form)
    _targets[version, beginning, end] = target
    return target


def _reply_form(version: int, topic: str | bytes, index: int, isolation: int) -> ReplyForm:
    marks = (0x0123_4567_89AB_CDEF, 0x1122_3344_5566_7788, 0x7EDC_BA98_7654_3210)
    records = b"the records"
    partition = PartitionData(
        partition_index=index,
        high_watermark=marks[0],
        last_stable_offset=marks[1],
        log_start_offset=marks[2],
        aborted_transactions=() if isolation == 1 else None,
        records=records,
    )
    names: dict[str, Any] = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    response = FetchResponse(responses=[FetchableTopicResponse(**names, partitions=[partition])])
    key = FetchRequest.schema.key
    assert key is not None
    written = b"".join(write_response(Request(api(key), version, 0, None, memoryview(b"")), response, version))
    before, _, rest = written[_FRAME.size :].partition(_NUMBERS.pack(*marks))
    between, _, behind = rest.partition(uvarint(len(records) + 1) + records)
    return ReplyForm(before, between, behind)
