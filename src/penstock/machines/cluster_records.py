"""The records of the metadata log, each of which changes one thing in the image of the cluster, and their encoding.

    {"penstock": "0.1.0", "records": [{"type": "topic", "topic_id": "<base64>", ..., "version": 1}, ...]}

One entry of the log is such a document: the Penstock that wrote it, and records that belong together. Within a version
a record may gain a field that has a default and that an older reader may overlook. Anything else is a new version, or
a new type, which is written only once every broker can read it.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from penstock import __version__

ConfigResource = Literal["topic", "broker", "cluster"]
"""Whose configs: a topic's, one broker's, or those of all brokers (with the name "")."""

NO_LEADER = -1


class BrokerRegistered(msgspec.Struct, frozen=True, tag="broker"):
    """Replaces an earlier registration of the same broker."""

    broker_id: int
    broker_epoch: int
    host: str
    port: int
    rack: str | None
    version: Literal[1] = 1


class BrokerUnregistered(msgspec.Struct, frozen=True, tag="broker-gone"):
    broker_id: int
    broker_epoch: int
    version: Literal[1] = 1


class TopicCreated(msgspec.Struct, frozen=True, tag="topic"):
    """A topic without partitions: they follow, from 0 on."""

    topic_id: bytes
    name: str
    configs: dict[str, str]
    version: Literal[1] = 1


class PartitionChanged(msgspec.Struct, frozen=True, tag="partition"):
    """The whole state of a partition, at its creation and at every change."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    version: Literal[1] = 1


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic-gone"):
    topic_id: bytes
    version: Literal[1] = 1


class ConfigChanged(msgspec.Struct, frozen=True, tag="config"):
    """What is not named keeps its value; None takes one away. A topic is named by its name, a broker by its id."""

    resource: ConfigResource
    name: str
    values: dict[str, str | None]
    version: Literal[1] = 1


class ProducerIdsAllocated(msgspec.Struct, frozen=True, tag="producer-ids"):
    """All ids below this one have been given away."""

    next_producer_id: int
    version: Literal[1] = 1


class FeatureLevel(msgspec.Struct, frozen=True, tag="feature"):
    name: str
    level: int
    version: Literal[1] = 1


Record = (
    BrokerRegistered
    | BrokerUnregistered
    | TopicCreated
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | ProducerIdsAllocated
    | FeatureLevel
)


class UnknownRecordError(Exception):
    """The log holds something that only a newer Penstock can read."""


class DamagedRecordsError(Exception):
    """An entry of the log is not what was written."""


def encode(records: Sequence[Record]) -> bytes:
    """One entry of the metadata log."""
    return _encoder.encode(_Entry(__version__, list(records)))


def decode(entry: bytes) -> list[Record]:
    """The records of an entry. What is not understood raises: to skip a record would be to disagree with the others."""
    try:
        return _decoder.decode(entry).records
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _explain(entry, str(error)) from None


class _Entry(msgspec.Struct):
    penstock: str
    records: list[Record]


class _Head(msgspec.Struct):
    type: str
    version: int


class _EntryOfHeads(msgspec.Struct):
    penstock: str
    records: list[_Head]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Entry)
_head_decoder = msgspec.json.Decoder(_EntryOfHeads)


def _newest_versions() -> dict[str, int]:
    versions = {}
    for kind in get_args(Record):
        *_, field = msgspec.structs.fields(kind)
        versions[str(kind.__struct_config__.tag)] = max(get_args(field.type))
    return versions


_NEWEST = _newest_versions()


def _explain(entry: bytes, reason: str) -> Exception:
    """Whether an entry that cannot be decoded is from the future or damaged."""
    try:
        heads = _head_decoder.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _damaged(reason)
    for head in heads.records:
        newest = _NEWEST.get(head.type)
        if newest is None or head.version > newest:
            known = "does not know this type" if newest is None else f"reads up to version {newest}"
            return UnknownRecordError(
                f"the metadata log holds a record {head.type!r} of version {head.version}, written by Penstock "
                f"{heads.penstock}; this is Penstock {__version__}, which {known}: "
                f"upgrade this broker to {heads.penstock} or newer"
            )
    return _damaged(reason)


def _damaged(reason: str) -> DamagedRecordsError:
    return DamagedRecordsError(
        f"an entry of the metadata log is damaged ({reason}); restore the metadata store from a backup"
    )
