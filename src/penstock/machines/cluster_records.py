"""Defines the records of the metadata log, each of which changes one thing in the image of the cluster, and encodes
them.

    entry    crc-32 (4 bytes)  msgpack [penstock, controller_epoch, index, [record, ...]]
    record   ["topic:1", topic_id, name, configs]

An entry says which Penstock wrote it, for which controller epoch and at which index, so that a reader notices an entry
that is not where it belongs. The first item of a record is its type and version. Within a version a record may gain an
item at its end that has a default and that an older reader may overlook. Anything else is a new version, or a new type,
which is written only once every broker can read it.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal, get_args

import msgspec

from penstock import __version__

ConfigResource = Literal["topic", "broker", "cluster"]
"""What configs belong to: a topic, one broker, or all brokers (with the name "")."""

Listeners = dict[str, tuple[str, int]]
"""The advertised host and port of each listener of a broker, by the listener's name."""

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1


class PartitionImage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`leader` is -1 while no broker may lead. Replicas are in order of preference. If they are being changed, it is a
    `ReassignedPartition`."""

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int

    @property
    def adding(self) -> tuple[int, ...]:
        """Replicas that were added and have not been in sync all at once yet."""
        return ()


class ReassignedPartition(PartitionImage, frozen=True, array_like=True, gc=False):
    """`adding` are replicas, too. They do not count for how many in-sync replicas acks=all needs."""

    adding: tuple[int, ...]


class ControllerElected(msgspec.Struct, frozen=True, array_like=True, tag="controller:1"):
    """The first record of every controller: what follows was decided by this broker."""

    broker_id: int
    controller_epoch: int


class BrokerRegistered(msgspec.Struct, frozen=True, array_like=True, tag="broker:1"):
    """The broker is alive. Replaces an earlier registration of the same broker.

    `folder` is the id of its data folder, `home_folder` that of the folder in which its replicas are."""

    broker_id: int
    broker_epoch: int
    listeners: Listeners
    rack: str | None
    folder: str
    home_folder: str


class BrokerFenced(msgspec.Struct, frozen=True, array_like=True, tag="broker-fenced:1"):
    """The broker is no longer alive; it stays known, with its replicas."""

    broker_id: int
    broker_epoch: int


class BrokerUnregistered(msgspec.Struct, frozen=True, array_like=True, tag="broker-gone:1"):
    broker_id: int
    broker_epoch: int


class TopicCreated(msgspec.Struct, frozen=True, array_like=True, tag="topic:1"):
    """A topic without partitions: they follow, from 0 on."""

    topic_id: bytes
    name: str
    configs: dict[str, str]


class PartitionsCreated(msgspec.Struct, frozen=True, array_like=True, tag="partitions:1"):
    """Partitions from `first` on, by their replicas. All of these are in sync, the first of them leads."""

    topic_id: bytes
    first: int
    replicas: tuple[tuple[int, ...], ...]


class PartitionsChanged(msgspec.Struct, frozen=True, array_like=True, tag="partitions-changed:1"):
    """The whole new state of some partitions of a topic. In a snapshot it creates them, too."""

    topic_id: bytes
    changes: tuple[PartitionImage, ...]


class PartitionsReassigned(msgspec.Struct, frozen=True, array_like=True, tag="partitions-reassigned:1"):
    """As `PartitionsChanged`, of partitions whose replicas are being changed."""

    topic_id: bytes
    changes: tuple[ReassignedPartition, ...]


class TopicDeleted(msgspec.Struct, frozen=True, array_like=True, tag="topic-gone:1"):
    topic_id: bytes


class ConfigChanged(msgspec.Struct, frozen=True, array_like=True, tag="config:1"):
    """What is not named keeps its value; None takes one away. A topic is named by its name, a broker by its id."""

    resource: ConfigResource
    name: str
    values: dict[str, str | None]


class ProducerIdsAllocated(msgspec.Struct, frozen=True, array_like=True, tag="producer-ids:1"):
    """All ids below this one have been given away."""

    next_producer_id: int


class FeatureLevel(msgspec.Struct, frozen=True, array_like=True, tag="feature:1"):
    name: str
    level: int


Record = (
    ControllerElected
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnregistered
    | TopicCreated
    | PartitionsCreated
    | PartitionsChanged
    | PartitionsReassigned
    | TopicDeleted
    | ConfigChanged
    | ProducerIdsAllocated
    | FeatureLevel
)


def changes_of(topic_id: bytes, changes: Iterable[PartitionImage]) -> list[Record]:
    """Records with the new states of some partitions of a topic, in this order."""
    records: list[Record] = []
    for is_reassigned, run in groupby(changes, lambda change: isinstance(change, ReassignedPartition)):
        kind = PartitionsReassigned if is_reassigned else PartitionsChanged
        records.append(kind(topic_id, tuple(run)))  # type: ignore[arg-type]  # the runs are of one kind each
    return records


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log, or a snapshot: then `index` is that of the last entry in it."""

    penstock: str
    controller_epoch: int
    index: int
    records: list[Record]


