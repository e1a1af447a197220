"""`read_assignment` reads which partitions a member of a group was given, from the bytes that its assignor wrote."""

from struct import Struct
from typing import Final

from penstock.client.metadata import TopicPartition
from penstock.protocol import codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.schemas.embedded import ConsumerProtocolAssignment

CONSUMER: Final = "consumer"
"""The protocol type whose assignments can be read; other types have formats of their own."""

_VERSION: Final = Struct(">h")


def read_assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions, sorted; none at all if nothing was assigned; None if the bytes are something else."""
    if not data:
        return ()
    if len(data) < _VERSION.size or (version := _VERSION.unpack_from(data)[0]) < 0:
        return None
    # A later version begins like the last one that is known.
    known = min(version, ConsumerProtocolAssignment.schema.versions.last)
    try:
        message, _ = codec.decoder(ConsumerProtocolAssignment, known)(memoryview(data), _VERSION.size)
    except DecodeError:
        return None
    return tuple(
        sorted(
            TopicPartition(topic.topic, partition)
            for topic in message.assigned_partitions
            for partition in topic.partitions
        )
    )
