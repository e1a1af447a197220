"""Encodes and decodes the records of `__consumer_offsets`, in Kafka's own format, so that its tools can read them.

A key begins with the type of the record, a value with a version. No value: what the key names is gone.

    key    | type = 1  int16 | group  string | topic  string | partition  int32 |
    value  | version  int16  | offset  int64 | leader epoch  int32 (3+) | metadata  string | commit timestamp  int64 |
           | expire timestamp  int64 (1) | tagged fields (4+): 0 = topic id  uuid |

    key    | type = 2  int16 | group  string |
    value  | version  int16  | protocol type  string | generation  int32 | protocol  string? | leader  string? |
           | state timestamp  int64 (2+) | members  array of:                                                   |
           |     member id  string | instance id  string? (3+) | client id  string | client host  string        |
           |     rebalance timeout  int32 (1+) | session timeout  int32 | subscription  bytes | assignment  bytes |

Strings, bytes and arrays carry their length as the wire does, from version 4 on in the compact form. Written are, as by
Kafka 4.2, version 4 of offsets (1 if the client asked for an end of their life) and version 3 of groups; all are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol import codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import ZERO_UUID, Message, row
from penstock.protocol.varint import uvarint


class OffsetCommitted(NamedTuple):
    """A tuple, since a commit makes one for each partition, and a frozen dataclass takes five times as long."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """When the offset may go, if its client said so (it can in versions 2 to 4 of the request)."""
    topic_id: bytes = ZERO_UUID


@dataclass(slots=True, frozen=True)
class OffsetForgotten:
    group: str
    topic: str
    partition: int


@dataclass(slots=True, frozen=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """What the member said under the protocol that was chosen."""
    assignment: bytes


@dataclass(slots=True, frozen=True)
class GroupStored:
    """A group as a new coordinator finds it: stable if it has members, else empty."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


@dataclass(slots=True, frozen=True)
class GroupForgotten:
    group: str