class UnknownRecordError(Exception):
    """The log holds something that only a newer Penstock can read."""


class DamagedRecordsError(Exception):
    """An entry of the log is not what was written."""


def encode(records: Sequence[Record], *, controller_epoch: int, index: int) -> bytes:
    """One entry of the metadata log, or a snapshot as of this index."""
    body = _encoder.encode(_Body(__version__, controller_epoch, index, list(records)))
    return zlib.crc32(body).to_bytes(_CRC_BYTES, "big") + body


def decode(entry: bytes) -> Entry:
    """What is not understood raises: to skip a record would be to disagree with the other brokers."""
    body = memoryview(entry)[_CRC_BYTES:]
    if zlib.crc32(body) != int.from_bytes(entry[:_CRC_BYTES], "big"):
        raise _damaged("its checksum is wrong")
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _explain(body, str(error)) from None
    return Entry(found.penstock, found.controller_epoch, found.index, found.records)


def split(records: Sequence[Record], max_bytes: int) -> list[list[Record]]:
    """Records in portions that each fit into an entry. A record about many partitions is cut; another that is too large
    has a portion of its own, which the store refuses."""
    room = max_bytes - len(encode([], controller_epoch=_LARGEST, index=_LARGEST)) - _COUNT_BYTES
    portions: list[list[Record]] = []
    left = 0
    for record, size in _pieces(records, room):
        if not portions or size > left:
            portions.append([])
            left = room
        portions[-1].append(record)
        left -= size
    return portions


def _pieces(records: Sequence[Record], room: int) -> Iterator[tuple[Record, int]]:
    """Each record, or what it was cut into, and its size."""
    for record in records:
        size = len(_encoder.encode(record))
        if size <= room:
            yield record, size
        elif isinstance(record, PartitionsCreated) and (half := len(record.replicas) // 2):
            first, second = record.replicas[:half], record.replicas[half:]
            topic_id = record.topic_id
            yield from _pieces((PartitionsCreated(topic_id, record.first, first),), room)
            yield from _pieces((PartitionsCreated(topic_id, record.first + half, second),), room)
        elif isinstance(record, PartitionsChanged | PartitionsReassigned) and (half := len(record.changes) // 2):
            for changes in (record.changes[:half], record.changes[half:]):
                yield from _pieces(changes_of(record.topic_id, changes), room)
        else:
            yield record, size


class _Body(msgspec.Struct, array_like=True):
    penstock: str
    controller_epoch: int
    index: int
    records: list[Record]


class _Head(msgspec.Struct, array_like=True):
    kind: str


class _BodyOfHeads(msgspec.Struct, array_like=True):
    penstock: str
    controller_epoch: int
    index: int
    records: list[_Head]


_CRC_BYTES: Final = 4
# What msgpack takes to say how many records follow, beyond the byte for none.
_COUNT_BYTES: Final = 4
_LARGEST: Final = 2**63 - 1

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)
_head_decoder = msgspec.msgpack.Decoder(_BodyOfHeads)
_KNOWN: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Record))


def _explain(body: memoryview, reason: str) -> Exception:
    """Whether an entry that cannot be decoded is from the future or damaged."""
    try:
        heads = _head_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _damaged(reason)
    for head in heads.records:
        if head.kind not in _KNOWN:
            return _unknown(head.kind, heads.penstock)
    return _damaged(reason)


def _unknown(kind: str, penstock: str) -> UnknownRecordError:
    name, _, version = kind.rpartition(":")
    known = [other for other in _KNOWN if other.rpartition(":")[0] == name]
    reads = f"reads {' and '.join(sorted(known))}" if known else "does not know this type"
    return UnknownRecordError(
        f"the metadata log holds a record {name!r} of version {version}, written by Penstock {penstock}; this is "
        f"Penstock {__version__}, which {reads}: upgrade this broker to {penstock} or newer"
    )


def _damaged(reason: str) -> DamagedRecordsError:
    return DamagedRecordsError(
        f"an entry of the metadata log is damaged ({reason}); restore the metadata store from a backup"
    )