GroupRecord = OffsetCommitted | OffsetForgotten | GroupStored | GroupForgotten


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record of the log."""
    match record:
        case OffsetCommitted():
            return _offset_key(record.group, record.topic, record.partition), _offset_value(record)
        case OffsetForgotten():
            return _offset_key(record.group, record.topic, record.partition), None
        case GroupStored():
            return _group_key(record.group), _group_value(record)
        case GroupForgotten():
            return _group_key(record.group), None


def decode(key: bytes | memoryview | None, value: bytes | memoryview | None) -> GroupRecord | None:
    """The record, or None if it is of a type that is not ours to read. Raises DecodeError if it is damaged."""
    if key is None or len(key) < _SHORT.size:
        raise DecodeError("a record of the log of groups has no key that says what it is")
    match _SHORT.unpack_from(key)[0]:
        case 0 | 1:
            return _decode_offset(key, value)
        case 2:
            return _decode_group(key, value)
        case _:
            return None


OFFSET_TYPE: Final = 1
GROUP_TYPE: Final = 2
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_LONG: Final = Struct(">q")
_OFFSET_FRONT: Final = Struct(">hqi")
_NO_TAGS: Final = uvarint(0)
# One tag, number 0, of 16 bytes.
_TOPIC_ID_TAG: Final = uvarint(1) + uvarint(0) + uvarint(16)
_OFFSET_TYPE_BYTES: Final = _SHORT.pack(OFFSET_TYPE)
_GROUP_TYPE_BYTES: Final = _SHORT.pack(GROUP_TYPE)
_NEWEST_VALUE: Final = 4
_OFFSET_VERSION: Final = 4
_OFFSET_VERSION_WITH_EXPIRY: Final = 1
_GROUP_VERSION: Final = 3


class _OffsetKey(Message, versions="0"):
    group: str = row("string", "0+", default="")
    topic: str = row("string", "0+", default="")
    partition: int = row("int32", "0+", default=0)


class _OffsetValue(Message, versions="0-4", flexible="4+"):
    offset: int = row("int64", "0+", default=0)
    leader_epoch: int = row("int32", "3+", default=-1, ignorable=True)
    metadata: str = row("string", "0+", default="")
    commit_timestamp: int = row("int64", "0+", default=0)
    expire_timestamp: int = row("int64", "1", default=-1, ignorable=True)
    topic_id: bytes = row("uuid", "4+", default=ZERO_UUID, tag=0, tagged="4+", ignorable=True)


class _GroupKey(Message, versions="0"):
    group: str = row("string", "0+", default="")


class _Member(Message):
    member_id: str = row("string", "0+", default="")
    instance_id: str | None = row("string", "3+", default=None, nullable="3+", ignorable=True)
    client_id: str = row("string", "0+", default="")
    client_host: str = row("string", "0+", default="")
    rebalance_timeout: int = row("int32", "1+", default=-1, ignorable=True)
    session_timeout: int = row("int32", "0+", default=0)
    subscription: bytes = row("bytes", "0+", default=b"")
    assignment: bytes = row("bytes", "0+", default=b"")


class _GroupValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = row("string", "0+", default="")
    generation: int = row("int32", "0+", default=0)
    protocol: str | None = row("string", "0+", default="", nullable="0+")
    leader: str | None = row("string", "0+", default="", nullable="0+")
    state_timestamp: int = row("int64", "2+", default=-1, ignorable=True)
    members: Sequence[_Member] = row([_Member], "0+", default=())


def _offset_key(group: str, topic: str, partition: int) -> bytes:
    return _before_partition(group, topic) + _INT.pack(partition)


@lru_cache(maxsize=10_000)
def _before_partition(group: str, topic: str) -> bytes:
    # Groups commit the same partitions again and again, so this is remembered: all but the number at the end.
    return _OFFSET_TYPE_BYTES + codec.encode(_OffsetKey(group=group, topic=topic), 0)[: -_INT.size]


def _group_key(group: str) -> bytes:
    return _GROUP_TYPE_BYTES + codec.encode(_GroupKey(group=group), 0)


def _offset_value(record: OffsetCommitted) -> bytes:
    if record.expire_timestamp_ms == -1:
        # Written by hand: a commit is a record for each partition, and this takes a tenth of the time.
        metadata, topic_id = record.metadata.encode(), record.topic_id
        return b"".join(
            (
                _OFFSET_FRONT.pack(_OFFSET_VERSION, record.offset, record.leader_epoch),
                uvarint(len(metadata) + 1),
                metadata,
                _LONG.pack(record.commit_timestamp_ms),
                _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id,
            )
        )
    version = _OFFSET_VERSION_WITH_EXPIRY
    value = _OffsetValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp_ms,
        expire_timestamp=record.expire_timestamp_ms,
        topic_id=record.topic_id,
    )
    return _SHORT.pack(version) + codec.encode(value, version)


def _group_value(record: GroupStored) -> bytes:
    value = _GroupValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        state_timestamp=record.state_timestamp_ms,
        members=[
            _Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in record.members
        ],
    )
    return _SHORT.pack(_GROUP_VERSION) + codec.encode(value, _GROUP_VERSION)


def _decode_offset(key: bytes | memoryview, value: bytes | memoryview | None) -> GroupRecord:
    named = codec.decode(_OffsetKey, 0, key, _SHORT.size)
    if value is None:
        return OffsetForgotten(named.group, named.topic, named.partition)
    held = codec.decode(_OffsetValue, _version(value), value, _SHORT.size)
    return OffsetCommitted(
        named.group,
        named.topic,
        named.partition,
        held.offset,
        held.leader_epoch,
        held.metadata,
        held.commit_timestamp,
        held.expire_timestamp,
        held.topic_id,
    )


def _decode_group(key: bytes | memoryview, value: bytes | memoryview | None) -> GroupRecord:
    group = codec.decode(_GroupKey, 0, key, _SHORT.size).group
    if value is None:
        return GroupForgotten(group)
    held = codec.decode(_GroupValue, _version(value), value, _SHORT.size)
    members = tuple(
        StoredMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            # Version 0 knows one timeout, which is both.
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            member.session_timeout,
            member.subscription,
            member.assignment,
        )
        for member in held.members
    )
    return GroupStored(
        group, held.protocol_type, held.generation, held.protocol, held.leader, held.state_timestamp, members
    )


def _version(value: bytes | memoryview) -> int:
    if len(value) < _SHORT.size:
        raise DecodeError("a value in the log of groups ends before its version")
    version: int = _SHORT.unpack_from(value)[0]
    if not 0 <= version <= _NEWEST_VALUE:
        raise DecodeError(
            f"a value in the log of groups has version {version}, and this Penstock reads 0 to {_NEWEST_VALUE}: "
            "upgrade it to the version that wrote the log"
        )
    return version
